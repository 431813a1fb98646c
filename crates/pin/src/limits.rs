//! Limits on pinned memory.

use std::io;

use hydrant_conduit::{
    Error, Rank,
    memory::{PAGE, memlock, pinnable},
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

impl PinLimits {
    /// Returns the limits of this process.
    pub(crate) fn here() -> Self {
        Self {
            locked: memlock(),
            physical: pinnable(),
        }
    }

    /// Returns the bytes that each of `ranks` ranks on this host may pin.
    pub(crate) fn share(&self, ranks: usize) -> usize {
        let ranks = ranks.max(1) as u64;
        let physical = self.physical / ranks;
        let rings = (self.rings() * OWN_PAGES * PAGE) as u64;
        let locked = (self.locked).map(|locked| (locked / ranks).saturating_sub(rings));
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
        assert_eq!(limits.share(4), (2 << 20) - OWN_PAGES * PAGE);
        assert!(limits.limit_error().to_string().contains("ulimit -l"));
        let free = PinLimits {
            locked: None,
            ..limits
        };
        assert_eq!(free.share(2), 8 << 30);
    }
}
