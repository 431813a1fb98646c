//! Operations that a rank has in flight when it comes to the end of the job are completed.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{AnySource, Error, Function, Rank};
use parking_lot::Mutex;

use crate::support::local;

const COUNT: u64 = 50;
/// More bytes than one message takes.
const LONG: usize = 100_000;

#[test_on(every)]
fn one_way_calls_run_before_the_job_ends() {
    let ran = Arc::new(AtomicU64::new(0));
    local(2, |job| {
        let ran = Arc::clone(&ran);
        let note = job.function(move |_, bytes: Vec<u8>| {
            ran.fetch_add(bytes.len() as u64, SeqCst);
        })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            for _ in 0..COUNT {
                job.call_one_way(Rank(1), &note, &vec![7; LONG])?;
                job.call_one_way(Rank(1), &note, &vec![7; 10])?;
            }
        }
        Ok(())
    });
    assert_eq!(ran.load(SeqCst), COUNT * (LONG as u64 + 10));
}

#[test_on(every)]
fn am_quiet_waits_for_one_way_calls_however_long() {
    let (ran, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    local(2, |job| {
        let (own, later) = (Arc::clone(&ran), Arc::clone(&begun));
        let note = job.function(move |_, _: Vec<u8>| _ = own.fetch_add(1, SeqCst))?;
        // The task never ends, and nothing waits for it.
        let begin = job.async_function(move |_, _: Vec<u8>| {
            later.fetch_add(1, SeqCst);
            std::future::pending::<()>()
        })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            for _ in 0..COUNT {
                job.call_one_way(Rank(1), &note, &vec![7; LONG])?;
                job.call_one_way(Rank(1), &begin, &vec![7; LONG])?;
            }
            job.am_quiet()?;
            assert_eq!((ran.load(SeqCst), begun.load(SeqCst)), (COUNT, COUNT));
        }
        job.barrier()
    });
}

#[test_on(every)]
fn am_quiet_tells_of_one_way_calls_that_failed_however_long() {
    std::panic::set_hook(Box::new(|_| {}));
    local(2, |job| {
        let fail = job.function(|_, _: Vec<u8>| -> () { panic!("on purpose") })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            for len in [10, LONG] {
                job.call_one_way(Rank(1), &fail, &vec![7; len])?;
                let told = job.am_quiet();
                assert!(
                    matches!(&told, Err(Error::HandlerPanicked { rank: Rank(1), message, .. })
                        if message == "on purpose"),
                    "{len} bytes: {told:?}"
                );
                job.am_quiet()?;
            }
        }
        job.barrier()
    });
}

#[test_on(every)]
fn calls_are_answered_before_the_job_ends() {
    let kept = Mutex::new(Vec::new());
    local(2, |job| {
        let length = job.async_function(|_, bytes: Vec<u8>| async move { bytes })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            for len in [10, LONG] {
                for _ in 0..COUNT {
                    kept.lock()
                        .push(job.call_nb(Rank(1), &length, &vec![7_u8; len])?);
                }
            }
        }
        Ok(())
    });
    let kept = kept.into_inner();
    assert_eq!(kept.len() as u64, 2 * COUNT);
    for (number, call) in kept.into_iter().enumerate() {
        let bytes = call
            .wait()
            .unwrap_or_else(|cause| panic!("call {number}: {cause}"));
        assert!(bytes.iter().all(|byte| *byte == 7) && [10, LONG].contains(&bytes.len()));
    }
}

#[test_on(every)]
fn messages_are_received_before_the_job_ends() {
    for (count, len) in [(3000, 8), (COUNT, 3000), (20, LONG)] {
        let (sends, receives) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        local(2, |job| {
            if job.rank() == Rank(1) {
                for tag in 0..count {
                    receives
                        .lock()
                        .push(job.receive_nb(Rank(0), tag, vec![0_u8; len])?);
                }
            }
            job.barrier()?;
            if job.rank() == Rank(0) {
                for tag in 0..count {
                    sends
                        .lock()
                        .push(job.send_nb(Rank(1), tag, vec![tag as u8; len])?);
                }
            }
            Ok(())
        });
        for send in sends.into_inner() {
            send.wait()
                .unwrap_or_else(|cause| panic!("{count} of {len} bytes: {cause}"));
        }
        for (tag, receive) in receives.into_inner().into_iter().enumerate() {
            let (data, _) = receive
                .wait()
                .unwrap_or_else(|cause| panic!("{tag} of {count} of {len} bytes: {cause}"));
            assert!(data.iter().all(|byte| *byte == tag as u8));
        }
    }
}

