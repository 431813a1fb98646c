//! The loop that sees a job through to its end, whoever has the ranks.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

use super::server::{Effect, Server};
use super::signals::Signals;
use super::sweep::GIVE_UP;
use super::{Ending, Event, Spec, TIMED_OUT};
use crate::exit_status;

/// The signals that ask a job to end. The second of a kind is a demand.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Those of them that nobody sends twice: a batch system, a service manager, a terminal that
/// closes. Ranks that do not heed them are killed after the grace.
const FINAL: [Signal; 2] = [Signal::TERM, Signal::HUP];

/// How long ranks may take to heed SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long the first bad exit waits for the news of a rank that died just before.
///
/// A dying process closes its files before its parent can see it dead, so a
/// rank that fails because of that may be seen first.
const SETTLE: Duration = Duration::from_millis(50);

/// The same for a rank that announced its failure as the consequence of another's: that other must be dying.
const SETTLE_LOSS: Duration = Duration::from_secs(1);

/// The time that a rank that asked for the end of the job has to report the reason and end by itself.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// How often it looks for that news.
const SETTLE_STEP: Duration = Duration::from_millis(2);

/// Who has the ranks in hand: this process, or agents on other hosts.
pub(super) trait Hands {
    /// Sleeps until a rank speaks or ends, a signal comes, or it is `until`.
    fn wait(&mut self, signals: &Signals, until: Option<Instant>);

    /// Takes the reports of ranks: of those that ended the last wait, or of all.
    fn take_heard(&mut self, whom: Whom) -> Vec<(u32, Heard)>;

    /// Takes the endings of the ranks that have ended since the last call.
    fn take_ended(&mut self) -> Vec<(u32, Ending)>;

    /// Takes the failures of hosts since the last call. Their ranks run no longer, and
    /// [`take_ended`](Self::take_ended) does not return them.
    fn take_failed(&mut self) -> Vec<HostFailure>;

    /// Sends a line to a rank; an error says what is wrong with the rank.
    fn send(&mut self, rank: u32, line: &str) -> Result<(), String>;

    /// Hears no more of a rank.
    fn hang_up(&mut self, rank: u32);

    /// The ranks that run.
    fn running(&self) -> Vec<u32>;

    /// Sends a signal to all that run, and to what they started.
    fn signal(&mut self, signal: Signal);

    /// Kills all that run, and what they started.
    fn kill(&mut self);

    /// Counts the ranks that SIGKILL did not end in [`GIVE_UP`] as ended: which, and what holds
    /// them.
    fn give_up(&mut self) -> Vec<(u32, String)>;

    /// Notes that this process was stopped for a while.
    fn note_resumed(&mut self);

    /// Every rank has ended: ends what they left behind, and writes out what they printed.
    fn finish(self, left: Left, signals: Signals) -> Finished;
}

/// Whose words are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// Those whose words ended the last wait.
    Ready,
    /// Everybody.
    All,
}

/// What a rank said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A line.
    Line(Vec<u8>),
    /// That it will say no more.
    Closed,
    /// What is no line, and why not.
    Wrong(String),
}

/// A host that failed, and its ranks with it.
#[derive(Debug)]
pub(super) struct HostFailure {
    pub(super) host: String,
    /// Its ranks that ran, or were to.
    pub(super) ranks: Vec<u32>,
    /// The status of the job, if this is its first failure.
    pub(super) status: u8,
    /// What follows the host's name in a sentence.
    pub(super) why: String,
    /// Whether its ranks had begun.
    pub(super) begun: bool,
}

/// What becomes of the processes that ranks left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// They may end by themselves for a moment.
    Ended,
    /// They are killed.
    Killed,
}

/// What became of the processes that ranks left behind.
#[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Behind {
    /// How many have ended.
    pub(super) ended: usize,
    /// Those that could not be ended, each in a sentence.
    pub(super) strays: Vec<String>,
}

/// How the end went.
pub(super) struct Finished {
    pub(super) behind: Behind,
    /// Whether all that was printed is written.
    pub(super) written: io::Result<()>,
}

