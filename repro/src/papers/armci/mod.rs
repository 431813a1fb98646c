//! ARMCI's experiments (Nieplocha et al. 2002, §3, §4): its protocols alone, and its operations, by
//! the crate `armci`.

mod fences;
mod latencies;
mod operations;
mod protocols;

use ::armci::Armci;
use hydrant::{Job, Rank, Symmetric};

use super::job::{FIRST, SECOND};
use super::part::Picture;
use hydrant_report::plot::{self, Figure, Panel, Series};
use hydrant_report::units;

pub(super) use fences::figure_12;
pub(super) use latencies::table_2;
pub(super) use operations::{figure_8, figure_9, figure_10, figure_11};
pub(super) use protocols::{figure_2, figure_6, figure_7};

const GM: &str = "myrinet-gm-armci";
const VIA: &str = "clan-via";

/// The computation of a rank between two checks whether the others are done: a millisecond on these
/// machines.
const OPERATIONS: u64 = 250_000;

/// ARMCI in a job, and a word that tells computing ranks to stop.
struct ArmciWorld {
    armci: Armci,
    over: Symmetric<u64>,
}

impl ArmciWorld {
    /// Sets ARMCI up. Collective.
    fn new(job: &Job) -> hydrant::Result<Self> {
        Ok(Self {
            armci: raised(Armci::new(job, None))?,
            over: job.alloc(1)?,
        })
    }

    /// Memory of `bytes` bytes on the second rank.
    fn memory(&self, bytes: usize) -> hydrant::Result<*mut u8> {
        let parts = raised(self.armci.malloc(bytes as i64))?;
        Ok(parts[SECOND.index()])
    }

    /// Runs `body` on the first rank while the others compute. Their hosts then serve it by
    /// interrupts, as the paper's servers do. Returns the result of `body`, and nothing on the
    /// others.
    fn while_others_compute<R>(
        &self,
        job: &Job,
        body: impl FnOnce() -> hydrant::Result<R>,
    ) -> hydrant::Result<Option<R>> {
        let mut result = None;
        if job.rank() == FIRST {
            result = Some(body()?);
            for rank in (1..job.size()).map(Rank) {
                self.over.put_value(rank, 0, 1)?;
            }
        } else {
            while self.over.local()?.load(0)? == 0 {
                job.compute(OPERATIONS);
                job.poll();
            }
        }
        job.barrier()?;
        self.over.local()?.store(0, 0)?;
        job.barrier()?;
        Ok(result)
    }
}

fn raised<T>(result: ::armci::Result<T>) -> hydrant::Result<T> {
    result.map_err(|cause| match cause {
        ::armci::Error::Hydrant(cause) => cause,
        cause => hydrant::Error::other(cause),
    })
}

fn picture(
    name: &str,
    title: &str,
    machine: &str,
    scale: plot::Scale,
    series: Vec<Series>,
) -> Picture {
    Picture {
        name: name.to_owned(),
        figure: Figure {
            title: title.to_owned(),
            subtitle: format!("{machine}; MB are a million bytes"),
            panels: vec![Panel::Curves {
                title: "bandwidth by size".to_owned(),
                x: plot::Axis {
                    label: "size, bytes",
                    scale: plot::Scale::Twos,
                    words: units::bytes,
                },
                y: plot::Axis {
                    label: "MB/s",
                    scale,
                    words: |rate| format!("{}", (rate * 1e6).round() / 1e6),
                },
                series,
                marks: Vec::new(),
            }],
        },
    }
}
