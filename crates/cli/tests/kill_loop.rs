//! One rank of a job, killed at some moment: in some situation, on some conduit and by some
//! strategy, or during the job's start. `cargo xtask kill-loop` does this 25 times, and `cargo xtask full` 300 times.
//!
//! `HYDRANT_TEST_SEED` repeats one kill. `HYDRANT_TEST_CONDUIT` chooses the conduit: `smp`,
//! `smp+pin`, `mixed` (two pretended hosts), `ofi` or, where there is a device, `verbs`.

#[path = "../../hydrant/tests/support/situations.rs"]
mod situations;

use std::{
    env, fs,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use hydrant::{Settings, Strategy, settings::fabric_endpoints};
use hydrant_testing::{
    left_behind::JobRemains,
    roles,
    running::{self, Running, fields},
};
use rustix::process::{Pid, Signal, kill_process};
use situations::Situation;

const RANKS: u64 = 4;
const CONDUITS: [&str; 4] = ["smp", "smp+pin", "mixed", "ofi"];
/// Conduits times strategies, all but `paging`: that is for NICs with on-demand paging, which are
/// simulated.
const TURNS: usize = CONDUITS.len() * (Strategy::ALL.len() - 1);
/// The step from the turn of one kill to that of the next. Few kills then reach all strategies, each
/// on a network with registration.
const STRIDE: usize = 13;
// The stride is prime, so as many kills as there are turns have each turn once.
const _: () = assert!(!TURNS.is_multiple_of(STRIDE));
/// One kill in this many is during the start.
const STARTS: u64 = 4;
/// The interval of jobs whose ranks fork children. The children take no part, and one of each rank outlives it.
const FORKS: u64 = 2;
/// Seconds that survivors have to end by themselves. They must not need all of them.
const GRACE: &str = "40";

fn main() -> ExitCode {
    let test = roles::test("kill_loop_once", kill_one).with_ignored_flag(true);
    roles::main(|_, arguments| Some(situations::rank(arguments)), vec![test])
}

/// The victim, with the time and the situation of the kill.
#[derive(Debug)]
struct Case {
    /// Counts through conduits and strategies.
    turn: usize,
    conduit: String,
    strategy: Strategy,
    situation: Situation,
    victim: u64,
    /// The delay after all ranks are ready, or after the launcher was started.
    delay: Duration,
    starting: bool,
    /// True if the ranks have children by then.
    forks: bool,
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut left = seed;
        let mut below = |limit: u64| {
            let drawn = left % limit;
            left /= limit;
            drawn
        };
        let situation = situations::ALL[below(997) as usize % situations::ALL.len()];
        let victim = below(RANKS);
        let all = Strategy::ALL.into_iter();
        let strategies: Vec<_> = all.filter(|it| *it != Strategy::Paging).collect();
        let chosen = env::var("HYDRANT_TEST_CONDUIT").ok();
        let turn = below(TURNS as u64) as usize;
        let mut conduit = CONDUITS[turn % CONDUITS.len()].to_owned();
        if conduit == "ofi" && fabric_endpoints(&Settings::new()).is_err() {
            // There is no libfabric.
            conduit = "smp".to_owned();
        }
        let strategy = strategies[turn / CONDUITS.len() % strategies.len()];
        let starting = below(STARTS) == 0;
        Self {
            turn,
            conduit: chosen.unwrap_or(conduit),
            strategy,
            situation,
            victim,
            delay: Duration::from_micros(below(60_000) * if starting { 3 } else { 1 }),
            starting,
            forks: below(FORKS) == 0,
        }
    }

    fn command(&self, token: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
        let ranks = RANKS.to_string();
        command.args(["run", "-n", &ranks, "--prefix", "none", "--grace", GRACE]);
        match self.conduit.as_str() {
            "mixed" => command.envs([
                ("HYDRANT_CONDUIT", "auto"),
                ("HYDRANT_PRETEND_HOSTS", "2"),
                ("HYDRANT_INTER_NODE", "smp+pin"),
            ]),
            conduit => command.env("HYDRANT_CONDUIT", conduit),
        };
        command.env("HYDRANT_REGISTRATION", self.strategy.name());
        if self.forks {
            command.env("HYDRANT_TEST_FORKS", "1");
        }
        // Memory registered up front needs room for all of it.
        if self.strategy != Strategy::PinEverything {
            command.envs([("HYDRANT_M", "128K"), ("HYDRANT_MAXVICTIM", "16K")]);
        }
        let (situation, victim) = (self.situation.name(), self.victim.to_string());
        command.args(roles::role(&["lost", &situation, &victim, token]));
        command
    }
}

fn kill_one() {
    let seed = match env::var("HYDRANT_TEST_SEED") {
        Ok(seed) => seed.parse().expect("HYDRANT_TEST_SEED is a number"),
        Err(_) => fresh_seed(env::var("NEXTEST_STRESS_CURRENT").ok()),
    };
    let case = Case::draw(seed);
    println!("seed {seed}: {case:?}");
    let token = format!("kill-loop-{}-{seed}", std::process::id());
    let trace = JobRemains::before(&token);
    if case.starting {
        kill_starting(&case, &token, trace)
    } else {
        kill_ready(&case, &token, trace)
    }
}