/// How far the end of a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// A rank failed; the others may end by themselves until then.
    Grace(Instant),
    /// This rank asked for the end: all others get SIGTERM when it has ended, or at that time.
    Aborting(u32, Instant),
    /// All got SIGTERM, and get SIGKILL then.
    Terminating(Instant),
    /// All got SIGKILL, and count as ended then.
    Killing(Instant),
    /// Those that did not die have been given up.
    GivenUp,
}

struct Supervisor<'a, H> {
    hands: H,
    server: Server,
    signals: Signals,
    spec: &'a Spec,
    report: &'a mut dyn FnMut(Event),
    stage: Stage,
    /// The status of the first failure.
    status: Option<u8>,
    /// Failures of ranks that ended while the one that said it was failing first had not yet:
    /// they are told after its own, whose status is the job's.
    early: Vec<(u32, Ending)>,
    deadline: Option<Instant>,
    /// The signals that were passed on.
    passed_on: Vec<Signal>,
}

/// Runs a job to its end and gives its status.
pub(super) fn supervise(
    hands: impl Hands,
    server: Server,
    signals: Signals,
    spec: &Spec,
    report: &mut dyn FnMut(Event),
) -> u8 {
    let mut supervisor = Supervisor {
        hands,
        server,
        signals,
        spec,
        report,
        stage: Stage::Running,
        status: None,
        early: Vec::new(),
        // A limit beyond what a clock can hold is none.
        deadline: spec
            .timeout
            .and_then(|limit| Instant::now().checked_add(limit)),
        passed_on: Vec::new(),
    };
    while !supervisor.hands.running().is_empty() {
        supervisor.wait();
        supervisor.serve(Whom::Ready);
        supervisor.take_signals();
        supervisor.take_ends();
        supervisor.advance();
    }
    supervisor.finish()
}

