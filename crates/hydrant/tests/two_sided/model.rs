//! Random messages from several threads of each rank, with wildcards and without, against a model.
//! Each message is received once and whole. The messages of a thread with one tag arrive in order.

use std::collections::HashMap;

use hydrant::{AnySource, AnyTag, Error, Rank, Result};
use hydrant_base::Random;

use super::{by_each, real};

const RANKS: u32 = 3;
/// Sending threads of a rank, and as many receiving ones.
const THREADS: u64 = 2;
/// Messages from one thread to each rank.
const MESSAGES: u64 = 60;

/// Returns the elements of a message. Most messages are short.
fn count(random: &mut Random) -> usize {
    let most = [4, 64, 1500, 6000, 30_000][random.below(5)];
    3 + random.below(most)
}

/// Returns a message that tells its rank, thread and number. The rest follows from these.
fn message(rank: Rank, thread: u64, number: u64, count: usize) -> Vec<u64> {
    let mut data = vec![u64::from(rank.0), thread, number];
    data.extend((3..count as u64).map(|index| index * 7 + number));
    data
}

#[test]
fn messages_of_many_threads_arrive_once_and_in_order() {
    by_each(real(), RANKS, |job| {
        let received = std::thread::scope(|threads| -> Result<Vec<Vec<Vec<u64>>>> {
            let senders: Vec<_> = (0..THREADS)
                .map(|thread| threads.spawn(move || send_all(job, thread)))
                .collect();
            // One receives by any source, the other by any tag. Each has its own tags.
            let receivers: Vec<_> = (0..THREADS)
                .map(|thread| threads.spawn(move || receive_all(job, thread)))
                .collect();
            for sender in senders {
                sender.join().expect("no panic")?;
            }
            (receivers.into_iter())
                .map(|receiver| receiver.join().expect("no panic"))
                .collect()
        })?;
        for of_one in received {
            let mut last: HashMap<(u64, u64), u64> = HashMap::new();
            assert_eq!(of_one.len() as u64, MESSAGES * u64::from(RANKS));
            for data in of_one {
                let (rank, thread, number) = (Rank(data[0] as u32), data[1], data[2]);
                assert_eq!(
                    data,
                    message(rank, thread, number, data.len()),
                    "it is torn"
                );
                let expected = last.entry((data[0], thread)).or_insert(0);
                assert_eq!(number, *expected, "from thread {thread} of rank {rank}");
                *expected += 1;
            }
        }
        assert_eq!(job.try_probe(AnySource, AnyTag)?, None, "something is left");
        job.barrier()
    });
}

fn send_all(job: &hydrant::Job, thread: u64) -> Result<()> {
    let mut random = Random::new(77 + 1000 * thread + u64::from(job.rank().0));
    let mut open = Vec::new();
    for number in 0..MESSAGES {
        for to in job.ranks() {
            let data = message(job.rank(), thread, number, count(&mut random));
            match random.below(3) {
                0 => job.send(to, thread, &data)?,
                1 => open.push(job.send_nb(to, thread, data)?),
                _ => job.scope(|scope| scope.send(to, thread, &data).map(drop))?,
            }
        }
        if random.one_in(8) {
            for send in open.drain(..) {
                send.wait_local_and_drop()?;
            }
        }
    }
    open.into_iter().try_for_each(|send| send.wait().map(drop))
}

trait WaitLocal {
    fn wait_local_and_drop(self) -> Result<()>;
}

impl WaitLocal for hydrant::SendHandle<u64> {
    fn wait_local_and_drop(mut self) -> Result<()> {
        self.wait_local()
    }
}

fn receive_all(job: &hydrant::Job, thread: u64) -> Result<Vec<Vec<u64>>> {
    let mut random = Random::new(99 + 1000 * thread + u64::from(job.rank().0));
    let mut received = Vec::new();
    while (received.len() as u64) < MESSAGES * u64::from(RANKS) {
        match random.below(4) {
            0 => received.push(job.probe_matched(AnySource, thread)?.receive_vec()?),
            1 => {
                let mut buffer = vec![0; 16];
                match job.receive(AnySource, thread, &mut buffer) {
                    Ok(status) => {
                        buffer.truncate(status.count::<u64>().unwrap_or(0));
                        received.push(buffer);
                    }
                    Err(Error::ReceiveTooShort { len, .. }) => assert!(len > 128),
                    Err(cause) => return Err(cause),
                }
            }
            2 => {
                let mut buffer = vec![0; 31_000];
                let status = job.receive(AnySource, thread, &mut buffer)?;
                buffer.truncate(status.count::<u64>().unwrap_or(0));
                received.push(buffer);
            }
            _ => {
                let (mut data, status) =
                    job.receive_nb(AnySource, thread, vec![0; 31_000])?.wait()?;
                data.truncate(status.count::<u64>().unwrap_or(0));
                received.push(data);
            }
        }
    }
    Ok(received)
}
