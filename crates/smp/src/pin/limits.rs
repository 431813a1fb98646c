//! How much may be pinned, and what it costs.

#![allow(unsafe_code)] // maps scratch memory, and pins and copies it

use std::{
    hint::black_box,
    ptr,
    time::{Duration, Instant},
};

use hydrant_conduit::{Access, Cost, Error, Key, Registration, memory::PAGE};
use rustix::{
    mm::{self, MapFlags, ProtFlags},
    process::{Resource, getrlimit},
    thread::CapabilitySet,
};

use super::{
    ring::{MOST_BYTES, OWN_PAGES},
    table::{SHARDS, Table},
};

/// Of physical memory, the ranks of the host may pin so much together.
const PHYSICAL_SHARE: (u64, u64) = (3, 4);

/// What may be locked before a rank has several rings.
const PLENTY: u64 = 64 << 20;

/// What may be pinned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// `RLIMIT_MEMLOCK`, if it applies to this process. The kernel counts all that a user
    /// pins for `io_uring` against it, in whatever process.
    locked: Option<u64>,
    /// What is taken of physical memory.
    physical: u64,
}

impl Limits {
    /// Those of this process.
    pub(super) fn here() -> Self {
        let system = rustix::system::sysinfo();
        let total = system.totalram as u64 * u64::from(system.mem_unit);
        Self {
            locked: if exempt() {
                None
            } else {
                getrlimit(Resource::Memlock).current
            },
            physical: total / PHYSICAL_SHARE.1 * PHYSICAL_SHARE.0,
        }
    }

    /// Bytes that each of so many ranks of this host may pin.
    pub(super) fn share(&self, ranks: usize) -> usize {
        let ranks = ranks.max(1) as u64;
        let physical = self.physical / ranks;
        let rings = (self.rings() * OWN_PAGES * PAGE) as u64;
        let locked = (self.locked).map(|locked| (locked / ranks).saturating_sub(rings));
        locked.map_or(physical, |locked| locked.min(physical)) as usize / PAGE * PAGE
    }

    /// Rings that a rank has: few where each takes of what little may be locked.
    pub(super) fn rings(&self) -> usize {
        if self.locked.is_none_or(|locked| locked > PLENTY) {
            SHARDS
        } else {
            1
        }
    }

    /// There is no more.
    pub(super) fn exceeded(&self) -> Error {
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

/// Whether the limit of locked memory does not apply.
fn exempt() -> bool {
    let able = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    // In a user namespace of its own, a process has capabilities there only.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    able && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Numbers of pages whose registration is timed.
const SIZES: [usize; 5] = [1, 4, 16, 64, 256];
/// How often each.
const TIMES: usize = 5;

/// What rank 0 finds and tells the others: all ranks are to say the same.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Found {
    /// For each operation and each page, of registering and of deregistering.
    register: [f64; 2],
    deregister: [f64; 2],
    copy: f64,
    /// Bytes that each rank may pin.
    bytes: u64,
}

impl Found {
    /// Costs are measured now, in a millisecond or two.
    pub(super) fn by_trying(table: &Table, ranks: usize) -> Self {
        let (register, deregister, copy) = measure(table).unwrap_or(UNKNOWN);
        Self {
            register: [register.per_op_ns, register.per_page_ns],
            deregister: [deregister.per_op_ns, deregister.per_page_ns],
            copy,
            bytes: table.limits().share(ranks) as u64,
        }
    }

    /// What the network says of registration.
    pub(super) fn registration(&self, table: &Table, inline: usize) -> Registration {
        let cost = |[per_op_ns, per_page_ns]: [f64; 2]| Cost {
            per_op_ns,
            per_page_ns,
        };
        Registration {
            page: PAGE,
            register: cost(self.register),
            deregister: cost(self.deregister),
            copy_ns_per_byte: self.copy,
            max_extents: Some(table.extents()),
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
    let scratch = Scratch::new(2 * SIZES[SIZES.len() - 1] * PAGE)?;
    let mut register = Vec::new();
    let mut deregister = Vec::new();
    for pages in SIZES {
        let least = (0..TIMES)
            .map_while(|_| scratch.time(table, pages))
            .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
        // With little that may be pinned, some sizes are beyond it.
        let Some((first, second)) = least else { break };
        register.push((pages as f64, first.as_nanos() as f64));
        deregister.push((pages as f64, second.as_nanos() as f64));
    }
    if register.is_empty() {
        return None;
    }
    Some((fit(&register), fit(&deregister), scratch.copy_cost()))
}

/// The line through the points with the least squares of relative errors, so that few pages
/// count as much as many.
fn fit(points: &[(f64, f64)]) -> Cost {
    let mut sums = [0.0; 5];
    for (pages, time) in points {
        let weight = 1.0 / (time * time).max(1.0);
        let terms = [1.0, *pages, pages * pages, *time, pages * time];
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum += weight * term;
        }
    }
    let [one, x, xx, y, xy] = sums;
    let determinant = one * xx - x * x;
    let slope = if points.len() < 2 || determinant <= 0.0 {
        0.0
    } else {
        ((one * xy - x * y) / determinant).max(0.0)
    };
    Cost {
        per_op_ns: ((y - slope * x) / one).max(0.0),
        per_page_ns: slope,
    }
}

/// Memory to try on.
struct Scratch {
    base: *mut u8,
    len: usize,
}

impl Scratch {
    fn new(len: usize) -> Option<Self> {
        // SAFETY: a mapping where the kernel likes touches no other memory.
        let base = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )
        };
        let base = base.ok()?.cast();
        Some(Self { base, len })
    }

    /// How long it takes to register and deregister so many pages.
    fn time(&self, table: &Table, pages: usize) -> Option<(Duration, Duration)> {
        let begun = Instant::now();
        // SAFETY: no one is told the key, and the memory is used for nothing else.
        let key: Key =
            unsafe { table.register(self.base.addr(), pages * PAGE, Access::ReadWrite) }.ok()?;
        let registered = begun.elapsed();
        let begun = Instant::now();
        table.deregister(key).ok()?;
        Some((registered, begun.elapsed()))
    }

    /// Nanoseconds to copy a byte.
    fn copy_cost(&self) -> f64 {
        let half = self.len / 2;
        let least = (0..TIMES)
            .map(|_| {
                let begun = Instant::now();
                // SAFETY: two halves of memory that nothing else uses.
                unsafe { ptr::copy_nonoverlapping(self.base, self.base.add(half), half) };
                black_box(self.base);
                begun.elapsed()
            })
            .min()
            .unwrap_or_default();
        least.as_nanos() as f64 / half as f64
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; nothing else knows of it.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let cost = fit(&SIZES.map(|pages| (pages as f64, 900.0 + 110.0 * pages as f64)));
        assert!((cost.per_op_ns - 900.0).abs() < 1e-6, "{cost:?}");
        assert!((cost.per_page_ns - 110.0).abs() < 1e-6, "{cost:?}");
        let alone = fit(&[(1.0, 700.0)]);
        assert_eq!((alone.per_op_ns, alone.per_page_ns), (700.0, 0.0));
    }

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
