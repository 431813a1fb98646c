//! Limits on pinned memory.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    io, process,
    sync::OnceLock,
};

use hydrant_conduit::{
    Error, Rank,
    memory::{PAGE, memlock, pinnable, pinned},
};

use crate::ring::{OWN_PAGES, Unpinnable};

/// The number of rings of a rank, where much memory may be locked.
pub(crate) const SHARDS: usize = 4;

/// Bytes that must be lockable before a rank has several rings.
const PLENTY: u64 = 64 << 20;

/// The limits on pinned memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PinLimits {
    /// `RLIMIT_MEMLOCK`, if it applies to this process. The kernel counts all memory that a user
    /// pins for `io_uring` against it, in all processes together.
    locked: Option<u64>,
    /// Bytes of physical memory that may be pinned.
    physical: u64,
}

/// The bytes that a rank's process had pinned when the rank joined.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct HeldPins {
    /// A number of the process. Ranks may be threads of one process, whose pins count once.
    process: u64,
    bytes: u64,
}

impl HeldPins {
    pub(crate) fn here() -> Self {
        // Processes in different containers may have the same number by the system.
        static DRAWN: OnceLock<u64> = OnceLock::new();
        let drawn = DRAWN.get_or_init(|| RandomState::new().hash_one(()));
        Self {
            // A forked child has its parent's draw.
            process: drawn.wrapping_add(process::id().into()),
            bytes: pinned(),
        }
    }

    /// Returns the bytes that all processes have pinned.
    fn total(all: &[Self]) -> u64 {
        let mut processes = BTreeMap::new();
        for held in all {
            // Rank 0 pins some memory for a moment, which other threads may have seen.
            let least = processes.entry(held.process).or_insert(held.bytes);
            *least = held.bytes.min(*least);
        }
        processes.into_values().fold(0, u64::saturating_add)
    }
}

impl PinLimits {
    /// Returns the limits of this process.
    pub(crate) fn here() -> Self {
        Self {
            locked: memlock(),
            physical: pinnable(),
        }
    }

    /// Returns the bytes that each rank may pin beside what their processes have pinned already. `held` has an entry for
    /// each rank of this host.
    pub(crate) fn share(&self, held: &[HeldPins]) -> usize {
        let ranks = held.len().max(1) as u64;
        let held = HeldPins::total(held);
        let share = |limit: u64| limit.saturating_sub(held) / ranks;
        let physical = share(self.physical);
        let rings = (self.rings() * OWN_PAGES * PAGE) as u64;
        let locked = (self.locked).map(|locked| share(locked).saturating_sub(rings));
        locked.map_or(physical, |locked| locked.min(physical)) as usize / PAGE * PAGE
    }

    /// Returns the number of rings of a rank: one where little memory may be locked, because each
    /// ring takes some.
    pub(crate) fn rings(&self) -> usize {
        if self.locked.is_none_or(|locked| locked > PLENTY) {
            SHARDS
        } else {
            1
        }
    }

    /// Returns the error for memory of a rank that was not pinned.
    pub(crate) fn registration_error(
        &self,
        cause: Unpinnable,
        rank: Rank,
        addr: usize,
        len: usize,
    ) -> Error {
        match cause {
            Unpinnable::Address => Error::BadAddress {
                peer: rank,
                addr: addr as u64,
                len: len as u64,
            },
            Unpinnable::Memory => self.limit_error(),
            Unpinnable::Other(cause) => {
                Error::system("pinning memory", io::Error::from_raw_os_error(cause))
            }
        }
    }

    /// Returns the error of the limit that was reached.
    fn limit_error(&self) -> Error {
        match self.locked {
            Some(limit) => Error::Exhausted {
                what: "memory that may be pinned",
                limit,
                remedy: "raise RLIMIT_MEMLOCK, in bytes, for all processes of the user together: \
                         ulimit -l, or memlock in /etc/security/limits.conf",
            },
            None => Error::Exhausted {
                what: "memory to pin",
                limit: self.physical,
                remedy: "the system has no memory left: register less, or lower HYDRANT_M",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_is_shared_among_the_ranks() {
        let limits = PinLimits {
            locked: Some(8 << 20),
            physical: 16 << 30,
        };
        let held = |process, bytes| HeldPins { process, bytes };
        let none: Vec<_> = (0..4).map(|process| held(process, 0)).collect();
        assert_eq!(limits.share(&none), (2 << 20) - OWN_PAGES * PAGE);
        assert!(limits.limit_error().to_string().contains("ulimit -l"));
        let free = PinLimits {
            locked: None,
            ..limits
        };
        assert_eq!(free.share(&none[..2]), 8 << 30);
        assert_eq!(free.share(&[held(1, 2 << 30), held(2, 4 << 30)]), 5 << 30);
        // Threads of one process, the second of which saw a page that was pinned for a moment.
        let threads = [held(1, 2 << 20), held(1, (2 << 20) + 4096)];
        assert_eq!(limits.share(&threads), (3 << 20) - OWN_PAGES * PAGE);
        // Nothing is left.
        assert_eq!(limits.share(&[held(1, 9 << 20), held(2, 0)]), 0);
        assert_eq!(limits.share(&[held(1, u64::MAX), held(2, u64::MAX)]), 0);
    }
}
