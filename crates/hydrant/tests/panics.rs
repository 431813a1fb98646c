//! What a user's code throws ends where it runs: it unwinds out of no wait that is for something
//! else, and leaves nobody behind who waits for good.

#[path = "support/mixed.rs"]
mod mixed;
#[path = "support/shared.rs"]
mod network;
#[path = "support/pinned.rs"]
mod pinned;
#[path = "support/ranks.rs"]
mod support;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, JobBuilder, Rank};
use support::good;

/// Longer than anything here takes on a busy machine.
const HANG: Duration = Duration::from_secs(20);

fn jobs() -> [JobBuilder; 3] {
    [network::builder(), pinned::builder(), mixed::builder()]
}

/// What a handler may panic with: dropping it panics, too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a bomb was dropped");
        }
    }
}

/// The handler runs in a thread that waits for the end of a get into a buffer of its caller.
#[test]
fn a_panic_that_panics_when_dropped_ends_no_wait() {
    const LEN: usize = 100 << 10;
    for builder in jobs() {
        good(builder.service(false).run_local(2, |job| {
            let field = job.alloc::<u8>(LEN)?;
            field.local()?.fill(0..LEN, 1 + job.rank().0 as u8)?;
            let bomb = job.handler(|_, _, _| panic::panic_any(Bomb))?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                // The request is there, and nobody at rank 1 will answer for a while.
                thread::sleep(Duration::from_millis(200));
                let mut buffer = vec![0; LEN];
                job.scope(|s| s.get(&field, Rank(1), 0, &mut buffer).map(drop))?;
                assert!(
                    buffer.iter().all(|byte| *byte == 2),
                    "the get had not ended"
                );
                job.poll();
            } else {
                job.request_short(Rank(0), bomb, &[])?;
                thread::sleep(Duration::from_millis(400));
                let failed = job.am_quiet();
                assert!(
                    matches!(failed, Err(Error::HandlerPanicked { rank: Rank(0), .. })),
                    "{failed:?}"
                );
            }
            job.barrier()
        }));
    }
}

/// The predicate panics when it is asked by a thread that is about to sleep: the service thread,
/// which leaves messages to sleepers, is to look after them again.
#[test]
fn a_predicate_that_panics_leaves_no_sleeper_behind() {
    for builder in jobs() {
        let answered = AtomicBool::new(false);
        good(builder.run_local(2, |job| {
            let word = job.alloc::<u64>(1)?;
            let more = job.function(|_, number: u64| number + 1)?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                let before = job.counters().sleeps;
                let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                    job.wait_until(&word, 0, |_| {
                        assert!(job.counters().sleeps == before, "asked in the sleep");
                        false
                    })
                }));
                assert!(caught.is_err(), "the panic is the caller's");
                job.barrier()?;
                // Computes and looks after nothing.
                let begun = Instant::now();
                while !answered.load(SeqCst) {
                    assert!(begun.elapsed() < HANG, "nobody answers");
                    thread::sleep(Duration::from_millis(1));
                }
            } else {
                job.barrier()?;
                assert_eq!(job.call(Rank(0), &more, &41)?, 42);
                answered.store(true, SeqCst);
            }
            job.barrier()
        }));
    }
}
