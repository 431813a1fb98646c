//! Lists of runs of 64 bytes at arbitrary addresses, over size. The reference is a hand-written
//! loop over the same lists.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::hint::black_box;
use std::time::Duration;

use armci::Vector;

use super::{Cases, FACTOR, ones};
use crate::bare;
use crate::row::Goal;

/// Words of a run.
const RUN: usize = 8;
/// Words from one run to the next in the partner's memory.
const APART: usize = 2 * RUN;

pub(super) fn run(cases: &Cases<'_>) -> hydrant::Result<()> {
    (cases.coarse_sizes(64)).try_for_each(|bytes| sized(cases, bytes))
}

fn sized(cases: &Cases<'_>, bytes: u64) -> hydrant::Result<()> {
    let (peer, mut data) = (cases.peer, ones(bytes));
    let here: Vec<*mut u8> = (data.chunks_mut(RUN))
        .map(|run| run.as_mut_ptr().cast())
        .collect();
    let there: Vec<*mut u8> = (0..here.len()).map(|run| peer.word(run * APART)).collect();
    let run_bytes = RUN * size_of::<u64>();
    let [to, from] = [(&here, &there), (&there, &here)].map(|(src, dst)| Vector {
        src,
        dst,
        bytes: run_bytes,
    });
    let mapped = peer.place.is_some();
    let sums = cases.of_many(bytes, Goal::AtMostTimes(1.15));
    let each = |count, vector: Vector<'_>, is_put: bool| {
        cases.timed(count, |_| {
            let mut runs = vector.src.chunks(1).zip(vector.dst.chunks(1));
            runs.try_for_each(|(src, dst)| {
                let one = Vector { src, dst, ..vector };
                if is_put {
                    // SAFETY: runs of `data`, which nobody else uses.
                    unsafe { peer.put_vector(&one) }
                } else {
                    // SAFETY: runs of `data`, which nobody else uses.
                    unsafe { peer.get_vector(&one) }
                }
            })
        })
    };
    cases.compare(
        "put, vector",
        bytes,
        Some(&mut |count| {
            if mapped {
                // SAFETY: 1. the runs belong to `data` and to the partner's memory, which is mapped
                // here; 2. only rank 0 uses them.
                Ok(unsafe { bare::copy_list(to.src, to.dst, run_bytes, count) })
            } else {
                each(count, to, true)
            }
        }),
        &mut |count| {
            // SAFETY: runs of `data`.
            cases.timed(count, |_| unsafe { peer.put_vector(black_box(&to)) })
        },
        None,
    )?;
    cases.compare(
        "get, vector",
        bytes,
        Some(&mut |count| {
            if mapped {
                // SAFETY: as above.
                Ok(unsafe { bare::copy_list(from.src, from.dst, run_bytes, count) })
            } else {
                each(count, from, false)
            }
        }),
        &mut |count| {
            // SAFETY: runs of `data`, which nobody else uses.
            cases.timed(count, |_| unsafe { peer.get_vector(black_box(&from)) })
        },
        None,
    )?;
    let mut add = |count| {
        if mapped {
            // SAFETY: 1. As above. 2. All words are doubles.
            Ok(unsafe { bare::add_list(FACTOR, to.src, to.dst, run_bytes, count) })
        } else {
            Ok(Duration::ZERO)
        }
    };
    cases.compare(
        "accumulate, vector",
        bytes,
        mapped.then_some(&mut add),
        &mut |count| {
            // SAFETY: runs of `data`.
            cases.timed(count, |_| unsafe { peer.accumulate_vector(black_box(&to)) })
        },
        sums,
    )?;
    Ok(())
}
