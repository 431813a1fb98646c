//! The strategy that foresees which memory is used: what it registers ahead and gives up, in virtual time
//! exactly, and on memory that is really pinned.

#![allow(unsafe_code)] // maps memory

#[path = "support/place.rs"]
mod place;

use std::time::Duration;

use hydrant::{
    ConduitKind, Counters, Foresight, Job, MessageProtocol, Rank, RegistrationStats, Result,
    Strategy, settings,
};
use place::{Place, Renewal};

const LEN: usize = 256 << 10;
const PAGE: usize = 4096;
const ROUNDS: u8 = 30;
/// What is computed between two uses: by the profile 1.4 operations take a nanosecond.
const OPERATIONS: u64 = 3_000_000;

/// What a rank saw.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    foresight: Option<Foresight>,
    registration: RegistrationStats,
    counters: Counters,
    took: Duration,
    series: Vec<(Duration, u64)>,
}

impl Seen {
    fn of(job: &Job) -> Self {
        Self {
            foresight: job.foresight(),
            registration: job.registration().expect("memory is registered here"),
            counters: job.counters(),
            took: job.now(),
            series: job.registered_series(),
        }
    }

    fn foresight(&self) -> Foresight {
        self.foresight.expect("it is the strategy")
    }

    /// The mean of the bytes registered, over time.
    fn mean(&self) -> u64 {
        let (mut area, mut last) = (0_u128, (Duration::ZERO, 0_u64));
        for point in self.series.iter().chain([&(self.took, 0)]) {
            area += u128::from(last.1) * point.0.saturating_sub(last.0).as_nanos();
            last = *point;
        }
        (area / self.took.as_nanos().max(1)) as u64
    }
}

/// What is given up, and when, is their subject: it is all that is not expected soon, at whatever cost.
fn simulated(strategy: Strategy, ranks: u32, body: fn(&Job) -> Result<Seen>) -> Vec<Seen> {
    stepping_back(false, strategy, ranks, body)
}

fn stepping_back(
    on: bool,
    strategy: Strategy,
    ranks: u32,
    body: fn(&Job) -> Result<Seen>,
) -> Vec<Seen> {
    let builder = Job::builder().expect("settings are right");
    let kind = "sim:connectx".parse().expect("it is a conduit");
    let ends = builder
        .conduit(kind)
        .registration(strategy)
        .foresight_steps_back(on)
        .messages(MessageProtocol::Rendezvous)
        .run_local(ranks, body);
    ends.into_iter()
        .map(|it| it.expect("a rank failed"))
        .collect()
}

/// A buffer from its first page on. Which pages are shared must not hang on where memory lies.
fn pages(buffer: &mut [u8]) -> &mut [u8] {
    let start = buffer.as_ptr().align_offset(PAGE);
    &mut buffer[start..]
}

/// Rank 0 puts to rank 1 from two buffers in turn, to two places, and computes between.
fn two_buffers(job: &Job) -> Result<Seen> {
    job.keep_registered_series();
    let memory = job.alloc::<u8>(2 * LEN)?;
    let mut sources = vec![0_u8; 2 * LEN + PAGE];
    let sources = pages(&mut sources);
    for round in 0..ROUNDS {
        for (which, source) in sources.chunks_mut(LEN).enumerate().take(2) {
            if job.rank() == Rank(0) {
                source.fill(2 * round + which as u8);
                memory.put(Rank(1), which * LEN, source)?;
            }
            job.barrier()?;
            let mut got = vec![0; LEN];
            if job.rank() == Rank(1) {
                memory.get(Rank(1), which * LEN, &mut got)?;
                assert!(got.iter().all(|it| *it == 2 * round + which as u8));
            }
            job.compute(OPERATIONS);
        }
    }
    job.barrier()?;
    Ok(Seen::of(job))
}

