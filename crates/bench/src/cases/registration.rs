//! What registering and deregistering memory costs, by pages: through the conduit, and by the
//! system's own calls on the same pages.
//!
//! It is measured by rank 0 when it has its conduit, before the job uses it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hydrant_conduit::{Conduit, Cost, Permission, measure::fit};
use hydrant_verbs::{Bare, Options};
use parking_lot::Mutex;

use crate::ensemble::Ensemble;
use crate::measure::median;
use crate::row::Row;

/// Pages of an extent.
const PAGES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Bytes of a page.
const PAGE: usize = 4096;

/// What was measured, shared with the layer that measures it.
#[derive(Clone)]
pub(crate) struct Costs {
    repetitions: usize,
    points: Arc<Mutex<Result<Vec<Point>, String>>>,
}

/// Times for so many pages: of registering and of deregistering.
#[derive(Clone, Copy)]
struct Point {
    pages: usize,
    ours: [f64; 2],
    raw: Option<[f64; 2]>,
}

impl Costs {
    pub(crate) fn new(quick: bool) -> Self {
        Costs {
            repetitions: if quick { 3 } else { 21 },
            points: Arc::new(Mutex::new(Ok(Vec::new()))),
        }
    }

    /// Measures on the conduit that passes, and hands it on as it is.
    pub(crate) fn layer(&self) -> impl Fn(Box<dyn Conduit>) -> Box<dyn Conduit> + use<> {
        let costs = self.clone();
        move |conduit| {
            if conduit.rank().0 == 0 && conduit.caps().registration.is_some() {
                let measured = costs.measure(&*conduit);
                *costs.points.lock() = measured;
            }
            conduit
        }
    }

    fn measure(&self, conduit: &dyn Conduit) -> Result<Vec<Point>, String> {
        let caps = conduit.caps();
        let raw = raw_calls(caps.name)?;
        let most = caps.registration.map_or(0, |registration| {
            registration.max_extent.min(registration.max_bytes) / PAGE
        });
        let mut memory = small_pages(PAGES[PAGES.len() - 1] + 1)?;
        let skew = memory.as_ptr().align_offset(PAGE);
        let mut points = Vec::new();
        for pages in PAGES.into_iter().filter(|pages| *pages <= most) {
            let extent = &mut memory[skew..skew + pages * PAGE];
            let [mut ours, mut bare] = [const { [const { Vec::new() }; 2] }; 2];
            for _ in 0..self.repetitions {
                if let Some(raw) = &raw {
                    note(&mut bare, raw(extent)?);
                }
                note(&mut ours, through(conduit, extent)?);
            }
            points.push(Point {
                pages,
                ours: ours.each_mut().map(|times| median(times)),
                raw: raw
                    .is_some()
                    .then(|| bare.each_mut().map(|times| median(times))),
            });
        }
        Ok(points)
    }
}

/// Registers memory and gives it back: how long each took.
type Register = Box<dyn Fn(&mut [u8]) -> Result<[Duration; 2], String>>;

/// The calls of the system that the network of this name makes, if they are known.
fn raw_calls(network: &str) -> Result<Option<Register>, String> {
    fn described(cause: impl ToString) -> String {
        cause.to_string()
    }
    Ok(match network {
        "verbs" => {
            let bare = Bare::open(&Options::default(), 0, PAGE).map_err(described)?;
            Some(Box::new(move |memory| {
                bare.register(memory).map_err(described)
            }))
        }
        "smp+pin" => {
            let bare = hydrant_pin::BareRing::open().map_err(described)?;
            Some(Box::new(move |memory| {
                bare.register(memory).map_err(described)
            }))
        }
        _ => None,
    })
}

fn note(times: &mut [Vec<f64>; 2], took: [Duration; 2]) {
    for (times, took) in times.iter_mut().zip(took) {
        times.push(took.as_secs_f64() * 1e9);
    }
}

/// Registers memory and gives it back, through a conduit: how long each took.
#[allow(unsafe_code)] // registers memory
fn through(conduit: &dyn Conduit, extent: &mut [u8]) -> Result<[Duration; 2], String> {
    let start = Instant::now();
    // SAFETY: the memory is borrowed until it was deregistered, and nobody is told the key.
    let key = unsafe { conduit.register(extent.as_mut_ptr(), extent.len(), Permission::ReadWrite) };
    let key = key.map_err(|cause| cause.to_string())?;
    let registered = start.elapsed();
    conduit.deregister(key).map_err(|cause| cause.to_string())?;
    Ok([registered, start.elapsed() - registered])
}

/// So many pages that are there, and are none of the huge ones, which would hide what a page
/// costs.
#[allow(unsafe_code)] // advises the kernel
fn small_pages(pages: usize) -> Result<Vec<u8>, String> {
    use rustix::mm::{Advice, madvise};
    let mut memory: Vec<u8> = vec![0; (pages + 1) * PAGE];
    let skew = memory.as_ptr().align_offset(PAGE);
    // SAFETY: whole pages of our own, whose contents the advice does not change.
    let advised = unsafe {
        let start = memory.as_mut_ptr().add(skew);
        madvise(start.cast(), pages * PAGE, Advice::LinuxNoHugepage)
    };
    match advised {
        // A kernel without huge pages knows no such advice.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(cause) => return Err(cause.to_string()),
    }
    memory.fill(1);
    Ok(memory)
}

/// Tells what was measured before the job began.
pub(crate) fn run(e: &Ensemble<'_>, costs: &Costs) -> hydrant::Result<()> {
    if !e.registered {
        return Err(hydrant::Error::other(
            "this network needs no registration: try --conduit verbs or smp+pin",
        ));
    }
    if e.rank() == 0 {
        let points = costs.points.lock();
        let points = points
            .as_ref()
            .map_err(|why| hydrant::Error::other(why.clone()))?;
        for (which, call) in ["register", "deregister"].into_iter().enumerate() {
            for point in points {
                let row = Row::new("registration", call, "ns", point.ours[which]);
                let row = row.bytes((point.pages * PAGE) as u64);
                let raw = point.raw.map(|raw| raw[which]);
                e.row(raw.map_or(row.clone(), |raw| row.against(raw)))?;
            }
        }
        for (which, call) in ["register", "deregister"].into_iter().enumerate() {
            let line = |of: &dyn Fn(&Point) -> Option<[f64; 2]>| {
                let points: Option<Vec<(f64, f64)>> = (points.iter())
                    .map(|point| Some((point.pages as f64, of(point)?[which])))
                    .collect();
                points.map(|points| fit(&points))
            };
            let ours = line(&|point| Some(point.ours));
            let raw = line(&|point| point.raw);
            for name in ["for each call", "for each page"] {
                let part = |cost: Cost| match name {
                    "for each call" => cost.per_op_ns,
                    _ => cost.per_page_ns,
                };
                if let Some(ours) = ours.map(part) {
                    let row = Row::new("registration", format!("{call}, {name}"), "ns", ours);
                    let raw = raw.map(part);
                    e.row(raw.map_or(row.clone(), |raw| row.against(raw)))?;
                }
            }
        }
    }
    e.job.barrier()
}
