//! A collective that ends before its data is out, and what its members are told who are slower.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use hydrant::{Error, Job, Op, Pod, Rank, Result};

use super::outcomes;
use crate::support::builder;

/// Elements that boards have no room for at once.
const MANY: usize = 1 << 18;

fn numbers(rank: Rank) -> Vec<u64> {
    (0..MANY as u64).map(|at| at + u64::from(rank.0)).collect()
}

/// Rank 2 ends after it has agreed; rank 0 is told, and calls again; rank 1 computes meanwhile. What it gets
/// is `wanted`, or an error.
fn slow_member_is_not_deceived<T: Pod + PartialEq>(
    begin: fn(&Job) -> Result<hydrant::BackgroundHandle<Vec<T>>>,
    wanted: fn() -> Vec<T>,
) {
    let ends = builder().heap(4 << 20).service(false).run_local(3, |job| {
        job.barrier()?;
        match job.rank() {
            Rank(0) => {
                let ended = begin(job)?.wait().map(drop);
                assert!(matches!(ended, Err(Error::PeerLost(Rank(2)))), "{ended:?}");
                let ended = begin(job).and_then(|begun| begun.wait().map(drop));
                assert!(ended.is_err(), "{ended:?}");
                thread::sleep(Duration::from_millis(400));
                Ok(())
            }
            Rank(1) => {
                let begun = begin(job)?;
                thread::sleep(Duration::from_millis(250));
                if let Ok(got) = begun.wait() {
                    assert!(got == wanted(), "a result that is none");
                }
                Ok(())
            }
            _ => {
                drop(begin(job)?);
                thread::sleep(Duration::from_millis(60));
                Err(Error::other("had enough"))
            }
        }
    });
    assert!(matches!(ends[2], Err(Error::Other(_))), "{:?}", ends[2]);
}

#[test_on(every)]
fn a_broadcast_that_was_given_up_is_not_taken_for_whole() {
    let begin = |job: &Job| job.broadcast_nb(Rank(0), numbers(Rank(0)));
    slow_member_is_not_deceived::<u64>(begin, || numbers(Rank(0)));
}

#[test_on(every)]
fn a_gathering_that_was_given_up_is_not_taken_for_whole() {
    let begin = |job: &Job| job.all_gather_nb(numbers(job.rank()));
    slow_member_is_not_deceived::<u64>(begin, || {
        (0..3).flat_map(|rank| numbers(Rank(rank))).collect()
    });
}

/// Rank 0's function panics while rank 1 is in its own; what rank 0 has begun behind it goes on.
#[test_on(every)]
fn a_panic_is_no_end_of_the_data_for_others() {
    // A slice fits a board, so that nobody waits for room.
    const LEN: usize = 20_000;
    let ends = outcomes(2, |job| {
        job.barrier()?;
        let (me, slept) = (job.rank(), AtomicBool::new(false));
        let add = move |left: u64, right: u64| {
            assert!(me != Rank(0), "as asked");
            if !slept.swap(true, Relaxed) {
                thread::sleep(Duration::from_millis(100));
            }
            left + right
        };
        let first = job.all_reduce_with_nb(vec![1_u64; LEN], add)?;
        // Unless rank 0 is known to be lost by now.
        let second = job.all_reduce_nb(vec![1_u64; LEN], Op::Sum);
        match me {
            Rank(0) => {
                let ended = catch_unwind(AssertUnwindSafe(|| first.wait()));
                assert!(ended.is_err(), "it does not panic");
            }
            _ => {
                let ended = first.wait().map(drop);
                assert!(matches!(ended, Err(Error::PeerLost(Rank(0)))), "{ended:?}");
            }
        }
        assert!(second.and_then(|begun| begun.wait().map(drop)).is_err());
        Ok(())
    });
    assert!(ends[0].is_err(), "{:?}", ends[0]);
}

/// Who was told that a member is lost, or panicked, ends no collective of the team any more: also if it is the last to come, and
/// finds there what all others told.
#[test_on(every)]
fn what_comes_after_a_panic_fails_for_all() {
    for round in 0..20 {
        outcomes(3 + round % 4, |job| {
            let panics = job.rank() == Rank(2);
            let add = move |left: u64, right: u64| {
                assert!(!panics, "as asked");
                left + right
            };
            let first = catch_unwind(AssertUnwindSafe(|| {
                job.all_reduce_with(&mut vec![1; 9000], add)
            }));
            match first {
                Err(_) => assert!(panics),
                // What it waited for was there before.
                Ok(Ok(())) => return Ok(()),
                Ok(Err(cause)) => assert!(matches!(cause, Error::PeerLost(Rank(2))), "{cause}"),
            }
            for _ in 0..4 {
                let later = job.all_gather(&[job.rank().0]);
                if panics {
                    // In virtual time it is told later that it is lost itself.
                    assert!(later.is_err(), "{later:?}")
                } else {
                    assert!(matches!(later, Err(Error::PeerLost(_))), "{later:?}")
                }
            }
            Ok(())
        });
    }
}

/// A member that is slow is told of the member that was lost, not of whoever else was lost before.
#[test_on(every)]
fn who_is_named_is_a_member() {
    const LEN: usize = 50_000;
    let ends = builder().heap(4 << 20).service(false).run_local(4, |job| {
        let mut own = job.exclusive(job.alloc::<u64>(LEN)?)?;
        own.fill(1);
        let team = (job.world()).split((job.rank() != Rank(3)).then_some(0), 0)?;
        job.barrier()?;
        let Some(team) = team else {
            // The others are to be through the barrier: who ends right behind it may be missed there.
            thread::sleep(Duration::from_millis(25));
            return Err(Error::other("had enough"));
        };
        // Rank 3 is the first that is lost.
        thread::sleep(Duration::from_millis(50));
        let ended = match job.rank() {
            Rank(0) => team.all_gather_into(&own, &mut vec![0; 3 * LEN]),
            Rank(1) => {
                let begun = team.all_gather_nb(vec![1_u64; LEN])?;
                thread::sleep(Duration::from_millis(250));
                begun.wait().map(drop)
            }
            _ => {
                drop(team.all_gather_nb(vec![1_u64; LEN])?);
                thread::sleep(Duration::from_millis(60));
                return Err(Error::other("had enough"));
            }
        };
        assert!(matches!(ended, Err(Error::PeerLost(Rank(2)))), "{ended:?}");
        thread::sleep(Duration::from_millis(400));
        Ok(())
    });
    assert!(matches!(ends[2], Err(Error::Other(_))), "{:?}", ends[2]);
}
