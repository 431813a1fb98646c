//! Sets of mutexes that a group makes for itself, as in ARMCI-MPI. [`Armci::create_mutexes`] makes
//! the mutexes of all processes.
//!
//! A mutex is a word in its process's memory. The word is 0, or 1 plus the number of the process
//! that locked the mutex. A waiter polls the word, so a set suits mutexes with little contention.

#![allow(unsafe_code)] // memory is named by its address

use std::{thread, time::Duration};

use crate::{Armci, Error, Group, Result, Rmw, error::count};

/// The number of tries before a waiter sleeps between tries.
const TRIES: u32 = 100;
/// The time that a waiter sleeps between tries.
const PAUSE: Duration = Duration::from_micros(20);

/// Mutexes of the members of a group.
pub struct MutexSet {
    group: Group,
    /// For each member: its process, the address of its words, and the number of words.
    members: Vec<(i32, *mut i64, u64)>,
    own: *mut i64,
}

// SAFETY: the addresses name memory of ARMCI, and any thread may access it through ARMCI's
// operations.
unsafe impl Send for MutexSet {}
// SAFETY: as above. A set never changes.
unsafe impl Sync for MutexSet {}

impl std::fmt::Debug for MutexSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MutexSet({:?})", self.group)
    }
}

impl Armci {
    /// Makes a set of mutexes, `number` of them for this process. Other members may make a
    /// different number. Collective over the group. ARMCI-MPI's `ARMCIX_Create_mutexes_hdl`.
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
            // SAFETY: conditions 1 and 2 concern only memory that ARMCI did not allocate, and ARMCI
            // allocated these words.
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

    /// Destroys a set that nothing uses afterwards. See
    /// [`destroy_mutex_set`](Self::destroy_mutex_set).
    pub(crate) fn end_mutex_set(&self, set: &MutexSet) -> Result<()> {
        self.group_barrier(set.group)?;
        self.free(set.own.cast())
    }

    /// Locks a mutex of process `proc`, counted among all processes. ARMCI-MPI's `ARMCIX_Lock_hdl`.
    ///
    /// # Errors
    /// [`Error::NoMember`]. [`Error::NoMutex`] if there is no such mutex. [`Error::Hydrant`], for
    /// example if the process that locked the mutex ended or is lost.
    pub fn lock_in(&self, set: &MutexSet, mutex: i32, proc: i32) -> Result<()> {
        let word = set.word(mutex, proc)?;
        // The process that held the lock at the previous try, if that try found it ended or lost.
        let (mut gone, mut tries) = (None, 0);
        loop {
            let holder = match self.try_claim(word, proc)? {
                0 => return Ok(()),
                holder => holder as u32 - 1,
            };
            match gone {
                Some((process, cause)) if process == holder => return Err(cause),
                _ => {}
            }
            // Handles messages, among them the news that a process ended.
            self.job.poll();
            let present = self.job.check_present(hydrant::Rank(holder));
            gone = present.err().map(|cause| (holder, cause.into()));
            if tries < TRIES {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
            tries += 1;
        }
    }

    /// Locks a mutex of a process if it is free. Returns true if it locked the mutex. ARMCI-MPI's
    /// `ARMCIX_Trylock_hdl`.
    ///
    /// # Errors
    /// As [`lock_in`](Self::lock_in).
    pub fn try_lock_in(&self, set: &MutexSet, mutex: i32, proc: i32) -> Result<bool> {
        let word = set.word(mutex, proc)?;
        Ok(self.try_claim(word, proc)? == 0)
    }

    /// Locks a mutex for this process if it is free. Returns the previous value of the word.
    fn try_claim(&self, word: *mut i64, proc: i32) -> Result<i64> {
        let own = i64::from(self.me()) + 1;
        self.compare_and_swap(word, 0, own, proc)
    }

    /// Completes this process's operations on the memory of `proc`, then unlocks a mutex of `proc`.
    /// ARMCI-MPI's `ARMCIX_Unlock_hdl`.
    ///
    /// # Errors
    /// As [`lock_in`](Self::lock_in); [`Error::NotLocked`].
    pub fn unlock_in(&self, set: &MutexSet, mutex: i32, proc: i32) -> Result<()> {
        let word = set.word(mutex, proc)?;
        self.fence(proc)?;
        // SAFETY: conditions 1 and 2 concern only memory that ARMCI did not allocate, and ARMCI
        // allocated this word.
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
        let index = count(mutex.into(), 0, "the number of a mutex")?;
        if (index as u64) < *number {
            Ok(at.wrapping_add(index))
        } else {
            Err(Error::NoMutex {
                mutex,
                proc,
                mutexes: *number,
            })
        }
    }
}
