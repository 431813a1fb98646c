//! Puts with a given ratio of hits.

use std::time::Duration;

use hydrant::{Job, Result, Strategy, Symmetric};
use hydrant_base::Random;

use crate::papers::job::{
    FIRST, MB, PAGE, SECOND, SPARE, Setup, aligned, lifted, memory, shuffled, timed,
};
use crate::papers::{ExperimentInputs, PaperResult};

const MACHINE: &str = "myrinet-pm";

/// The bytes that local operations may keep registered.
const KEPT: usize = 8 << 20;
/// Bytes of the pool of buffers that miss. Every second buffer of it is used, and these exceed the
/// bytes that are kept.
const POOL: usize = 25 << 20;
/// Room for the buffers that hit. PM's limit was 4 MB, but here the experiment itself decides which
/// puts hit.
pub(super) fn setup(inputs: &ExperimentInputs<'_>, strategy: Strategy) -> PaperResult<Setup> {
    let machine = lifted(inputs, MACHINE);
    let mut setup = Setup::new(&machine, strategy, 16 * MB, KEPT as u64);
    setup.entries = KEPT as u64 / PAGE as u64;
    setup.heap = POOL + (4 << 20);
    Ok(setup)
}

/// Buffers that are registered when they are used, or are not.
struct PutBuffers {
    size: usize,
    order: Vec<usize>,
    next: usize,
}

impl PutBuffers {
    /// A pool whose first megabyte holds the buffer that is always registered.
    fn new(size: usize) -> Self {
        let slot = size.next_multiple_of(PAGE);
        let slots = (POOL - MB as usize) / slot / 2;
        // Misses in sequence would register ahead, so the order is random, and no two used buffers
        // are adjacent.
        let order = shuffled(&mut Random::new(size as u64), 0, slots);
        Self {
            size: slot,
            order,
            next: 0,
        }
    }

    fn place(&mut self, hit: bool) -> usize {
        if hit {
            return 0;
        }
        self.next += 1;
        MB as usize + self.order[self.next % self.order.len()] * 2 * self.size
    }
}

/// Puts of one size in sequence. A given percentage of them find the local side registered, and the
/// remote side as well if that is to vary. Returns the mean time.
fn puts(
    job: &Job,
    target: &Symmetric<u8>,
    size: usize,
    ratio: usize,
    both: bool,
    count: usize,
) -> Result<Duration> {
    let pool = vec![1_u8; POOL + SPARE];
    let pool = &pool[aligned(&pool)..];
    let (mut local, mut remote) = (PutBuffers::new(size), PutBuffers::new(size));
    let mut put = |hit: bool| {
        let from = local.place(hit);
        let to = if both { remote.place(hit) } else { 0 };
        target.put(SECOND, to, &pool[from..from + size])
    };
    // The warm-up fills the caches with memory that will be evicted.
    for _ in 0..(KEPT / size.next_multiple_of(PAGE)).max(8) {
        put(false)?;
        put(true)?;
    }
    let mut due = 0;
    let time = timed(job, || {
        for _ in 0..count {
            due += ratio;
            let hit = due >= 100;
            due -= if hit { 100 } else { 0 };
            put(hit)?;
        }
        Ok(())
    })?;
    Ok(time / count as u32)
}

pub(super) fn sizes(inputs: &ExperimentInputs<'_>) -> Vec<usize> {
    // The largest size is the one with figures in the paper.
    let mut sizes: Vec<usize> = (0..=18)
        .step_by(inputs.pick(1, 3))
        .map(|halved| (1 << 20) >> halved)
        .collect();
    sizes.reverse();
    sizes
}

/// The mean time of a put by size, for a strategy and a hit ratio.
pub(super) fn sweep(
    inputs: &ExperimentInputs<'_>,
    strategy: Strategy,
    ratio: usize,
    both: bool,
) -> PaperResult<Vec<(f64, Duration)>> {
    let count = inputs.pick(200, 40);
    (sizes(inputs).into_iter())
        .map(|size| {
            let [time] = means(inputs, strategy, size, [ratio], both, count)?;
            Ok((size as f64, time))
        })
        .collect()
}

/// The mean time of a put of a size at some hit ratios, in a job of its own. Registrations left by
/// another size would be half a hit.
pub(super) fn means<const N: usize>(
    inputs: &ExperimentInputs<'_>,
    strategy: Strategy,
    size: usize,
    ratios: [usize; N],
    both: bool,
    count: usize,
) -> PaperResult<[Duration; N]> {
    setup(inputs, strategy)?.run(|job| {
        let target = memory(job, (POOL + PAGE) as u64)?;
        let mut times = [Duration::ZERO; N];
        if job.rank() == FIRST {
            for (time, ratio) in times.iter_mut().zip(ratios) {
                *time = puts(job, &target, size, ratio, both, count)?;
            }
        }
        job.barrier()?;
        Ok(times)
    })
}
