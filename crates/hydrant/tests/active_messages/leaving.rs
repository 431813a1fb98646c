//! Ranks that leave with operations in flight, and values that panic in their drops. No other rank
//! is blamed, and none waits for ever.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use hydrant::{Error, Job, Rank, Result};
use parking_lot::Mutex;

use crate::support::{builder, local};

/// Returns a future that a thread completes after this time.
fn after(time: Duration) -> impl Future<Output = ()> + Send {
    let state = Arc::new(Mutex::new((false, None::<Waker>)));
    let theirs = Arc::clone(&state);
    thread::spawn(move || {
        thread::sleep(time);
        let waker = {
            let mut state = theirs.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    std::future::poll_fn(move |context| {
        let mut state = state.lock();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    })
}

/// Runs three ranks, of which rank 0 fails. The others must hear that a rank is lost: rank 0, or
/// one that gave up first. They must not be expelled themselves.
fn rank_0_fails(body: impl Fn(&Job) -> Result<()> + Sync) {
    let ends = builder().run_local(3, body);
    for (rank, end) in ends.into_iter().enumerate().skip(1) {
        let cause = end.expect_err("a rank is lost");
        let told = matches!(cause, Error::PeerLost(_));
        assert!(told, "rank {rank} hears: {cause}");
    }
}

/// Rank 0 leaves while a function of its own awaits rank 1, and while rank 2 holds a loan of its
/// argument. The end of the loan polls. Rank 1 then answers a call that rank 0 has forgotten, which
/// breaks no rule.
#[test_on(every)]
fn a_rank_that_answers_a_leaving_rank_is_not_expelled() {
    rank_0_fails(|job| {
        let later = job.async_function(|_, milliseconds: u64| async move {
            after(Duration::from_millis(milliseconds)).await;
        })?;
        let keep = job.async_function(|_, _: Vec<u8>| pending::<()>())?;
        let block = job.handler(|_, _, _| thread::sleep(Duration::from_millis(500)))?;
        let here = job.downgrade();
        let relay = job.async_function(move |_, milliseconds: u64| {
            let onward = here
                .upgrade()
                .map(|job| job.call_nb(Rank(1), &later, &milliseconds));
            async move { onward?.ok()?.await.ok() }
        })?;
        job.barrier()?;
        if job.settings().conduit.is_virtual() {
            return if_first(job);
        }
        if job.rank() == Rank(0) {
            let _onward = job.call_nb(Rank(0), &relay, &250)?;
            let _lent = job.call_nb(Rank(2), &keep, &vec![0; 1 << 20])?;
            let until = job.now() + Duration::from_millis(100);
            while job.now() < until {
                job.poll();
            }
            // The end of the loan waits for rank 2, and polls meanwhile.
            job.request_short(Rank(2), block, &[])?;
            thread::sleep(Duration::from_millis(30));
        }
        if_first(job)
    });
}

/// Another thread of rank 0 drops its handles one by one, while rank 0 leaves.
#[test_on(every)]
fn a_rank_that_answers_a_dropped_handle_is_not_expelled() {
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(500));
        }
    }
    rank_0_fails(|job| {
        let pends = job.async_function(|_, _: u64| async move {
            let _held = Slow;
            pending::<()>().await;
        })?;
        let later = job.async_function(|_, milliseconds: u64| async move {
            after(Duration::from_millis(milliseconds)).await;
        })?;
        let keep = job.async_function(|_, _: Vec<u8>| pending::<()>())?;
        job.barrier()?;
        if job.settings().conduit.is_virtual() {
            return if_first(job);
        }
        if job.rank() == Rank(0) {
            let _kept = job.call_nb(Rank(0), &pends, &1)?;
            let long = job.call_nb(Rank(1), &keep, &vec![0; 1 << 20])?;
            thread::spawn(move || drop(long.wait()));
            let first = job.call_nb(Rank(1), &later, &250)?;
            let more = (0..40).map(|_| job.call_nb(Rank(1), &later, &2000));
            let mut more = more.collect::<Result<Vec<_>>>()?;
            thread::spawn(move || {
                _ = first.wait();
                for call in &mut more {
                    thread::sleep(Duration::from_millis(10));
                    _ = call.test();
                }
            });
            thread::sleep(Duration::from_millis(100));
        }
        if_first(job)
    });
}

fn if_first(job: &Job) -> Result<()> {
    match job.rank() {
        Rank(0) => Err(Error::other("rank 0 fails")),
        _ => job.barrier(),
    }
}

struct PanicsAtItsEnd(u64, bool);

impl<'de> serde::Deserialize<'de> for PanicsAtItsEnd {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        u64::deserialize(deserializer).map(|number| Self(number, false))
    }
}

impl serde::Serialize for PanicsAtItsEnd {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

struct WorkThatPanicsAtItsEnd(PanicsAtItsEnd);

impl Future for WorkThatPanicsAtItsEnd {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u64> {
        Poll::Ready(self.0.0)
    }
}

impl Drop for PanicsAtItsEnd {
    fn drop(&mut self) {
        assert!(!self.1, "dropped");
    }
}

#[test_on(every)]
fn results_and_futures_that_panic_in_their_drops_are_reported() {
    local(2, |job| {
        let result =
            job.async_function(|_, number: u64| async move { PanicsAtItsEnd(number, true) })?;
        let future =
            job.async_function(|_, number| WorkThatPanicsAtItsEnd(PanicsAtItsEnd(number, true)))?;
        let told = job.call(job.right(), &result, &1).map(|it| it.0);
        assert!(
            matches!(told, Err(Error::HandlerPanicked { .. })),
            "{told:?}"
        );
        let told = job.call(job.right(), &future, &1);
        assert!(
            matches!(told, Err(Error::HandlerPanicked { .. })),
            "{told:?}"
        );
        job.barrier()
    });
}
