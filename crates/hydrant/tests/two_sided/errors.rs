//! Messages and calls that fail, and the messages around them.

use std::sync::Mutex;

use hydrant::{AnySource, AnyTag, Error, MAX_TAG, Rank, Refused};

use super::{all, builder, by_each, local, numbers, numbers_of};

#[test]
fn a_receive_that_is_too_short_loses_nothing() {
    by_each(all(), 2, |job| {
        let (to, from) = (job.right(), job.left());
        for count in [100, 30_000] {
            // The receives are posted before the message comes.
            let short = job.receive_nb(from, 1, vec![0_u32; count - 1])?;
            let enough = job.receive_nb(from, 1, vec![0_u32; count])?;
            job.barrier()?;
            let send = job.send_nb(to, 1, numbers(job, 1, count))?;
            let cause = short.wait().expect_err("it is too short");
            let (len, room) = (4 * count as u64, 4 * count - 4);
            assert!(
                matches!(cause, Error::ReceiveTooShort { from: f, tag: 1, len: l, room: r }
                    if (f, l, r) == (from, len, room)),
                "{cause}"
            );
            assert!(
                cause
                    .to_string()
                    .contains(&format!("{len} bytes from rank {from}"))
            );
            assert_eq!(enough.wait()?.0, numbers_of(from, 1, count));
            send.wait()?;
            // The receive comes after the message.
            let send = job.send_nb(to, 2, numbers(job, 2, count))?;
            job.probe(from, 2)?;
            let mut short = vec![0_u32; count / 2];
            assert!(matches!(
                job.receive(from, AnyTag, &mut short),
                Err(Error::ReceiveTooShort { .. })
            ));
            assert_eq!(short, vec![0; count / 2], "nothing was written");
            let mut enough = vec![0; count];
            job.receive(from, AnyTag, &mut enough)?;
            assert_eq!(enough, numbers_of(from, 2, count));
            send.wait()?;
        }
        job.barrier()
    });
}

/// Returns the cause of a refusal. The buffer must come back.
fn given_back(refused: Refused<Vec<u8>>) -> Error {
    assert_eq!(refused.memory.as_deref(), Some(&[0][..]));
    refused.into()
}

#[test]
fn ranks_and_tags_out_of_range_are_refused() {
    local(2, |job| {
        let beyond = Rank(2);
        let mut buffer = [0_u8; 4];
        for refused in [
            job.send(beyond, 1, &buffer).err(),
            job.receive(beyond, 1, &mut buffer).err(),
            job.send_nb(beyond, 1, vec![0_u8]).err().map(given_back),
            job.receive_nb(beyond, 1, vec![0_u8]).err().map(given_back),
            job.probe(beyond, AnyTag).err(),
            job.try_probe(beyond, AnyTag).err(),
        ] {
            let refused = refused.expect("there is no such rank");
            assert!(matches!(refused, Error::RankOutOfRange { rank, size: 2 } if rank == beyond));
        }
        for refused in [
            job.send(Rank(0), MAX_TAG + 1, &buffer).err(),
            job.receive(AnySource, u64::MAX, &mut buffer).err(),
            job.try_probe_matched(AnySource, MAX_TAG + 1).err(),
        ] {
            let refused = refused.expect("the tag is reserved");
            assert!(
                matches!(refused, Error::ReservedTag { limit: MAX_TAG, .. }),
                "{refused}"
            );
        }
        let mut send = job.persistent_send(beyond, 1, vec![0_u8])?;
        assert!(matches!(send.start(), Err(Error::RankOutOfRange { .. })));
        job.send(job.right(), MAX_TAG, &[7_u8])?;
        job.receive(job.left(), MAX_TAG, &mut buffer)?;
        job.barrier()
    });
}

