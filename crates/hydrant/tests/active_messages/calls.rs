//! Calls in flight: many at once, awaited or not, to many ranks, one-way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
    thread,
};

use hydrant::{Error, Rank, Result, encoded_len, when_all, when_any};
use hydrant_base::block_on;

use crate::support::{builder, good, local};

#[test_on(every)]
fn many_calls_are_in_flight_at_once() {
    local(3, |job| {
        let square = job.function(|caller: Rank, n: u64| n * n + u64::from(caller.0))?;
        let own = u64::from(job.rank().0);
        for round in 0..5 {
            let calls = (0..40).map(|n| job.call_nb(Rank(n as u32 % 3), &square, &n));
            let calls = calls.collect::<Result<Vec<_>>>()?;
            let results = match round % 3 {
                0 => block_on(when_all(calls)),
                1 => job.wait_for(when_all(calls))?,
                _ => calls.into_iter().map(|call| call.wait()).collect(),
            };
            for (n, result) in (0..).zip(results) {
                assert_eq!(result?, n * n + own);
            }
        }
        job.barrier()
    });
}

#[test_on(every)]
fn a_result_is_given_once() {
    local(2, |job| {
        let next = job.function(|_, n: u64| n + 1)?;
        let mut call = job.call_nb(job.right(), &next, &6)?;
        let result = loop {
            if let Some(result) = call.test()? {
                break result;
            }
        };
        assert_eq!(result, 7);
        assert!(matches!(call.test(), Err(Error::OutOfTurn { .. })));
        let again = job.wait_for(&mut call)?;
        assert!(matches!(again, Err(Error::OutOfTurn { .. })), "{again:?}");
        assert!(matches!(call.wait(), Err(Error::OutOfTurn { .. })));
        job.barrier()
    });
}

#[test_on(every)]
fn calls_without_a_waiter_run() {
    let count = Arc::new(AtomicU64::new(0));
    local(2, |job| {
        let theirs = Arc::clone(&count);
        let add = job.function(move |_, n: u64| theirs.fetch_add(n, SeqCst))?;
        for n in 0..50 {
            let mut call = Box::pin(job.call_nb(job.right(), &add, &1)?);
            if n % 2 == 0 {
                let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        }
        job.am_quiet()?;
        job.barrier()
    });
    assert_eq!(count.load(SeqCst), 100);
}

#[test_on(every)]
fn one_argument_goes_to_many() {
    local(4, |job| {
        let say = job.function(|_, text: String| text.len() as u64)?;
        let text = "to each of them".to_owned();
        let calls = job.call_each(job.ranks(), &say, &text)?;
        for result in job.wait_for(when_all(calls))? {
            assert_eq!(result?, text.len() as u64);
        }
        let (_, first, others) =
            job.wait_for(when_any(job.call_each(job.ranks(), &say, &text)?))?;
        assert_eq!((first?, others.len()), (text.len() as u64, 3));
        drop(others);
        job.barrier()
    });
}

#[test_on(every)]
fn one_way_calls_are_counted_and_their_panics_reported() {
    let count = Arc::new(AtomicU64::new(0));
    local(2, |job| {
        let theirs = Arc::clone(&count);
        let add = job.function(move |_, n: u64| {
            assert!(n < 1000, "too many");
            theirs.fetch_add(n, SeqCst)
        })?;
        for n in 0..100 {
            job.call_one_way(job.right(), &add, &n)?;
        }
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(count.load(SeqCst), 2 * 99 * 50);
        job.call_one_way(job.right(), &add, &1000)?;
        let told = job.am_quiet();
        let panicked = matches!(told, Err(Error::HandlerPanicked { .. }));
        assert!(panicked, "{told:?}");
        job.barrier()
    });
}

#[test_on(every)]
fn the_handle_returns_the_failure() {
    local(2, |job| {
        let picky = job.function(|_, n: u64| {
            assert!(n != 7, "not seven");
            vec![0_u8; n as usize]
        })?;
        let panicked = block_on(job.call_nb(job.right(), &picky, &7)?);
        assert!(
            matches!(panicked, Err(Error::HandlerPanicked { .. })),
            "{panicked:?}"
        );
        let nobody = job.call_nb(Rank(9), &picky, &1);
        assert!(
            matches!(nobody, Err(Error::RankOutOfRange { .. })),
            "{nobody:?}"
        );
        job.barrier()
    });
}

#[test]
fn lengths_are_those_of_postcard() -> Result<()> {
    assert_eq!(encoded_len(&vec![0_u8; 5])?, 6);
    assert_eq!(encoded_len(&(127_u64, 128_u64))?, 3);
    assert_eq!(encoded_len("four")?, 5);
    assert_eq!(encoded_len(&[0.5_f64; 3])?, 24);
    Ok(())
}

/// Rank 1 does not poll, and ends.
#[test_on(every)]
fn a_call_to_a_rank_that_ends_ends() {
    let ends: Vec<Result<()>> = builder().service(false).run_local(3, |job| {
        let echo = job.function(|_, n: u64| n)?;
        job.barrier()?;
        if job.rank() == Rank(1) {
            if !job.settings().conduit.is_virtual() {
                thread::sleep(std::time::Duration::from_millis(30));
            }
            return Err(Error::other("enough"));
        }
        let begin = || job.call_nb(Rank(1), &echo, &0);
        // A call that comes before the rank has left the barrier may still be answered.
        let awaited = loop {
            let ended = begin().and_then(block_on);
            if ended.is_err() {
                break ended;
            }
        };
        assert!(
            matches!(awaited, Err(Error::PeerLost(Rank(1)))),
            "{awaited:?}"
        );
        let tested = begin().and_then(|mut call| {
            loop {
                if let Some(result) = call.test()? {
                    return Ok(result);
                }
            }
        });
        assert!(
            matches!(tested, Err(Error::PeerLost(Rank(1)))),
            "{tested:?}"
        );
        Err(Error::PeerLost(Rank(1)))
    });
    assert!(ends.iter().all(Result::is_err));
}

/// The service thread polls for the task, and the end of a peer wakes it.
#[test_on(every)]
fn the_end_of_a_peer_wakes_a_task() {
    let ends: Vec<Result<()>> = builder().run_local(2, |job| {
        let slow = job.function(|_, n: u64| {
            thread::sleep(std::time::Duration::from_millis(n));
            n
        })?;
        job.barrier()?;
        if job.rank() == Rank(1) {
            return Err(Error::other("enough"));
        }
        loop {
            // The call is answered, or fails, or is refused at once, depending on the moment.
            let ended = job.call_nb(Rank(1), &slow, &1).and_then(block_on);
            if ended.is_err() {
                assert!(matches!(ended, Err(Error::PeerLost(Rank(1)))), "{ended:?}");
                return ended.map(drop);
            }
        }
    });
    assert!(ends.iter().all(Result::is_err));
}

#[test_on(every)]
fn calls_of_another_job_are_refused() {
    let (first, other) = (builder(), builder());
    good(first.run_local(1, |job| {
        let mine = job.function(|_, n: u64| n)?;
        good(other.clone().run_local(1, |inner| {
            let refused = inner.call_nb(Rank(0), &mine, &1).map(drop);
            assert!(
                matches!(refused, Err(Error::ForeignHandle { .. })),
                "{refused:?}"
            );
            let refused = inner.call_one_way(Rank(0), &mine, &1);
            assert!(
                matches!(refused, Err(Error::ForeignHandle { .. })),
                "{refused:?}"
            );
            Ok(())
        }));
        Ok(())
    }));
}
