//! One run: the trial, the job, and the outcome.

use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::kind::SoakedConduit;
use crate::command::{at_root, typed};
use crate::programs::shipped;

/// Ranks of a job.
const RANKS: u64 = 4;
/// A limit so low that moves and evictions happen all the time.
const LIMITS: [(&str, &str); 2] = [("HYDRANT_M", "128K"), ("HYDRANT_MAXVICTIM", "16K")];
/// In one run of this many a rank is killed, and in one of this many handles are leaked.
const KILLS: u64 = 3;
const LEAKS: u64 = 4;
/// The seconds that survivors have to end by themselves: longer than the limit of a hang.
const GRACE: u64 = 150;
/// The longest time for a driver to release the pages of ended processes. Pages left after that are
/// reported.
const RELEASE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);
/// A limit that ends a hang, longer than any job takes beyond its time.
const HANG: Duration = Duration::from_secs(300);
/// The exit code of `torture` if a rank was lost and nothing else was wrong.
const LOST: i32 = 3;
/// The exit code of a launcher for a rank that was killed.
const KILLED: i32 = 128 + 9;

/// The settings of one run.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    kind: SoakedConduit,
    strategy: &'static str,
    pub(super) seed: u64,
}

impl Trial {
    /// Draws everything from the seed. The next seed has the next strategy.
    pub(super) fn draw(kind: SoakedConduit, seed: u64) -> Self {
        let strategies = kind.strategies();
        Self {
            kind,
            strategy: strategies[seed as usize % strategies.len()],
            seed,
        }
    }

    /// True if the trial runs twice and both runs must print the same.
    pub(super) fn repeats(&self) -> bool {
        self.kind == SoakedConduit::Sim
    }

    /// The number that decides kills and leaks. In each cycle, a strategy comes at another
    /// position, for any number of strategies.
    fn turn(&self) -> u64 {
        let strategies = self.kind.strategies().len() as u64;
        (self.seed / strategies).wrapping_add(self.seed % strategies)
    }

    /// The victim and the time of a kill, if one is drawn: from before its start until long after.
    fn kill(&self) -> Option<(u64, Duration)> {
        let kills = self.kind != SoakedConduit::Sim && self.turn() % KILLS == KILLS - 1;
        let drawn = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        // Half of the kills hit the start.
        let most = if drawn & 1 == 0 { 120 } else { 1500 };
        let most = if self.kind == SoakedConduit::Verbs {
            most * 4
        } else {
            most
        };
        kills.then(|| {
            (
                (drawn >> 1) % RANKS,
                Duration::from_millis((drawn >> 8) % most),
            )
        })
    }

    fn leaks(&self) -> bool {
        self.turn().is_multiple_of(LEAKS)
    }

    fn command(&self) -> Command {
        let mut command = at_root(&shipped("hydrant").to_string_lossy());
        command.envs(self.kind.settings(self.seed));
        command.env("HYDRANT_REGISTRATION", self.strategy);
        // Memory registered up front needs room for all of it.
        if self.strategy != "pin-everything" {
            command.envs(LIMITS);
        }
        let ranks = RANKS.to_string();
        command.args([
            "run",
            "--prefix",
            "none",
            "--grace",
            &GRACE.to_string(),
            "-n",
            &ranks,
        ]);
        command.arg(shipped("torture"));
        match self.kind {
            SoakedConduit::Sim => command.args(["--rounds", "40"]),
            // The processors of the machine are emulated, and the ranks share two of them.
            SoakedConduit::Verbs => command.args(["--seconds", "2", "--patience", "120"]),
            _ => command.args(["--seconds", "2"]),
        };
        command.args(["--format", "json", "--seed", &self.seed.to_string()]);
        if self.leaks() {
            command.arg("--leak");
        }
        command
    }

