//! A subscriber that takes no change for long, while a heap empties the same pages again and again: the count of changes
//! stays small, and the loss is told.

#![allow(unsafe_code)] // maps and empties memory

use std::{
    iter, ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use hydrant_monitor::{ChangeListener, MemoryChange, Monitor};

const PAGE: usize = 4096;

/// Counts the changes that have begun and were not taken.
#[derive(Default, Debug)]
struct Outstanding(AtomicU32);

impl ChangeListener for Outstanding {
    fn begins(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    fn cancelled(&self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn a_storm_that_nobody_takes_counts_little_and_is_told() {
    const ROUNDS: u32 = 3000;
    let monitor = match Monitor::of_process() {
        Ok(monitor) => monitor,
        Err(absent) => {
            hydrant_testing::left_out(absent);
            return;
        }
    };
    let outstanding = Arc::<Outstanding>::default();
    let changes = monitor.subscribe(Arc::clone(&outstanding) as _);
    let changes = changes.expect("few subscribers");
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses the address of new memory.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    let watched = monitor.watch(page.expose_provenance() as u64, PAGE as u64);
    watched.expect("anonymous memory");
    for _ in 0..ROUNDS {
        // SAFETY: the page is of this test, which has no reference to it.
        let emptied = unsafe { libc::madvise(page, PAGE, libc::MADV_DONTNEED) };
        assert_eq!(emptied, 0);
    }
    let counted = outstanding.0.load(SeqCst);
    assert!(counted > 1000 && counted < ROUNDS / 2, "{counted}");
    assert_eq!(changes.take(), Some(MemoryChange::Anything));
    let mut taken = 1;
    // The monitor goes on with the last change after `madvise` has returned.
    let begun = Instant::now();
    while outstanding.0.load(SeqCst) != taken {
        taken += iter::from_fn(|| changes.take()).count() as u32;
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{taken} of {outstanding:?}"
        );
    }
    assert!(taken <= counted + 1, "{taken} of {counted}");
}