#[test]
fn both_sides_are_registered_ahead_and_given_up() {
    let seen = simulated(Strategy::Foresight, 2, two_buffers);
    let pinned = simulated(Strategy::OnDemand { leave_pinned: true }, 2, two_buffers);
    for (rank, (seen, pinned)) in seen.iter().zip(&pinned).enumerate() {
        let foresight = seen.foresight();
        assert!(foresight.is_helped);
        let uses = 2 * u64::from(ROUNDS);
        assert_eq!(
            foresight.found + foresight.on_demand,
            uses,
            "rank {rank}: {foresight:?}"
        );
        // All but those by which it learns.
        assert!(foresight.ahead >= uses - 12, "rank {rank}: {foresight:?}");
        assert_eq!(foresight.overwritten, 0);
        // Only one buffer at a time is registered, and that not for long.
        assert!(seen.registration.local.peak < pinned.registration.local.peak);
        assert!(
            seen.mean() < pinned.mean() / 4,
            "{} of {}",
            seen.mean(),
            pinned.mean()
        );
    }
}

/// Rank 0 puts from ever the same of two buffers that share a page, and computes little.
fn dense(job: &Job) -> Result<Seen> {
    job.keep_registered_series();
    let memory = job.alloc::<u8>(2 * LEN)?;
    let mut sources = vec![1_u8; 2 * LEN + PAGE];
    let (len, sources) = (5 * PAGE + 100, pages(&mut sources));
    job.barrier()?;
    for round in 0..200 {
        for which in 0..2 {
            // No period is like another.
            job.compute(20_000 + round * 7919 % 30_000);
            memory.put(job.right(), which * len, &sources[which * len..][..len])?;
        }
    }
    job.barrier()?;
    Ok(Seen::of(job))
}

#[test]
fn a_helper_that_does_not_pay_leaves_memory_pinned() {
    let longest = |seen: Vec<Seen>| seen.iter().map(|it| it.took).max().unwrap_or_default();
    let pinned = Strategy::OnDemand { leave_pinned: true };
    let pinned = longest(simulated(pinned, 4, dense));
    let bounded = longest(stepping_back(true, Strategy::Foresight, 4, dense));
    let free = longest(simulated(Strategy::Foresight, 4, dense));
    // In virtual time.
    assert!(
        bounded <= pinned + pinned / 100 && free > pinned + pinned / 50,
        "{bounded:?} with the bound, {free:?} without, {pinned:?} left pinned"
    );
}

#[test]
fn what_is_foreseen_is_given_up_by_one_that_steps_back() {
    // The rank that puts: its peer has registered what firehoses are there for.
    let seen = &stepping_back(true, Strategy::Foresight, 2, two_buffers)[0];
    let pinned = Strategy::OnDemand { leave_pinned: true };
    let pinned = &simulated(pinned, 2, two_buffers)[0];
    let means = (seen.mean(), pinned.mean());
    assert!(means.0 < means.1 / 2, "{means:?} {:?}", seen.foresight);
    assert!(seen.took <= pinned.took + pinned.took / 100);
}

#[test]
fn a_run_in_virtual_time_is_repeated_exactly() {
    let first = simulated(Strategy::Foresight, 2, two_buffers);
    let second = simulated(Strategy::Foresight, 2, two_buffers);
    assert_eq!(first, second);
}

/// Rank 0 sends to rank 1 from a buffer that it uses again and again, and so does the receive.
fn messages(job: &Job) -> Result<Seen> {
    let mut buffer = vec![0_u8; LEN + PAGE];
    let buffer = &mut pages(&mut buffer)[..LEN];
    for round in 0..ROUNDS {
        job.compute(OPERATIONS);
        if job.rank() == Rank(0) {
            buffer.fill(round);
            job.send(Rank(1), 1, buffer)?;
        } else {
            job.receive(Rank(0), 1, buffer)?;
            assert!(buffer.iter().all(|byte| *byte == round), "round {round}");
        }
    }
    let seen = Seen::of(job);
    job.barrier()?;
    Ok(seen)
}

#[test]
fn messages_find_their_buffers_registered_ahead() {
    for (rank, seen) in simulated(Strategy::Foresight, 2, messages)
        .iter()
        .enumerate()
    {
        let foresight = seen.foresight();
        assert!(
            foresight.ahead >= u64::from(ROUNDS) - 4,
            "rank {rank}: {foresight:?}"
        );
    }
}