/// A function waits for a message that no rank sends, and its caller keeps the handle.
#[test_on(every)]
fn a_function_that_receives_in_vain_holds_no_rank_up() {
    let kept = Mutex::new(Vec::new());
    local(2, |job| {
        let receives = match job.rank() {
            Rank(1) => vec![
                job.receive_nb(Rank(0), 1, vec![0_u8])?,
                job.receive_nb(AnySource, 1, vec![0_u8])?,
            ],
            _ => Vec::new(),
        };
        let receives = Mutex::new(receives);
        let receive = job.async_function(move |_, ()| {
            let receive = receives.lock().pop();
            async move {
                match receive {
                    Some(receive) => matches!(receive.await, Err(Error::JobOver)),
                    None => false,
                }
            }
        })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            for _ in 0..2 {
                kept.lock().push(job.call_nb(Rank(1), &receive, &())?);
            }
        }
        Ok(())
    });
    let kept = kept.into_inner();
    assert_eq!(kept.len(), 2);
    for call in kept {
        let told = call.wait();
        assert!(matches!(told, Ok(true)), "{told:?}");
    }
}

/// A function that only waits, for something that is not of this job.
#[test_on(every)]
fn a_function_that_never_answers_holds_no_rank_up() {
    let kept = Mutex::new(Vec::new());
    local(2, |job| {
        let wait = job.async_function(|_, _: Vec<u8>| std::future::pending::<()>())?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            for len in [10, LONG] {
                (kept.lock()).push(job.call_nb(Rank(1), &wait, &vec![7; len])?);
            }
        }
        if job.settings().conduit.is_virtual() {
            return Ok(());
        }
        thread::scope(|threads| {
            let waits = threads.spawn(|| job.call(job.right(), &wait, &vec![7; 10]));
            // It waits by then, or finds the job over.
            thread::sleep(Duration::from_millis(50));
            job.finalize()?;
            let told = waits.join().expect("no panic");
            assert!(matches!(told, Err(Error::JobOver)), "{told:?}");
            Ok(())
        })
    });
    for call in kept.into_inner() {
        let told = call.wait();
        assert!(matches!(told, Err(Error::JobOver)), "{told:?}");
    }
}

/// Each rank has nothing else to do when a call of another's function comes.
#[test_on(every)]
fn calls_that_functions_make_at_the_end_run() {
    const HOPS: u64 = 30;
    let ran = Arc::new(AtomicU64::new(0));
    local(3, |job| {
        let relay = Arc::new(OnceLock::<Function<(u64, Vec<u8>), ()>>::new());
        let (here, next, ran) = (job.downgrade(), Arc::clone(&relay), Arc::clone(&ran));
        let hop = job.function(move |_, (left, bytes): (u64, Vec<u8>)| {
            ran.fetch_add(1, SeqCst);
            if let (Some(job), Some(next)) = (here.upgrade(), next.get())
                && left > 0
            {
                let called = job.call_one_way(job.right(), next, &(left - 1, bytes));
                called.unwrap_or_else(|cause| panic!("{left} hops before the end: {cause}"));
            }
        })?;
        relay.set(hop).expect("it is set once");
        job.barrier()?;
        if job.rank() == Rank(0) {
            for len in [10, LONG] {
                job.call_one_way(Rank(1), &hop, &(HOPS, vec![7; len]))?;
            }
        }
        Ok(())
    });
    assert_eq!(ran.load(SeqCst), 2 * (HOPS + 1));
}
