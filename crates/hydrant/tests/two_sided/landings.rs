//! Long messages written to landings in the receiver's buffer: memory is registered, and peers do
//! not map each other's memory.

use std::time::Duration;

use hydrant::{Error, InterNodeKind, Job, JobBuilder, MessageProtocol, Rank, Result, Strategy};

use super::{good, simulated};

/// Two hosts with one rank each, and virtual time, with little, more and much memory to register.
fn networks() -> Vec<JobBuilder> {
    let hosts = Job::builder().expect("the settings are valid");
    let hosts = hosts.heap(16 << 20).inter_node(InterNodeKind::Pinned);
    let networks = [hosts.pretend_hosts(2), simulated("connectx")].map(|it| {
        it.registration(Strategy::Firehose)
            .messages(MessageProtocol::Rendezvous)
    });
    let victims = [64 << 10, 1 << 20, 64 << 20];
    (networks.iter())
        .flat_map(|it| victims.map(|bytes| it.clone().m(1 << 20).maxvictim(bytes)))
        .collect()
}

fn byte(tag: u64, index: usize) -> u8 {
    ((index as u64).wrapping_mul(2_654_435_761) + tag * 77).to_le_bytes()[2]
}

/// Sends a message from and into the middle of other memory, which must not change.
fn bring(job: &Job, tag: u64, len: usize, [from, to]: [usize; 2]) -> Result<()> {
    const AROUND: usize = 9000;
    if job.rank() == Rank(0) {
        let mut memory = vec![0xee; len + AROUND];
        let message = &mut memory[from..from + len];
        message
            .iter_mut()
            .enumerate()
            .for_each(|(index, it)| *it = byte(tag, index));
        return job.send(Rank(1), tag, message);
    }
    let mut memory = vec![0x55_u8; len + AROUND];
    let status = job.receive(Rank(0), tag, &mut memory[to..to + len])?;
    assert_eq!(status.bytes(), len);
    let differs = (memory.iter().enumerate()).position(|(index, found)| {
        let expected = match index.checked_sub(to).filter(|index| *index < len) {
            Some(index) => byte(tag, index),
            None => 0x55,
        };
        *found != expected
    });
    assert_eq!(differs, None, "of {len} bytes from {from} to {to}");
    Ok(())
}

#[test]
fn messages_arrive_whole_at_any_offset() {
    for network in networks() {
        good(network.run_local(2, |job| {
            let lens = [
                1,
                4095,
                4096,
                8191,
                8192,
                12_289,
                100_000,
                1 << 20,
                9_000_001,
            ];
            for (tag, len) in lens.into_iter().enumerate() {
                for places in [[0, 0], [1, 4095], [4096, 8], [3000, 8191]] {
                    bring(job, tag as u64, len, places)?;
                }
            }
            job.barrier()
        }));
    }
}

#[test]
fn no_message_about_registration_is_sent() {
    for network in networks().into_iter().skip(2).step_by(3) {
        let ends = network.run_local(2, |job| {
            job.barrier()?;
            let before = job.counters();
            for tag in 0..10 {
                bring(job, tag, 1 << 20, [0, 100])?;
            }
            let after = job.counters();
            job.barrier()?;
            let by_place = after.messages_rendezvous - before.messages_rendezvous;
            Ok((
                by_place,
                after.registration_messages - before.registration_messages,
            ))
        });
        let ends: Vec<_> = ends.into_iter().map(Result::unwrap).collect();
        assert_eq!(ends, [(10, 0), (0, 0)]);
    }
}

#[test]
fn many_messages_share_little_memory_to_register() {
    const MESSAGES: u64 = 24;
    const LEN: usize = 300_000;
    for network in networks() {
        good(network.run_local(2, |job| {
            let peer = job.right();
            let receives = (0..MESSAGES).map(|tag| job.receive_nb(peer, tag, vec![0_u8; LEN]));
            let receives: Vec<_> = receives.collect::<Result<_, _>>()?;
            job.barrier()?;
            let sends = (0..MESSAGES).map(|tag| {
                let message: Vec<u8> = (0..LEN).map(|index| byte(tag, index)).collect();
                job.send_nb(peer, tag, message)
            });
            let sends: Vec<_> = sends.collect::<Result<_, _>>()?;
            for (tag, receive) in receives.into_iter().enumerate() {
                let (found, _) = receive.wait()?;
                let is_right = |(index, it): (usize, &u8)| *it == byte(tag as u64, index);
                assert!(found.iter().enumerate().all(is_right), "message {tag}");
            }
            sends
                .into_iter()
                .try_for_each(|send| send.wait().map(drop))?;
            job.barrier()
        }));
    }
}