/// Kills a rank of a job that is in its situation.
fn kill_ready(case: &Case, token: &str, mut trace: JobRemains) {
    let mut job = Running::start(case.command(token));
    let ready = job.expect("ready", RANKS as usize);
    ready.iter().for_each(|rank| trace.note_rank(&rank[1]));
    thread::sleep(case.delay);
    let named = |rank: &&Vec<String>| rank[0] == case.victim.to_string();
    let pid = &ready.iter().find(named).expect("the victim is ready")[1];
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    let killed = running::now();
    kill_process(pid.expect("a process id"), Signal::KILL).expect("the victim is killed");

    let (status, printed) = job.end();
    assert_reported(case, killed, &printed);
    assert_eq!(status, 128 + 9, "the status is the killed rank's");
    if case.conduit == "smp" {
        trace.assert_one_file();
    }
    trace.assert_nothing_left();
}

/// Kills a rank of a job that is starting, or has just started.
fn kill_starting(case: &Case, token: &str, trace: JobRemains) {
    let job = Running::start(case.command(token));
    thread::sleep(case.delay);
    let pid = (0..10_000).find_map(|_| {
        let found = rank_of(token, case.victim);
        if found.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        found
    });
    let killed = running::now();
    kill_process(pid.expect("the victim is started"), Signal::KILL).expect("it is killed");
    let (status, printed) = job.end();
    assert_reported(case, killed, &printed);
    assert_eq!(status, 128 + 9, "the status is the killed rank's");
    trace.assert_nothing_left();
}

/// Every survivor gets the loss of the victim, or of a rank that aborted because of it. If the job
/// did not begin, the first rank with the error ends the others, perhaps before its own message.
/// Then the launcher names the reason.
fn assert_reported(case: &Case, killed: Duration, printed: &[String]) {
    let all = printed.join("\n");
    let losses: Vec<_> = (printed.iter())
        .filter_map(|line| fields(line, "lost"))
        .collect();
    let errors: Vec<_> = (printed.iter())
        .filter_map(|line| line.strip_prefix("error ")?.split_once(' '))
        .collect();
    let explained = explained(case.victim, &errors);
    for rank in &losses {
        let at = Duration::from_micros(rank[2].parse().expect("a time"));
        let after = at.saturating_sub(killed);
        println!("rank {} heard of the loss after {after:?}", rank[0]);
        let of_victim = rank[1] == case.victim.to_string();
        // A late rank may use a rank that got the error earlier and aborted. Its error names that
        // rank.
        let time = |loss: &[String]| loss[2].parse::<u64>().expect("a time");
        let gave_up = (losses.iter()).any(|other| other[0] == rank[1] && time(other) <= time(rank));
        let never_began = explained[1..]
            .iter()
            .any(|other| other.to_string() == rank[1]);
        let fits = of_victim || gave_up || case.starting && never_began;
        assert!(
            fits,
            "rank {} heard of the loss of another rank:\n{all}",
            rank[0]
        );
    }
    if !case.starting {
        assert_eq!(
            losses.len() as u64,
            RANKS - 1,
            "not every survivor heard of a loss:\n{all}"
        );
        return;
    }
    for (rank, error) in &errors {
        let fits = rank.parse().is_ok_and(|rank| explained.contains(&rank));
        assert!(fits, "rank {rank} got another error ({error}):\n{all}");
    }
    let reason = format!(": rank {} ended before the fence", case.victim);
    let by_launcher = printed.iter().any(|line| line.contains(&reason));
    assert!(
        explained.len() > 1 || !losses.is_empty() || by_launcher,
        "no survivor heard of the loss:\n{all}"
    );
}

/// The victim, and every rank whose error names a rank already in the list.
fn explained(victim: u64, errors: &[(&str, &str)]) -> Vec<u64> {
    let mut explained = vec![victim];
    let mut at = 0;
    while let Some(lost) = explained.get(at) {
        let name = format!("rank {lost}");
        let named = errors.iter().filter(|(_, error)| error.contains(&name));
        for rank in named.filter_map(|(rank, _)| rank.parse().ok()) {
            if !explained.contains(&rank) {
                explained.push(rank);
            }
        }
        at += 1;
    }
    explained
}

/// The process of a rank of the job, found by the token in its arguments.
fn rank_of(token: &str, rank: u64) -> Option<Pid> {
    let wanted = format!("PMI_RANK={rank}");
    let has = |path: String, what: &str| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .split(|byte| *byte == 0)
            .any(|it| it == what.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("/proc is mounted");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut ranks = pids.filter(|pid| {
        has(format!("/proc/{pid}/cmdline"), token) && has(format!("/proc/{pid}/environ"), &wanted)
    });
    ranks.next().and_then(Pid::from_raw)
}

/// A random seed. In a loop, the seed of the next conduit and strategy in turn.
fn fresh_seed(turn: Option<String>) -> u64 {
    let turn = turn.and_then(|turn| turn.parse::<usize>().ok());
    loop {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
            .expect("the kernel gives random bytes");
        // Few digits, so that a person can type the seed again, and enough for all draws.
        let seed = u64::from_le_bytes(bytes) % 100_000_000_000;
        let place = Case::draw(seed).turn;
        if turn.is_none_or(|turn| turn * STRIDE % TURNS == place) {
            return seed;
        }
    }
}
