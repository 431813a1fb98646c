//! Memory of an allocator that tells before it frees: it stays registered without a word from the kernel, and each use
//! reaches the block that is there now.

#![allow(unsafe_code)] // names memory by its address

#[path = "support/pinned.rs"]
mod pinned;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use hydrant::{JobBuilder, MonitorKind, Rank, ReportingAllocator, Result, Strategy};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

#[global_allocator]
static ALLOCATOR: ReportingAllocator<MappingAllocator> = ReportingAllocator::new(MappingAllocator);

/// An allocator that maps each large block, and unmaps it when it is freed.
struct MappingAllocator;

/// Returns true if a block has a mapping of its own.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= 64 << 10 && layout.align() <= 4096
}

// SAFETY: a large block is a mapping of its own, and a small one is the system's.
unsafe impl GlobalAlloc for MappingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_mapped(layout) {
            // SAFETY: the caller's conditions.
            return unsafe { System.alloc(layout) };
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), layout.size(), rights, MapFlags::PRIVATE) };
        mapped.map_or(ptr::null_mut(), <*mut _>::cast)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_mapped(layout) {
            // SAFETY: the caller's conditions.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: the block is a mapping of its own, which nobody uses any more.
        unsafe { munmap(block.cast(), layout.size()) }.expect("an own mapping");
    }
}

const LEN: usize = 200_000;

/// Returns a builder whose ranks hear of changes by the allocator alone. With the kernel, all jobs of the process hear.
fn builder() -> JobBuilder {
    let builder = pinned::builder().m(8 << 20).maxvictim(4 << 20);
    let builder = builder.anywhere(true).monitor(MonitorKind::Allocator);
    builder.registration(Strategy::Firehose)
}

fn good<T>(ends: Vec<Result<T>>) -> Vec<T> {
    let ends: Result<Vec<T>> = ends.into_iter().collect();
    ends.expect("all ranks succeed")
}

/// Buffers are freed and allocated between uses, at both sides.
#[test]
fn blocks_are_registered_until_they_are_freed() {
    for bucket in [4096, 32 << 10] {
        let job = builder().bucket(bucket);
        let counters = good(job.run_local(2, |job| {
            let field = job.alloc::<u8>(LEN)?;
            let addresses = job.alloc::<u64>(1)?;
            for round in 0..60_u32 {
                let value = round as u8 | 1;
                let source = vec![value; LEN];
                let mut target = vec![0_u8; LEN];
                addresses.put_value(
                    job.left(),
                    0,
                    target.as_mut_ptr().expose_provenance() as u64,
                )?;
                for _ in 0..3 {
                    field.put(job.right(), 0, &source)?;
                }
                job.barrier()?;
                let mut there = vec![0; LEN];
                field.local()?.read(0, &mut there)?;
                assert!(there.iter().all(|byte| *byte == value), "round {round}");
                let theirs = addresses.local()?.load(0)?;
                for _ in 0..3 {
                    // SAFETY: the peer does not touch its memory before the next barrier.
                    unsafe { job.put_anywhere(job.right(), theirs, &source)? };
                }
                job.barrier()?;
                assert!(target.iter().all(|byte| *byte == value), "round {round}");
            }
            Ok(job.counters())
        }));
        // A block seldom begins and ends where a bucket of several pages does.
        for counters in counters.into_iter().filter(|_| bucket == 4096) {
            assert!(counters.hits > 40, "{counters}");
            assert!(counters.memory_changes > 50, "{counters}");
        }
    }
}

/// Other threads get a block as soon as it is freed, and put from it.
#[test]
fn a_thread_that_gets_a_freed_block_puts_its_own_bytes() {
    let counters = good(builder().run_local(2, |job| {
        let field = job.alloc::<u8>(3 * LEN)?;
        if job.rank() == Rank(0) {
            let over = AtomicBool::new(false);
            let use_blocks = |place: usize, rounds: u32| -> Result<()> {
                for round in 0..rounds {
                    let value = 64 * place as u8 + (round % 64) as u8;
                    let source = vec![value; LEN];
                    for _ in 0..2 {
                        field.put(Rank(1), place * LEN, &source)?;
                    }
                    let mut back = vec![0; LEN];
                    field.get(Rank(1), place * LEN, &mut back)?;
                    assert!(back == source, "thread {place}, round {round}");
                    if over.load(Relaxed) {
                        break;
                    }
                }
                Ok(())
            };
            let use_blocks = &use_blocks;
            thread::scope(|scope| {
                let others = [1, 2].map(|place| scope.spawn(move || use_blocks(place, u32::MAX)));
                let outcome = use_blocks(0, 300);
                over.store(true, Relaxed);
                (others.into_iter()).fold(outcome, |outcome, other| {
                    outcome.and(other.join().expect("no panic"))
                })
            })?;
        }
        job.barrier()?;
        Ok(job.counters())
    }));
    assert!(counters[0].hits > 30, "{}", counters[0]);
}

/// Memory of no block is registered for one operation at a time.
#[test]
fn other_memory_does_not_stay_registered() {
    static STATIC: [u8; LEN] = [7; LEN];
    good(builder().run_local(2, |job| {
        let field = job.alloc::<u8>(LEN)?;
        for _ in 0..10 {
            field.put(job.right(), 0, &STATIC)?;
        }
        job.barrier()?;
        assert_eq!(job.counters().hits, 0);
        Ok(())
    }));
}

/// The program empties a part of a block by itself, and with it a part of what the allocator told of.
#[test]
fn a_part_of_a_block_that_the_program_empties_is_heard_from_the_kernel() {
    const PAGES: usize = 20;
    if hydrant_monitor::Monitor::of_process().is_ok_and(|monitor| monitor.source().is_err()) {
        eprintln!("left out: the kernel tells nothing");
        return;
    }
    let kernel = builder().monitor(MonitorKind::Userfaultfd);
    let counters = good(kernel.run_local(2, |job| {
        let field = job.alloc::<u8>(PAGES * 4096)?;
        let mut block = vec![0_u8; (PAGES + 1) * 4096];
        let skipped = block.as_ptr().align_offset(4096);
        let pages = &mut block[skipped..][..PAGES * 4096];
        for value in 1..100 {
            pages.fill(value);
            for _ in 0..3 {
                field.put(job.right(), 0, pages)?;
            }
            job.barrier()?;
            let mut there = vec![0; pages.len()];
            field.local()?.read(0, &mut there)?;
            assert!(there.iter().all(|byte| *byte == value), "{value}");
            job.barrier()?;
            let part = &mut pages[4096 * usize::from(value % 10)..][..8 * 4096];
            // SAFETY: the pages are borrowed, and are private memory: they are zero afterwards.
            let emptied =
                unsafe { libc::madvise(part.as_mut_ptr().cast(), part.len(), libc::MADV_DONTNEED) };
            assert_eq!(emptied, 0);
        }
        Ok(job.counters())
    }));
    for counters in counters {
        assert!(counters.hits > 90, "{counters}");
    }
}