#[test]
fn handlers_cannot_send_or_receive() {
    local(1, |job| {
        let weak = job.downgrade();
        let refusals = job.function(move |_, ()| {
            let job = weak.upgrade()?;
            let refused = [
                job.send(Rank(0), 1, &[1_u8]).err(),
                job.receive(Rank(0), 1, &mut [1_u8]).err(),
                job.send_nb(Rank(0), 1, vec![1_u8]).err().map(Error::from),
            ];
            let in_handler = |it: &Option<Error>| matches!(it, Some(Error::InHandler { .. }));
            Some(refused.iter().all(in_handler))
        })?;
        assert_eq!(job.call(Rank(0), &refusals, &())?, Some(true));
        Ok(())
    });
}

#[test]
fn requests_that_wait_for_a_failed_rank_end() {
    for protocol in hydrant::MessageProtocol::ALL {
        let causes = Mutex::new(Vec::new());
        let builder = builder().messages(protocol).messages_eager(16);
        let ends = builder.run_local(3, |job| {
            if job.rank() == Rank(1) {
                // It comes before the loss, and is kept here.
                job.send(Rank(0), 9, &[9_u8])?;
                job.barrier()?;
                return Err(Error::other("it fails"));
            }
            job.barrier()?;
            let lost = Rank(1);
            let receive = job.receive_nb(lost, 1, vec![0_u8; 10])?;
            let large = job.receive_nb(lost, AnyTag, vec![0_u8; 100_000])?;
            let any = job.receive_nb(AnySource, 5, vec![0_u8; 10])?;
            let send = job.send_nb(lost, 2, vec![0_u8; 100_000]);
            if job.rank() == Rank(0) {
                assert_eq!(large.wait()?.0[..2], [9, 0]);
            } else {
                causes.lock().expect("no panic").push(large.wait().err());
            }
            let ends = [
                receive.wait().err(),
                any.wait().err(),
                send.map_err(Error::from).and_then(|send| send.wait()).err(),
                job.receive(lost, 1, &mut [0_u8; 1]).err(),
                job.receive(AnySource, 1, &mut [0_u8; 1]).err(),
                job.send(lost, 1, &[0_u8; 1]).err(),
                job.probe(lost, 1).err(),
                job.probe(AnySource, 1).err(),
            ];
            causes.lock().expect("no panic").extend(ends);
            Ok(())
        });
        assert!(ends[1].is_err());
        // The other ranks cannot end well either.
        assert!(ends[0].is_err() && ends[2].is_err());
        let causes = causes.into_inner().expect("no panic");
        assert_eq!(causes.len(), 17, "{protocol}: {ends:?}");
        for cause in causes {
            assert!(matches!(cause, Some(Error::PeerLost(_))), "{cause:?}");
        }
    }
}

#[test]
fn unanswered_requests_end_with_the_job() {
    by_each(all(), 2, |job| {
        let mut send = job.send_nb(job.right(), 1, vec![1_u8; 200_000])?;
        let mut receive = job.receive_nb(job.left(), 2, vec![1_u8; 200_000])?;
        job.barrier()?;
        assert!(!send.test()? && !receive.test()?);
        job.finalize()?;
        assert!(matches!(send.wait(), Err(Error::JobOver)));
        assert!(matches!(receive.wait(), Err(Error::JobOver)));
        assert!(matches!(job.send(Rank(0), 1, &[1_u8]), Err(Error::JobOver)));
        assert!(matches!(
            job.receive(Rank(0), 1, &mut [1_u8]),
            Err(Error::JobOver)
        ));
        Ok(())
    });
}

#[test]
fn a_scope_that_fails_waits_for_no_receiver() {
    by_each(all(), 2, |job| {
        let (short, long) = (vec![1_u8; 8], vec![2_u8; 200_000]);
        // Also to this rank itself, which cannot receive meanwhile.
        for to in job.ranks() {
            let end: hydrant::Result<()> = job.scope(|scope| {
                scope.send(to, 1, &short)?;
                scope.send(to, 2, &long)?;
                scope.send(to, 3, &[0_u8; 0])?;
                Err(Error::other("the body fails"))
            });
            assert!(end.is_err());
        }
        drop((short, long));
        job.barrier()?;
        for from in job.ranks() {
            let short: Vec<u8> = job.probe_matched(from, 1)?.receive_vec()?;
            assert_eq!(short, [1_u8; 8]);
            let long: Vec<u8> = job.probe_matched(from, 2)?.receive_vec()?;
            assert!(long.len() == 200_000 && long.iter().all(|byte| *byte == 2));
            assert_eq!(job.receive(from, 3, &mut [0_u8; 4])?.bytes(), 0);
        }
        job.barrier()
    });
}

