//! Collectives over size, all ranks taking part.
//!
//! The root moves on by one rank each time: a root that may leave early then waits in the next
//! call for what it needs, and the time is that of a whole operation, not of handing it in.

use std::hint::black_box;

use hydrant::{Op, TeamRank};

use super::super::ensemble::Ensemble;
use super::super::measure::Side;
use super::super::row::Row;
use super::{look, round_trip, written};

/// Up to here a collective costs its messages, above it its bytes.
const SHORT: u64 = 64;

/// The most bytes from or to each rank.
const LARGEST: u64 = 1 << 20;

/// All ranks.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let coarse = if e.quick { 1 } else { 2 };
    for bytes in e.sizes(8, LARGEST).into_iter().step_by(coarse) {
        sized(e, bytes)?;
    }
    Ok(())
}

/// Every collective with so many bytes from or to each rank.
fn sized(e: &Ensemble<'_>, bytes: u64) -> hydrant::Result<()> {
    let world = e.job.world();
    let ranks = e.job.size();
    let words = bytes as usize / size_of::<f64>();
    let root = |i: u64| TeamRank((i % u64::from(ranks)) as u32);
    let mut part = vec![1.0f64; words];
    let whole = vec![1.0f64; words * ranks as usize];
    compare(e, "broadcast", bytes, |i| {
        world.broadcast(root(i), &mut part)
    })?;
    compare(e, "reduce", bytes, |i| {
        world.reduce(root(i), &part, Op::Max).map(look)
    })?;
    compare(e, "all_reduce", bytes, |_| {
        world.all_reduce(&mut part, Op::Max)
    })?;
    compare(e, "scan", bytes, |_| world.scan(&mut part, Op::Max))?;
    compare(e, "gather", bytes, |i| {
        world.gather(root(i), &part).map(look)
    })?;
    compare(e, "scatter", bytes, |i| {
        world.scatter(root(i), Some(&whole), &mut part)
    })?;
    compare(e, "all_gather", bytes, |_| {
        world.all_gather(&part).map(look)
    })?;
    compare(e, "all_to_all", bytes, |_| {
        world.all_to_all(&whole).map(look)
    })
}

fn compare(
    e: &Ensemble<'_>,
    case: &str,
    bytes: u64,
    mut operation: impl FnMut(u64) -> hydrant::Result<()>,
) -> hydrant::Result<()> {
    let words = bytes as usize / size_of::<u64>();
    let (mut turn, from, mut to) = (0, vec![1u64; words], vec![0u64; words]);
    let mut bare = |count| match bytes <= SHORT {
        true => round_trip(e, &mut turn, bytes, count),
        false if e.network.is_some() => written(e, bytes, count),
        false => e.timed(count, |_| {
            to.copy_from_slice(black_box(&from));
            Ok(())
        }),
    };
    let what = format!("{case}, {bytes} bytes");
    let sides: [Side<'_>; 2] = [&mut bare, &mut |count| e.timed(count, &mut operation)];
    if let Some([bare, ours]) = e.together(&what, sides)? {
        e.row(
            Row::new("collectives", case, "ns", ours)
                .bytes(bytes)
                .against(bare),
        )?;
    }
    Ok(())
}