#[test]
fn messages_reuse_the_same_memory_and_its_neighbours() {
    for network in networks() {
        good(network.run_local(2, |job| {
            let peer = job.right();
            let (mut sent, mut received) = (vec![0_u8; 3 << 20], vec![0_u8; 3 << 20]);
            for round in 0..20 {
                sent.fill(round);
                // Neighbouring messages share pages.
                let lens = [700_001, 1_000_003, 400_000 + usize::from(round)];
                let (mut to_send, mut to_receive) = (&sent[..], &mut received[..]);
                job.scope(|scope| {
                    for (tag, len) in lens.into_iter().enumerate() {
                        let (part, rest) = std::mem::take(&mut to_receive).split_at_mut(len);
                        to_receive = rest;
                        scope.receive(peer, tag as u64, part)?;
                    }
                    for (tag, len) in lens.into_iter().enumerate() {
                        let (part, rest) = to_send.split_at(len);
                        to_send = rest;
                        scope.send(peer, tag as u64, part)?;
                    }
                    Ok(())
                })?;
                let all = lens.iter().sum();
                assert!(received[..all].iter().all(|it| *it == round));
            }
            job.barrier()
        }));
    }
}

/// Checks the end of a rank whose peer left. Its own checks have passed.
fn check_survivor(end: &Result<()>) {
    assert!(
        matches!(end, Ok(()) | Err(Error::PeerLost(_) | Error::JobOver)),
        "{end:?}"
    );
}

#[test]
fn a_sender_that_left_during_the_message_writes_no_more() {
    for network in networks() {
        let ends = network.run_local(2, |job| {
            let mut received = vec![0_u8; 8 << 20];
            if job.rank() == Rank(0) {
                // The message is matched, and this rank leaves during or before the transfer.
                let send = job.send_nb(Rank(1), 1, vec![1_u8; 8 << 20])?;
                job.receive(Rank(1), 2, &mut [0_u8])?;
                drop(send);
                return Err(Error::other("it goes"));
            }
            let end = job.scope(|scope| {
                let mut receive = scope.receive(Rank(0), 1, &mut received)?;
                job.send(Rank(0), 2, &[1_u8])?;
                receive.wait().map(drop)
            });
            match end {
                Ok(()) => assert!(received.iter().all(|it| *it == 1)),
                Err(cause) => {
                    assert!(
                        matches!(cause, Error::PeerLost(Rank(0)) | Error::JobOver),
                        "{cause}"
                    );
                    received.fill(9);
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(received.iter().all(|it| *it == 9));
                }
            }
            Ok(())
        });
        assert!(ends[0].is_err());
        check_survivor(&ends[1]);
    }
}

#[test]
fn a_sender_hears_that_its_receiver_left_during_the_message() {
    for network in networks() {
        let ends = network.run_local(2, |job| {
            if job.rank() == Rank(1) {
                let receive = job.receive_nb(Rank(0), 1, vec![0_u8; 8 << 20])?;
                job.send(Rank(0), 2, &[1_u8])?;
                drop(receive);
                return Err(Error::other("it goes"));
            }
            let send = job.send_nb(Rank(1), 1, vec![1_u8; 8 << 20])?;
            job.receive(Rank(1), 2, &mut [0_u8])?;
            match send.wait() {
                Ok(_) | Err(Error::PeerLost(Rank(1)) | Error::JobOver) => Ok(()),
                Err(cause) => panic!("{cause}"),
            }
        });
        assert!(ends[1].is_err());
        check_survivor(&ends[0]);
    }
}

#[test]
fn a_failed_scope_receives_a_message_wholly_or_not_at_all() {
    for network in networks() {
        good(network.run_local(2, |job| {
            let peer = job.right();
            let (sent, mut received) = (vec![3_u8; 2 << 20], vec![0_u8; 2 << 20]);
            let end = job.scope(|scope| {
                scope.receive(peer, 1, &mut received)?;
                scope.send(peer, 1, &sent)?;
                Err::<(), _>(Error::other("enough"))
            });
            assert!(end.is_err());
            // A matched message has arrived. Otherwise the receive was withdrawn, and the message
            // waits.
            let came = received.iter().filter(|it| **it == 3).count();
            assert!([0, received.len()].contains(&came), "{came}");
            if came == 0 {
                job.receive(peer, 1, &mut received)?;
                assert!(received.iter().all(|it| *it == 3));
            }
            job.barrier()
        }));
    }
}

