//! Memory that cannot be had, and memory that is not there.

#![allow(unsafe_code)] // the form of memory that names any address

use hydrant::{AllocOptions, Error, Foreign, HugePages};

use crate::{
    errors::fixture::Fixture,
    support::{builder, good, local},
};

#[test_on(shared, veiled, pinned)]
fn types_without_a_size() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        refused!(
            job.alloc::<()>(4),
            Error::ZeroSized { .. },
            "()",
            "size zero"
        );
        refused!(
            job.alloc::<[u64; 0]>(4),
            Error::ZeroSized { .. },
            "[u64; 0]"
        );
        refused!(job.expose(vec![(); 4]), Error::ZeroSized { .. }, "()");
        let mut nothing = [(); 4];
        refused!(
            job.scope(|s| s.expose(&mut nothing).map(drop)),
            Error::ZeroSized { .. },
            "()"
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn alignments_that_are_none() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let options = AllocOptions {
            align: 48,
            ..AllocOptions::default()
        };
        refused!(
            job.alloc_with::<u64>(4, options),
            Error::Misaligned { .. },
            "48",
            "power of two"
        );
        for align in [1 << 62, 1 << 63] {
            let options = AllocOptions {
                align,
                ..AllocOptions::default()
            };
            refused!(
                job.alloc_with::<u64>(4, options),
                Error::OutOfMemory { .. },
                "HYDRANT_HEAP"
            );
        }
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn a_full_heap() {
    good(builder().heap(1 << 20).run_local(3, |job| {
        let f = Fixture::new(job)?;
        let used = job.counters().heap_bytes;
        let most = (1 << 20) - used as usize;
        for elements in [most + 1, 1 << 40, usize::MAX] {
            refused!(
                job.alloc::<u8>(elements),
                Error::OutOfMemory { available, wanted, .. }
                    if available == most as u64 && wanted == elements as u64,
                "1020 KiB are available", "HYDRANT_HEAP", "rank 0"
            );
        }
        refused!(
            job.alloc::<u64>(usize::MAX / 2),
            Error::OutOfMemory { .. },
            "HYDRANT_HEAP"
        );
        assert_eq!(
            job.counters().heap_bytes,
            used,
            "a failed allocation kept memory"
        );
        let all = job.alloc::<u8>(most)?;
        refused!(
            job.alloc::<u8>(1),
            Error::OutOfMemory { available: 0, .. },
            "0 bytes are available"
        );
        job.free(all)?;
        f.check(job)
    }));
}

/// The heap is address space and may be larger than the machine; memory may not.
#[test_on(shared, veiled, pinned)]
fn more_than_the_machine_has() {
    let machine = total_memory();
    good(builder().heap(16 * machine).run_local(2, |job| {
        let f = Fixture::new(job)?;
        let before = job.counters().heap_bytes;
        for bytes in [2 * machine, 15 * machine] {
            refused!(
                job.alloc::<u8>(bytes),
                Error::OutOfMemory { available, .. } if available > 0 && available < machine as u64,
                bytes, "the system has no more"
            );
        }
        let options = AllocOptions {
            huge: HugePages::Try,
            ..AllocOptions::default()
        };
        refused!(
            job.alloc_with::<u8>(2 * machine, options),
            Error::OutOfMemory { .. },
            "the system"
        );
        assert_eq!(job.counters().heap_bytes, before);
        f.check(job)
    }));
}

fn total_memory() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap();
    total << 10
}

/// Addresses that are not mapped, or read-only: an error, never a signal.
#[test_on(shared, veiled, pinned)]
fn addresses_where_nothing_is() {
    for way in [Foreign::Auto, Foreign::ProcessVm, Foreign::Messages] {
        good(
            builder()
                .anywhere(true)
                .smp_foreign(way)
                .run_local(2, |job| {
                    let f = Fixture::new(job)?;
                    let to = job.right();
                    static READ_ONLY: [u8; 64] = [3; 64];
                    let mut into = [7; 8];
                    for addr in [0, 8, 1 << 62, u64::MAX - 100] {
                        // SAFETY: nothing is mapped there, so nothing can change.
                        let put = unsafe { job.put_anywhere(to, addr, &[1; 8]) };
                        refused!(
                            put,
                            Error::BadAddress { rank, len: 8, .. } if rank == to,
                            format!("{addr:#x}"), format!("rank {to}"), "8 bytes"
                        );
                        // SAFETY: as above.
                        let got = unsafe { job.get_anywhere(to, addr, &mut into) };
                        refused!(got, Error::BadAddress { .. }, format!("{addr:#x}"));
                    }
                    let addr = std::ptr::from_ref(&READ_ONLY).addr() as u64;
                    // SAFETY: the memory cannot be written to, so it does not change.
                    let put = unsafe { job.put_anywhere(to, addr, &[1; 8]) };
                    refused!(put, Error::BadAddress { .. }, format!("{addr:#x}"));
                    // SAFETY: constant bytes.
                    unsafe { job.get_anywhere(to, addr, &mut into)? };
                    assert_eq!((into, READ_ONLY[0]), ([3; 8], 3));
                    f.check(job)
                }),
        );
    }
}
