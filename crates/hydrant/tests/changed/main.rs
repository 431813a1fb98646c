//! Memory of the program that stays registered after its use, while it is unmapped, emptied and moved between uses, on
//! pages that the kernel pinned for real. Each use reaches the pages that are there now.

#![allow(unsafe_code)] // maps memory, and names it by its address

mod early;
mod kinds;
mod neighbours;
mod news;
#[path = "../support/pinned.rs"]
mod pinned;
#[path = "../support/place.rs"]
mod place;
mod renewed;

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use hydrant::{Counters, Job, JobBuilder, MonitorKind, Result, Strategy};

/// Returns a builder whose ranks hear of changes, unless this kernel permits no monitor.
fn builder(strategy: Strategy) -> Option<JobBuilder> {
    if let Err(absent) = hydrant_monitor::Monitor::of_process() {
        hydrant_testing::left_out(absent);
        return None;
    }
    let builder = pinned::builder()
        .m(8 << 20)
        .maxvictim(4 << 20)
        .anywhere(true);
    Some(
        builder
            .registration(strategy)
            .monitor(MonitorKind::Userfaultfd),
    )
}

fn good<T>(ends: Vec<Result<T>>) -> Vec<T> {
    let ends: Result<Vec<T>> = ends.into_iter().collect();
    ends.expect("all ranks succeed")
}

/// Runs the tests of this process one after the other: each hears of the changes of all, and so seldom hits.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The strategies that keep registrations of both sides.
const KEEPING: [Strategy; 3] = [Strategy::Firehose, Strategy::Auto, Strategy::PinDown];

/// Ends the loop of another thread when this one has ended, by a panic or otherwise.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the hits and the registrations so far.
fn hits(job: &Job) -> (u64, u64) {
    let Counters {
        hits,
        registrations,
        ..
    } = job.counters();
    (hits, registrations)
}

/// Asserts that a rank heard of `changes` and that its registrations were used again in between. `auto` copies instead
/// wherever it measured that copies are cheaper, on a busy machine almost always. `pin-down` hits in the engine.
fn assert_kept(strategy: Strategy, counters: &Counters, changes: u64) {
    let changes = if strategy == Strategy::Auto {
        1
    } else {
        changes
    };
    assert!(counters.memory_changes >= changes, "{strategy}: {counters}");
    let keeps = strategy == Strategy::Firehose;
    assert!(
        !keeps || counters.hits > changes / 2,
        "{strategy}: {counters}"
    );
}
