//! How much may be pinned, and what it costs.

#![allow(unsafe_code)] // registers scratch memory

use std::{io, time::Instant};

use hydrant_conduit::{
    Cost, Error, Permission, Rank, Registration, measure,
    memory::{PAGE, memlock, pinnable},
};

use crate::{
    ring::{MOST_BYTES, OWN_PAGES, Unpinnable},
    table::{SHARDS, Table},
};

/// What may be locked before a rank has several rings.
const PLENTY: u64 = 64 << 20;

/// What may be pinned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// `RLIMIT_MEMLOCK`, if it applies to this process. The kernel counts all that a user
    /// pins for `io_uring` against it, in whatever process.
    locked: Option<u64>,
    /// What is taken of physical memory.
    physical: u64,
}

impl Limits {
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
    pub(crate) fn refused(&self, cause: Unpinnable, rank: Rank, addr: usize, len: usize) -> Error {
        match cause {
            Unpinnable::Address => Error::BadAddress {
                peer: rank,
                addr: addr as u64,
                len: len as u64,
            },
            Unpinnable::Memory => self.exceeded(),
            Unpinnable::Other(cause) => {
                Error::system("pinning memory", io::Error::from_raw_os_error(cause))
            }
        }
    }

    /// There is no more.
    fn exceeded(&self) -> Error {
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

/// What rank 0 finds and tells the others: all ranks are to say the same.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Found {
    /// For each operation and each page, of registering and of deregistering.
    register: [f64; 2],
    deregister: [f64; 2],
    copy: f64,
    /// Bytes that each rank may pin.
    bytes: u64,
}

impl Found {
    /// Costs are measured now, in a millisecond or two.
    pub(crate) fn by_trying(table: &Table, ranks: usize) -> Self {
        let (register, deregister, copy) = measure(table).unwrap_or(UNKNOWN);
        Self {
            register: [register.per_op_ns, register.per_page_ns],
            deregister: [deregister.per_op_ns, deregister.per_page_ns],
            copy,
            bytes: table.limits().share(ranks) as u64,
        }
    }

    /// What the network says of registration.
    pub(crate) fn registration(&self, inline: usize) -> Registration {
        let cost = |[per_op_ns, per_page_ns]: [f64; 2]| Cost {
            per_op_ns,
            per_page_ns,
        };
        Registration {
            page: PAGE,
            register: cost(self.register),
            deregister: cost(self.deregister),
            copy_ns_per_byte: self.copy,
            max_extent: MOST_BYTES,
            max_bytes: self.bytes as usize,
            follows_mapping: false,
            inline,
        }
    }
}

/// What is said where nothing can be measured, because not even a page can be pinned now.
const UNKNOWN: (Cost, Cost, f64) = (
    Cost {
        per_op_ns: 1000.0,
        per_page_ns: 100.0,
    },
    Cost {
        per_op_ns: 500.0,
        per_page_ns: 50.0,
    },
    0.1,
);

/// Costs of registering, deregistering and copying.
fn measure(table: &Table) -> Option<(Cost, Cost, f64)> {
    let once = |addr: *mut u8, len: usize| {
        let begun = Instant::now();
        // SAFETY: no one is told the key, so nothing is written to the memory.
        let key = unsafe { table.register(addr.addr(), len, Permission::ReadWrite)? };
        let registered = begun.elapsed();
        let begun = Instant::now();
        table.deregister(key)?;
        Ok([registered, begun.elapsed()])
    };
    let [register, deregister] = measure::registration_costs(once).ok()?;
    Some((register, deregister, measure::copy_cost()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_limit_is_shared() {
        let limits = Limits {
            locked: Some(8 << 20),
            physical: 16 << 30,
        };
        assert_eq!(limits.share(4), (2 << 20) - OWN_PAGES * PAGE);
        assert!(limits.exceeded().to_string().contains("ulimit -l"));
        let free = Limits {
            locked: None,
            ..limits
        };
        assert_eq!(free.share(2), 8 << 30);
    }
}
