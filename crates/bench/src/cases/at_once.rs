//! The rate at which much memory is registered at once: by threads, by kind of pages, and with pages that are there or are
//! made meanwhile. Rank 0 exposes the memory and has it registered in the background; the others wait in a barrier.
//!
//! The reference is the system's own call, by one thread, on as much memory of the same kind. Both sides take turns.

#![allow(unsafe_code)] // maps memory

use std::{
    ptr::NonNull,
    slice, thread,
    time::{Duration, Instant},
};

use hydrant::Job;
use hydrant_report::units;
use rustix::{
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
    thread::{CpuSet, disable_transparent_huge_pages, sched_setaffinity},
};

use super::registration::{Register, raw_calls};
use crate::ensemble::Ensemble;
use crate::error::BenchError;
use crate::measure::median;
use crate::row::Row;

const BENCH: &str = "registration at once";

/// The repetitions, unless the user says.
const REPETITIONS: usize = 5;

/// The time between two looks at a registration, and between two reports of its progress.
const LOOK: Duration = Duration::from_micros(200);
const REPORT: Duration = Duration::from_millis(250);

/// Bytes beside the memory that M holds: buffers of the job.
const BESIDE: u64 = 64 << 20;

/// The settings of a job that registers so much by so many threads.
pub(crate) fn limits(threads: u32, bytes: u64) -> Vec<(&'static str, String)> {
    vec![
        ("HYDRANT_REGISTER_THREADS", threads.to_string()),
        ("HYDRANT_M", (bytes + BESIDE).to_string()),
        ("HYDRANT_MAXVICTIM", BESIDE.to_string()),
    ]
}

/// The kind of pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageKind {
    /// The smallest.
    Small,
    /// Huge pages that the kernel makes on advice.
    Advised,
    /// Huge pages of 2 MiB that the administrator has set aside.
    Reserved,
}

impl PageKind {
    const ALL: [Self; 3] = [Self::Small, Self::Advised, Self::Reserved];

    fn name(self) -> &'static str {
        match self {
            Self::Small => "4 KiB pages",
            Self::Advised => "advised huge pages",
            Self::Reserved => "reserved huge pages",
        }
    }
}

/// New memory of this process without pages.
struct FreshMemory {
    base: NonNull<u64>,
    bytes: usize,
}

impl FreshMemory {
    /// Maps memory. Returns nothing if the system has no such pages.
    fn map(bytes: usize, kind: PageKind) -> Result<Option<Self>, Errno> {
        let huge = match kind {
            PageKind::Reserved => MapFlags::HUGETLB | MapFlags::HUGE_2MB,
            _ => MapFlags::empty(),
        };
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | huge);
        // SAFETY: the kernel chooses the address of new memory.
        let base = match unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) } {
            Err(Errno::NOMEM | Errno::INVAL) if kind == PageKind::Reserved => return Ok(None),
            mapped => mapped?,
        };
        let advice = match kind {
            PageKind::Small => Some(Advice::LinuxNoHugepage),
            PageKind::Advised => Some(Advice::LinuxHugepage),
            PageKind::Reserved => None,
        };
        let memory = Self {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            bytes,
        };
        // SAFETY: the advice on this new memory does not change its contents.
        let advised = advice.map(|advice| unsafe { madvise(base, bytes, advice) });
        match advised {
            // A kernel without huge pages knows no advice about them.
            Some(Err(Errno::INVAL)) if kind == PageKind::Advised => Ok(None),
            Some(Err(cause)) if cause != Errno::INVAL => Err(cause),
            _ => Ok(Some(memory)),
        }
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: the memory is mapped, aligned and zero, and this borrows all of it.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes / size_of::<u64>()) }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().cast(), self.bytes) }
    }
}

