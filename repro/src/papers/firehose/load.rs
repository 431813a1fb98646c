//! Puts at random over a growing area of the other rank's memory (§4.4).

use std::time::Duration;

use hydrant::{Job, Result, Strategy};
use hydrant_base::Random;

use super::LIMITS;
use crate::papers::job::{FIRST, MB, PAGE, SECOND, SPARE, Setup, aligned, memory, shuffled, timed};
use crate::papers::{ExperimentInputs, ReproduceError};

/// A put waited for a deregistration if it takes longer than this and than its bytes take.
const UNPINNED: Duration = Duration::from_millis(1);
/// Twice the time of a byte on the wire.
const BYTE: Duration = Duration::from_nanos(8);

/// The result at one size of the area.
#[derive(Clone, Copy)]
pub(super) struct AreaPoint {
    /// The size of the area.
    pub(super) mb: f64,
    pub(super) mean: Duration,
    /// The percentage of puts that waited for a deregistration.
    pub(super) unpinned: f64,
    /// The percentage of puts that were hits.
    pub(super) hits: f64,
}

/// The size and the area of a load.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) bytes: usize,
    /// Puts measured at each size.
    pub(super) puts: usize,
    /// Puts in flight at once.
    pub(super) at_once: usize,
    /// The divisor of all sizes in a quick run.
    pub(super) smaller: u64,
    /// Areas in MB: from, to, step.
    pub(super) areas: [u64; 3],
}

impl Load {
    pub(super) fn of(
        inputs: &ExperimentInputs<'_>,
        bytes: usize,
        puts: usize,
        at_once: usize,
    ) -> Self {
        Self {
            bytes,
            puts,
            at_once,
            smaller: inputs.pick(1, 25),
            areas: [50, 800, inputs.pick(50, 150)],
        }
    }

    fn areas(&self) -> impl Iterator<Item = u64> {
        let [from, to, step] = self.areas;
        (from..=to).step_by(step as usize)
    }

    pub(super) fn setup(&self, machine: &str, strategy: Strategy) -> Setup {
        let [m, maxvictim] = [LIMITS.0, LIMITS.1].map(|mb| mb * MB / self.smaller);
        let mut setup = Setup::new(machine, strategy, m, maxvictim);
        setup.heap = (self.areas[1] * MB / self.smaller) as usize + (4 << 20);
        setup
    }

    /// Puts at random over each area in turn, after touching all of it. The source is random within
    /// MAXVICTIM, less room for the partial pages at the ends of a buffer.
    pub(super) fn run(&self, setup: &Setup) -> std::result::Result<Vec<AreaPoint>, ReproduceError> {
        let area_of = |mb: u64| (mb * MB / self.smaller) as usize / self.bytes;
        setup.run(|job| {
            let target = memory(job, self.areas[1] * MB / self.smaller)?;
            let mut points = Vec::new();
            if job.rank() == FIRST {
                let spare = 2 * self.bytes.max(PAGE) * self.at_once;
                let source = vec![1_u8; setup.maxvictim as usize + SPARE];
                let source = &source[aligned(&source)..][..setup.maxvictim as usize];
                let places = (source.len() - spare).max(self.bytes) / self.bytes;
                let mut random = Random::new(1);
                let mut touched = 0;
                // A put for each stride touches every page.
                let stride = (PAGE / self.bytes).max(1);
                // The warm-up covers all of the source, so that its registration is not measured.
                // It is in random order like the puts after it, because a sequence would register
                // far ahead.
                let step = self.bytes.max(PAGE);
                for at in shuffled(&mut random, 0, (places * self.bytes).div_ceil(step)) {
                    let from = (at * step).min((places - 1) * self.bytes);
                    target.put(SECOND, 0, &source[from..from + self.bytes])?;
                }
                for mb in self.areas() {
                    let slots = area_of(mb);
                    let fresh = shuffled(&mut random, touched / stride, slots / stride);
                    touched = slots;
                    let fresh: Vec<usize> = fresh.into_iter().map(|at| at * stride).collect();
                    self.puts(job, &target, source, places, &fresh, &mut random)?;
                    let measured: Vec<usize> =
                        (0..self.puts).map(|_| random.below(slots)).collect();
                    let hits = job.counters().hits;
                    let (time, unpinned) =
                        self.puts(job, &target, source, places, &measured, &mut random)?;
                    let part = |count: u64| 100.0 * count as f64 / self.puts as f64;
                    points.push(AreaPoint {
                        mb: mb as f64,
                        mean: time / self.puts as u32,
                        unpinned: part(unpinned),
                        hits: part(job.counters().hits - hits),
                    });
                }
            }
            job.barrier()?;
            Ok(points)
        })
    }

    fn puts(
        &self,
        job: &Job,
        target: &hydrant::Symmetric<u8>,
        source: &[u8],
        places: usize,
        slots: &[usize],
        random: &mut Random,
    ) -> Result<(Duration, u64)> {
        let (mut all, mut unpinned) = (Duration::ZERO, 0);
        let long = UNPINNED + BYTE * (self.bytes * self.at_once) as u32;
        for slots in slots.chunks(self.at_once) {
            let from: Vec<usize> = (slots.iter())
                .map(|_| random.below(places) * self.bytes)
                .collect();
            let time = timed(job, || {
                if let ([slot], [from]) = (slots, &from[..]) {
                    let data = &source[*from..from + self.bytes];
                    return target.put(SECOND, slot * self.bytes, data);
                }
                job.scope(|scope| {
                    for (slot, from) in slots.iter().zip(&from) {
                        let data = &source[*from..from + self.bytes];
                        scope.put(target, SECOND, slot * self.bytes, data)?;
                    }
                    Ok(())
                })
            })?;
            all += time;
            unpinned += u64::from(time > long);
        }
        Ok((all, unpinned))
    }
}
