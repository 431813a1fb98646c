//! Allocating and freeing memory that others can name: together, in groups, and alone.

use crate::{
    Armci, Error, Group, Result,
    error::{count, not_null},
    memory::Memory,
};

/// What a process tells of its part of an allocation.
const NOTHING: u64 = u64::MAX;
const FAILED: u64 = u64::MAX - 1;

impl Armci {
    /// Allocates memory of all processes, as many bytes of each as it asks for: where it is, by process;
    /// null where it asked for none. Collective. ARMCI's `Malloc`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Number`]; [`Error::Elsewhere`] if another process had one of
    /// them. Nothing is kept then.
    pub fn malloc(&self, bytes: i64) -> Result<Vec<*mut u8>> {
        self.malloc_wanted(count(bytes, 0, "the number of bytes"))
    }

    /// As [`malloc`](Self::malloc), of a process that may know already that it cannot.
    pub(crate) fn malloc_wanted(&self, wanted: Result<usize>) -> Result<Vec<*mut u8>> {
        let all: Vec<usize> = (0..self.job.size() as usize).collect();
        self.malloc_with(wanted, &all, |mine| Ok(self.job.all_gather(&[mine])?))
    }

    /// As [`malloc`](Self::malloc), of the members of a group, by member. ARMCI's `Malloc_group`.
    ///
    /// # Errors
    /// As there; [`Error::NoGroup`].
    pub fn malloc_group(&self, bytes: i64, group: Group) -> Result<Vec<*mut u8>> {
        self.malloc_group_wanted(count(bytes, 0, "the number of bytes"), group)
    }

    /// As [`malloc_wanted`](Self::malloc_wanted), of the members of a group.
    pub(crate) fn malloc_group_wanted(
        &self,
        wanted: Result<usize>,
        group: Group,
    ) -> Result<Vec<*mut u8>> {
        let members = self.members(group)?;
        self.malloc_with(wanted, &members, |mine| self.group_all_gather(group, mine))
    }

    fn malloc_with(
        &self,
        wanted: Result<usize>,
        members: &[usize],
        gather: impl FnOnce([u64; 2]) -> Result<Vec<[u64; 2]>>,
    ) -> Result<Vec<*mut u8>> {
        let taken = wanted.and_then(|bytes| match bytes {
            0 => Ok(None),
            bytes => Ok(Some((self.memory.take(&self.job, bytes)?, bytes))),
        });
        let mine = match &taken {
            Ok(Some((offset, bytes))) => [*offset as u64, *bytes as u64],
            Ok(None) => [NOTHING, 0],
            Err(_) => [FAILED, 0],
        };
        let parts = gather(mine);
        let give_back = || {
            if let Ok(Some((offset, _))) = &taken {
                self.memory.give(*offset);
            }
        };
        let parts = parts.inspect_err(|_| give_back())?;
        if let Some(member) = parts.iter().position(|[offset, _]| *offset == FAILED) {
            give_back();
            taken?;
            return Err(Error::Elsewhere {
                proc: members[member],
            });
        }
        let note = |(proc, [offset, bytes]): (&usize, &[u64; 2])| {
            if *offset == NOTHING {
                return std::ptr::null_mut();
            }
            let (offset, bytes) = (*offset as usize, *bytes as usize);
            self.memory.note(*proc, offset, bytes);
            self.memory.address(*proc, offset)
        };
        let addresses = members.iter().zip(&parts).map(note).collect();
        let some = members
            .iter()
            .zip(&parts)
            .filter(|(_, [offset, _])| *offset != NOTHING);
        let parts = some.map(|(proc, [offset, _])| (*proc, *offset as usize));
        self.memory.note_together(parts.collect());
        Ok(addresses)
    }

    /// Frees this process's part of an allocation, given the start of any process's part. ARMCI's `Free`, which waits
    /// for no other process. The program must ensure that others are done with the part, as by a barrier.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`], [`Error::InsideAllocation`]. To free an empty part, which is null, does nothing.
    pub fn free(&self, at: *mut u8) -> Result<()> {
        if at.is_null() {
            return Ok(());
        }
        let unknown = Error::UnknownAddress {
            proc: self.me(),
            addr: at.addr(),
        };
        let (proc, offset, before) = self.memory.whose(at).ok_or(unknown)?;
        if before > 0 {
            return Err(Error::InsideAllocation {
                addr: at.addr(),
                start: at.addr() - before,
            });
        }
        if let Some(own) = self.memory.forget(proc, offset) {
            self.memory.give(own);
        }
        Ok(())
    }

    /// Allocates memory of this process alone, which others name once they are
    /// [told](Self::attach) of it. It is registered as what [`malloc`](Self::malloc) gives; of no bytes it
    /// is null. ARMCI's `Malloc_local`, and `Memget`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Number`].
    pub fn malloc_local(&self, bytes: i64) -> Result<*mut u8> {
        let bytes = count(bytes, 0, "the number of bytes")?;
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let offset = self.memory.take(&self.job, bytes)?;
        self.memory.note(self.me, offset, bytes);
        Ok(self.memory.address(self.me, offset))
    }

    /// Notes that a process allocated bytes by itself, by the address that it has for them: by what
    /// address this process calls them. Of none there is nothing to note. ARMCI's `Memat`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::UnknownAddress`], [`Error::Null`].
    pub fn attach(&self, at: *mut u8, bytes: usize, proc: i32) -> Result<*mut u8> {
        let number = self.memory.process(proc)?;
        if bytes == 0 {
            return Ok(at);
        }
        not_null(at, "the address of an allocation")?;
        let unknown = Error::UnknownAddress {
            proc,
            addr: at.addr(),
        };
        let offset = self.memory.of_its_owner(number, at, bytes).ok_or(unknown)?;
        if number != self.me {
            self.memory.note(number, offset, bytes);
        }
        Ok(self.memory.address(number, offset))
    }

    /// By what address this process, `proc`, calls memory of its own that another one named. What ARMCI did not allocate is called what it was. ARMCI's `Gpc_translate`.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    pub fn translate(&self, at: *mut u8, proc: i32, from: i32) -> Result<*mut u8> {
        let (number, from) = (self.memory.process(proc)?, self.memory.process(from)?);
        let offset = at.addr().wrapping_sub(self.memory.base_at(from));
        match number == self.me && offset < self.memory.arena.len() {
            true => Ok(self.memory.address(number, offset)),
            false => Ok(at),
        }
    }

    /// Says how all processes can do something, before they do: what this one found, or that another one
    /// cannot. Collective.
    pub(crate) fn all_can<T>(&self, mine: Result<T>) -> Result<T> {
        let all = self.job.all_gather(&[u64::from(mine.is_err())])?;
        let refused = all.iter().position(|refused| *refused != 0);
        match (mine, refused) {
            (Ok(_), Some(proc)) => Err(Error::Elsewhere { proc }),
            (mine, _) => mine,
        }
    }
}

impl Memory {
    /// Where bytes are in a process's arena that it has at an address of its own.
    fn of_its_owner(&self, proc: usize, at: *mut u8, bytes: usize) -> Option<usize> {
        let offset = at.addr().checked_sub(self.owners_base(proc))?;
        let end = offset.checked_add(bytes)?;
        (end <= self.arena.len()).then_some(offset)
    }
}
