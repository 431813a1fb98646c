//! The routes of messages, as the counters tell them.

use std::time::Duration;

use hydrant::{Counters, Job, JobBuilder, MessageProtocol, Rank, Result, Strategy};

use super::{pinned, simulated};

/// Sends a short and a long message, each probed before the receive. Returns the counters of both
/// ranks.
fn two(protocol: MessageProtocol) -> [Counters; 2] {
    let network = pinned(Strategy::PinDown).messages(protocol);
    let ends = network.run_local(2, |job| {
        for (tag, bytes) in [(1, 8), (2, 256 << 10)] {
            let mut buffer = vec![7_u8; bytes];
            if job.rank() == Rank(0) {
                job.send(Rank(1), tag, &buffer)?;
            } else {
                job.probe(Rank(0), tag)?;
                job.receive(Rank(0), tag, &mut buffer)?;
            }
        }
        job.barrier()?;
        Ok(job.counters())
    });
    let ends: Result<Vec<_>> = ends.into_iter().collect();
    ends.expect("they arrive").try_into().expect("two ranks")
}

#[test]
fn each_protocol_has_its_counter() {
    let sent = |it: Counters| {
        [
            it.messages_eager,
            it.messages_copied,
            it.messages_rendezvous,
            it.messages_pipeline,
        ]
    };
    for (protocol, expected) in [
        (MessageProtocol::Eager, [1, 1, 0, 0]),
        (MessageProtocol::Rendezvous, [0, 0, 2, 0]),
        (MessageProtocol::Pipeline, [0, 0, 1, 1]),
    ] {
        let [sender, receiver] = two(protocol);
        assert_eq!(sent(sender), expected, "{protocol}");
        assert_eq!(sent(receiver), [0; 4], "{protocol}");
        assert_eq!(sender.messages_unexpected, 0, "{protocol}");
        assert_eq!(receiver.messages_unexpected, 2, "{protocol}");
        assert_eq!(sender.messages_credit_waits, 0, "{protocol}");
    }
}

#[test]
fn waits_for_credit_are_counted() {
    const MESSAGES: usize = 2000;
    let ends = simulated("connectx").run_local(2, |job| {
        if job.rank() == Rank(0) {
            let sends = (0..MESSAGES).map(|_| job.send_nb(Rank(1), 1, vec![1_u8]));
            let sends: Vec<_> = sends.collect::<Result<_, _>>()?;
            job.barrier()?;
            for send in sends {
                send.wait()?;
            }
        } else {
            job.barrier()?;
            for _ in 0..MESSAGES {
                job.receive(Rank(0), 1, &mut [0_u8])?;
            }
        }
        job.barrier()?;
        Ok(job.counters())
    });
    let [sender, receiver] = &ends[..] else {
        panic!("two ranks: {ends:?}");
    };
    let (sender, receiver) = (sender.as_ref().unwrap(), receiver.as_ref().unwrap());
    assert_eq!(sender.messages_eager, MESSAGES as u64);
    // The receiver keeps 1024.
    assert_eq!(sender.messages_credit_waits, MESSAGES as u64 - 1024);
    assert!(receiver.messages_unexpected >= 1024, "{receiver:?}");
}

/// Sends messages there and back in virtual time, after some to warm up. Returns the time and the
/// counters.
fn there_and_back(network: JobBuilder, bytes: usize) -> (Duration, Counters) {
    const WARM: u32 = 10;
    const TIMES: u32 = 30;
    let ends = network.run_local(2, |job: &Job| {
        let (mut buffer, peer) = (vec![1_u8; bytes], job.right());
        let mut begun = job.now();
        for round in 0..WARM + TIMES {
            if round == WARM {
                begun = job.now();
            }
            if job.rank() == Rank(0) {
                job.send(peer, 1, &buffer)?;
                job.receive(peer, 1, &mut buffer)?;
            } else {
                job.receive(peer, 1, &mut buffer)?;
                job.send(peer, 1, &buffer)?;
            }
        }
        Ok((job.now() - begun, job.counters()))
    });
    let mut ends = ends.into_iter();
    ends.next().expect("a rank").expect("messages arrive")
}

#[test]
fn auto_takes_the_faster_route() {
    for leave_pinned in [false, true] {
        let strategy = Strategy::OnDemand { leave_pinned };
        let send_by = |protocol, bytes| {
            let network = simulated("connectx").registration(strategy);
            there_and_back(network.messages(protocol), bytes)
        };
        for bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let (copied, _) = send_by(MessageProtocol::Eager, bytes);
            let (written, _) = send_by(MessageProtocol::Rendezvous, bytes);
            let (_, counted) = send_by(MessageProtocol::Auto, bytes);
            let ways = [counted.messages_copied, counted.messages_rendezvous];
            let told = format!("{strategy}, {bytes} bytes: {copied:?} {written:?} {ways:?}");
            let [copies, writes] = ways;
            assert_eq!(copies + writes, 40, "{told}");
            // If both take about the same time, either is right.
            if copied * 21 < written * 20 {
                assert!(copies > 32, "{told}");
            } else if written * 21 < copied * 20 {
                assert!(writes > 32, "{told}");
            }
        }
    }
}
