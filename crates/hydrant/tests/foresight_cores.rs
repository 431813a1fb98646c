//! Helpers that share the idle cores of a host: which of them have one is decided by what their ranks registered.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use hydrant::{
    Foresight, ForesightPolicy, IdleCores, Job, JobBuilder, Op, Rank, Result, Strategy, Symmetric,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const LEN: usize = 64 << 10;
const PAGE: usize = 4096;

/// Puts until the numbers of helpers on their cores, over all ranks, come to so many; what a rank then knows of its
/// helper.
fn put_until(job: &Job, helpers: u32) -> Result<Foresight> {
    let memory = job.alloc::<u8>(4 * LEN)?;
    let source = vec![1_u8; (1 + job.rank().0 as usize) * LEN];
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        memory.put(job.right(), 0, &source)?;
        let foresight = job.foresight().expect("it is the strategy");
        let mut sum = [foresight.helpers_on_core];
        job.all_reduce(&mut sum, Op::Sum)?;
        if sum == [helpers] {
            return Ok(foresight);
        }
        let mut late = [u32::from(Instant::now() > until)];
        job.all_reduce(&mut late, Op::Max)?;
        assert_eq!(late, [0], "{sum:?} and not {helpers}: {foresight:?}");
    }
}

fn builder(cores: IdleCores, policy: ForesightPolicy) -> JobBuilder {
    let builder = Job::builder().expect("settings are right");
    builder
        .conduit("smp+pin".parse().expect("it is a conduit"))
        .registration(Strategy::Foresight)
        .foresight_cores(cores)
        .foresight_policy(policy)
}

fn run(cores: IdleCores, policy: ForesightPolicy, helpers: u32) -> Vec<Foresight> {
    let ends = builder(cores, policy).run_local(3, |job| put_until(job, helpers));
    let ends: Result<Vec<_>> = ends.into_iter().collect();
    ends.expect("the puts arrive")
}

