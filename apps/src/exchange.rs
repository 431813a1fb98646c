//! Blocks from rank to rank by one-sided puts.
//!
//! Both programs move blocks in steps. Every rank knows the target and the source of its blocks in
//! each step beforehand. So no barrier is needed:
//!
//! ```text
//!   from                      this rank                       to
//!   put, put, put_signal ───▶ slot[step % 2]
//!                             wait for arrived[step]
//!                             copy the block out
//!                             free[step + 2] ───▶ the sender of step + 2
//!                             wait for free[step]
//!                             put, put, put_signal ────────▶ slot[step % 2]
//! ```
//!
//! With two slots the next block may arrive while this one is used. Each step has signal words of
//! its own, used once: different ranks write them at different times, and no word has to be reset.

use std::{ops::Add, time::Duration};

use hydrant::{Job, Pod, Rank, Result, Signal, Symmetric};

/// One step of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The target of its block.
    pub to: Rank,
    /// The source of the block that it gets.
    pub from: Rank,
}

/// Two slots for blocks on each rank, and the signals that guard them.
pub struct Exchange<'job, T: Pod> {
    job: &'job Job,
    plan: Vec<Hop>,
    block: usize,
    put_elements: usize,
    slots: Symmetric<T>,
    arrived: Symmetric<u64>,
    free: Symmetric<u64>,
    sent: usize,
    received: usize,
    /// A block from this rank to itself, which needs no put.
    own: Option<Vec<T>>,
    putting: Putting,
}

/// The time spent in puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Putting {
    /// The whole time.
    pub time: Duration,
    /// Puts with memory already registered on both sides, where the network needs registration.
    pub one_sided: u64,
    /// The time of these puts.
    pub one_sided_time: Duration,
}

impl Add for Putting {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            one_sided: self.one_sided + other.one_sided,
            one_sided_time: self.one_sided_time + other.one_sided_time,
        }
    }
}

const SLOTS: usize = 2;

impl<'job, T: Pod> Exchange<'job, T> {
    /// Prepares to move blocks of `block` elements as `plan` says, with at most `put_elements` in a
    /// put. Collective: all plans have the same length, and each sender of a step is the source
    /// that its target expects.
    ///
    /// # Errors
    /// The errors of [`Job::alloc`].
    pub fn new(job: &'job Job, plan: Vec<Hop>, block: usize, put_elements: usize) -> Result<Self> {
        let exchange = Self {
            job,
            block,
            put_elements: put_elements.max(1),
            slots: job.alloc(block.saturating_mul(SLOTS))?,
            arrived: job.alloc(plan.len())?,
            free: job.alloc(plan.len())?,
            plan,
            sent: 0,
            received: 0,
            own: None,
            putting: Putting::default(),
        };
        (0..SLOTS).try_for_each(|step| exchange.open(step))?;
        Ok(exchange)
    }

    /// Sends this step's block. The block is remotely complete on return. The call waits only for a
    /// peer that is two steps behind.
    ///
    /// # Errors
    /// The errors of [`Symmetric::put_signal`] and [`Job::wait_until`].
    ///
    /// # Panics
    /// If the plan has no such step, or the block has another length.
    pub fn send(&mut self, block: &[T]) -> Result<()> {
        assert_eq!(block.len(), self.block, "every block has the length agreed");
        let step = self.sent;
        let Hop { to, .. } = self.plan[step];
        self.sent += 1;
        if to == self.job.rank() {
            self.own = Some(block.to_vec());
            return Ok(());
        }
        self.job.wait_until(&self.free, step, |open| open != 0)?;
        let slot = step % SLOTS * self.block;
        let last = self.block.saturating_sub(1) / self.put_elements * self.put_elements;
        // Without registration all puts are of one kind, and the check would cost more than the
        // put.
        let kinds = self.job.registration().is_some();
        let start = self.job.now();
        for at in (0..last).step_by(self.put_elements) {
            let put = || {
                let data = &block[at..at + self.put_elements];
                self.slots.put(to, slot + at, data)
            };
            if kinds {
                self.putting = self.putting + self.timed_put(put)?;
            } else {
                put()?;
            }
        }
        let (rest, signal) = (&block[last..], Signal::Set(1));
        let put = || (self.slots).put_signal(to, slot + last, rest, &self.arrived, step, signal);
        if kinds {
            self.putting = self.putting + self.timed_put(put)?;
        } else {
            put()?;
            self.putting.time += self.job.now().saturating_sub(start);
        }
        Ok(())
    }

