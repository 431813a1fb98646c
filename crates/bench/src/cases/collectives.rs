//! Collectives over size, all ranks taking part.
//!
//! The root moves by one rank each time. A root that may leave early then waits in the next call
//! for its own input. So the time is that of a whole operation, not of its start.

use std::hint::black_box;

use hydrant::{Op, TeamRank};

use super::{round_trip, written};
use crate::beside;
use crate::ensemble::{BesideBare, Ensemble};
use crate::measure::Side;
use crate::network;
use crate::row::Goal;

/// Up to this size a collective costs its messages, above it its bytes.
const SHORT: u64 = 64;
/// The sizes that are also tried in segment memory: shorter data travels in messages wherever it
/// lies.
const SHARED: std::ops::RangeInclusive<u64> = 32 << 10..=1 << 20;
/// The size at which its copies are judged.
const JUDGED: u64 = 1 << 20;

/// Measures all ranks.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let sizes = beside::sizes(e.quick || e.registered);
    // Without a mapping every byte travels in messages. Large sizes then take long and show nothing
    // new.
    let sizes = sizes
        .into_iter()
        .filter(|size| !e.registered || *size <= JUDGED);
    for bytes in sizes {
        sized(e, bytes)?;
        if !e.registered && SHARED.contains(&bytes) {
            shared(e, bytes)?;
        }
    }
    Ok(())
}

/// The least work of a rank itself, in copies and additions of elements.
#[derive(Clone, Copy)]
struct Least {
    copied: usize,
    added: usize,
    /// The factor over that least work that is accepted where copies are judged.
    times: Option<f64>,
}

impl Least {
    fn copies(copied: usize) -> Self {
        Self {
            copied,
            added: 0,
            times: None,
        }
    }

    /// An addition and a copy of `words` elements each.
    fn addition_and_copy(words: usize) -> Self {
        Self {
            added: words,
            ..Self::copies(words)
        }
    }

    fn within(self, times: f64) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }
}

/// The collectives whose copies are judged, with buffers in exclusive symmetric memory.
fn shared(e: &Ensemble<'_>, bytes: u64) -> hydrant::Result<()> {
    let (job, world) = (e.job, e.job.world());
    let ranks = job.size() as usize;
    let words = bytes as usize / size_of::<f64>();
    let mut part = job.exclusive(job.alloc::<f64>(words)?)?;
    let mut whole = job.exclusive(job.alloc::<f64>(words * ranks)?)?;
    let mut into = job.exclusive(job.alloc::<f64>(words * ranks)?)?;
    // The first touch of its pages.
    part.fill(0.0);
    whole.fill(0.0);
    into.fill(0.0);
    let least = Least::copies(words).within(1.3);
    compare(e, "broadcast, symmetric memory", bytes, least, |i| {
        world.broadcast(TeamRank((i % ranks as u64) as u32), &mut part)
    })?;
    let least = Least::addition_and_copy(words - words / ranks).within(1.5);
    compare(e, "all_reduce, symmetric memory", bytes, least, |_| {
        world.all_reduce(&mut part, Op::Sum)
    })?;
    let least = Least::copies(words * ranks).within(1.3);
    compare(e, "all_to_all, symmetric memory", bytes, least, |_| {
        world.all_to_all_into(&whole, &mut into)
    })?;
    for memory in [part, whole, into] {
        job.free(job.share(memory)?)?;
    }
    Ok(())
}

/// Every collective with `bytes` bytes from or to each rank.
fn sized(e: &Ensemble<'_>, bytes: u64) -> hydrant::Result<()> {
    let world = e.job.world();
    let ranks = e.job.size();
    let words = bytes as usize / size_of::<f64>();
    let all = words * ranks as usize;
    let root = |i: u64| TeamRank((i % u64::from(ranks)) as u32);
    let mut part = touched(words);
    let whole = touched(all);
    let mut into = touched(all);
    // All input of a reduction comes from others, except for the local part.
    let theirs = words - words / ranks as usize;
    let copies = Least::copies;
    let least = copies(words).within(1.3);
    compare(e, "broadcast", bytes, least, |i| {
        world.broadcast(root(i), &mut part)
    })?;
    let least = Least {
        added: theirs,
        ..copies(0)
    };
    compare(e, "reduce", bytes, least, |i| {
        world.reduce_in_place(root(i), &mut part, Op::Sum)
    })?;
    let least = Least::addition_and_copy(theirs).within(1.5);
    compare(e, "all_reduce", bytes, least, |_| {
        world.all_reduce(&mut part, Op::Sum)
    })?;
    compare(e, "scan", bytes, copies(words), |_| {
        world.scan(&mut part, Op::Sum)
    })?;
    compare(e, "gather", bytes, copies(words), |i| {
        world.gather_into(root(i), &part, Some(&mut into))
    })?;
    compare(e, "scatter", bytes, copies(words), |i| {
        world.scatter(root(i), Some(&whole), &mut part)
    })?;
    compare(e, "all_gather", bytes, copies(all), |_| {
        world.all_gather_into(&part, &mut into)
    })?;
    let least = copies(all).within(1.3);
    compare(e, "all_to_all", bytes, least, |_| {
        world.all_to_all_into(&whole, &mut into)
    })
}

/// `words` elements in pages that were written. Pages that were never written would all read from
/// one zero page of the system.
fn touched(words: usize) -> Vec<f64> {
    vec![1.0; words]
}

fn compare(
    e: &Ensemble<'_>,
    case: &str,
    bytes: u64,
    least: Least,
    mut operation: impl FnMut(u64) -> hydrant::Result<()>,
) -> hydrant::Result<()> {
    let mut turn = 0;
    // The same on every rank, also on ranks without the bare network.
    let has_network = network::is_known(e.job);
    let room = least.copied.max(least.added);
    let (from, mut to) = (touched(room), touched(room));
    let mut bare = |count| {
        if bytes <= SHORT {
            round_trip(e, &mut turn, bytes, count)
        } else if has_network {
            written(e, bytes, count)
        } else {
            e.timed(count, |_| {
                to[..least.copied].copy_from_slice(black_box(&from[..least.copied]));
                let sums = to.iter_mut().zip(black_box(&from));
                sums.take(least.added).for_each(|(to, from)| *to += *from);
                black_box(&mut to);
                Ok(())
            })
        }
    };
    let what = format!("{case}, {bytes} bytes");
    let mut ours = |count| e.timed(count, &mut operation);
    let outcome = if !e.has_bare() || bytes <= SHORT || has_network {
        e.beside_bare(&what, &mut bare, &mut ours)?
    } else {
        // One after the other: the copies of one side would fill the caches with memory that the
        // other does not use.
        let bare = e.together(&what, [&mut bare as Side<'_>])?;
        let ours = e.together_timings(&what, [&mut ours as Side<'_>])?;
        ours.zip(bare).map(|([ours], [bare])| BesideBare {
            ours,
            bare: Some(bare),
        })
    };
    let judged = bytes == JUDGED && !e.registered;
    let goal = (least.times.filter(|_| judged)).map(Goal::AtMostTimes);
    if let Some(it) = outcome {
        let row = e.timed_row("collectives", case, &it.ours).bytes(bytes);
        e.row(row.against_if(it.bare).goal_if(goal))?;
    }
    Ok(())
}
