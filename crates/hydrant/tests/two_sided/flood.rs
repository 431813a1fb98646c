//! Floods of messages without receives: none is lost, and memory is bounded.

use hydrant::{AnySource, JobBuilder, Rank, Result, Strategy};

use super::{builder, by_each, pinned, simulated};

/// More messages than a receiver keeps of a peer.
const MESSAGES: u64 = 1500;

/// One network of each kind.
fn few() -> Vec<JobBuilder> {
    vec![builder(), pinned(Strategy::Auto), simulated("connectx")]
}

#[test]
fn a_flood_of_messages_waits_for_its_receiver() {
    by_each(few(), 3, |job| {
        if job.rank() == Rank(0) {
            job.barrier()?;
            for number in 0..MESSAGES {
                for from in [Rank(2), Rank(1)] {
                    let mut got = [0_u64; 100];
                    let tag = u64::from(number >= MESSAGES / 2);
                    let status = job.receive(from, tag, &mut got)?;
                    assert_eq!(got[0], number);
                    assert_eq!(status.count::<u64>(), Some(1 + number as usize % 100));
                }
            }
        } else {
            let sends = (0..MESSAGES).map(|number| {
                let data = vec![number; 1 + number as usize % 100];
                job.send_nb(Rank(0), u64::from(number >= MESSAGES / 2), data)
            });
            let sends: Vec<_> = sends.collect::<Result<_, _>>()?;
            job.barrier()?;
            for send in sends {
                send.wait()?;
            }
        }
        job.barrier()
    });
}

#[test]
fn ranks_that_flood_each_other_go_on() {
    by_each(few(), 2, |job| {
        let data: Vec<u64> = (0..700).collect();
        let sends = (0..300).map(|_| job.send_nb(job.right(), 1, data.clone()));
        let sends: Vec<_> = sends.collect::<Result<_, _>>()?;
        for _ in 0..300 {
            let mut got = [0_u64; 700];
            job.receive(AnySource, 1, &mut got)?;
            assert_eq!(got[..], data);
        }
        for send in sends {
            send.wait()?;
        }
        job.barrier()
    });
}