    /// The time of a put, by whether its memory was registered before.
    fn timed_put(&self, put: impl FnOnce() -> Result<()>) -> Result<Putting> {
        let (hits, start) = (self.job.counters().hits, self.job.now());
        put()?;
        let time = self.job.now().saturating_sub(start);
        let hit = self.job.counters().hits > hits;
        Ok(Putting {
            time,
            one_sided: hit.into(),
            one_sided_time: if hit { time } else { Duration::ZERO },
        })
    }

    /// Waits for this step's block and copies it out.
    ///
    /// # Errors
    /// The errors of [`Job::wait_until`].
    ///
    /// # Panics
    /// If the plan has no such step, or the block has another length.
    pub fn receive(&mut self, block: &mut [T]) -> Result<()> {
        assert_eq!(block.len(), self.block, "every block has the length agreed");
        let step = self.received;
        let Hop { from, .. } = self.plan[step];
        self.received += 1;
        if from == self.job.rank() {
            let own = self.own.take();
            block.copy_from_slice(&own.expect("a block to oneself is sent before it is received"));
        } else {
            self.job
                .wait_until(&self.arrived, step, |there| there != 0)?;
            self.slots.local()?.read(step % SLOTS * self.block, block)?;
        }
        self.open(step + SLOTS)
    }

    /// Time spent in puts so far.
    pub fn putting(&self) -> Putting {
        self.putting
    }

    /// Frees the memory. Collective.
    ///
    /// # Errors
    /// The errors of [`Job::free`].
    pub fn close(self) -> Result<()> {
        self.job.free(self.slots)?;
        self.job.free(self.arrived)?;
        self.job.free(self.free)
    }

    /// Tells the sender of `step` that its slot is free.
    fn open(&self, step: usize) -> Result<()> {
        match self.plan.get(step) {
            Some(hop) if hop.from != self.job.rank() => {
                self.free.signal(hop.from, step, Signal::Set(1))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn local(ranks: u32, body: impl Fn(&Job) -> Result<()> + Sync) {
        let builder = Job::builder().unwrap().heap(1 << 22);
        (builder.run_local(ranks, body).into_iter()).for_each(|end| end.unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Step `s` turns the ring by `turns[s]`, which may be zero.
        #[test]
        fn every_block_arrives_in_its_step(
            ranks in 1_u32..6,
            turns in proptest::collection::vec(0_u32..6, 0..12),
            block in 0_usize..40,
            put_elements in 1_usize..50,
        ) {
            local(ranks, |job| {
                let me = job.rank().0;
                let plan = (turns.iter())
                    .map(|turn| Hop {
                        to: Rank((me + turn) % ranks),
                        from: Rank((me + ranks * 6 - turn) % ranks),
                    })
                    .collect::<Vec<_>>();
                let content = |rank: u32, step: usize| -> Vec<u64> {
                    (0..block).map(|at| (step << 32 | (rank as usize) << 16 | at) as u64).collect()
                };
                let before = job.counters().puts;
                let mut exchange = Exchange::new(job, plan.clone(), block, put_elements)?;
                let mut got = vec![0; block];
                for (step, hop) in plan.iter().enumerate() {
                    exchange.send(&content(me, step))?;
                    exchange.receive(&mut got)?;
                    assert_eq!(got, content(hop.from.0, step));
                }
                exchange.close()?;
                let away = plan.iter().filter(|hop| hop.to != job.rank()).count();
                let puts = away * block.div_ceil(put_elements).max(1);
                assert_eq!(job.counters().puts - before, puts as u64);
                Ok(())
            });
        }
    }
}