/// Rank 0 puts from two buffers, one right after the other, and computes for long.
fn pairs(job: &Job) -> Result<Seen> {
    job.keep_registered_series();
    let memory = job.alloc::<u8>(2 * LEN)?;
    let mut sources = vec![0_u8; 2 * LEN + 2 * PAGE];
    // They share no page.
    let (first, second) = pages(&mut sources).split_at_mut(LEN + PAGE);
    job.barrier()?;
    for round in 0..ROUNDS {
        job.compute(20 * OPERATIONS);
        if job.rank() == Rank(0) {
            for (which, source) in [&mut first[..LEN], &mut second[..LEN - PAGE]]
                .into_iter()
                .enumerate()
            {
                source.fill(2 * round + which as u8);
                memory.put(Rank(1), which * LEN, source)?;
            }
        }
    }
    let seen = Seen::of(job);
    job.barrier()?;
    Ok(seen)
}

#[test]
fn buffers_used_one_after_the_other_need_the_memory_of_one() {
    let peak = |strategy| {
        let seen = simulated(strategy, 2, pairs);
        let points = seen[0].series.iter().map(|point| point.1);
        (points.max().unwrap_or(0), seen[0].took)
    };
    let (pinned, pinned_took) = peak(Strategy::OnDemand { leave_pinned: true });
    let (peak, took) = peak(Strategy::Foresight);
    assert!(
        pinned >= 2 * LEN as u64 - PAGE as u64 && peak <= (LEN + 4 * PAGE) as u64,
        "{peak} bytes at most, {pinned} left pinned"
    );
    // In virtual time: a 300th may be lost, and what the first uses cost.
    assert!(
        took < pinned_took + pinned_took / 200,
        "{took:?}, {pinned_took:?}"
    );
}

/// Rank 0 puts to rank 1 once a millisecond, while rank 1 waits and has time to answer; what the puts took there.
fn puts_to_a_rank_that_waits(job: &Job) -> Result<(Duration, Seen)> {
    job.keep_registered_series();
    let memory = job.alloc::<u8>(4 * LEN)?;
    let mut source = vec![0_u8; LEN + PAGE];
    let source = pages(&mut source);
    let mut putting = Duration::ZERO;
    job.barrier()?;
    for round in 0..60_usize {
        if job.rank() == Rank(0) {
            job.compute(OPERATIONS / 2);
            let begun = job.now();
            memory.put(Rank(1), round % 4 * LEN, &source[..LEN / 4])?;
            putting += job.now() - begun;
        }
    }
    job.barrier()?;
    Ok((putting, Seen::of(job)))
}

#[test]
fn firehoses_are_moved_ahead_and_given_back() {
    let run = |ahead: bool| {
        let builder = Job::builder().expect("settings are right");
        let kind = "sim:connectx".parse().expect("it is a conduit");
        let builder = builder.conduit(kind).registration(Strategy::Foresight);
        let ends = builder
            .foresight_steps_back(false)
            .foresight_firehoses(ahead)
            .run_local(2, puts_to_a_rank_that_waits);
        let ends: Result<Vec<_>> = ends.into_iter().collect();
        ends.expect("the puts arrive")
    };
    let (ahead, asked) = (run(true), run(false));
    let foresight = ahead[0].1.foresight();
    assert!(foresight.firehoses_found >= 60 - 16, "{foresight:?}");
    assert!(foresight.firehoses_moved >= 60 - 16, "{foresight:?}");
    assert!(foresight.firehoses_given_back >= 60 - 16, "{foresight:?}");
    let other = asked[0].1.foresight();
    assert_eq!(
        (other.firehoses_found, other.firehoses_moved),
        (0, 0),
        "{other:?}"
    );
    // They wait for no answer of the peer's, and leave no more registered.
    assert!(ahead[0].0 < asked[0].0, "{:?} {:?}", ahead[0].0, asked[0].0);
    let (held, share) = (ahead[1].1.registration.local.peak, LEN as u64 / PAGE as u64);
    assert!(held <= share, "{held}");
}

/// A buffer that is used once from each of many places.
fn fresh_buffers(job: &Job) -> Result<Seen> {
    job.keep_registered_series();
    let memory = job.alloc::<u8>(LEN)?;
    let mut sources = vec![1_u8; 20 * LEN + PAGE];
    for source in pages(&mut sources).chunks(LEN).take(20) {
        if job.rank() == Rank(0) {
            memory.put(Rank(1), 0, source)?;
        }
        job.barrier()?;
        job.compute(OPERATIONS);
    }
    Ok(Seen::of(job))
}

