//! Ranks that disagree, and ranks that are gone.

use hydrant::{Error, Rank, Result};

use crate::{
    errors::fixture::Fixture,
    support::{builder, local},
};

#[test_on(shared, veiled, pinned)]
fn different_sizes_in_alloc() {
    local(3, |job| {
        let f = Fixture::new(job)?;
        let used = job.counters().heap_bytes;
        let elements = if job.rank() == Rank(1) { 100 } else { 200 };
        let own = job.rank();
        let odd = if own == Rank(1) {
            "rank 0 wants 1600 bytes"
        } else {
            "rank 1 wants 800 bytes"
        };
        refused!(
            job.alloc::<u64>(elements),
            Error::CollectiveMismatch { operation: "alloc", own: me, .. } if me == own,
            odd, format!("rank {own} wants {} bytes", 8 * elements)
        );
        assert_eq!(job.counters().heap_bytes, used);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn different_memory_in_free() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (a, b) = (job.alloc::<u64>(4)?, job.alloc::<u64>(4)?);
        let mine = if job.rank() == Rank(0) {
            a.clone()
        } else {
            b.clone()
        };
        refused!(
            job.free(mine),
            Error::CollectiveMismatch {
                operation: "free",
                ..
            },
            "rank 0",
            "rank 1",
            "frees"
        );
        // Both are still there.
        a.put(job.right(), 0, &[1])?;
        b.put(job.right(), 0, &[2])?;
        job.barrier()?;
        assert_eq!((a.local()?.load(0)?, b.local()?.load(0)?), (1, 2));
        job.barrier()?;
        job.free(b)?;
        job.free(a)?;
        f.check(job)
    });
}

/// A rank that fails is the one that the others hear of, not one that failed for the same
/// reason before they looked.
#[test_on(shared, veiled, pinned)]
fn a_rank_whose_body_fails() {
    for round in 0..20 {
        let fails = Rank(round % 4);
        let ends = builder().run_local(4, |job| {
            job.barrier()?;
            if job.rank() == fails {
                return Err(Error::other("out of ideas"));
            }
            job.barrier()
        });
        for (rank, end) in ends.into_iter().enumerate() {
            let error = end.expect_err("a rank is missing");
            if rank == fails.index() {
                assert_eq!(error.to_string(), "out of ideas");
            } else {
                assert!(
                    matches!(error, Error::PeerLost(lost) if lost == fails),
                    "{error}"
                );
            }
        }
    }
}

#[test_on(shared, veiled, pinned)]
fn a_rank_whose_body_panics() {
    let outcomes = std::sync::Mutex::new(Vec::new());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        builder().run_local(3, |job| {
            job.barrier()?;
            assert!(job.rank() != Rank(2), "as planned");
            let end = job.barrier();
            outcomes
                .lock()
                .unwrap()
                .push(matches!(end, Err(Error::PeerLost(Rank(2)))));
            end
        })
    }));
    let cause = panicked.expect_err("the panic goes on in the caller");
    assert_eq!(cause.downcast_ref::<&str>(), Some(&"as planned"));
    assert_eq!(*outcomes.lock().unwrap(), [true; 2]);
}

/// Ending is a wait like others: ranks that leave first are not lost to those that follow.
#[test_on(shared, veiled, pinned)]
fn jobs_that_end_in_good_order() {
    for round in 0..100 {
        for end in builder().run_local(1 + round % 6, |job| job.barrier()) {
            end.unwrap();
        }
    }
}

/// What was refused, for whatever reason and on whatever ranks, leaves no trace in what comes after.
#[test_on(shared, veiled, pinned)]
fn what_comes_after_a_refusal_is_numbered_alike() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let odd = job.rank() == Rank(0);
        let alloc = || job.alloc::<u64>(4).map(drop);
        let handler = || job.handler(|_, _, _| {}).map(drop);
        let (first, second): (&dyn Fn() -> Result<()>, &dyn Fn() -> Result<()>) =
            (&alloc, &handler);
        for refused in [first, second] {
            // The other rank called something else.
            let outcome = if odd { refused() } else { job.barrier() };
            refused!(outcome, Error::CollectiveMismatch { .. }, "disagree");
            // The other rank knows of nothing.
            if odd {
                job.barrier_notify(None)?;
                refused!(refused(), Error::OutOfTurn { .. }, "out of turn");
                job.barrier_wait(None)?;
            } else {
                job.barrier()?;
            }
        }
        // Of the others, too, nothing was kept.
        refused!(
            job.alloc::<u64>(if odd { 8 } else { 4 }),
            Error::CollectiveMismatch { .. },
            "disagree"
        );
        refused!(
            job.alloc::<u64>(1 << 40),
            Error::OutOfMemory { .. },
            "HYDRANT_HEAP"
        );
        let memory = job.alloc::<u64>(4)?;
        memory.put_value(job.right(), 0, 1 + u64::from(job.rank().0))?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(0)?, 1 + u64::from(job.left().0));
        f.check(job)
    });
}
