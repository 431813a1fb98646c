//! Active messages and remote calls between rank 0 and one other: round trips and floods. Also
//! calls of all ranks at once.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hydrant::{Job, Rank};

use super::barrier::HANDOVERS;
use super::{consume, ping_pong, round_trip_singly};
use crate::bare;
use crate::ensemble::Ensemble;
use crate::measure::{Side, median};
use crate::network::PARTNER;
use crate::row::{Goal, Row};

/// The pause between separate calls: longer than a service thread polls before it sleeps.
const PAUSE: Duration = Duration::from_millis(1);

/// The messages that this rank has handled, and the number it has waited for.
#[derive(Default)]
struct HandledMessages {
    so_far: AtomicU64,
    expected: AtomicU64,
}

impl HandledMessages {
    fn one(&self) {
        self.so_far.fetch_add(1, Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.so_far.load(Ordering::Acquire)
    }

    /// Handles `count` more messages than were waited for before. Some may have arrived already.
    fn serve(&self, job: &Job, count: u64) -> hydrant::Result<Duration> {
        let expected = self.expected.fetch_add(count, Ordering::Relaxed) + count;
        self.await_count(job, expected);
        Ok(Duration::ZERO)
    }

    /// Handles messages until `count` have been handled.
    fn await_count(&self, job: &Job, count: u64) {
        while self.count() < count {
            job.poll();
        }
    }
}

/// Measures rank 0 and its partner. The other ranks wait.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    round_trips(e)?;
    if e.registered {
        return Ok(());
    }
    calls(e)?;
    floods(e)
}

fn round_trips(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let (asked, answered) = (
        Arc::new(HandledMessages::default()),
        Arc::new(HandledMessages::default()),
    );
    let reply = {
        let answered = Arc::clone(&answered);
        job.handler(move |_, _, _| answered.one())?
    };
    let echo = {
        let asked = Arc::clone(&asked);
        job.handler(move |context, arguments, payload| {
            asked.one();
            // A lost reply would leave rank 0 waiting, so a loud failure is better.
            context
                .reply_medium(reply, arguments, payload)
                .expect("a request can be replied to once");
        })?
    };
    let acknowledge = {
        let asked = Arc::clone(&asked);
        job.handler(move |context, arguments, _| {
            asked.one();
            context
                .reply_short(reply, arguments)
                .expect("a request can be replied to once");
        })?
    };
    // Round trips one after another. The partner does nothing but handle messages.
    let trips = |count: u64, request: &dyn Fn() -> hydrant::Result<()>| match e.rank() {
        0 => e.timed_singly(count, |_| {
            let next = answered.count() + 1;
            request()?;
            answered.await_count(job, next);
            Ok(())
        }),
        rank if rank == PARTNER.0 => asked.serve(job, count),
        _ => Ok(Duration::ZERO),
    };
    let measure = |case: &str,
                   bytes: Option<u64>,
                   request: &dyn Fn() -> hydrant::Result<()>,
                   goal: Option<Goal>| {
        let mut turn = 0;
        let what = format!("{case}, {} bytes", bytes.unwrap_or(0));
        let bare = &mut |count| round_trip_singly(e, &mut turn, argument_of(bytes), count);
        if let Some(it) = e.beside_bare(&what, bare, &mut |count| trips(count, request))? {
            let row = e.timed_row("am", case, &it.ours);
            let row = bytes.map_or(row.clone(), |bytes| row.bytes(bytes));
            let goal = goal.filter(|_| it.bare.is_some());
            e.row(row.against_if(it.bare).goal_if(goal))?;
        }
        Ok::<_, hydrant::Error>(())
    };
    let on_network = |times| {
        e.network
            .as_ref()
            .and(e.uncrowded(Goal::AtMostTimes(times)))
    };
    let goal = if e.registered {
        on_network(1.06)
    } else {
        e.uncrowded(Goal::AtMostTimesAnd(1.5, 500.0, "ns"))
    };
    measure(
        "short round trip",
        None,
        &|| job.request_short(PARTNER, echo, &[black_box(7)]),
        goal,
    )?;
    let limit = job.limits().max_medium as u64;
    for bytes in e.sizes(64, limit) {
        let payload = vec![7u8; bytes as usize];
        let request = || job.request_medium(PARTNER, echo, &[], &payload);
        measure("medium round trip", Some(bytes), &request, on_network(1.05))?;
    }
    if e.registered {
        return Ok(());
    }
    let target = job.alloc::<u64>((1 << 20) / 8)?;
    for bytes in e.sizes(64, 1 << 20) {
        let payload = vec![7u64; bytes as usize / 8];
        let request = || job.request_long(PARTNER, acknowledge, &[], &target, 0, &payload);
        measure("long there, short back", Some(bytes), &request, None)?;
    }
    job.free(target)?;
    Ok(())
}

/// The argument of a message without payload: a word.
fn argument_of(bytes: Option<u64>) -> u64 {
    bytes.unwrap_or(8)
}

