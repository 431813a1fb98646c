//! Sets of mutexes that a group makes for itself, besides [those of all](Armci::create_mutexes), as in ARMCI-MPI.
//!
//! A mutex is a word at its process: the number of the process that locked it, counted from 1, or 0. A waiter retries
//! again and again, so a set suits mutexes that are seldom contended.

#![allow(unsafe_code)] // memory is named by its address

use std::{thread, time::Duration};

use crate::{Armci, Error, Group, Result, Rmw, error::count};

/// The number of tries before a waiter sleeps between tries, and the time that it sleeps.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_micros(20);

/// Mutexes of the members of a group.
pub struct MutexSet {
    group: Group,
    /// By member: the process, the address of its words, and their number.
    members: Vec<(i32, *mut i64, u64)>,
    own: *mut i64,
}

// SAFETY: the addresses name memory of ARMCI's, which any thread may reach by its operations.
unsafe impl Send for MutexSet {}
// SAFETY: as above; a set does not change.
unsafe impl Sync for MutexSet {}

impl std::fmt::Debug for MutexSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MutexSet({:?})", self.group)
    }
}

impl Armci {
    /// Makes a set of mutexes, `number` of this process; other members may make another number. Collective over the
    /// group. ARMCI-MPI's `ARMCIX_Create_mutexes_hdl`.
    ///
    /// # Errors
    /// As [`malloc_group`](Self::malloc_group).
    pub fn create_mutex_set(&self, number: i32, group: Group) -> Result<MutexSet> {
        let own = count(number.into(), 0, "the number of mutexes");
        let bytes = own.map(|number| number.max(1) * size_of::<i64>());
        let addresses = self.malloc_group_wanted(bytes, group)?;
        let processes = self.members(group)?;
        let me = self.group_rank(group)?.unwrap_or(0) as usize;
        let own = addresses[me].cast::<i64>();
        for mutex in 0..number as usize {
            // SAFETY: the memory is ARMCI's, and has as many words.
            unsafe {
                self.read_modify_write(Rmw::Swap, own.wrapping_add(mutex), 0, self.me())?;
            }
        }
        let counts = self.group_all_gather(group, [number as u64, 0])?;
        let members = processes.iter().zip(addresses).zip(counts);
        Ok(MutexSet {
            group,
            members: members
                .map(|((proc, at), [number, _])| (*proc as i32, at.cast(), number))
                .collect(),
            own,
        })
    }

    /// Destroys a set. Collective over its group. ARMCI-MPI's `ARMCIX_Destroy_mutexes_hdl`.
    ///
    /// # Errors
    /// As [`group_barrier`](Self::group_barrier).
    pub fn destroy_mutex_set(&self, set: MutexSet) -> Result<()> {
        self.end_mutex_set(&set)
    }

    /// As [`destroy_mutex_set`](Self::destroy_mutex_set), of a set that nothing uses again.
    pub(crate) fn end_mutex_set(&self, set: &MutexSet) -> Result<()> {
        self.group_barrier(set.group)?;
        self.free(set.own.cast())
    }

    /// Locks a mutex of a process, by the process's number among all. ARMCI-MPI's `ARMCIX_Lock_hdl`.
    ///
    /// # Errors
    /// [`Error::NoMember`], [`Error::NoMutex`] if there is no such mutex, [`Error::Hydrant`]; among these that the
    /// process that locked it is lost, or came to its end.
    pub fn lock_in(&self, set: &MutexSet, mutex: i32, proc: i32) -> Result<()> {
        let word = set.word(mutex, proc)?;
        // The process that locked it and does nothing more, as the try before found.
        let (mut gone, mut tries) = (None, 0);
        loop {
            let holder = match self.try_name(word, proc)? {
                0 => return Ok(()),
                holder => holder as u32 - 1,
            };
            match gone {
                Some((process, cause)) if process == holder => return Err(cause),
                _ => {}
            }
            // Looks after messages, among them the news of a process's end.
            self.job.poll();
            let present = self.job.check_present(hydrant::Rank(holder));
            gone = present.err().map(|cause| (holder, cause.into()));
            match tries < TRIES {
                true => thread::yield_now(),
                false => thread::sleep(PAUSE),
            }
            tries += 1;
        }
    }

    /// Locks a mutex of a process if it is free. Returns whether it did. ARMCI-MPI's `ARMCIX_Trylock_hdl`.
    ///
    /// # Errors
    /// As [`lock_in`](Self::lock_in).
    pub fn try_lock_in(&self, set: &MutexSet, mutex: i32, proc: i32) -> Result<bool> {
        let word = set.word(mutex, proc)?;
        Ok(self.try_name(word, proc)? == 0)
    }

    /// Locks a mutex for this process if it is free. Returns what its word was.
    fn try_name(&self, word: *mut i64, proc: i32) -> Result<i64> {
        let own = i64::from(self.me()) + 1;
        self.compare_and_swap(word, 0, own, proc)
    }

    /// Unlocks a mutex of a process, once this process's operations on that one's memory are complete. ARMCI-MPI's
    /// `ARMCIX_Unlock_hdl`.
    ///
    /// # Errors
    /// As [`lock_in`](Self::lock_in); [`Error::NotLocked`].
    pub fn unlock_in(&self, set: &MutexSet, mutex: i32, proc: i32) -> Result<()> {
        let word = set.word(mutex, proc)?;
        self.fence(proc)?;
        // SAFETY: the memory is ARMCI's.
        let before = unsafe { self.read_modify_write(Rmw::Swap, word, 0, proc)? };
        match before {
            0 => Err(Error::NotLocked { mutex, proc }),
            _ => Ok(()),
        }
    }
}

impl MutexSet {
    fn word(&self, mutex: i32, proc: i32) -> Result<*mut i64> {
        let found = self.members.iter().find(|(member, ..)| *member == proc);
        let (_, at, number) = found.ok_or(Error::NoMember {
            proc,
            members: self.members.len(),
        })?;
        let place = count(mutex.into(), 0, "the number of a mutex")?;
        match (place as u64) < *number {
            true => Ok(at.wrapping_add(place)),
            false => Err(Error::NoMutex {
                mutex,
                proc,
                mutexes: *number,
            }),
        }
    }
}