fn on_core(all: &[Foresight]) -> Vec<u32> {
    let mut counts: Vec<u32> = all.iter().map(|it| it.helpers_on_core).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn one_rank_has_the_only_core() {
    let all = run(IdleCores::Count(1), ForesightPolicy::Conservative, 1);
    assert_eq!(on_core(&all), [0, 0, 1]);
}

#[test]
fn helpers_take_turns_on_cores_that_are_too_few() {
    let all = run(IdleCores::Count(2), ForesightPolicy::Aggressive, 5);
    assert_eq!(on_core(&all), [1, 2, 2]);
}

#[test]
fn without_a_core_nothing_is_registered_ahead_or_given_up() {
    for policy in [ForesightPolicy::Conservative, ForesightPolicy::Aggressive] {
        let all = run(IdleCores::Count(0), policy, 0);
        for it in all {
            let done = (it.registered_ahead, it.given_up, it.firehoses_moved);
            assert_eq!(done, (0, 0, 0), "{it:?}");
        }
    }
}

#[test]
fn each_helper_has_a_core_if_nothing_is_said() {
    let all = run(IdleCores::default(), ForesightPolicy::Conservative, 3);
    assert_eq!(on_core(&all), [1, 1, 1]);
}

/// How many helpers are on the core of each rank's, as the ranks tell each other without communicating: these are
/// threads of one process.
#[derive(Default)]
struct Told([AtomicU32; 3]);

impl Told {
    /// Waits until it is so many, of each rank; nothing is used meanwhile.
    fn wait_for(&self, job: &Job, helpers: [u32; 3]) {
        let told = || self.0.each_ref().map(|it| it.load(SeqCst));
        wait(job, || {
            self.tell(job);
            told() == helpers
        });
    }

    fn tell(&self, job: &Job) -> Foresight {
        let foresight = job.foresight().expect("it is the strategy");
        self.0[job.rank().0 as usize].store(foresight.helpers_on_core, SeqCst);
        foresight
    }
}

fn wait(job: &Job, mut until: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !until() {
        let (foresight, registration) = (job.foresight(), job.registration());
        let rank = job.rank();
        assert!(
            Instant::now() < end,
            "rank {rank}: {foresight:?} {registration:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Has so many pages of a rank's registered, and no helper gives them up: they are used in pieces that are not worth
/// it.
fn fill(memory: &Symmetric<u8>, rank: Rank, pages: usize) -> Result<()> {
    for page in 0..pages {
        memory.put(rank, page * PAGE, &[1; PAGE])?;
    }
    Ok(())
}

#[test]
fn a_helper_that_hears_of_no_use_gives_its_core_up() {
    let told = Told::default();
    let builder = builder(IdleCores::Count(1), ForesightPolicy::Conservative);
    let ends = builder.run_local(3, |job| {
        let memory = job.alloc::<u8>(20 * PAGE)?;
        if job.rank() == Rank(2) {
            fill(&memory, Rank(0), 10)?;
        }
        told.wait_for(job, [1, 0, 0]);
        job.barrier()?;
        if job.rank() == Rank(2) {
            fill(&memory, Rank(1), 20)?;
        }
        told.wait_for(job, [0, 1, 0]);
        job.barrier()
    });
    ends.into_iter().for_each(|it| it.expect("the puts arrive"));
}

#[test]
fn a_helper_says_what_is_registered_after_the_last_use_that_it_hears_of() {
    let told = Told::default();
    let builder = builder(IdleCores::Count(1), ForesightPolicy::Conservative);
    let ends = builder.run_local(3, |job| {
        let memory = job.alloc::<u8>(64 * PAGE)?;
        if job.rank() == Rank(2) {
            // More than the others will have, and its helper gives it up at once.
            memory.put(Rank(0), 0, &vec![1; 64 * PAGE])?;
            fill(&memory, Rank(1), 20)?;
        }
        told.wait_for(job, [0, 1, 0]);
        job.barrier()
    });
    ends.into_iter().for_each(|it| it.expect("the puts arrive"));
}

#[test]
fn a_helper_that_rests_holds_nothing_of_its_peers() {
    let told = Told::default();
    let is_ahead = AtomicBool::new(false);
    let builder = builder(IdleCores::Count(2), ForesightPolicy::Conservative);
    let ends = builder.run_local(3, |job| {
        let part = 100 * PAGE;
        let memory = job.alloc::<u8>(part + LEN)?;
        if job.rank() == Rank(2) {
            fill(&memory, Rank(0), 20)?;
            fill(&memory, Rank(1), 60)?;
        }
        told.wait_for(job, [1, 1, 0]);
        job.barrier()?;
        let registered = || job.registration().map_or(0, |it| it.local.registered);
        let before = registered();
        job.barrier()?;
        match job.rank() {
            // It puts again and again, so that its firehoses stay, until another helper has its core.
            Rank(0) => {
                let source = vec![1_u8; LEN];
                while told.tell(job).helpers_on_core > 0 {
                    memory.put(Rank(1), part, &source)?;
                    let found = job.foresight().map_or(0, |it| it.firehoses_found);
                    is_ahead.store(found > 8, SeqCst);
                }
            }
            Rank(1) => {
                wait(job, || is_ahead.load(SeqCst));
                fill(&memory, Rank(2), 100)?;
            }
            _ => {}
        }
        told.wait_for(job, [0, 1, 1]);
        if job.rank() == Rank(1) {
            // Its helper hears of uses, so that it keeps its core.
            wait(job, || {
                fill(&memory, Rank(2), 1).is_ok() && registered() <= before
            });
        }
        job.barrier()
    });
    ends.into_iter().for_each(|it| it.expect("the puts arrive"));
}

#[test]
fn idle_cores_are_those_of_the_host_though_a_rank_is_bound_to_one() {
    let all = sched_getaffinity(None).expect("cores");
    if all.count() == 1 {
        eprintln!("there is one core, and none is idle");
        return;
    }
    let own = (0..CpuSet::MAX_CPU).find(|it| all.is_set(*it));
    let mut one = CpuSet::new();
    one.set(own.expect("a core"));
    sched_setaffinity(None, &one).expect("it is one of its own");
    let builder = builder(IdleCores::Auto, ForesightPolicy::Conservative);
    let ends = builder.run_local(1, |job| {
        let helpers = || job.foresight().map_or(0, |it| it.helpers_on_core);
        wait(job, || helpers() == 1);
        Ok(())
    });
    ends.into_iter().for_each(|it| it.expect("the rank ends"));
}

/// In virtual time each rank is a host of its own.
#[test]
fn a_rank_that_shares_nothing_has_the_cores_to_itself() {
    for (cores, expected) in [(0, 0), (1, 1), (5, 1)] {
        let builder = Job::builder().expect("settings are right");
        let builder = builder
            .conduit("sim:connectx".parse().expect("it is a conduit"))
            .registration(Strategy::Foresight)
            .foresight_steps_back(false)
            .foresight_cores(IdleCores::Count(cores));
        let ends = builder.run_local(2, |job| {
            let memory = job.alloc::<u8>(LEN)?;
            for _ in 0..200 {
                memory.put(job.right(), 0, &vec![1; LEN])?;
                job.compute(1 << 20);
            }
            job.barrier()?;
            Ok(job.foresight().expect("it is the strategy"))
        });
        for end in ends {
            let foresight = end.expect("the puts arrive");
            // Of memory that it maps nowhere else.
            assert_eq!(foresight.helpers_on_core, expected, "{foresight:?}");
            assert_eq!(foresight.given_up > 0, expected > 0, "{foresight:?}");
        }
    }
}
