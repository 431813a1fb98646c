//! Operations that ranks leave in flight at the end of the job are completed. Before the end, one
//! rank waits in vain for another, and gets an error.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use hydrant::{CallHandle, Error, Job, Rank, ReceiveHandle, Result, SendHandle};

use crate::seed::Seed;

/// Messages and calls of each rank to each other.
const COUNT: u64 = 6;
/// A tag that no message has.
const NEVER: u64 = 1 << 40;

/// The operations that one rank has left in flight.
pub(crate) struct OperationsLeft {
    pub(crate) rank: u32,
    sends: Vec<SendHandle<u8>>,
    receives: Vec<(Rank, u64, ReceiveHandle<u8>)>,
    calls: Vec<(usize, CallHandle<u64>)>,
    /// The bytes that one-way calls brought, and the expected number.
    brought: Arc<AtomicU64>,
    expected: u64,
}

impl OperationsLeft {
    /// Begins the operations. Collective. The messages of all ranks are drawn from the seed.
    pub(crate) fn begin(job: &Job, seed: u64) -> Result<Self> {
        let (me, brought) = (job.rank(), Arc::new(AtomicU64::new(0)));
        let theirs = Arc::clone(&brought);
        let note = job.function(move |_, bytes: Vec<u8>| {
            theirs.fetch_add(bytes.len() as u64, SeqCst);
        })?;
        let count = job.async_function(|_, bytes: Vec<u8>| async move { bytes.len() as u64 })?;
        let mut left = Self {
            rank: me.0,
            sends: Vec::new(),
            receives: Vec::new(),
            calls: Vec::new(),
            brought,
            expected: 0,
        };
        for from in job.ranks().filter(|rank| *rank != me) {
            for number in 0..COUNT {
                let len = len(seed, from, me, number);
                left.expected += len as u64;
                let receive = job.receive_nb(from, number, vec![0; len])?;
                left.receives.push((from, number, receive));
            }
        }
        job.barrier()?;
        for to in job.ranks().filter(|rank| *rank != me) {
            for number in 0..COUNT {
                let data = vec![stamp(me, number); len(seed, me, to, number)];
                job.call_one_way(to, &note, &data)?;
                left.calls
                    .push((data.len(), job.call_nb(to, &count, &data)?));
                left.sends.push(job.send_nb(to, number, data)?);
            }
        }
        left.wait_in_vain(job, seed)?;
        Ok(left)
    }

    /// One rank, the same in every rank's draw, waits for a message of another until that rank has
    /// reached its end.
    fn wait_in_vain(&mut self, job: &Job, seed: u64) -> Result<()> {
        let mut dice = Seed::new(seed, NEVER).random();
        let who = Rank(dice.below(job.size() as usize) as u32);
        if job.rank() != who || job.size() == 1 {
            return Ok(());
        }
        let other = job.right();
        let told = match dice.below(3) {
            0 => job.receive(other, NEVER, &mut [0_u8]).map(drop),
            1 => job.probe(other, NEVER).map(drop),
            _ => job.send(other, NEVER, &vec![0_u8; 1 << 20]),
        };
        match told {
            Err(Error::PeerEnded { rank, .. }) if rank == other => Ok(()),
            Err(cause) => Err(cause),
            Ok(()) => Err(Error::other(format!(
                "rank {other} came to its end, and a message between it and rank {who} went well"
            ))),
        }
    }

    /// The first fault found after the job.
    pub(crate) fn wrong(self) -> Option<String> {
        let Self { rank, .. } = self;
        for send in self.sends {
            if let Err(cause) = send.wait() {
                return Some(format!("a send of rank {rank} did not end well: {cause}"));
            }
        }
        for (from, number, receive) in self.receives {
            match receive.wait() {
                Ok((data, _)) if data.iter().all(|byte| *byte == stamp(from, number)) => {}
                Ok(_) => {
                    return Some(format!(
                        "rank {rank} received what rank {from} did not send"
                    ));
                }
                Err(cause) => {
                    return Some(format!(
                        "a receive of rank {rank} did not end well: {cause}"
                    ));
                }
            }
        }
        for (len, call) in self.calls {
            match call.wait() {
                Ok(count) if count == len as u64 => {}
                other => {
                    return Some(format!(
                        "a call of rank {rank} gave {other:?} and not {len}"
                    ));
                }
            }
        }
        let brought = self.brought.load(SeqCst);
        (brought != self.expected).then(|| {
            let expected = self.expected;
            format!("one-way calls brought rank {rank} {brought} bytes of {expected}")
        })
    }
}

/// The length of a message: short, or long enough for rendezvous.
fn len(seed: u64, from: Rank, to: Rank, number: u64) -> usize {
    let stream = u64::from(from.0) << 32 | u64::from(to.0);
    let mut dice = Seed::new(seed ^ number, stream).random();
    let most = [8, 3000, 200_000][dice.below(3)];
    1 + dice.below(most)
}

fn stamp(from: Rank, number: u64) -> u8 {
    (u64::from(from.0) * COUNT + number) as u8
}