#[test]
fn what_is_used_for_the_first_time_is_given_up() {
    let seen = simulated(Strategy::Foresight, 2, fresh_buffers);
    let pages = LEN as u64 / 4096;
    let first = &seen[0];
    assert_eq!(first.foresight().on_demand, 20);
    assert!(
        first.registration.local.peak <= pages,
        "{:?}",
        first.registration
    );
    assert_eq!(first.registration.local.registered, 0);
}

/// Long buffers side by side at ever new places, each used a few times; what is registered after each.
fn places_left_behind(job: &Job) -> Result<Vec<u64>> {
    const BESIDE: usize = 400 * PAGE + 100;
    let memory = job.alloc::<u8>(2 * BESIDE)?;
    let mut sources = vec![1_u8; 6 * 2 * BESIDE + PAGE];
    job.barrier()?;
    let mut registered = Vec::new();
    if job.rank() == Rank(0) {
        for both in pages(&mut sources).chunks_exact(2 * BESIDE).take(6) {
            for _ in 0..4 {
                for half in both.chunks_exact(BESIDE) {
                    memory.put(Rank(1), 0, half)?;
                    job.compute(OPERATIONS / 10);
                }
            }
            job.compute(10 * OPERATIONS);
            registered.push(job.registration().expect("it is").local.registered);
        }
    }
    job.barrier()?;
    Ok(registered)
}

#[test]
fn pages_that_buffers_shared_are_given_up_with_them() {
    let builder = Job::builder().expect("settings are right");
    let kind = "sim:connectx".parse().expect("it is a conduit");
    let builder = builder.conduit(kind).registration(Strategy::Foresight);
    let builder = builder.foresight_steps_back(false);
    let ends: Result<Vec<_>> = (builder.run_local(2, places_left_behind).into_iter()).collect();
    let registered = ends.expect("a rank failed").swap_remove(0);
    // Of the last ones the helper may not have heard.
    assert!(registered.iter().all(|it| *it <= 2), "{registered:?}");
}

/// A buffer that is freed while the helper has it registered, or is about to register it again.
fn freed_buffers(job: &Job) -> Result<Seen> {
    let memory = job.alloc::<u8>(LEN)?;
    for round in 0..8_u8 {
        let lent = job.alloc::<u8>(LEN)?;
        for again in 0..4_u8 {
            let value = 4 * round + again;
            if job.rank() == Rank(0) {
                lent.put(Rank(1), 0, &vec![value; LEN])?;
                let mut got = vec![0; LEN];
                lent.get(Rank(1), 0, &mut got)?;
                assert!(got.iter().all(|it| *it == value));
            }
            job.barrier()?;
            job.compute(OPERATIONS);
        }
        job.free(lent)?;
        job.compute(OPERATIONS);
    }
    job.free(memory)?;
    Ok(Seen::of(job))
}

#[test]
fn memory_that_is_freed_is_not_registered_ahead() {
    for seen in simulated(Strategy::Foresight, 2, freed_buffers) {
        assert!(seen.foresight().found > 0);
    }
}

