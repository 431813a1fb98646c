//! An allocator that tells of freed blocks, as the global one.

#![allow(unsafe_code)] // forks

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
};

use hydrant_monitor::{ChangeListener, MemoryChange, Monitor, ReportingAllocator};

#[global_allocator]
static ALLOCATOR: ReportingAllocator = ReportingAllocator::system();

const LEN: usize = 200_000;

/// Counts the changes that have begun.
#[derive(Default)]
struct BegunChanges(AtomicU64);

impl ChangeListener for BegunChanges {
    fn begins(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    fn cancelled(&self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn a_watched_block_is_told_of_before_it_is_freed_and_others_are_not() {
    let monitor = Monitor::of_process().expect("the allocator tells");
    let begun = Arc::new(BegunChanges::default());
    let changes = monitor
        .subscribe(Arc::<BegunChanges>::clone(&begun))
        .expect("room");
    let (watched, other) = (vec![1_u8; LEN], vec![1_u8; LEN]);
    let page = (watched.as_ptr().addr() as u64 + 4095) & !4095;
    let (start, len) = monitor.watch_block(page, 8192).expect("a live block");
    assert!(start <= page && page + 8192 <= start + len);
    drop(other);
    assert_eq!((begun.0.load(SeqCst), changes.take()), (0, None));
    drop(watched);
    assert_eq!(begun.0.load(SeqCst), 1);
    assert_eq!(changes.take(), Some(MemoryChange::Freed { start, len }));
    assert_eq!(monitor.watch_block(page, 8192), None);
}

/// A child of `fork` allocates and frees, whatever the parent's threads hold.
#[test]
fn a_forked_child_allocates_and_frees_large_blocks() {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                drop(std::hint::black_box(vec![1_u8; LEN]));
            }
        });
        for _ in 0..200 {
            // SAFETY: the child allocates, frees and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                for _ in 0..10 {
                    drop(std::hint::black_box(vec![1_u8; LEN]));
                }
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(0) };
            }
            assert!(child > 0, "fork");
            let mut status = -1;
            // SAFETY: `status` is valid for writes, and the child is our own.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        over.store(true, Relaxed);
    });
}

/// A process that forks before it has a monitor: both it and its child hear of blocks, older ones included.
#[test]
fn blocks_are_told_of_on_both_sides_of_a_fork() {
    // The other tests of this process may have started its monitor, which a child never has.
    const ROLE: &str = "HYDRANT_TEST_FORKS";
    const NAME: &str = "blocks_are_told_of_on_both_sides_of_a_fork";
    if std::env::var_os(ROLE).is_none() {
        let own = std::env::current_exe().expect("this test");
        let mut fresh = std::process::Command::new(own);
        fresh
            .env(ROLE, "yes")
            .args(["--exact", NAME, "--nocapture"]);
        let ended = fresh.status().expect("it starts");
        assert!(ended.success());
        return;
    }
    let older = vec![1_u8; LEN];
    let hears = |block: Vec<u8>| {
        let Ok(monitor) = Monitor::of_process() else {
            return false;
        };
        let begun = Arc::new(BegunChanges::default());
        let Ok(_changes) = monitor.subscribe(Arc::<BegunChanges>::clone(&begun)) else {
            return false;
        };
        let page = (block.as_ptr().addr() as u64 + 4095) & !4095;
        let is_known = monitor.watch_block(page, 8192).is_some();
        drop(block);
        is_known && begun.0.load(SeqCst) == 1
    };
    // SAFETY: the child allocates, frees, starts a thread and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let ends = [hears(older), hears(vec![1_u8; LEN])];
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ends != [true; 2])) };
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writes, and the child is our own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(hears(older) && hears(vec![1_u8; LEN]), "the parent");
    assert_eq!(status, 0, "the child");
}
