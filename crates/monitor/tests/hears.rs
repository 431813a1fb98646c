//! The monitor hears of each way in which memory changes, before the call that changes it returns.

#![allow(unsafe_code)] // maps, changes and unmaps memory

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use hydrant_monitor::{ChangeListener, MemoryChange, MemoryChanges, Monitor};

const PAGE: usize = 4096;

/// Counts the changes that have begun and were not taken.
#[derive(Default)]
struct Outstanding(AtomicU32);

impl ChangeListener for Outstanding {
    fn begins(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    fn cancelled(&self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Returns a subscription, unless this kernel has no userfaultfd for us.
fn subscribed() -> Option<(MemoryChanges, Arc<Outstanding>)> {
    let monitor = match Monitor::of_process() {
        Ok(monitor) => monitor,
        Err(absent) => {
            hydrant_testing::left_out(absent);
            return None;
        }
    };
    let outstanding = Arc::<Outstanding>::default();
    let changes = monitor.subscribe(Arc::clone(&outstanding) as _);
    Some((changes.expect("few subscribers"), outstanding))
}

fn map(pages: usize) -> u64 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses the address of new memory.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, access, kind, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped.expose_provenance() as u64
}

fn at(addr: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(addr as usize)
}

fn unmap(addr: u64, pages: usize) {
    // SAFETY: the pages are of this test, which does not use them any more.
    assert_eq!(unsafe { libc::munmap(at(addr), pages * PAGE) }, 0);
}

/// Returns the changes of a range of pages.
fn taken(changes: &MemoryChanges, outstanding: &Outstanding, count: usize) -> Vec<MemoryChange> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while all.len() < count {
        assert!(begun.elapsed() < Duration::from_secs(30), "only {all:?}");
        if let Some(change) = changes.take() {
            outstanding.0.fetch_sub(1, SeqCst);
            all.push(change);
        }
    }
    all
}

#[test]
fn each_way_to_lose_pages_is_heard() {
    let Some((changes, outstanding)) = subscribed() else {
        return;
    };
    let monitor = changes.monitor();
    let start = map(8);
    let len = PAGE as u64;
    let page = |number: u64| start + number * len;
    monitor.watch(start, 8 * len).expect("anonymous memory");
    // Watching again does no harm.
    monitor.watch(start, len).expect("watched memory");
    // Another test of this process may change memory at this moment.
    let begun = Instant::now();
    while monitor.is_quiet() != Ok(true) {
        assert!(begun.elapsed() < hydrant_testing::HANG, "never quiet");
    }

    unmap(page(0), 1);
    assert!(
        outstanding.0.load(SeqCst) > 0,
        "told before munmap returned"
    );
    // Another test of this process may change memory, too.
    let of_ours = |change: &MemoryChange| match change {
        MemoryChange::Unmapped { start, .. } | MemoryChange::Removed { start, .. } => *start,
        MemoryChange::Moved { from, .. } => *from,
        MemoryChange::Anything | MemoryChange::Freed { .. } => 0,
    };
    let next = || {
        loop {
            let change = taken(&changes, &outstanding, 1)[0];
            if (page(0)..page(8)).contains(&of_ours(&change)) {
                return change;
            }
        }
    };
    assert_eq!(next(), MemoryChange::Unmapped { start, len });

    // SAFETY: the page is mapped, and nothing refers to it.
    let advised = unsafe { libc::madvise(at(page(1)), PAGE, libc::MADV_DONTNEED) };
    assert_eq!(advised, 0);
    let start = page(1);
    assert_eq!(next(), MemoryChange::Removed { start, len });

    let target = map(1);
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ranges are of this test.
    let moved = unsafe { libc::mremap(at(page(2)), PAGE, PAGE, how, at(target)) };
    assert_eq!(moved.addr() as u64, target);
    let (from, to) = (page(2), target);
    assert_eq!(next(), MemoryChange::Moved { from, to, len });
    assert_eq!(next(), MemoryChange::Unmapped { start: from, len });

    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page is of this test, and nothing refers to it.
    let over = unsafe { libc::mmap(at(page(3)), PAGE, access, kind, -1, 0) };
    assert_eq!(over.addr() as u64, page(3));
    let start = page(3);
    assert_eq!(next(), MemoryChange::Unmapped { start, len });
    // The new page is not watched.
    unmap(page(3), 1);
    // The moved page still is.
    unmap(target, 1);
    unmap(page(4), 4);
    let last = MemoryChange::Unmapped {
        start: page(4),
        len: 4 * len,
    };
    assert_eq!(next(), last);
}

/// A thread maps in a loop, and so gets memory that another one just unmapped. It may be told late,
/// but then the monitor is not quiet.
#[test]
fn who_gets_unmapped_memory_early_finds_the_monitor_busy() {
    const PAGES: usize = 16;
    const ROUNDS: u64 = 20_000;
    let Some((changes, outstanding)) = subscribed() else {
        return;
    };
    let monitor = changes.monitor();
    let (wanted, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (early, escaped) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let got = map(PAGES);
                if got == wanted.load(SeqCst) {
                    let told = outstanding.0.load(SeqCst) > 0;
                    let busy = monitor.is_quiet() == Ok(false);
                    let told_by_now = outstanding.0.load(SeqCst) > 0;
                    early.fetch_add(u64::from(!told), Relaxed);
                    escaped.fetch_add(u64::from(!told && !busy && !told_by_now), Relaxed);
                    wanted.store(0, SeqCst);
                }
                unmap(got, PAGES);
            }
        });
        for _ in 0..ROUNDS {
            // The thief's own memory is not watched: nothing is outstanding but this round's change.
            let start = map(PAGES);
            monitor
                .watch(start, (PAGES * PAGE) as u64)
                .expect("anonymous memory");
            wanted.store(start, SeqCst);
            unmap(start, PAGES);
            // The thief looks before the change is taken.
            let begun = Instant::now();
            while wanted.load(SeqCst) != 0 && begun.elapsed() < Duration::from_micros(50) {}
            wanted.store(0, SeqCst);
            thread::yield_now();
            while outstanding.0.load(SeqCst) > 0 {
                if changes.take().is_some() {
                    outstanding.0.fetch_sub(1, SeqCst);
                }
            }
        }
        over.store(true, Relaxed);
    });
    assert_eq!(
        escaped.load(Relaxed),
        0,
        "of {} early ones",
        early.load(Relaxed)
    );
    eprintln!("{} of {ROUNDS} were early", early.load(Relaxed));
}
