//! Messages of any length, by any call: each is received, and in order.

use hydrant::{AnySource, AnyTag, Rank, Result};

use super::{all, by_each, local, numbers, numbers_of};

/// Elements of messages, from none to more than an active message carries.
const COUNTS: [usize; 8] = [0, 1, 15, 1000, 1024, 4097, 20_000, 50_000];

#[test]
fn every_length_arrives_by_every_protocol() {
    by_each(all(), 2, |job| {
        for (tag, count) in (0..).zip(COUNTS) {
            let sent = numbers(job, tag, count);
            let mut got = vec![u32::MAX; count + 3];
            let status = job.send_receive(
                (job.right(), tag, &sent[..]),
                (job.left(), tag, &mut got[..]),
            )?;
            assert_eq!((status.source(), status.tag()), (job.left(), tag));
            assert_eq!(status.count::<u32>(), Some(count));
            assert_eq!(got[..count], numbers_of(job.left(), tag, count));
            assert_eq!(
                got[count..],
                [u32::MAX; 3],
                "more was written than was sent"
            );
        }
        job.barrier()
    });
}

#[test]
fn messages_stay_in_order_if_either_side_is_first() {
    by_each(all(), 2, |job| {
        for late in [false, true] {
            if late && job.rank() == Rank(0) {
                job.barrier()?;
            }
            let receives = |job: &hydrant::Job| -> Result<()> {
                for (index, count) in COUNTS.into_iter().enumerate() {
                    let mut got = vec![0; 60_000];
                    let status = match index % 2 {
                        0 => job.receive(AnySource, AnyTag, &mut got)?,
                        _ => job.receive(Rank(1), 5, &mut got)?,
                    };
                    assert_eq!(status.count::<u32>(), Some(count), "message {index}");
                    assert_eq!(got[..count], numbers_of(Rank(1), 5, count));
                }
                Ok(())
            };
            if job.rank() == Rank(0) {
                receives(job)?;
            } else {
                let sent: Vec<_> = COUNTS
                    .into_iter()
                    .map(|count| job.send_nb(Rank(0), 5, numbers(job, 5, count)))
                    .collect::<Result<_, _>>()?;
                if late {
                    job.barrier()?;
                }
                for (handle, count) in sent.into_iter().zip(COUNTS) {
                    assert_eq!(
                        handle.wait()?,
                        numbers(job, 5, count),
                        "the buffer comes back"
                    );
                }
            }
            job.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn a_rank_sends_to_itself() {
    by_each(all(), 1, |job| {
        let me = job.rank();
        for (tag, count) in (0..).zip(COUNTS) {
            job.send(me, tag, &numbers(job, tag, count))?;
            let mut got = vec![0; count];
            job.receive(AnySource, tag, &mut got)?;
            assert_eq!(got, numbers(job, tag, count));
            let receive = job.receive_nb(me, tag, got)?;
            let send = job.send_nb(me, tag, numbers(job, tag, count))?;
            assert_eq!(receive.wait()?.0, numbers(job, tag, count));
            send.wait()?;
        }
        Ok(())
    });
}

#[test]
fn borrowed_buffers_live_in_a_scope() {
    by_each(all(), 3, |job| {
        let sent: Vec<_> = (0..4).map(|tag| numbers(job, tag, 9000)).collect();
        let mut got = vec![vec![0; 9000]; 4];
        job.scope(|scope| {
            for (tag, buffer) in (0..).zip(&mut got) {
                scope.receive(job.left(), tag, buffer)?;
            }
            // In another order than the receives.
            for tag in (0..4).rev() {
                let send = scope.send(job.right(), tag, &sent[tag as usize])?;
                if tag == 2 {
                    send.wait_local()?;
                }
            }
            Ok(())
        })?;
        for (tag, buffer) in (0..).zip(&got) {
            assert_eq!(*buffer, numbers_of(job.left(), tag, 9000));
        }
        job.barrier()
    });
}

#[test]
fn synchronous_sends_of_a_scope_end_when_they_are_received() {
    by_each(all(), 2, |job| {
        let (one, other) = (Rank(0), Rank(1));
        let data = [numbers_of(one, 1, 2), numbers_of(one, 1, 50_000)];
        if job.rank() == other {
            let mut got = vec![0; 50_000];
            for _ in &data {
                job.receive(one, 1, &mut got)?;
            }
            job.barrier()?;
            for sent in &data {
                let bytes = job.receive(one, 2, &mut got)?.bytes();
                assert_eq!((&got[..sent.len()], bytes), (&sent[..], 4 * sent.len()));
            }
            return job.barrier();
        }
        job.scope(|scope| {
            for sent in &data {
                let mut send = scope.send(other, 1, sent)?;
                let status = send.wait()?;
                let known = (status.source(), status.tag(), status.count::<u32>());
                assert_eq!(known, (one, 1, Some(sent.len())));
                assert!(send.test()?, "it is over");
                let again = send.wait();
                assert!(
                    matches!(again, Err(hydrant::Error::OutOfTurn { .. })),
                    "{again:?}"
                );
            }
            let mut sends = Vec::new();
            for sent in &data {
                sends.push(scope.send_synchronous(other, 2, sent)?);
            }
            for send in &mut sends {
                assert!(!send.test()?, "the receiver waits in a barrier");
            }
            job.barrier()?;
            sends.iter_mut().try_for_each(|send| send.wait().map(drop))
        })?;
        job.barrier()
    });
}

#[test]
fn short_sends_of_a_scope_wait_for_no_receiver() {
    local(2, |job| {
        let data = numbers(job, 1, 10);
        // All sends come before the first receive.
        job.scope(|scope| (0..9).try_for_each(|_| scope.send(job.right(), 1, &data).map(drop)))?;
        job.barrier()?;
        let mut got = [0; 10];
        for _ in 0..9 {
            // The messages are here, so the scope waits for nothing.
            job.scope(|scope| scope.receive(job.left(), 1, &mut got)?.wait().map(drop))?;
            assert_eq!(got[..], numbers_of(job.left(), 1, 10));
        }
        job.barrier()
    });
}

#[test]
fn a_failed_scope_waits_for_no_message() {
    by_each(all(), 2, |job| {
        let data = numbers(job, 1, 30_000);
        let mut room = vec![0; 10];
        let failed = job.scope(|scope| {
            scope.receive(job.left(), 99, &mut room)?;
            scope.send(job.right(), 1, &data)?;
            Err::<(), _>(hydrant::Error::other("no more"))
        });
        assert_eq!(failed.expect_err("it fails").to_string(), "no more");
        // The message still arrives, from a copy.
        drop(data);
        let mut got = vec![0; 30_000];
        job.receive(job.left(), 1, &mut got)?;
        assert_eq!(got, numbers_of(job.left(), 1, 30_000));
        job.barrier()
    });
}

#[test]
fn handles_are_futures_and_may_be_dropped() {
    by_each(all(), 2, |job| {
        let receive = job.receive_nb(job.left(), 1, vec![0; 30_000])?;
        drop(job.send_nb(job.right(), 1, numbers(job, 1, 30_000))?);
        let (got, status) = job.wait_for(receive)??;
        assert_eq!(got, numbers_of(job.left(), 1, 30_000));
        assert_eq!(status.bytes(), 120_000);
        // A withdrawn receive gets nothing, and neither does a dropped one.
        let receive = job.receive_nb(job.left(), 2, vec![7; 3])?;
        assert_eq!(receive.cancel().ok(), Some(vec![7; 3]));
        drop(job.receive_nb(job.left(), 2, vec![0; 3])?);
        job.barrier()?;
        let send = job.send_nb(job.right(), 2, vec![1, 2, 3])?;
        let mut got = [0; 3];
        job.receive(job.left(), 2, &mut got)?;
        assert_eq!(got, [1, 2, 3]);
        job.wait_for(send)??;
        job.barrier()
    });
}

#[test]
fn persistent_sends_and_receives_are_repeated() {
    by_each(all(), 2, |job| {
        let mut send = job.persistent_send(job.right(), 3, vec![0_u32; 5000])?;
        let mut receive = job.persistent_receive(job.left(), 3, vec![0_u32; 5000])?;
        assert!(receive.wait().is_err(), "it was not started");
        for round in 0..5 {
            send.buffer()?.fill(round);
            receive.start()?;
            send.start()?;
            assert!(
                send.start().is_err() && send.buffer().is_err(),
                "it was started"
            );
            send.wait()?;
            assert_eq!(receive.wait()?.count::<u32>(), Some(5000));
            assert_eq!(receive.buffer()?, [round; 5000]);
        }
        job.barrier()
    });
}

#[test]
fn a_send_is_delivered_later_than_its_source_is_free() {
    local(2, |job| {
        if job.rank() == Rank(0) {
            let mut send = job.send_nb(Rank(1), 1, vec![1_u8; 10])?;
            send.wait_local()?;
            job.barrier()?;
            assert!(!send.test()?, "nobody has received it");
            job.barrier()?;
            send.wait()?;
        } else {
            job.barrier()?;
            job.barrier()?;
            job.receive(Rank(0), 1, &mut [0_u8; 10])?;
        }
        job.barrier()
    });
}
