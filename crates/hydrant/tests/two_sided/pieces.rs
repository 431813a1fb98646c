//! Messages that are sent at once in several pieces.

use hydrant::{AnySource, AnyTag, Job, Rank, Result};

use super::{MOST_IN_PIECES, PIECE, good, in_pieces};

/// Lengths around multiples of a piece, and beyond the longest message in pieces.
const LENGTHS: [usize; 11] = [
    PIECE - 1,
    PIECE,
    PIECE + 1,
    2 * PIECE - 1,
    2 * PIECE,
    2 * PIECE + 1,
    8 * PIECE,
    8 * PIECE + 7,
    MOST_IN_PIECES - 1,
    MOST_IN_PIECES,
    MOST_IN_PIECES + 1,
];

/// Returns the bytes of a message with this number.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 251 + number) as u8)
        .collect()
}

fn two(body: impl Fn(&Job) -> Result<()> + Sync) {
    good(in_pieces().run_local(2, body));
}

#[test]
fn every_length_arrives_whole_and_in_order() {
    two(|job| {
        let (one, other) = (Rank(0), Rank(1));
        for is_late in [false, true] {
            if job.rank() == one {
                for (number, len) in LENGTHS.into_iter().enumerate() {
                    let sent = bytes(number, len);
                    job.send_nb(other, 1, sent)?.wait_local()?;
                    // A short message of the same thread does not overtake it.
                    job.send(other, 1, &[number as u8])?;
                }
                job.barrier()?;
            } else {
                if is_late {
                    job.probe(one, 1)?;
                }
                for (number, len) in LENGTHS.into_iter().enumerate() {
                    let mut got = vec![0; MOST_IN_PIECES + 1];
                    let status = job.receive(AnySource, AnyTag, &mut got)?;
                    assert_eq!(status.bytes(), len);
                    assert!(got[..len] == bytes(number, len), "{len} bytes");
                    assert!(got[len..].iter().all(|it| *it == 0), "{len} bytes");
                    let short = job.receive(one, 1, &mut got)?;
                    assert_eq!((short.bytes(), got[0]), (1, number as u8));
                }
                job.barrier()?;
            }
        }
        Ok(())
    });
}

#[test]
fn they_are_sent_at_once_and_counted_once() {
    const LEN: usize = 16 * PIECE;
    two(|job| {
        if job.rank() == Rank(0) {
            // Nobody receives before the barrier, and no send waits.
            for number in 0..4 {
                job.send(Rank(1), 1, &bytes(number, LEN))?;
            }
            job.barrier()?;
            let counted = job.counters();
            assert_eq!(counted.messages_eager, 4);
            assert_eq!(counted.messages_rendezvous + counted.messages_copied, 0);
        } else {
            job.barrier()?;
            for number in 0..4 {
                let got: Vec<u8> = job.probe_matched(AnySource, 1)?.receive_vec()?;
                assert!(got == bytes(number, LEN));
            }
            assert_eq!(job.counters().messages_unexpected, 4);
        }
        job.barrier()
    });
}

#[test]
fn a_flood_beyond_the_credit_waits() {
    const MESSAGES: usize = 100;
    const LEN: usize = 10 * PIECE + 1;
    two(|job| {
        let data = bytes(1, LEN);
        let sends = (0..MESSAGES).map(|_| job.send_nb(job.right(), 1, data.clone()));
        let sends: Vec<_> = sends.collect::<Result<_, _>>()?;
        job.barrier()?;
        for number in 0..MESSAGES {
            let mut got = vec![0; LEN];
            if number % 2 == 0 {
                job.receive(job.left(), 1, &mut got)?;
            } else {
                job.probe_matched(AnySource, AnyTag)?.receive(&mut got)?;
            }
            assert!(got == data);
        }
        for send in sends {
            send.wait()?;
        }
        assert_eq!(job.try_probe(AnySource, AnyTag)?, None);
        job.barrier()
    });
}

#[test]
fn threads_that_send_at_once_mix_no_messages() {
    const THREADS: usize = 3;
    const MESSAGES: usize = 40;
    two(|job| {
        let lengths = |thread: usize, number: usize| (1 + (thread + number) % 9) * PIECE + number;
        std::thread::scope(|threads| -> Result<()> {
            let sending: Vec<_> = (0..THREADS)
                .map(|thread| {
                    threads.spawn(move || {
                        (0..MESSAGES).try_for_each(|number| {
                            let data = bytes(number, lengths(thread, number));
                            job.send(job.right(), thread as u64, &data)
                        })
                    })
                })
                .collect();
            let mut next = [0; THREADS];
            for _ in 0..THREADS * MESSAGES {
                let mut got = vec![0; 10 * PIECE];
                let status = job.receive(job.left(), AnyTag, &mut got)?;
                let thread = status.tag() as usize;
                let number = next[thread];
                next[thread] += 1;
                let expected = bytes(number, lengths(thread, number));
                assert!(got[..status.bytes()] == expected, "{thread} {number}");
            }
            (sending.into_iter()).try_for_each(|it| it.join().expect("no panic"))
        })?;
        job.barrier()
    });
}