#[test]
fn messages_are_received_into_symmetric_memory() {
    for network in networks() {
        good(network.registration(Strategy::Auto).run_local(2, |job| {
            let peer = job.right();
            let mut memory = job.alloc::<u64>(400_000)?;
            let message: Vec<u64> = (0..300_000).collect();
            for round in 0..5 {
                // The peer has registered a part of it.
                memory.put(peer, 250_000, &vec![round; 100_000])?;
                job.barrier()?;
                let send = job.send_nb(peer, 1, message.clone())?;
                let mut own = job.exclusive(memory)?;
                job.receive(peer, 1, &mut own[1000..301_000])?;
                assert_eq!(own[1000..301_000], message);
                assert!(own[301_000..350_000].iter().all(|it| *it == round));
                memory = job.share(own)?;
                send.wait()?;
                job.barrier()?;
            }
            Ok(())
        }));
    }
}

/// Every other page of both buffers is registered by itself before, as far as that lasts.
#[test]
fn buffers_registered_in_pieces_receive_messages() {
    const LEN: usize = 600_000;
    for network in networks() {
        good(network.run_local(2, |job| {
            let peer = job.right();
            let place = job.alloc::<u8>(8)?;
            let sent: Vec<u8> = (0..LEN)
                .map(|index| byte(job.rank().0.into(), index))
                .collect();
            let mut received = vec![0_u8; LEN];
            for _ in 0..3 {
                for at in (0..LEN - 8).step_by(8192) {
                    place.put(peer, 0, &sent[at..at + 8])?;
                    place.get(peer, 0, &mut received[at..at + 8])?;
                }
                received.fill(0);
                job.send_receive((peer, 1, &sent[..]), (peer, 1, &mut received[..]))?;
                let is_right = |(index, it): (usize, &u8)| *it == byte(peer.0.into(), index);
                assert!(received.iter().enumerate().all(is_right));
            }
            job.barrier()
        }));
    }
}

/// A rank ends once all its messages have arrived, while its receiver matches messages of others.
/// In some of many jobs, the receiver sees the end before it handles the last report.
#[test]
fn messages_completed_before_a_rank_ended_are_received() {
    const LEN: usize = 60_000;
    const OTHER: usize = 3_000_000;
    let hosts = Job::builder().expect("the settings are valid");
    let hosts = hosts.heap(16 << 20).inter_node(InterNodeKind::Pinned);
    let hosts = hosts.pretend_hosts(2).m(1 << 20);
    for round in 0..100 {
        let network = hosts.clone().service(round % 2 == 0);
        let network = network.maxvictim([1 << 20, 64 << 20][round / 2 % 2]);
        let ends = network.run_local(4, |job| {
            let to = Rank(2);
            match job.rank().0 {
                0 => {
                    let sends = (0..4).map(|tag| job.send_nb(to, tag, vec![tag as u8; LEN]));
                    let sends: Vec<_> = sends.collect::<Result<_, _>>()?;
                    sends
                        .into_iter()
                        .try_for_each(|send| send.wait().map(drop))?;
                    return Err(Error::other("all was sent"));
                }
                2 => {
                    let receives = (0..4).map(|tag| job.receive_nb(Rank(0), tag, vec![9_u8; LEN]));
                    let receives: Vec<_> = receives.collect::<Result<_, _>>()?;
                    let mut other = vec![0_u8; OTHER];
                    for tag in 0..3 {
                        job.receive(Rank(3), tag, &mut other)?;
                    }
                    for (tag, receive) in receives.into_iter().enumerate() {
                        let (found, _) = receive.wait().expect("it was brought");
                        assert!(found.iter().all(|it| *it == tag as u8));
                    }
                }
                3 => {
                    let other = vec![1_u8; OTHER];
                    (0..3).try_for_each(|tag| job.send(to, tag, &other))?;
                }
                _ => {}
            }
            Ok(())
        });
        check_survivor(&ends[2]);
    }
}