    /// The command that repeats the run.
    pub(super) fn typed(&self) -> String {
        let command = typed(&self.command());
        match self.kill() {
            None => command,
            Some((rank, after)) => format!("{command}   (rank {rank} killed after {after:?})"),
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(super) struct TrialOutcome {
    pub(super) operations: u64,
    pub(super) checks: u64,
    pub(super) killed: bool,
    /// The time of the longest operation, in seconds.
    pub(super) longest: f64,
    /// The standard output of all ranks.
    pub(super) said: String,
    pub(super) problems: Vec<String>,
}

/// A run in progress.
pub(super) struct SoakJob {
    child: Child,
    begun: Instant,
    out: JoinHandle<String>,
    err: JoinHandle<String>,
    mark: String,
}

impl SoakJob {
    pub(super) fn start(trial: &Trial) -> io::Result<Self> {
        // The mark is in the environment of every process of the job, and identifies them.
        let mark = format!("HYDRANT_TEST_SOAK={}-{}", std::process::id(), trial.seed);
        let (name, value) = mark.split_once('=').unwrap_or_default();
        let mut command = trial.command();
        command.env(name, value).process_group(0);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
        Ok(Self {
            child,
            begun: Instant::now(),
            out,
            err,
            mark,
        })
    }

    pub(super) fn end(mut self, trial: &Trial) -> TrialOutcome {
        let mut outcome = TrialOutcome::default();
        let victim = trial.kill().and_then(|(rank, after)| {
            thread::sleep(after.saturating_sub(self.begun.elapsed()));
            let killed = kill_rank(&self.mark, rank).then_some(rank);
            outcome.killed = killed.is_some();
            killed
        });
        let killed = Instant::now();
        let status = self.wait(&mut outcome);
        if victim.is_some() && killed.elapsed() >= Duration::from_secs(GRACE) {
            (outcome.problems).push(format!("survivors did not end within {GRACE} s"));
        }
        // A process that still has the output open would make the reader wait for ever.
        let left = self.surviving_processes();
        for (pid, name) in &left {
            outcome
                .problems
                .push(format!("{name} was left behind as process {pid}"));
            kill_marked(*pid, &self.mark);
        }
        let (out, err) = (self.out.join(), self.err.join());
        let (said, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        outcome.judge(&said, victim, status);
        if !outcome.problems.is_empty() {
            let complaints = err.lines().filter(|line| !line.contains("is process"));
            outcome
                .problems
                .extend(complaints.take(12).map(str::to_owned));
        }
        outcome.said = said;
        outcome
    }

    /// Waits for the launcher, and ends a job that hangs.
    fn wait(&mut self, outcome: &mut TrialOutcome) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if self.begun.elapsed() < HANG => thread::sleep(Duration::from_millis(5)),
                _ => break,
            }
        }
        outcome
            .problems
            .push(format!("it did not end within {HANG:?}"));
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.child.wait().ok()
    }

    /// Processes of the job that remain after its end. They may take a moment to exit.
    fn surviving_processes(&self) -> Vec<(i32, String)> {
        let since = Instant::now();
        loop {
            let left = processes(&self.mark);
            if left.is_empty() || since.elapsed() > Duration::from_secs(10) {
                return left;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl TrialOutcome {
    /// Judges whether the ranks printed what is expected.
    fn judge(&mut self, said: &str, victim: Option<u64>, status: Option<ExitStatus>) {
        let lines = said.lines().filter(|line| line.starts_with('{'));
        let ranks: Vec<Value> = lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        // A rank that gets a loss leaves, and is then lost to the others.
        let has_left = |lost: u64| {
            let told = ranks.iter().find(|rank| rank["rank"] == lost);
            victim.is_some() && told.is_some_and(|rank| rank["lost"].is_u64())
        };
        for rank in &ranks {
            self.add(rank, victim, has_left);
        }
        let code = status.and_then(|status| status.code());
        let right = match victim {
            None => code == Some(0),
            // The job may have ended before the kill.
            Some(_) => [Some(0), Some(KILLED), Some(LOST)].contains(&code) || ranks.is_empty(),
        };
        if !right && self.problems.is_empty() {
            self.problems.push(format!("it ended with {status:?}"));
        }
        if victim.is_none() && ranks.len() as u64 != RANKS && self.problems.is_empty() {
            self.problems.push(format!(
                "{} of {RANKS} ranks printed their reports",
                ranks.len()
            ));
        }
    }

    fn add(&mut self, rank: &Value, victim: Option<u64>, has_left: impl Fn(u64) -> bool) {
        if let Some(story) = rank["hung"].as_str() {
            self.problems
                .push(format!("an operation never ended:\n{story}"));
            return;
        }
        let number = |field: &str| rank[field].as_u64().unwrap_or(0);
        self.operations += number("operations");
        self.checks += number("checks");
        self.longest = self.longest.max(rank["longest"].as_f64().unwrap_or(0.0));
        let name = &rank["rank"];
        let mut problem = |what: String| self.problems.push(format!("rank {name} {what}"));
        if number("wrong") > 0 {
            problem(format!("found {} things wrong", number("wrong")));
        }
        if number("pinned_after") > 0 && rank["leaked"] != true {
            problem(format!(
                "had {} KiB pinned after the job",
                number("pinned_after")
            ));
        }
        if let Some(limit) = rank["registered_limit"].as_u64()
            && number("registered_most") > limit
        {
            problem(format!(
                "registered {} bytes of {limit}",
                number("registered_most")
            ));
        }
        let lost = rank["lost"].as_u64();
        if let Some(lost) = lost
            && Some(lost) != victim
            && !has_left(lost)
        {
            problem(format!("heard of the loss of {lost}, not of {victim:?}"));
        }
        if let (Some(failure), true) = (rank["failure"].as_str(), lost.is_none()) {
            problem(format!("failed: {failure}"));
        }
    }
}

/// The position where two texts first differ.
pub(super) fn first_difference(one: &str, other: &str) -> String {
    let at = (one.bytes().zip(other.bytes())).position(|(one, other)| one != other);
    let at = at.unwrap_or(one.len().min(other.len()));
    let around = |text: &str| {
        let bytes = &text.as_bytes()[at.saturating_sub(40).min(text.len())..];
        String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
    };
    format!("`{}` and `{}`", around(one), around(other))
}

/// Kills a rank of the job with that mark. Returns false if it was not started or has ended.
fn kill_rank(mark: &str, rank: u64) -> bool {
    let is_rank = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let wanted = format!("PMI_RANK={rank}");
        environ
            .split(|byte| *byte == 0)
            .any(|it| it == wanted.as_bytes())
    };
    let found = processes(mark)
        .into_iter()
        .map(|(pid, _)| pid)
        .find(is_rank);
    found.is_some_and(|pid| kill_marked(pid, mark))
}

/// Kills a process, unless its number now belongs to a process without the mark.
fn kill_marked(pid: i32, mark: &str) -> bool {
    let handle = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(handle)) = handle else {
        return false;
    };
    is_marked(pid, mark) && pidfd_send_signal(handle, Signal::KILL).is_ok()
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut words = environ.split(|byte| *byte == 0);
    words.any(|word| word == mark.as_bytes())
}

/// The processes with that mark, and their names.
fn processes(mark: &str) -> Vec<(i32, String)> {
    // In another PID namespace's `/proc`, the numbers belong to other processes.
    let own = fs::read_link("/proc/self")
        .is_ok_and(|me| me.as_os_str() == &*std::process::id().to_string());
    let all = own
        .then(|| fs::read_dir("/proc"))
        .into_iter()
        .flatten()
        .flatten();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pids.filter(|pid| is_marked(*pid, mark))
        .map(|pid| (pid, name(pid).trim().to_owned()))
        .collect()
}

/// The pages of the whole machine that drivers hold, where the kernel counts them.
pub(super) fn pages_pinned() -> Option<i64> {
    // Each processor keeps a count of its own and adds it up later. A read of this file, which
    // needs root, makes all of them add up now. Otherwise a job begins with a count that still
    // falls.
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    let number = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<i64>().ok()
    };
    Some(number("nr_foll_pin_acquired")? - number("nr_foll_pin_released")?)
}

/// The number of pages above the count before, if the rise persists. Other programs that pin memory
/// at the same time would spoil the count, so only our own virtual machines are checked.
pub(super) fn pages_left(before: Option<i64>) -> Option<i64> {
    let before = before.filter(|_| std::env::var_os("VM_FOLDER").is_some())?;
    let since = Instant::now();
    loop {
        let left = pages_pinned()? - before;
        let waited = since.elapsed();
        if left <= 0 || waited > RELEASE {
            if waited > SOON {
                eprintln!("soak: the last pinned pages went {waited:.1?} after the job");
            }
            return (left > 0).then_some(left);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn read(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_strategy_is_tried_with_and_without_kills_and_leaks() {
        for kind in SoakedConduit::all() {
            let mut seen: BTreeMap<&str, BTreeSet<(bool, bool)>> = BTreeMap::new();
            for seed in 0..1000 {
                let trial = Trial::draw(kind, seed);
                let what = (trial.kill().is_some(), trial.leaks());
                seen.entry(trial.strategy).or_default().insert(what);
            }
            let wanted = if kind == SoakedConduit::Sim { 2 } else { 4 };
            for (strategy, seen) in &seen {
                assert_eq!(seen.len(), wanted, "{kind:?} by {strategy}: {seen:?}");
            }
            // The helper thread of `foresight` registers memory, too.
            assert!(
                kind == SoakedConduit::Smp || seen.contains_key("foresight"),
                "{kind:?}"
            );
        }
    }

    fn judged(said: &str, victim: Option<u64>) -> Vec<String> {
        let mut outcome = TrialOutcome::default();
        let status = std::process::Command::new("true").status().ok();
        outcome.judge(said, victim, status);
        outcome.problems
    }

    fn rank_report(change: &str) -> String {
        let ranks = (0..RANKS).map(|rank| {
            let change = if rank == 2 { change } else { "" };
            format!("{{\"rank\":{rank},\"wrong\":0,\"pinned_after\":0{change}}}\n")
        });
        ranks.collect()
    }

    #[test]
    fn ranks_that_found_nothing_wrong_are_right() {
        assert_eq!(judged(&rank_report(""), None), Vec::<String>::new());
        let lost = r#","lost":1,"failure":"PeerLost(1)""#;
        assert_eq!(judged(&rank_report(lost), Some(1)), Vec::<String>::new());
        // Rank 3 gets the loss of rank 2, which left when it got the loss of rank 1.
        let both = rank_report(lost).replace(
            "\"rank\":3,",
            "\"rank\":3,\"lost\":2,\"failure\":\"PeerLost(2)\",",
        );
        assert_eq!(judged(&both, Some(1)), Vec::<String>::new());
        let problems = judged(&both, Some(0)).join("\n");
        assert!(
            problems.contains("rank 2 heard of the loss of 1"),
            "{problems}"
        );
    }

    #[test]
    fn every_fault_is_reported() {
        for (change, problem) in [
            (r#","wrong":3"#, "found 3 things wrong"),
            (r#","pinned_after":4"#, "4 KiB pinned"),
            (
                r#","registered_most":9,"registered_limit":8"#,
                "9 bytes of 8",
            ),
            (r#","lost":1"#, "heard of the loss of 1, not of None"),
            (r#","failure":"Freed""#, "failed: Freed"),
            (r#","hung":"rank 2""#, "never ended"),
        ] {
            let problems = judged(&rank_report(change), None).join("\n");
            assert!(problems.contains(problem), "{problem}: {problems}");
        }
        let three: String = rank_report("")
            .lines()
            .take(3)
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(judged(&three, None), ["3 of 4 ranks printed their reports"]);
    }

    #[test]
    fn differences_are_shown_with_their_context() {
        assert_eq!(
            first_difference("same 1", "same 2"),
            "`same 1` and `same 2`"
        );
        assert_eq!(first_difference("", "more"), "`` and `more`");
    }

    #[test]
    fn processes_are_found_by_their_environment() {
        let mark = format!("HYDRANT_TEST_SOAK=test-{}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut sleep = Command::new("sleep");
        let mut child = sleep.arg("60").env(name, value).spawn().unwrap();
        let expected = [(child.id() as i32, "sleep".to_owned())];
        // The kernel lets the parent continue before it shows the child's environment.
        while processes(&mark) != expected {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(processes(&mark), []);
    }
}
