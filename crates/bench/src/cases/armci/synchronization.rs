//! Atomic operations on words, a mutex without contention, and fences.

use std::hint::black_box;
use std::time::Duration;

use armci::Rmw;

use super::{Cases, ones, raised};
use crate::bare;
use crate::cases::{consume, round_trip};
use crate::network::PARTNER;
use crate::row::{Goal, Row};

pub(super) fn run(cases: &Cases<'_>) -> hydrant::Result<()> {
    let (peer, armci) = (cases.peer, cases.peer.armci);
    let word = || peer.place.as_ref().map(|place| place.word());
    // From here on, the word is an integer.
    peer.change(Rmw::Swap, 0_i64)?;
    let rmw = Goal::AtMost(30.0, "ns");
    let add = |count| word().map_or(Duration::ZERO, |word| bare::fetch_add(word, count));
    beside(cases, "rmw: fetch and add, long", Some(rmw), &add, &|_| {
        peer.change(Rmw::FetchAndAdd, black_box(1_i64)).map(consume)
    })?;
    beside(cases, "rmw: fetch and add, int", Some(rmw), &add, &|_| {
        peer.change(Rmw::FetchAndAdd, black_box(1_i32)).map(consume)
    })?;
    let swap = |count| word().map_or(Duration::ZERO, |word| bare::swap(word, count));
    beside(cases, "rmw: swap, long", Some(rmw), &swap, &|i| {
        peer.change(Rmw::Swap, black_box(i as i64)).map(consume)
    })?;
    peer.change(Rmw::Swap, 0_i64)?;
    raised(armci.create_mutexes(1))?;
    let lock = |count| word().map_or(Duration::ZERO, |word| bare::spin_lock(word, count));
    let proc = PARTNER.0 as i32;
    let most = Goal::AtMost(100.0, "ns");
    beside(cases, "lock and unlock", Some(most), &lock, &|_| {
        raised(armci.lock(0, proc))?;
        raised(armci.unlock(0, proc))
    })?;
    raised(armci.destroy_mutexes())?;
    let store = |count| word().map_or(Duration::ZERO, |word| bare::store(word, count));
    beside(cases, "fence, nothing outstanding", None, &store, &|_| {
        peer.fence()
    })?;
    let data = ones(8);
    beside(cases, "put and fence", None, &store, &|_| {
        peer.put(black_box(&data))?;
        peer.fence()
    })
}

/// A row of an operation of rank 0 on a word. The reference is the processor's own operation on the
/// same word, or a bare round trip.
fn beside(
    cases: &Cases<'_>,
    case: &str,
    goal: Option<Goal>,
    bare: &dyn Fn(u64) -> Duration,
    ours: &dyn Fn(u64) -> hydrant::Result<()>,
) -> hydrant::Result<()> {
    let e = cases.e;
    if cases.peer.place.is_some() {
        let goal = goal.and_then(|goal| e.uncrowded(goal));
        let mut bare = |count| Ok(bare(count));
        let mut ours = |count| cases.timed(count, ours);
        return cases
            .compare(case, 8, Some(&mut bare), &mut ours, goal)
            .map(consume);
    }
    let mut ours = |count| match e.rank() {
        0 => cases.timed(count, ours),
        _ => Ok(Duration::ZERO),
    };
    if cases.e.is_virtual {
        return cases.compare(case, 8, None, &mut ours, None).map(consume);
    }
    let mut turn = 0;
    let mut trip = |count| round_trip(e, &mut turn, 8, count);
    if let Some([bare, ours]) = e.together(case, [&mut trip, &mut ours])? {
        e.row(Row::new("armci", case, "ns", ours).bytes(8).against(bare))?;
    }
    Ok(())
}
