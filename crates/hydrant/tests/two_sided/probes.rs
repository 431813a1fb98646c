//! Probes, and messages taken by them.

use hydrant::{AnySource, AnyTag, Error, Rank};

use super::{all, by_each, numbers, numbers_of};

#[test]
fn a_probe_sees_the_message_that_a_receive_would_get() {
    by_each(all(), 2, |job| {
        if job.rank() == Rank(1) {
            job.barrier()?;
            let sent = [3, 20_000].map(|count| job.send_nb(Rank(0), 4, numbers(job, 4, count)));
            for send in sent {
                send?.wait()?;
            }
        } else {
            assert_eq!(job.try_probe(AnySource, AnyTag)?, None);
            assert!(job.try_probe_matched(AnySource, AnyTag)?.is_none());
            job.barrier()?;
            let status = job.probe(AnySource, 4)?;
            assert_eq!((status.source(), status.bytes()), (Rank(1), 12));
            assert_eq!(job.try_probe(Rank(1), AnyTag)?, Some(status));
            let mut got = [0; 3];
            job.receive(Rank(1), 4, &mut got)?;
            assert_eq!(got[..], numbers_of(Rank(1), 4, 3));
            let message = job.probe_matched(Rank(1), 4)?;
            let data = message.receive_vec::<u32>()?;
            assert_eq!(data, numbers_of(Rank(1), 4, 20_000));
        }
        job.barrier()
    });
}

#[test]
fn a_matched_message_is_received_by_no_other_call_and_can_be_put_back() {
    by_each(all(), 2, |job| {
        if job.rank() == Rank(1) {
            let sent = [100, 20_000].map(|count| job.send_nb(Rank(0), 4, numbers(job, 4, count)));
            for send in sent {
                send?.wait()?;
            }
        } else {
            let mut first = job.probe_matched(AnySource, AnyTag)?;
            let second = job.probe_matched(Rank(1), 4)?;
            assert_eq!(
                (first.status().bytes(), second.status().bytes()),
                (400, 80_000)
            );
            let short = first
                .receive(&mut [0_u32; 99])
                .expect_err("it is too short");
            assert!(matches!(
                short,
                Error::ReceiveTooShort {
                    len: 400,
                    room: 396,
                    ..
                }
            ));
            assert!(matches!(
                first.receive(&mut [0_u64; 0]),
                Err(Error::ReceiveTooShort { .. })
            ));
            // They are put back in another order, and keep their own.
            drop(second);
            drop(first);
            let mut got = vec![0; 100];
            job.receive(Rank(1), AnyTag, &mut got)?;
            assert_eq!(got, numbers_of(Rank(1), 4, 100));
            let mut second = job.probe_matched(Rank(1), 4)?;
            let mut got = vec![0; 20_000];
            second.receive(&mut got)?;
            assert!(second.receive(&mut got).is_err(), "it was received");
            assert_eq!(got, numbers_of(Rank(1), 4, 20_000));
        }
        job.barrier()
    });
}