/// Remote calls, for each activity of the target.
fn calls(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let asked = Arc::new(HandledMessages::default());
    let function = {
        let asked = Arc::clone(&asked);
        job.function(move |_, value: u64| {
            asked.one();
            value + 1
        })?
    };
    let calls = |count| e.timed(count, |i| job.call(PARTNER, &function, &i).map(consume));
    let mut turn = 0;
    let served = [
        &mut |count| ping_pong(e, &mut turn, count),
        &mut |count| match e.rank() {
            0 => calls(count),
            rank if rank == PARTNER.0 => asked.serve(job, count),
            _ => Ok(Duration::ZERO),
        },
    ] as [Side<'_>; 2];
    if let Some([bare, ours]) = e.together("call", served)? {
        e.row(Row::new("am", "call", "ns", ours).against(bare))?;
    }
    if let Some([ours]) = e.solo(
        "call, the peer waits in a barrier",
        [&mut |count| calls(count)],
    )? {
        e.row(Row::new(
            "am",
            "call, the peer waits in a barrier",
            "ns",
            ours,
        ))?;
    }
    let until = e.window.counter();
    let done = AtomicU64::new(0);
    let computing = |calls: &dyn Fn() -> hydrant::Result<Duration>| {
        let round = done.fetch_add(1, Ordering::Relaxed) + 1;
        let took = match e.rank() {
            0 => {
                let took = calls()?;
                until.store(round, Ordering::Release);
                took
            }
            _ => Duration::ZERO,
        };
        while until.load(Ordering::Acquire) < round {
            std::hint::spin_loop();
        }
        Ok(took)
    };
    // Ranks that compute without a core of their own would only measure the scheduler.
    if e.crowding <= 1.0 {
        until.store(0, Ordering::Release);
        let case = "call, the peer computes";
        if let Some([ours]) = e.together(case, [&mut |count| computing(&|| calls(count))])? {
            e.row(Row::new("am", case, "ns", ours))?;
        }
        until.store(0, Ordering::Release);
        done.store(0, Ordering::Relaxed);
        let case = "call after a pause, the peer computes";
        // Each call is a sample of its own, so that a call delayed by the scheduler does not spoil
        // the rest.
        let after_pauses = |count: u64| {
            let mut took = Vec::with_capacity(count as usize);
            for i in 0..count {
                pause();
                let watch = e.watch();
                job.call(PARTNER, &function, &i).map(consume)?;
                took.push(watch.elapsed().as_secs_f64());
            }
            Ok(Duration::from_secs_f64(median(&mut took) * count as f64))
        };
        if let Some([ours]) = e.together(case, [&mut |count| computing(&|| after_pauses(count))])? {
            let goal = Goal::AtMost(15_000.0, "ns");
            e.row(Row::new("am", case, "ns", ours).goal_if(e.uncrowded(goal)))?;
        }
    }
    Ok(())
}

/// Computes long enough for the peer's service thread to fall asleep.
fn pause() {
    let begun = Instant::now();
    while begun.elapsed() < PAUSE {
        std::hint::spin_loop();
    }
}

/// Short messages in sequence without replies: the time for each until all were handled.
fn floods(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let heard = Arc::new(HandledMessages::default());
    let count_one = {
        let heard = Arc::clone(&heard);
        job.handler(move |_, _, _| heard.one())?
    };
    let flood = |to: u32, count: u64| {
        let watch = e.watch();
        for i in 0..count {
            job.request_short(Rank(to), count_one, &[black_box(i)])?;
        }
        job.am_quiet()?;
        Ok(watch.elapsed())
    };
    let one_way = |from: u32, to: u32, count: u64| match e.rank() {
        rank if rank == from => flood(to, count),
        rank if rank == to => heard.serve(job, count),
        _ => Ok(Duration::ZERO),
    };
    let mut turn = 0;
    let mut lines = |from: u32, to: u32, count: u64| match e.rank() {
        rank if rank == from => Ok(bare::send_lines(&e.window, &mut turn, count, e.wait)),
        rank if rank == to => {
            bare::take_lines(&e.window, &mut turn, count, e.wait);
            Ok(Duration::ZERO)
        }
        _ => Ok(Duration::ZERO),
    };
    let partner = PARTNER.0;
    for (from, to) in [(0, partner), (partner, 0)] {
        let case = format!("short flood, {from} → {to}");
        let sides: [Side<'_>; 2] = [&mut |count| lines(from, to, count), &mut |count| {
            one_way(from, to, count)
        }];
        if let Some([bare, ours]) = e.together(&case, sides)? {
            let goal = e.uncrowded(Goal::AtMost(35.0, "ns"));
            e.row(Row::new("am", case, "ns", ours).against(bare).goal_if(goal))?;
        }
    }
    let mut both = |count: u64| {
        let took = match e.rank() {
            0 => flood(partner, count)?,
            rank if rank == partner => flood(0, count)?,
            _ => return Ok(Duration::ZERO),
        };
        heard.serve(job, count)?;
        Ok(took)
    };
    let case = "short flood, both ways at once";
    if let Some([ours]) = e.together(case, [&mut both])? {
        e.row(Row::new("am", case, "ns", ours))?;
    }
    Ok(())
}

/// Each rank calls the next, all at once: the effect of more ranks than cores.
pub(crate) fn crowd(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let next = job.right();
    let function = job.function(|_, value: u64| value + 1)?;
    let mut turn = 0;
    let case = format!("call the next, {} ranks at once", job.size());
    let sides: [Side<'_>; 2] = [&mut |count| ping_pong(e, &mut turn, count), &mut |count| {
        e.timed(count, |i| job.call(next, &function, &i).map(consume))
    }];
    if let Some([bare, ours]) = e.together(&case, sides)? {
        let goal = (e.crowding > 1.0).then_some(Goal::AtMostTimes(HANDOVERS * e.crowding));
        e.row(Row::new("am", case, "ns", ours).against(bare).goal_if(goal))?;
    }
    Ok(())
}
