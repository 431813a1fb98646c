//! Allocating and freeing memory that other processes can name: by all processes, by a group, or by
//! one process.

use crate::{
    Armci, Error, Group, Result,
    error::{count, not_null},
    memory::Memory,
};

/// Sent in place of an offset by a process that asked for no bytes.
const NO_BYTES: u64 = u64::MAX;
/// Sent in place of an offset by a process that could not allocate its part.
const FAILED: u64 = u64::MAX - 1;

impl Armci {
    /// Allocates memory at all processes, `bytes` bytes at this one. Returns the address of each
    /// process's part, null where a process asked for no bytes. Collective. ARMCI's `Malloc`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Number`]; [`Error::Elsewhere`] if another process had one
    /// of these errors. On an error no process keeps its part.
    pub fn malloc(&self, bytes: i64) -> Result<Vec<*mut u8>> {
        self.malloc_wanted(count(bytes, 0, "the number of bytes"))
    }

    /// As [`malloc`](Self::malloc). `wanted` is an error if this process already knows that it
    /// cannot take part.
    pub(crate) fn malloc_wanted(&self, wanted: Result<usize>) -> Result<Vec<*mut u8>> {
        let all: Vec<usize> = (0..self.job.size() as usize).collect();
        self.malloc_with(wanted, &all, |mine| Ok(self.job.all_gather(&[mine])?))
    }

    /// As [`malloc`](Self::malloc), for the members of a group, in the order of the members.
    /// ARMCI's `Malloc_group`.
    ///
    /// # Errors
    /// As [`malloc`](Self::malloc); [`Error::NoGroup`].
    pub fn malloc_group(&self, bytes: i64, group: Group) -> Result<Vec<*mut u8>> {
        self.malloc_group_wanted(count(bytes, 0, "the number of bytes"), group)
    }

    /// As [`malloc_wanted`](Self::malloc_wanted), for the members of a group.
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
            bytes => Ok(Some((self.memory.allocate(&self.job, bytes)?, bytes))),
        });
        let mine = match &taken {
            Ok(Some((offset, bytes))) => [*offset as u64, *bytes as u64],
            Ok(None) => [NO_BYTES, 0],
            Err(_) => [FAILED, 0],
        };
        let parts = gather(mine);
        let give_back = || {
            if let Ok(Some((offset, _))) = &taken {
                self.memory.free(*offset);
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
            if *offset == NO_BYTES {
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
            .filter(|(_, [offset, _])| *offset != NO_BYTES);
        let parts = some.map(|(proc, [offset, _])| (*proc, *offset as usize));
        self.memory.note_parts(parts.collect());
        Ok(addresses)
    }

    /// Frees this process's part of an allocation, given the start of any process's part. A null
    /// address does nothing. ARMCI's `Free`, which waits for no other process. The program must
    /// ensure, for example by a barrier, that other processes no longer use the part.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`], [`Error::InsideAllocation`].
    pub fn free(&self, at: *mut u8) -> Result<()> {
        if at.is_null() {
            return Ok(());
        }
        let unknown = Error::UnknownAddress {
            proc: self.me(),
            addr: at.addr(),
        };
        let (proc, offset, before) = self.memory.owner_of(at).ok_or(unknown)?;
        if before > 0 {
            return Err(Error::InsideAllocation {
                addr: at.addr(),
                start: at.addr() - before,
            });
        }
        if let Some(own) = self.memory.forget(proc, offset) {
            self.memory.free(own);
        }
        Ok(())
    }

    /// Allocates memory of this process alone. Other processes can name it after they
    /// [attach](Self::attach) it. The memory is registered like memory from
    /// [`malloc`](Self::malloc). Returns null for 0 bytes. ARMCI's `Malloc_local`, and `Memget`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Number`].
    pub fn malloc_local(&self, bytes: i64) -> Result<*mut u8> {
        let bytes = count(bytes, 0, "the number of bytes")?;
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let offset = self.memory.allocate(&self.job, bytes)?;
        self.memory.note(self.me, offset, bytes);
        Ok(self.memory.address(self.me, offset))
    }

    /// Notes an allocation that process `proc` made by itself, given the address at that process.
    /// Returns the address by which this process names the memory. Does nothing for 0 bytes.
    /// ARMCI's `Memat`.
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
        let offset = self.memory.offset_at_owner(number, at, bytes);
        let offset = offset.ok_or(unknown)?;
        if number != self.me {
            self.memory.note(number, offset, bytes);
        }
        Ok(self.memory.address(number, offset))
    }

    /// Returns the address by which this process, `proc`, names memory of its own that process
    /// `from` named by `at`. Returns an address that ARMCI did not allocate unchanged. ARMCI's
    /// `Gpc_translate`.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    pub fn translate(&self, at: *mut u8, proc: i32, from: i32) -> Result<*mut u8> {
        let (number, from) = (self.memory.process(proc)?, self.memory.process(from)?);
        let offset = at.addr().wrapping_sub(self.memory.base_at(from));
        if number == self.me && offset < self.memory.arena.len() {
            Ok(self.memory.address(number, offset))
        } else {
            Ok(at)
        }
    }

    /// Agrees that all processes can do something, before any of them does it. Returns this
    /// process's value or error, or an error that another process cannot. Collective.
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
    /// The offset of these bytes in the arena of `proc`, given their address at that process.
    fn offset_at_owner(&self, proc: usize, at: *mut u8, bytes: usize) -> Option<usize> {
        let offset = at.addr().checked_sub(self.base_at_owner(proc))?;
        let end = offset.checked_add(bytes)?;
        (end <= self.arena.len()).then_some(offset)
    }
}
