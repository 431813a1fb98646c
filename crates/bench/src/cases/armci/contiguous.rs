//! Contiguous bytes, over size: the time of one operation, and its bandwidth.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use hydrant_ofi::BareAccess;

use super::{Cases, FACTOR, LARGEST, against, ones};
use crate::error::BenchError;
use crate::network;
use crate::row::{Goal, Row};

/// The size from which on the bandwidth is shown and judged.
const BULK: u64 = 64 << 10;

/// The original's times for eight bytes on shared memory (`baselines`): put, get, accumulate.
const ORIGINAL: [f64; 3] = [10.0, 19.0, 29.0];

pub(super) fn run(cases: &Cases<'_>) -> hydrant::Result<()> {
    for bytes in cases.e.sizes(8, LARGEST) {
        sized(cases, bytes)?;
    }
    Ok(())
}

fn sized(cases: &Cases<'_>, bytes: u64) -> hydrant::Result<()> {
    let (peer, data) = (cases.peer, RefCell::new(ones(bytes)));
    let place = peer.place.as_ref();
    let [put, get, accumulate] = ORIGINAL.map(|most| short(cases, bytes, most));
    let mut copy_in = |count| match place {
        Some(place) => Ok(place.copy_in(&data.borrow(), count)),
        None => on_the_network(cases, BareAccess::Write, bytes, count),
    };
    let medians = cases.compare(
        "put",
        bytes,
        has_bare(cases, bytes).then_some(&mut copy_in),
        &mut |count| {
            let from = &data.borrow()[..];
            cases.timed(count, |_| peer.put(black_box(from)))
        },
        put,
    )?;
    bandwidth(cases, "put", bytes, medians)?;
    let mut copy_out = |count| match place {
        Some(place) => Ok(place.copy_out(&mut data.borrow_mut(), count)),
        None => on_the_network(cases, BareAccess::Read, bytes, count),
    };
    let medians = cases.compare(
        "get",
        bytes,
        has_bare(cases, bytes).then_some(&mut copy_out),
        &mut |count| {
            let to = &mut data.borrow_mut()[..];
            cases.timed(count, |_| peer.get(black_box(&mut *to)))
        },
        get,
    )?;
    bandwidth(cases, "get", bytes, medians)?;
    let mut add = |count| {
        Ok(place.map_or(Duration::ZERO, |place| {
            place.add_in(FACTOR, &data.borrow(), count)
        }))
    };
    let serial = cases.of_many(bytes, Goal::AtMostTimes(1.15));
    let medians = cases.compare(
        "accumulate",
        bytes,
        place.is_some().then_some(&mut add),
        &mut |count| {
            let from = &data.borrow()[..];
            cases.timed(count, |_| peer.accumulate(black_box(from)))
        },
        serial.or(accumulate),
    )?;
    bandwidth(cases, "accumulate", bytes, medians)
}

/// The goal for a word.
fn short(cases: &Cases<'_>, bytes: u64, most: f64) -> Option<Goal> {
    let judged = bytes == 8 && cases.peer.place.is_some();
    (cases.e.uncrowded(Goal::AtMost(most, "ns"))).filter(|_| judged)
}

/// True if there is a reference: the operations of the bare network are limited to its memory.
fn has_bare(cases: &Cases<'_>, bytes: u64) -> bool {
    let network = cases.e.network.is_some() && bytes as usize <= network::LARGEST;
    cases.peer.place.is_some() || network
}

fn on_the_network(
    cases: &Cases<'_>,
    access: BareAccess,
    bytes: u64,
    count: u64,
) -> hydrant::Result<Duration> {
    let Some(network) = &cases.e.network else {
        return Ok(Duration::ZERO);
    };
    cases.timed(count, |_| {
        let done = network.borrow_mut().once(access, bytes as usize);
        Ok(done.map_err(BenchError::Network)?)
    })
}

fn bandwidth(
    cases: &Cases<'_>,
    case: &str,
    bytes: u64,
    medians: Option<(f64, Option<f64>)>,
) -> hydrant::Result<()> {
    let Some((ours, bare)) = medians.filter(|_| bytes >= BULK) else {
        return Ok(());
    };
    let rate = |nanos: f64| bytes as f64 / nanos;
    let row = Row::new("armci", format!("{case} bandwidth"), "GB/s", rate(ours)).bytes(bytes);
    let judged = case != "accumulate" && cases.peer.place.is_some();
    let goal = cases.e.uncrowded(Goal::AtLeastTimes(0.97));
    let row = against(row, bare.map(rate));
    cases.e.row(row.goal_if(goal.filter(|_| judged)))
}
