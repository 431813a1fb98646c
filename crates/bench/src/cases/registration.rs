//! The cost of registering and deregistering memory, by pages: through the conduit, and by the
//! system's own calls on the same pages.
//!
//! Rank 0 measures it when it has its conduit, before the job uses it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hydrant_conduit::{Conduit, Cost, Permission, measure::fit};
use hydrant_verbs::{Bare, VerbsOptions};
use parking_lot::Mutex;

use crate::ensemble::Ensemble;
use crate::measure::median;
use crate::row::Row;

/// Pages of an extent.
const PAGES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Bytes of a page.
const PAGE: usize = 4096;

/// The measurements, shared with the layer that takes them.
#[derive(Clone)]
pub(crate) struct RegistrationCosts {
    repetitions: usize,
    points: Arc<Mutex<Result<Vec<CostPoint>, String>>>,
}

/// Times of registering and of deregistering some number of pages.
#[derive(Clone, Copy)]
struct CostPoint {
    pages: usize,
    ours: [f64; 2],
    raw: Option<[f64; 2]>,
}

impl RegistrationCosts {
    pub(crate) fn new(quick: bool) -> Self {
        RegistrationCosts {
            repetitions: if quick { 3 } else { 21 },
            points: Arc::new(Mutex::new(Ok(Vec::new()))),
        }
    }

    /// A layer that measures on the conduit, and returns the conduit unchanged.
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

    fn measure(&self, conduit: &dyn Conduit) -> Result<Vec<CostPoint>, String> {
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
            points.push(CostPoint {
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

/// Registers and deregisters memory. Returns both times.
pub(super) type Register = Box<dyn Fn(&mut [u8]) -> Result<[Duration; 2], String>>;

/// The system's own calls for the network of this name, if they are known.
pub(super) fn raw_calls(network: &str) -> Result<Option<Register>, String> {
    fn described(cause: impl ToString) -> String {
        cause.to_string()
    }
    Ok(match network {
        "verbs" => {
            let bare = Bare::open(&VerbsOptions::default(), 0, PAGE).map_err(described)?;
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

/// Registers and deregisters memory through a conduit. Returns both times.
#[allow(unsafe_code)] // registers memory
fn through(conduit: &dyn Conduit, extent: &mut [u8]) -> Result<[Duration; 2], String> {
    let start = Instant::now();
    // SAFETY: the memory is borrowed until it is deregistered, and no peer gets the key.
    let key = unsafe { conduit.register(extent.as_mut_ptr(), extent.len(), Permission::ReadWrite) };
    let key = key.map_err(|cause| cause.to_string())?;
    let registered = start.elapsed();
    conduit.deregister(key).map_err(|cause| cause.to_string())?;
    Ok([registered, start.elapsed() - registered])
}

/// Resident pages of the ordinary size. Huge pages would hide the cost of a page.
#[allow(unsafe_code)] // advises the kernel
fn small_pages(pages: usize) -> Result<Vec<u8>, String> {
    use rustix::mm::{Advice, madvise};
    let mut memory: Vec<u8> = vec![0; (pages + 1) * PAGE];
    let skew = memory.as_ptr().align_offset(PAGE);
    let start = memory[skew..].as_mut_ptr();
    // SAFETY: the pages are our own, and the advice does not change their contents.
    let advised = unsafe { madvise(start.cast(), pages * PAGE, Advice::LinuxNoHugepage) };
    match advised {
        // A kernel without huge pages does not know this advice.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(cause) => return Err(cause.to_string()),
    }
    memory.fill(1);
    Ok(memory)
}

/// Reports the measurements from before the job.
pub(crate) fn run(e: &Ensemble<'_>, costs: &RegistrationCosts) -> hydrant::Result<()> {
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
            let line = |of: &dyn Fn(&CostPoint) -> Option<[f64; 2]>| {
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
