//! Puts of which it is said how many find their memory registered.

use std::time::Duration;

use hydrant::{Job, Result, Strategy, Symmetric};

use crate::papers::job::{
    FIRST, MB, PAGE, Random, SECOND, SPARE, Setup, aligned, lifted, memory, timed,
};
use crate::papers::{ReproduceError, Scope};

const MACHINE: &str = "myrinet-pm";

pub(super) type Outcome<T> = std::result::Result<T, ReproduceError>;

/// What own operations may keep registered.
const KEPT: usize = 8 << 20;
/// Bytes that the pools of buffers that miss take: every second buffer of it is used, and these
/// are more than are kept.
const POOL: usize = 25 << 20;
/// Room for what is to hit, which is not PM's 4 MB: which put hits is given here.
pub(super) fn setup(scope: &Scope<'_>, strategy: Strategy) -> Outcome<Setup> {
    let machine = lifted(scope, MACHINE);
    let mut setup = Setup::new(&machine, strategy, 16 * MB, KEPT as u64);
    setup.entries = KEPT as u64 / PAGE as u64;
    setup.heap = POOL + (4 << 20);
    Ok(setup)
}

/// Buffers that are registered when they are used, or are not.
struct Buffers {
    size: usize,
    order: Vec<usize>,
    next: usize,
}

impl Buffers {
    /// In a pool whose first megabyte holds the buffer that is always registered.
    fn new(size: usize) -> Self {
        let slot = size.next_multiple_of(PAGE);
        let slots = (POOL - MB as usize) / slot / 2;
        // Misses in sequence would register ahead: any other order, and none beside another.
        let order = Random::new(size as u64).shuffled(0, slots);
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

/// Puts of one size, one after the other, of which so many in a hundred find their own side
/// registered, and the remote side as well if that is to vary. The mean time.
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
    let (mut local, mut remote) = (Buffers::new(size), Buffers::new(size));
    let mut put = |hit: bool| {
        let from = local.place(hit);
        let to = if both { remote.place(hit) } else { 0 };
        target.put(SECOND, to, &pool[from..from + size])
    };
    // Until the caches are full of what will be given up.
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

pub(super) fn sizes(scope: &Scope<'_>) -> Vec<usize> {
    // The largest is what the paper has figures of.
    let mut sizes: Vec<usize> = (0..=18)
        .step_by(scope.pick(1, 3))
        .map(|halved| (1 << 20) >> halved)
        .collect();
    sizes.reverse();
    sizes
}

/// The mean time of a put by size, for a strategy and a hit ratio.
pub(super) fn sweep(
    scope: &Scope<'_>,
    strategy: Strategy,
    ratio: usize,
    both: bool,
) -> Outcome<Vec<(f64, Duration)>> {
    let count = scope.pick(200, 40);
    (sizes(scope).into_iter())
        .map(|size| {
            let [time] = means(scope, strategy, size, [ratio], both, count)?;
            Ok((size as f64, time))
        })
        .collect()
}

/// The mean time of a put of a size at some hit ratios, in a job of its own: what another size
/// left registered would be half a hit.
pub(super) fn means<const N: usize>(
    scope: &Scope<'_>,
    strategy: Strategy,
    size: usize,
    ratios: [usize; N],
    both: bool,
    count: usize,
) -> Outcome<[Duration; N]> {
    setup(scope, strategy)?.run(|job| {
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
