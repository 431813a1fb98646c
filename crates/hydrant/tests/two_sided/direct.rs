//! Short messages that a receive takes on arrival: they keep their order with posted receives and
//! kept messages, and no other rank waits because of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{AnySource, AnyTag, Error, Job, Rank, Result};

use super::{all, builder, by_each, good, local};

const ROUNDS: u64 = 2000;

/// A kind of receive for a number of rank 1.
type Receive = fn(&Job, &mut [u64]) -> Result<()>;

/// Rank 1 sends the numbers up to `ROUNDS`, and rank 0 receives them.
fn stream(receive: impl Fn(&hydrant::Job, u64) -> hydrant::Result<u64> + Sync) {
    by_each(all(), 2, |job| {
        for number in 0..ROUNDS / 20 {
            match job.rank() {
                Rank(0) => assert_eq!(receive(job, number)?, number),
                _ => job.send(Rank(0), 3, &[number])?,
            }
        }
        job.barrier()
    });
}

#[test]
fn receives_of_all_kinds_get_messages_in_order() {
    stream(|job, number| {
        let mut got = [u64::MAX];
        match number % 4 {
            0 => _ = job.receive(Rank(1), 3, &mut got)?,
            1 => _ = job.receive(AnySource, AnyTag, &mut got)?,
            2 => job.scope(|scope| scope.receive(AnySource, 3, &mut got).map(drop))?,
            _ => got[0] = job.receive_nb(Rank(1), AnyTag, vec![0])?.wait()?.0[0],
        }
        Ok(got[0])
    });
}

#[test]
fn kept_messages_come_before_arriving_ones() {
    stream(|job, number| {
        let mut got = [u64::MAX];
        if number.is_multiple_of(3) {
            // This message and the next ones may be kept by now.
            job.probe(AnySource, 3)?;
        }
        job.receive(Rank(1), 3, &mut got)?;
        Ok(got[0])
    });
}

#[test]
fn posted_receives_come_before_direct_ones() {
    local(2, |job| {
        for number in 0..ROUNDS {
            if job.rank() == Rank(0) {
                let posted = job.receive_nb(AnySource, AnyTag, vec![0_u64])?;
                let mut second = [0];
                job.receive(Rank(1), 3, &mut second)?;
                assert_eq!((posted.wait()?.0[0], second[0]), (number, ROUNDS + number));
            } else {
                job.send(Rank(0), 3, &[number])?;
                job.send(Rank(0), 3, &[ROUNDS + number])?;
            }
        }
        job.barrier()
    });
}

#[test]
fn messages_that_do_not_fit_are_kept_for_other_receives() {
    local(2, |job| {
        for number in 0..ROUNDS {
            if job.rank() == Rank(0) {
                let mut got = [0_u64];
                job.receive(Rank(1), 2, &mut got)?;
                assert_eq!(got, [number]);
                let short = job.receive(Rank(1), 1, &mut [0_u8; 3]);
                assert!(matches!(
                    short,
                    Err(Error::ReceiveTooShort {
                        len: 8,
                        room: 3,
                        ..
                    })
                ));
                job.receive(Rank(1), 1, &mut got)?;
                assert_eq!(got, [ROUNDS + number]);
            } else {
                job.send(Rank(0), 1, &[ROUNDS + number])?;
                job.send(Rank(0), 2, &[number])?;
            }
        }
        job.barrier()
    });
}

#[test]
fn a_rank_that_only_receives_answers_calls() {
    const LAST: u64 = u64::MAX;
    let calls = Arc::new(AtomicU64::new(0));
    let ends = builder().service(false).run_local(3, |job| {
        let calls = Arc::clone(&calls);
        let counts = job.function(move |_, ()| calls.fetch_add(1, SeqCst))?;
        job.barrier()?;
        match job.rank() {
            Rank(0) => {
                let mut got = [0];
                while got != [LAST] {
                    job.receive(Rank(1), 3, &mut got)?;
                }
            }
            // While rank 2 calls, there is always another message of this rank.
            Rank(1) => {
                while job.try_probe(Rank(2), 4)?.is_none() {
                    job.send(Rank(0), 3, &[0_u64])?;
                }
                job.receive(Rank(2), 4, &mut [0_u8])?;
                job.send(Rank(0), 3, &[LAST])?;
            }
            _ => {
                for count in 0..100 {
                    assert_eq!(job.call(Rank(0), &counts, &())?, count);
                }
                job.send(Rank(1), 4, &[0_u8])?;
            }
        }
        job.barrier()
    });
    good(ends);
}

