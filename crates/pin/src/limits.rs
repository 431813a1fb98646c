//! How much may be pinned.

use std::io;

use hydrant_conduit::{
    Error, Rank,
    memory::{PAGE, memlock, pinnable},
};

use crate::ring::{OWN_PAGES, Unpinnable};

/// Rings that a rank has, where much may be locked.
pub(crate) const SHARDS: usize = 4;

/// What may be locked before a rank has several rings.
const PLENTY: u64 = 64 << 20;

/// What may be pinned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PinLimits {
    /// `RLIMIT_MEMLOCK`, if it applies to this process. The kernel counts all that a user
    /// pins for `io_uring` against it, in whatever process.
    locked: Option<u64>,
    /// What is taken of physical memory.
    physical: u64,
}

impl PinLimits {
    /// Those of this process.
    pub(crate) fn here() -> Self {
        Self {
            locked: memlock(),
            physical: pinnable(),
        }
    }

    /// Bytes that each of so many ranks of this host may pin.
    pub(crate) fn share(&self, ranks: usize) -> usize {
        let ranks = ranks.max(1) as u64;
        let physical = self.physical / ranks;
        let rings = (self.rings() * OWN_PAGES * PAGE) as u64;
        let locked = (self.locked).map(|locked| (locked / ranks).saturating_sub(rings));
        locked.map_or(physical, |locked| locked.min(physical)) as usize / PAGE * PAGE
    }

    /// Rings that a rank has: few where each takes of what little may be locked.
    pub(crate) fn rings(&self) -> usize {
        if self.locked.is_none_or(|locked| locked > PLENTY) {
            SHARDS
        } else {
            1
        }
    }

    /// Why memory of a rank was not pinned.
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

    /// There is no more.
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
    fn the_lesser_limit_is_shared() {
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
