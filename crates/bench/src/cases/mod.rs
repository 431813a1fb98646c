//! The measurements of the ranks: one file for each bench.

pub(super) mod am;
pub(super) mod armci;
pub(super) mod at_once;
pub(super) mod atomics;
pub(super) mod barrier;
pub(super) mod collectives;
pub(super) mod cost;
pub(super) mod endpoints;
pub(super) mod heap;
pub(super) mod messages;
pub(super) mod registered;
pub(super) mod registration;
pub(super) mod rma;
pub(super) mod scattered;
pub(super) mod strategies;

use std::hint::black_box;
use std::time::Duration;

use hydrant::Symmetric;
use hydrant_ofi::BareAccess;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bare::{self, BarePlace, BareWait};
use crate::ensemble::Ensemble;
use crate::error::BenchError;
use crate::network::PARTNER;

/// Longer than a rank spins before it sleeps.
const SETTLE: Duration = Duration::from_millis(2);

/// This rank's part in a bare round trip of `bytes` bytes between rank 0 and its partner. It goes
/// over the bare network where there is one, else by a [`ping_pong`] through memory.
pub(super) fn round_trip(
    e: &Ensemble<'_>,
    turn: &mut u64,
    bytes: u64,
    count: u64,
) -> hydrant::Result<Duration> {
    bare_round_trip(e, turn, [bytes, count], false)
}

/// Like [`round_trip`], beside a side that is [timed singly](Ensemble::timed_singly).
pub(super) fn round_trip_singly(
    e: &Ensemble<'_>,
    turn: &mut u64,
    bytes: u64,
    count: u64,
) -> hydrant::Result<Duration> {
    bare_round_trip(e, turn, [bytes, count], true)
}

fn bare_round_trip(
    e: &Ensemble<'_>,
    turn: &mut u64,
    [bytes, count]: [u64; 2],
    singly: bool,
) -> hydrant::Result<Duration> {
    let Some(network) = &e.network else {
        return ping_pong(e, turn, count);
    };
    let (mut network, len) = (network.borrow_mut(), bytes as usize);
    let network = &mut *network;
    match e.rank() {
        0 => {
            let ping = |_| Ok(network.ping(len).map_err(BenchError::Network)?);
            match singly {
                true => e.timed_singly(count, ping),
                false => e.timed(count, ping),
            }
        }
        rank if rank == PARTNER.0 => {
            (0..count)
                .try_for_each(|_| network.pong(len))
                .map_err(BenchError::Network)?;
            Ok(Duration::ZERO)
        }
        _ => Ok(Duration::ZERO),
    }
}

/// Handles messages and does nothing else until rank 0 has put `turn` here. The loop yields its
/// core, because an emulated NIC runs on a thread or in the kernel and needs one.
fn attend(e: &Ensemble<'_>, over: &Symmetric<u64>, turn: u64) -> hydrant::Result<()> {
    while over.local()?.load(0)? < turn {
        e.job.poll();
        rustix::thread::sched_yield();
    }
    Ok(())
}

/// Bare writes of `bytes` bytes from rank 0 to its partner.
fn written(e: &Ensemble<'_>, bytes: u64, count: u64) -> hydrant::Result<Duration> {
    match &e.network {
        Some(network) if e.rank() == 0 => e.timed(count, |_| {
            let written = network.borrow_mut().once(BareAccess::Write, bytes as usize);
            Ok(written.map_err(BenchError::Network)?)
        }),
        _ => Ok(Duration::ZERO),
    }
}

/// This rank's part in the bare ping-pong of rank 0 and its partner. With more ranks than cores the
/// two share a core meanwhile, so that a round trip hands the core over twice.
pub(super) fn ping_pong(e: &Ensemble<'_>, turn: &mut u64, count: u64) -> hydrant::Result<Duration> {
    let (leads, answers) = (e.rank() == 0, e.rank() == PARTNER.0);
    if !leads && !answers {
        return Ok(Duration::ZERO);
    }
    let elsewhere = match e.wait {
        BareWait::Spin => None,
        BareWait::Yield => {
            // By then the other ranks have stopped spinning and sleep.
            std::thread::sleep(SETTLE);
            Some(move_to(e.core)?)
        }
    };
    let mut took = Duration::ZERO;
    if leads {
        took = bare::ping(&e.window, turn, count, e.wait)
    } else {
        bare::pong(&e.window, turn, count, e.wait)
    }
    if let Some(cores) = elsewhere {
        sched_setaffinity(None, &cores).map_err(std::io::Error::from)?;
    }
    Ok(took)
}

/// Moves this thread to one core. Returns the cores that it was allowed before.
fn move_to(core: usize) -> std::io::Result<CpuSet> {
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)?;
    Ok(before)
}

/// The partner's part, for bare access to the memory that Hydrant's operations reach.
///
/// # Safety
/// The conditions of [`BarePlace::new`], for the whole part.
#[allow(unsafe_code)]
pub(super) unsafe fn partner_place(memory: &Symmetric<u64>) -> hydrant::Result<BarePlace> {
    let part = memory.on(PARTNER)?;
    let part =
        part.ok_or_else(|| hydrant::Error::other("the memory of rank 1 is not mapped here"))?;
    // SAFETY: 1. and 2. the caller's conditions 1 and 2; 3. words are aligned.
    Ok(unsafe { BarePlace::new(part.as_ptr().cast(), part.len() * size_of::<u64>()) })
}

/// Keeps the compiler from removing an unused value.
fn consume<T>(value: T) {
    black_box(value);
}