#[test]
fn a_rank_that_receives_kept_messages_answers_calls() {
    const MESSAGES: u64 = 600;
    let at_once = |job: &Job, got: &mut [u64]| job.receive(Rank(1), 3, got).map(drop);
    let in_scope =
        |job: &Job, got: &mut [u64]| job.scope(|scope| scope.receive(Rank(1), 3, got).map(drop));
    let begun = |job: &Job, got: &mut [u64]| {
        let (data, _) = job.receive_nb(Rank(1), 3, vec![0; 1])?.wait()?;
        got.copy_from_slice(&data);
        Ok(())
    };
    let again_and_again = |job: &Job, got: &mut [u64]| {
        let mut receive = job.persistent_receive(Rank(1), 3, vec![0; 1])?;
        receive.start()?;
        receive.wait()?;
        got.copy_from_slice(receive.buffer()?);
        Ok(())
    };
    let taken_out =
        |job: &Job, got: &mut [u64]| job.probe_matched(Rank(1), 3)?.receive(got).map(drop);
    let seen_and_taken_out = |job: &Job, got: &mut [u64]| loop {
        if let Some(mut message) = job.try_probe_matched(Rank(1), 3)? {
            return message.receive(got).map(drop);
        }
    };
    let beside_a_send = |job: &Job, got: &mut [u64]| {
        job.send_receive((Rank(1), 99, &[0_u8]), (Rank(1), 3, got))
            .map(drop)
    };
    let ways: [Receive; 7] = [
        at_once,
        in_scope,
        begun,
        again_and_again,
        taken_out,
        seen_and_taken_out,
        beside_a_send,
    ];
    for receive in ways {
        let (calls, is_asking) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
        let ends = builder().service(false).run_local(3, |job| {
            let counted = Arc::clone(&calls);
            let counts = job.function(move |_, ()| counted.fetch_add(1, SeqCst))?;
            job.barrier()?;
            match job.rank() {
                Rank(0) => {
                    // All messages of rank 1 are kept here.
                    job.receive(Rank(1), 4, &mut [0_u8])?;
                    job.send(Rank(2), 5, &[0_u8])?;
                    while !is_asking.load(SeqCst) {
                        thread::yield_now();
                    }
                    for number in 0..MESSAGES {
                        let mut got = [0];
                        receive(job, &mut got)?;
                        assert_eq!(got, [number]);
                        thread::sleep(Duration::from_micros(200));
                    }
                    assert!(calls.load(SeqCst) > 0, "rank 2 calls in vain");
                }
                Rank(1) => {
                    for number in 0..MESSAGES {
                        job.send(Rank(0), 3, &[number])?;
                    }
                    job.send(Rank(0), 4, &[0_u8])?;
                }
                _ => {
                    job.receive(Rank(0), 5, &mut [0_u8])?;
                    is_asking.store(true, SeqCst);
                    job.call(Rank(0), &counts, &())?;
                }
            }
            job.barrier()
        });
        good(ends);
    }
}

/// Ranks that send other requests in between keep the receiver busy with kept messages. A rank that
/// sends nothing else must still be answered.
#[test]
fn a_rank_that_receives_from_many_answers_all() {
    const CALLS: u64 = 20;
    const LAST: u64 = u64::MAX;
    /// Far more messages than the calls need.
    const MOST: u32 = 40_000;
    let is_over = AtomicBool::new(false);
    let ends = builder().service(false).run_local(5, |job| {
        let adds = job.function(|_, number: u64| number + 1)?;
        let ignores = job.handler(|_, _, _| {})?;
        job.barrier()?;
        let mut got = [0];
        match job.rank() {
            Rank(0) => {
                let (mut last, mut received) = (0, 0);
                while last < 4 {
                    job.receive(AnySource, 3, &mut got)?;
                    last += u32::from(got == [LAST]);
                    if !is_over.load(SeqCst) {
                        received += 1;
                        assert!(received < MOST, "rank 1 calls in vain");
                        // The other ranks have always sent more by then.
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            }
            // A message comes before each call.
            Rank(1) => {
                for number in 0..CALLS {
                    job.send(Rank(0), 3, &[number])?;
                    assert_eq!(job.call(Rank(0), &adds, &number)?, number + 1);
                }
                is_over.store(true, SeqCst);
                job.send(Rank(0), 3, &[LAST])?;
            }
            _ => {
                while !is_over.load(SeqCst) {
                    job.request_short(Rank(0), ignores, &[])?;
                    job.send(Rank(0), 3, &[0_u64])?;
                }
                job.send(Rank(0), 3, &[LAST])?;
            }
        }
        job.barrier()
    });
    good(ends);
}
