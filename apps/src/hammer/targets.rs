//! Memory that cannot serve a request: read-only, not mapped, or mapped in part.
//!
//! Every rank maps the same few pages at the same address, far from the kernel's own choices, and
//! accesses those of the next rank.

#![allow(unsafe_code)] // maps memory and names it by its address

use std::{ptr, time::Instant};

use hydrant::{Error, Job, Result};
use hydrant_base::mix;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::{
    log::kind,
    report::{HammerReport, TargetCase},
};

/// The addresses of the pages: one writable, one missing, one read-only, one writable.
const BASE: u64 = 0x3000_0000_0000;
const PAGE: usize = 4096;
const PAGES: usize = 4;
const HOLE: u64 = BASE + PAGE as u64;
const READ_ONLY: u64 = BASE + 2 * PAGE as u64;
/// The content of the read-only page.
const FILL: u8 = 0x5a;

/// The number of times that each case is tried.
const TIMES: u64 = 4;

/// Read-only bytes: the source of puts.
static SOURCE: [u8; 8 * PAGE] = [0xc3; 8 * PAGE];

/// Tries all cases, with memory that is named only by address and with memory that is lent.
pub(crate) fn try_all(job: &Job, report: &mut HammerReport) -> Result<()> {
    let _pages = Pages::map()?;
    let symmetric = job.alloc::<u8>(SOURCE.len())?;
    job.barrier()?;
    for lent in [false, true] {
        // SAFETY: 1. only `Pages` maps memory there, and it outlives the loan. 2. Only this module
        // knows the addresses. 3. This is no handler.
        let loan = lent.then(|| unsafe { job.lend_anywhere(address(BASE), PAGES * PAGE) });
        let loan = loan.transpose()?;
        job.barrier()?;
        for time in 0..TIMES {
            read_only_source(job, &symmetric, report)?;
            for case in accesses(lent) {
                case.try_once(job, time, report)?;
            }
        }
        job.barrier()?;
        drop(loan);
    }
    Ok(())
}

fn read_only_source(
    job: &Job,
    symmetric: &hydrant::Symmetric<u8>,
    report: &mut HammerReport,
) -> Result<()> {
    let (to, since) = (job.right(), Instant::now());
    let put = symmetric.put(to, 0, &SOURCE);
    let waited = since.elapsed().as_secs_f64();
    let mut back = vec![0; SOURCE.len()];
    symmetric.get(to, 0, &mut back)?;
    report.cases.push(TargetCase {
        name: "read-only source",
        got: got(&put),
        waited,
        right: put.is_ok() && back == SOURCE,
    });
    // Otherwise the next round would show nothing.
    job.barrier()?;
    symmetric.local()?.fill(0..SOURCE.len(), 0)?;
    job.barrier()
}

/// An access, and its expected outcome.
struct TargetAccess {
    name: &'static str,
    addr: u64,
    len: usize,
    fails: bool,
    put: bool,
}

fn accesses(lent: bool) -> Vec<TargetAccess> {
    let access = |name, addr, len, put, fails| TargetAccess {
        name,
        addr,
        len,
        fails,
        put,
    };
    let partly = BASE + PAGE as u64 / 2;
    let names = if lent {
        [
            "read-only target, lent",
            "unmapped target, lent",
            "target partly mapped, lent",
        ]
    } else {
        [
            "read-only target",
            "unmapped target",
            "target partly mapped",
        ]
    };
    vec![
        access(names[0], READ_ONLY, 8, true, true),
        access(names[0], READ_ONLY, PAGE, true, true),
        access("read-only target of a get", READ_ONLY, PAGE, false, false),
        access(names[1], HOLE, 8, true, true),
        access(names[1], HOLE, PAGE, true, true),
        access(names[1], HOLE, 8, false, true),
        access(names[2], partly, PAGE, true, true),
        access(names[2], partly, PAGE, false, true),
        // The adjacent data is unchanged.
        access("the page beside it", BASE, PAGE, true, false),
    ]
}

impl TargetAccess {
    fn try_once(&self, job: &Job, time: u64, report: &mut HammerReport) -> Result<()> {
        let to = job.right();
        let stamp = mix(u64::from(job.rank().0) << 32 | time).to_le_bytes();
        let mut data: Vec<u8> = stamp.into_iter().cycle().take(self.len).collect();
        let since = Instant::now();
        let outcome = if self.put {
            // SAFETY: only this module knows the pages, which are plain bytes. Only this rank
            // writes to those of the target.
            unsafe { job.put_anywhere(to, self.addr, &data) }
        } else {
            // SAFETY: as above.
            unsafe { job.get_anywhere(to, self.addr, &mut data) }
        };
        let waited = since.elapsed().as_secs_f64();
        let right = match &outcome {
            Err(Error::BadAddress { rank, .. }) => self.fails && *rank == to,
            Err(_) => false,
            Ok(()) => !self.fails && self.is_there(job, &data)?,
        };
        report.cases.push(TargetCase {
            name: self.name,
            got: got(&outcome),
            waited,
            right,
        });
        Ok(())
    }

    /// True if data that was put can be got, and data that was got is the content.
    fn is_there(&self, job: &Job, data: &[u8]) -> Result<bool> {
        if !self.put {
            return Ok(data.iter().all(|byte| *byte == FILL));
        }
        let mut back = vec![0; self.len];
        // SAFETY: as in `try_once`.
        unsafe { job.get_anywhere(job.right(), self.addr, &mut back)? };
        Ok(back == data)
    }
}

fn got(outcome: &Result<()>) -> String {
    (outcome.as_ref().err()).map_or_else(|| "Ok".to_owned(), kind)
}

/// The pages of this rank.
struct Pages;

impl Pages {
    fn map() -> Result<Self> {
        let bytes = PAGES * PAGE;
        let (flags, all) = (
            MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
            ProtFlags::READ | ProtFlags::WRITE,
        );
        // SAFETY: the flag makes the kernel refuse an address that is already mapped.
        let at = unsafe { mmap_anonymous(address(BASE).cast(), bytes, all, flags) };
        let at = at.map_err(|cause| Error::other(std::io::Error::from(cause)))?;
        if at.addr() as u64 != BASE {
            return Err(Error::other(
                "the kernel mapped the pages at another address than asked for",
            ));
        }
        // SAFETY: the memory was just mapped, and nobody else knows it.
        unsafe { ptr::write_bytes(at.cast::<u8>(), FILL, bytes) };
        // SAFETY: as above.
        let unmapped = unsafe { munmap(address(HOLE).cast(), PAGE) };
        // SAFETY: as above.
        let protected = unsafe { mprotect(address(READ_ONLY).cast(), PAGE, MprotectFlags::READ) };
        (unmapped.and(protected))
            .map_err(|cause| Error::other(std::io::Error::from(cause)))
            .map(|()| Self)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the remaining pages belong to this value, and no reference to them was ever made.
        let _ = unsafe { munmap(address(BASE).cast(), PAGES * PAGE) };
    }
}

fn address(addr: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(addr as usize)
}