impl Drop for FreshMemory {
    fn drop(&mut self) {
        // SAFETY: `map` mapped this, and all borrows of it have ended.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The nanoseconds of each side: the system's own call, and Hydrant.
#[derive(Default)]
struct SideTimes {
    raw: Vec<f64>,
    ours: Vec<f64>,
}

/// Measures the registration of `bytes` bytes.
pub(crate) fn run(
    e: &Ensemble<'_>,
    bytes: usize,
    repetitions: Option<usize>,
) -> hydrant::Result<()> {
    if !e.registered {
        return Err(hydrant::Error::other(
            "this network needs no registration: try --conduit verbs or smp+pin",
        ));
    }
    if e.rank() == 0 {
        // The launcher binds a rank to a core, and a rank with much memory has several.
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        sched_setaffinity(None, &all).map_err(std::io::Error::from)?;
        // `smp+pin` disables them.
        disable_transparent_huge_pages(false).map_err(std::io::Error::from)?;
        let repetitions = repetitions.unwrap_or(if e.quick { 1 } else { REPETITIONS });
        for kind in PageKind::ALL {
            measure(e, bytes, kind, repetitions)?;
        }
    }
    e.job.barrier()
}

fn measure(
    e: &Ensemble<'_>,
    bytes: usize,
    kind: PageKind,
    repetitions: usize,
) -> hydrant::Result<()> {
    let raw = raw_calls(e.job.conduit().name).map_err(hydrant::Error::other)?;
    let threads = e.job.settings().register_threads.unwrap_or(1);
    let case = |pages: &str| {
        let plural = if threads == 1 { "" } else { "s" };
        format!("{}, {pages}, {threads} thread{plural}", kind.name())
    };
    let [mut fresh, mut resident] = [const {
        SideTimes {
            raw: Vec::new(),
            ours: Vec::new(),
        }
    }; 2];
    for _ in 0..repetitions {
        let map = || FreshMemory::map(bytes, kind).map_err(std::io::Error::from);
        let Some(mut memory) = map()? else {
            return Ok(());
        };
        if let Some(raw) = &raw {
            e.next(&format!("{}, bare", case("fresh")))?;
            fresh.raw.push(bare(raw, &mut memory)?);
        } else {
            memory.words().fill(1);
        }
        resident.ours.push(ours(e, &mut memory, &case("resident"))?);
        if let Some(raw) = &raw {
            resident.raw.push(bare(raw, &mut memory)?);
        }
        drop(memory);
        let Some(mut memory) = map()? else {
            return Ok(());
        };
        fresh.ours.push(ours(e, &mut memory, &case("fresh"))?);
    }
    for (pages, mut times) in [("fresh", fresh), ("resident", resident)] {
        let rate = |times: &mut [f64]| bytes as f64 / median(times);
        let row = Row::new(BENCH, case(pages), "GB/s", rate(&mut times.ours));
        let reference = (!times.raw.is_empty()).then(|| rate(&mut times.raw));
        e.row(row.bytes(bytes as u64).against_if(reference))?;
    }
    Ok(())
}

/// Registers memory by the system's own call. Returns the nanoseconds.
fn bare(raw: &Register, memory: &mut FreshMemory) -> hydrant::Result<f64> {
    let [registered, _] = raw(memory.bytes()).map_err(hydrant::Error::other)?;
    Ok(registered.as_secs_f64() * 1e9)
}

/// Registers memory by Hydrant, and shows how far that is. Returns the nanoseconds.
fn ours(e: &Ensemble<'_>, memory: &mut FreshMemory, case: &str) -> hydrant::Result<f64> {
    let job: &Job = e.job;
    job.scope(|scope| {
        let exposed = scope.expose(memory.words())?;
        let start = Instant::now();
        let mut report = start;
        let registration = exposed.register_in_background()?;
        while !registration.is_over() {
            if report.elapsed() >= REPORT {
                report = Instant::now();
                let percent = 100 * registration.registered() / registration.bytes().max(1);
                e.next(&format!("{case}: {percent} %"))?;
            }
            thread::sleep(LOOK);
        }
        let took = start.elapsed();
        let (registered, wanted) = (registration.registered(), registration.bytes());
        if registered < wanted {
            return Err(BenchError::Unregistered {
                registered: units::bytes(registered as f64),
                wanted: units::bytes(wanted as f64),
            }
            .into());
        }
        Ok(took.as_secs_f64() * 1e9)
    })
}