/// The same on memory that is really pinned, by real threads: rank 1 has its memory registered ahead of what
/// rank 0 puts there.
fn pinned(job: &Job) -> Result<Seen> {
    let before = job.registration().map_or(0, |it| it.local.registered);
    let memory = job.alloc::<u8>(2 * LEN)?;
    for round in 0..ROUNDS {
        for which in 0..2 {
            let value = 2 * round + which as u8;
            if job.rank() == Rank(0) {
                memory.put(Rank(1), which * LEN, &vec![value; LEN])?;
            }
            job.barrier()?;
            if job.rank() == Rank(1) {
                let mut got = vec![0; LEN];
                memory.get(Rank(1), which * LEN, &mut got)?;
                assert!(got.iter().all(|it| *it == value));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    job.barrier()?;
    // What was used last is given up as soon as nobody is expected, and what is registered for nobody when that
    // was in vain.
    let registered = || job.registration().map_or(0, |it| it.local.registered);
    for _ in 0..20_000 {
        let heard = job.foresight().map_or(0, |it| it.found + it.on_demand);
        let told = match job.rank() {
            // Its sources come and go unseen, and are registered for each put alone.
            Rank(0) => 0,
            // The first may come before the memory is known to be there to stay, and is copied; and what finds a
            // firehose there asks for nothing.
            _ => u64::from(ROUNDS),
        };
        if registered() <= before && heard >= told {
            return Ok(Seen::of(job));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!(
        "{} pages stay registered: {:?}",
        registered(),
        job.foresight()
    )
}

/// Puts at an even pace to a rank that waits, where time is real; what is there afterwards is what was put.
fn paced_puts(job: &Job) -> Result<Seen> {
    const PACE: Duration = Duration::from_millis(20);
    let memory = job.alloc::<u8>(4 * LEN)?;
    job.barrier()?;
    for round in 0..120_u8 {
        let place = usize::from(round) % 4 * LEN;
        if job.rank() == Rank(0) {
            std::thread::sleep(PACE);
            memory.put(Rank(1), place, &[round; LEN / 4])?;
        }
    }
    job.barrier()?;
    let mut got = vec![0; LEN / 4];
    for last in 116..120_u8 {
        memory.get(Rank(1), usize::from(last) % 4 * LEN, &mut got)?;
        assert!(got.iter().all(|it| *it == last), "round {last}");
    }
    job.barrier()?;
    Ok(Seen::of(job))
}

/// Puts from two buffers of the program in turn, whose pages are emptied now and then.
fn own_buffers(job: &Job) -> Result<Seen> {
    let memory = job.alloc::<u8>(2 * LEN)?;
    let mut buffers = [Place::new(LEN), Place::new(LEN)];
    for round in 0..60_u8 {
        for (which, buffer) in buffers.iter_mut().enumerate() {
            if job.rank() == Rank(0) {
                let value = 2 * round + which as u8;
                if round % 5 == 4 {
                    buffer.renew(Renewal::Emptied, value);
                } else {
                    buffer.bytes().fill(value);
                }
                memory.put(Rank(1), which * LEN, buffer.bytes())?;
                let mut got = vec![0; LEN];
                memory.get(Rank(1), which * LEN, &mut got)?;
                assert!(got.iter().all(|it| *it == value), "round {round}");
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    job.barrier()?;
    Ok(Seen::of(job))
}

#[test]
fn buffers_of_the_program_are_registered_ahead_where_changes_are_heard() {
    if let Err(absent) = hydrant_monitor::Monitor::of_process() {
        return hydrant_testing::left_out(absent);
    }
    let builder = Job::builder().expect("settings are right");
    let ends = builder
        .conduit("smp+pin".parse().expect("it is a conduit"))
        .registration(Strategy::Foresight)
        .foresight_steps_back(false)
        .run_local(2, own_buffers);
    let seen: Result<Vec<_>> = ends.into_iter().collect();
    let foresight = seen.expect("a rank failed")[0].foresight();
    assert!(foresight.given_up > 0, "{foresight:?}");
    assert!(foresight.found > 0, "{foresight:?}");
}

/// Both on two ranks of this network, on which memory is really pinned.
fn really_pinned(conduit: &ConduitKind) {
    let run = |body: fn(&Job) -> Result<Seen>| {
        let builder = Job::builder().expect("settings are right");
        let ends = builder
            .conduit(conduit.clone())
            .registration(Strategy::Foresight)
            .foresight_steps_back(false)
            .run_local(2, body);
        let ends: Result<Vec<_>> = ends.into_iter().collect();
        ends.expect("a rank failed")
    };
    let foresight = run(pinned)[1].foresight();
    assert!(foresight.is_helped);
    assert!(foresight.given_up > 0, "{foresight:?}");
    let foresight = run(paced_puts)[0].foresight();
    // How many come in time is the machine's affair.
    assert!(foresight.firehoses_moved > 0, "{foresight:?}");
    assert!(foresight.firehoses_given_back > 0, "{foresight:?}");
}

#[test]
fn memory_that_is_really_pinned_is_given_up_and_pinned_ahead() {
    really_pinned(&"smp+pin".parse().expect("it is a conduit"));
}

#[test]
fn over_rdma() {
    if let Err(why) = settings::rdma_ports(&hydrant::Settings::new()) {
        eprintln!("left out: {why}");
        return;
    }
    really_pinned(&ConduitKind::Verbs);
}

#[test]
fn other_strategies_have_no_helper() {
    for seen in simulated(Strategy::Firehose, 2, fresh_buffers) {
        assert_eq!(seen.foresight, None);
    }
}