#[test]
fn a_matched_message_is_not_received_after_the_end_of_the_job() {
    by_each(all(), 2, |job| {
        let send = job.send_nb(job.right(), 1, vec![1_u8; 200_000])?;
        let mut matched = job.probe_matched(job.left(), 1)?;
        job.barrier()?;
        job.finalize()?;
        let mut buffer = vec![0_u8; 200_000];
        // An eager message may be here.
        match matched.receive(&mut buffer) {
            Err(cause) => assert!(is_end(&cause), "{cause}"),
            Ok(status) => assert_eq!(status.bytes(), 200_000),
        }
        if let Err(cause) = send.wait() {
            assert!(is_end(&cause), "{cause}");
        }
        Ok(())
    });
}

#[test]
fn a_job_ends_amid_messages() {
    by_each(all(), 3, |job| {
        let (to, from) = (job.right(), job.left());
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        for tag in 0..6 {
            receives.push(job.receive_nb(from, tag, vec![0_u32; 100_000])?);
            sends.push(job.send_nb(to, tag, numbers(job, tag, 100_000))?);
        }
        // Some handles are dropped, and some are forgotten.
        drop((sends.pop(), receives.pop()));
        std::mem::forget((sends.pop(), receives.pop()));
        job.finalize()?;
        for (tag, receive) in receives.into_iter().enumerate() {
            match receive.wait() {
                Ok((data, _)) => assert!(data == numbers_of(from, tag as u64, 100_000)),
                Err(cause) => assert!(is_end(&cause), "{cause}"),
            }
        }
        for send in sends {
            if let Err(cause) = send.wait() {
                assert!(is_end(&cause), "{cause}");
            }
        }
        Ok(())
    });
}

/// Returns whether the cause is the end of the job, or a peer that left before this rank.
fn is_end(cause: &Error) -> bool {
    matches!(cause, Error::JobOver | Error::PeerLost(_))
}

#[test]
fn send_receive_sends_even_if_its_buffer_is_too_short() {
    for is_here in [false, true] {
        local(2, |job| {
            let (one, other) = (Rank(0), Rank(1));
            if job.rank() == other {
                if !is_here {
                    // The message is sent only after the receive was posted.
                    job.receive(one, 3, &mut [0_u8; 1])?;
                }
                job.send(one, 1, &[1_u8; 3])?;
                return job.receive(one, 2, &mut [0_u8; 1]).map(drop);
            }
            if is_here {
                job.probe(other, 1)?;
            }
            std::thread::scope(|threads| {
                threads.spawn(|| is_here || job.send(other, 3, &[0_u8; 1]).is_ok());
                let end = job.send_receive((other, 2, &[7_u8]), (other, 1, &mut [0_u8; 2]));
                assert!(matches!(end, Err(Error::ReceiveTooShort { .. })), "{end:?}");
            });
            job.receive(other, 1, &mut [0_u8; 3]).map(drop)
        });
    }
}

#[test]
fn a_refused_send_receive_takes_no_message() {
    local(2, |job| {
        let other = Rank(1);
        if job.rank() == other {
            return job.send(Rank(0), 1, &[1_u8; 3]);
        }
        job.probe(other, 1)?;
        let mut room = [0_u8; 3];
        for (to, tag) in [(Rank(9), 1), (other, MAX_TAG + 1)] {
            let end = job.send_receive((to, tag, &[7_u8]), (other, 1, &mut room));
            assert!(end.is_err() && room == [0; 3], "{end:?}");
        }
        assert_eq!(job.receive(other, 1, &mut room)?.bytes(), 3);
        Ok(())
    });
}