impl<H: Hands> Supervisor<'_, H> {
    /// Sleeps until there is something to do.
    fn wait(&mut self) {
        let stage = match self.stage {
            Stage::Grace(until)
            | Stage::Aborting(_, until)
            | Stage::Terminating(until)
            | Stage::Killing(until) => Some(until),
            Stage::Running | Stage::GivenUp => None,
        };
        let until = stage.into_iter().chain(self.deadline).min();
        self.hands.wait(&self.signals, until);
    }

    /// Answers what ranks have sent.
    fn serve(&mut self, whom: Whom) {
        for (rank, heard) in self.hands.take_heard(whom) {
            match heard {
                Heard::Line(line) => {
                    let effects = self.server.line(rank, &line);
                    self.carry_out(effects);
                }
                Heard::Closed => self.hands.hang_up(rank),
                Heard::Wrong(why) => self.misspoke(rank, why),
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { rank, line } => {
                    if let Err(why) = self.hands.send(rank, &line) {
                        self.misspoke(rank, why);
                    }
                }
                Effect::Abort { rank, status, why } => self.aborted(rank, status, why),
                Effect::Misspoke { rank, why } => self.misspoke(rank, why),
            }
        }
    }

    fn aborted(&mut self, rank: u32, status: i32, why: Option<String>) {
        let status = exit_status(status);
        if !self.is_ending() {
            (self.report)(Event::Aborted { rank, status, why });
            self.tell_early();
            self.stage = Stage::Aborting(rank, Instant::now() + LAST_WORDS);
        }
        self.status.get_or_insert(status);
    }

    fn misspoke(&mut self, rank: u32, why: String) {
        self.hands.hang_up(rank);
        if !self.is_ending() {
            (self.report)(Event::Misspoke { rank, why });
        }
        self.status.get_or_insert(1);
        self.terminate();
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal {
                // Ends are looked for each time.
                Signal::CHILD => {}
                Signal::TSTP => self.stop(),
                signal if ENDING.contains(&signal) && self.passed_on.contains(&signal) => {
                    self.kill();
                }
                signal => {
                    self.hands.signal(signal);
                    self.passed_on.push(signal);
                    if FINAL.contains(&signal) {
                        self.begin_grace();
                    }
                }
            }
        }
    }

    /// Stops the ranks and then itself; whoever continues the launcher continues them.
    fn stop(&mut self) {
        self.hands.signal(Signal::TSTP);
        let _ = kill_process(getpid(), Signal::STOP);
        self.hands.note_resumed();
    }

    fn take_ends(&mut self) {
        let mut ended = self.hands.take_ended();
        let mut failed = self.hands.take_failed();
        if ended.is_empty() && failed.is_empty() {
            return;
        }
        let begun = Instant::now();
        // An announcement that a rank made before it ended comes before its end.
        self.serve(Whom::All);
        while self.status.is_none()
            && failed.is_empty()
            && ended.iter().any(|(_, ending)| ending.status() != 0)
            && !ended.iter().any(|(rank, ending)| {
                matches!(ending, Ending::Killed(_)) || self.is_first_to_fail(*rank)
            })
            && self.server.deserter().is_none()
            && !self.hands.running().is_empty()
            && begun.elapsed() < self.settle(&ended)
        {
            thread::sleep(SETTLE_STEP);
            ended.extend(self.hands.take_ended());
            failed.extend(self.hands.take_failed());
            self.serve(Whom::All);
        }
        for failure in failed {
            self.host_failed(failure);
        }
        // Deaths come before exits, which may be their consequence, and the rank that failed
        // first before those that failed because of it.
        ended.sort_by_key(|(rank, ending)| {
            let exited = matches!(ending, Ending::Exited(_));
            let failed = ending.status() != 0;
            (
                exited,
                exited && !self.is_first_to_fail(*rank),
                failed && self.server.is_bereft(*rank),
            )
        });
        for (rank, ending) in &ended {
            if ending.status() == 0 {
                self.server.ended_well(*rank);
            }
        }
        for (rank, ending) in ended {
            self.rank_ended(rank, ending);
        }
        let first = self.server.failing();
        if first.is_none_or(|first| !self.hands.running().contains(&first)) {
            self.tell_early();
        }
    }

    /// Returns how long the news of these failures waits for that of their cause.
    fn settle(&self, ended: &[(u32, Ending)]) -> Duration {
        let mut failures = ended.iter().filter(|(_, ending)| ending.status() != 0);
        if failures.all(|(rank, _)| self.server.is_bereft(*rank)) {
            SETTLE_LOSS
        } else {
            SETTLE
        }
    }

    /// Tells of the failures that waited for the first one, if any did.
    fn tell_early(&mut self) {
        for (rank, ending) in std::mem::take(&mut self.early) {
            self.tell_failure(rank, ending);
        }
    }

    fn is_first_to_fail(&self, rank: u32) -> bool {
        self.server.failing() == Some(rank)
    }

    fn host_failed(&mut self, failure: HostFailure) {
        for &rank in &failure.ranks {
            let effects = self.server.ended(rank);
            self.carry_out(effects);
        }
        self.status.get_or_insert(failure.status);
        let HostFailure {
            host,
            ranks,
            why,
            begun,
            ..
        } = failure;
        if !self.is_ending() {
            (self.report)(Event::HostFailed { host, ranks, why });
        }
        if begun {
            self.begin_grace();
        } else {
            self.terminate();
        }
    }

    fn rank_ended(&mut self, rank: u32, ending: Ending) {
        self.hands.hang_up(rank);
        let effects = self.server.ended(rank);
        self.carry_out(effects);
        if ending.status() == 0 {
            return;
        }
        self.begin_grace();
        if self.is_before_the_first(rank, ending) {
            self.early.push((rank, ending));
        } else {
            self.tell_failure(rank, ending);
        }
    }

    /// Whether a rank that said it was failing has yet to end, and this one ended because of that.
    fn is_before_the_first(&self, rank: u32, ending: Ending) -> bool {
        let first = self.server.failing().filter(|first| *first != rank);
        self.status.is_none()
            && matches!(ending, Ending::Exited(_))
            && first.is_some_and(|first| self.hands.running().contains(&first))
    }

    /// Counts a failure, and tells of it.
    fn tell_failure(&mut self, rank: u32, ending: Ending) {
        let first = self.status.is_none();
        self.status.get_or_insert(ending.status());
        // That the ranks obey a signal of the user's is no news after the first.
        let obeyed = self
            .passed_on
            .iter()
            .any(|s| ending == Ending::Killed(s.as_raw() as u8));
        let deserter = self
            .server
            .deserter()
            .filter(|_| self.server.is_bereft(rank));
        if let Some(deserter) = deserter.filter(|_| first) {
            (self.report)(Event::Deserted {
                deserter,
                rank,
                ending,
            });
        } else if first || !(self.is_ending() || obeyed) {
            (self.report)(Event::Failed {
                rank,
                ending,
                first,
            });
        }
    }

    fn begin_grace(&mut self) {
        if self.stage == Stage::Running {
            // A grace beyond what a clock can hold is taken for an hour.
            let now = Instant::now();
            let until = now
                .checked_add(self.spec.grace)
                .unwrap_or(now + Duration::from_secs(3600));
            self.stage = Stage::Grace(until);
        }
    }

    /// Takes the next step of an end whose time has come.
    fn advance(&mut self) {
        let now = Instant::now();
        if let Some(limit) = self.spec.timeout
            && self.deadline.is_some_and(|deadline| deadline <= now)
        {
            self.deadline = None;
            if !self.is_ending() {
                (self.report)(Event::TimedOut(limit));
                self.status.get_or_insert(TIMED_OUT);
                self.terminate();
            }
        }
        match self.stage {
            Stage::Aborting(rank, until)
                if until <= now || !self.hands.running().contains(&rank) =>
            {
                self.terminate_all();
            }
            Stage::Grace(until) if until <= now => {
                let running = self.hands.running();
                if self.passed_on.contains(&Signal::TERM) {
                    self.kill();
                } else if !running.is_empty() {
                    (self.report)(Event::Terminating(running));
                    self.terminate();
                }
            }
            Stage::Terminating(until) if until <= now => self.kill(),
            Stage::Killing(until) if until <= now => self.give_up(),
            _ => {}
        }
    }

    /// Whether the launcher is ending the ranks, so that their ends are its doing.
    fn is_ending(&self) -> bool {
        matches!(
            self.stage,
            Stage::Aborting(..) | Stage::Terminating(_) | Stage::Killing(_) | Stage::GivenUp
        )
    }

    fn terminate(&mut self) {
        if self.is_ending() {
            return;
        }
        // From here on ranks end by the launcher's doing, which is nobody's failure.
        self.tell_early();
        self.terminate_all();
    }

    fn terminate_all(&mut self) {
        self.stage = Stage::Terminating(Instant::now() + TERM_GRACE);
        self.hands.signal(Signal::TERM);
        // One that is stopped hears of it only when it goes on.
        self.hands.signal(Signal::CONT);
    }

    fn kill(&mut self) {
        let running = self.hands.running();
        if matches!(self.stage, Stage::Killing(_) | Stage::GivenUp) || running.is_empty() {
            return;
        }
        self.tell_early();
        (self.report)(Event::Killing(running));
        self.hands.kill();
        self.stage = Stage::Killing(Instant::now() + GIVE_UP);
    }

    /// Goes on without the ranks that cannot be ended.
    fn give_up(&mut self) {
        self.stage = Stage::GivenUp;
        for (rank, why) in self.hands.give_up() {
            self.hands.hang_up(rank);
            let effects = self.server.ended(rank);
            self.carry_out(effects);
            self.status.get_or_insert(Ending::Killed(9).status());
            (self.report)(Event::CannotEnd { rank, why });
        }
    }

    /// Every rank has ended.
    fn finish(self) -> u8 {
        let left = match self.status {
            None => Left::Ended,
            Some(_) => Left::Killed,
        };
        let finished = self.hands.finish(left, self.signals);
        if finished.behind.ended > 0 {
            (self.report)(Event::LeftBehind(finished.behind.ended));
        }
        for stray in finished.behind.strays {
            (self.report)(Event::Stray(stray));
        }
        let mut status = self.status.unwrap_or(0);
        if let Err(error) = finished.written {
            (self.report)(Event::OutputLost(error));
            status = if status == 0 { 1 } else { status };
        }
        status
    }
}
