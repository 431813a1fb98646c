//! The loop that sees a job through to its end.

use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait,
};

use super::guard::Guard;
use super::output::Output;
use super::server::{Effect, Server};
use super::signals::Signals;
use super::start::{Job, Rank};
use super::sweep::{end_descendants, kill_all};
use super::{Ending, Event, Spec, TIMED_OUT};

/// How long ranks may take to heed SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long the first bad exit waits for the news of a rank that died just before.
///
/// A dying process closes its files before its parent can see it dead, so a
/// rank that fails because of that may be seen first.
const SETTLE: Duration = Duration::from_millis(50);

/// How often it looks for that news.
const SETTLE_STEP: Duration = Duration::from_millis(2);

/// How far the end of a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// A rank failed; the others may end by themselves until then.
    Grace(Instant),
    /// All got SIGTERM, and get SIGKILL then.
    Terminating(Instant),
    /// All got SIGKILL.
    Killing,
}

struct Supervisor<'a> {
    ranks: Vec<Rank>,
    server: Server,
    signals: Signals,
    guard: Guard,
    output: Option<Output>,
    spec: &'a Spec,
    report: &'a mut dyn FnMut(Event),
    stage: Stage,
    /// The status of the first failure.
    status: Option<u8>,
    deadline: Option<Instant>,
    /// The signals that were passed on.
    passed_on: Vec<Signal>,
}

/// Runs a job to its end and gives its status.
pub(super) fn supervise(job: Job, spec: &Spec, report: &mut dyn FnMut(Event)) -> u8 {
    let Job {
        ranks,
        server,
        signals,
        guard,
        output,
    } = job;
    let mut supervisor = Supervisor {
        ranks,
        server,
        signals,
        guard,
        output,
        spec,
        report,
        stage: Stage::Running,
        status: None,
        // A limit beyond what a clock can hold is none.
        deadline: spec
            .timeout
            .and_then(|limit| Instant::now().checked_add(limit)),
        passed_on: Vec::new(),
    };
    while supervisor.ranks.iter().any(|rank| rank.running) {
        let speaking = supervisor.wait();
        supervisor.serve(&speaking);
        supervisor.take_signals();
        supervisor.advance();
    }
    supervisor.finish()
}

impl Supervisor<'_> {
    /// Sleeps until a rank speaks, a signal comes or a deadline passes; gives the ranks that speak.
    fn wait(&self) -> Vec<usize> {
        let connections = self.ranks.iter().enumerate();
        let (indices, connections): (Vec<usize>, Vec<_>) = connections
            .filter_map(|(index, rank)| Some((index, rank.connection.as_ref()?)))
            .unzip();
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN)];
        fds.extend(connections.into_iter().map(|connection| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, connection.wants_to_send());
            PollFd::from_borrowed_fd(connection.fd(), flags)
        }));
        let stage = match self.stage {
            Stage::Grace(until) | Stage::Terminating(until) => Some(until),
            Stage::Running | Stage::Killing => None,
        };
        let until = stage.into_iter().chain(self.deadline).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // An interrupted or refused wait only makes the loop go round.
        if poll(&mut fds, left.as_ref()).is_err() {
            return Vec::new();
        }
        let ready = indices.into_iter().zip(&fds[1..]);
        ready
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(index, _)| index)
            .collect()
    }

    /// Answers what these ranks have sent.
    fn serve(&mut self, ranks: &[usize]) {
        for &index in ranks {
            let rank = index as u32;
            let Some(connection) = &mut self.ranks[index].connection else {
                continue;
            };
            connection.flush();
            let mut lines = Vec::new();
            let received = connection.receive(&mut lines);
            for line in lines {
                let effects = self.server.line(rank, &line);
                self.carry_out(effects);
            }
            match received {
                Ok(true) => {}
                Ok(false) => self.ranks[index].connection = None,
                Err(why) => self.misspoke(rank, why),
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { rank, line } => {
                    let connection = self.ranks[rank as usize].connection.as_mut();
                    if let Some(Err(why)) = connection.map(|connection| connection.send(&line)) {
                        self.misspoke(rank, why);
                    }
                }
                Effect::Abort { rank, status, why } => self.aborted(rank, status, why),
                Effect::Misspoke { rank, why } => self.misspoke(rank, why),
            }
        }
    }

    fn aborted(&mut self, rank: u32, status: i32, why: Option<String>) {
        // As the kernel cuts the status of an exit.
        let status = (status & 0xff) as u8;
        if !self.is_ending() {
            (self.report)(Event::Aborted { rank, status, why });
        }
        self.status.get_or_insert(status);
        self.terminate();
    }

    fn misspoke(&mut self, rank: u32, why: String) {
        self.ranks[rank as usize].connection = None;
        if !self.is_ending() {
            (self.report)(Event::Misspoke { rank, why });
        }
        self.status.get_or_insert(1);
        self.terminate();
    }

    fn take_signals(&mut self) {
        let mut children = false;
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::CHILD => children = true,
                Signal::TSTP => self.stop(),
                Signal::INT if self.passed_on.contains(&signal) => self.kill(),
                signal => {
                    self.to_all(signal);
                    self.passed_on.push(signal);
                }
            }
        }
        if children {
            self.reap();
        }
    }

    /// Stops the ranks and then itself; whoever continues the launcher continues them.
    fn stop(&self) {
        self.to_all(Signal::TSTP);
        let _ = kill_process(getpid(), Signal::STOP);
    }

    fn reap(&mut self) {
        let mut ended = self.ended_ranks();
        let begun = Instant::now();
        while self.status.is_none()
            && ended.iter().any(|(_, ending)| ending.status() != 0)
            && !ended.iter().any(|(index, ending)| {
                matches!(ending, Ending::Killed(_)) || self.is_first_to_fail(*index)
            })
            && self.ranks.iter().any(|rank| rank.running)
            && begun.elapsed() < SETTLE
        {
            thread::sleep(SETTLE_STEP);
            ended.extend(self.ended_ranks());
        }
        // What a rank said before it ended comes before its end.
        self.serve(&(0..self.ranks.len()).collect::<Vec<_>>());
        // Deaths come before exits, which may be their consequence, and the rank that failed
        // first before those that failed because of it.
        ended.sort_by_key(|(index, ending)| {
            let exited = matches!(ending, Ending::Exited(_));
            (exited, exited && !self.is_first_to_fail(*index))
        });
        for (index, ending) in ended {
            self.rank_ended(index, ending);
        }
    }

    fn is_first_to_fail(&self, index: usize) -> bool {
        self.server.failing() == Some(index as u32)
    }

    fn ended_ranks(&mut self) -> Vec<(usize, Ending)> {
        let mut ended = Vec::new();
        for (pid, status) in reap_children() {
            let found = self
                .ranks
                .iter()
                .position(|rank| rank.running && rank.pid == pid);
            let (Some(index), Some(ending)) = (found, ending(status)) else {
                continue;
            };
            self.ranks[index].running = false;
            ended.push((index, ending));
        }
        ended
    }

    fn rank_ended(&mut self, index: usize, ending: Ending) {
        let rank = index as u32;
        self.ranks[index].connection = None;
        let effects = self.server.ended(rank);
        self.carry_out(effects);
        if ending.status() == 0 {
            return;
        }
        let first = self.status.is_none();
        self.status.get_or_insert(ending.status());
        if self.stage == Stage::Running {
            // A grace beyond what a clock can hold is taken for an hour.
            let now = Instant::now();
            let until = now
                .checked_add(self.spec.grace)
                .unwrap_or(now + Duration::from_secs(3600));
            self.stage = Stage::Grace(until);
        }
        // That the ranks obey a signal of the user's is no news after the first.
        let obeyed = self
            .passed_on
            .iter()
            .any(|s| ending == Ending::Killed(s.as_raw() as u8));
        if first || !(self.is_ending() || obeyed) {
            (self.report)(Event::Failed {
                rank,
                ending,
                first,
            });
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
            Stage::Grace(until) if until <= now => {
                let running = self.running();
                if !running.is_empty() {
                    (self.report)(Event::Terminating(running));
                    self.terminate();
                }
            }
            Stage::Terminating(until) if until <= now => self.kill(),
            _ => {}
        }
    }

    /// Whether the launcher is ending the ranks, so that their ends are its doing.
    fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Terminating(_) | Stage::Killing)
    }

    fn terminate(&mut self) {
        if self.is_ending() {
            return;
        }
        self.stage = Stage::Terminating(Instant::now() + TERM_GRACE);
        self.to_all(Signal::TERM);
        // One that is stopped hears of it only when it goes on.
        self.to_all(Signal::CONT);
    }

    fn kill(&mut self) {
        let running = self.running();
        if self.stage == Stage::Killing || running.is_empty() {
            return;
        }
        (self.report)(Event::Killing(running));
        self.stage = Stage::Killing;
        kill_all(&self.ranks, self.guard.pid());
    }

    fn running(&self) -> Vec<u32> {
        let indices = self
            .ranks
            .iter()
            .enumerate()
            .filter(|(_, rank)| rank.running);
        indices.map(|(index, _)| index as u32).collect()
    }

    /// Sends a signal to the process groups of the ranks that run.
    fn to_all(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.running) {
            let _ = kill_process_group(rank.pid, signal);
        }
    }

    /// Every rank has ended: ends what they left behind, and writes out what they printed.
    fn finish(self) -> u8 {
        let gently = self.status.is_none();
        let left = end_descendants(self.guard.pid(), gently);
        if left > 0 {
            (self.report)(Event::LeftBehind(left));
        }
        self.guard.dismiss();
        // From here on a signal ends the launcher, whose reader may have stopped reading.
        drop(self.signals);
        let written = self.output.map_or(Ok(()), Output::finish);
        let mut status = self.status.unwrap_or(0);
        if let Err(error) = written {
            (self.report)(Event::OutputLost(error));
            status = if status == 0 { 1 } else { status };
        }
        status
    }
}

/// Every child that has ended since the last time, those of ranks included.
fn reap_children() -> Vec<(Pid, WaitStatus)> {
    std::iter::from_fn(|| {
        loop {
            match wait(WaitOptions::NOHANG) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.ok().flatten(),
            }
        }
    })
    .collect()
}

fn ending(status: WaitStatus) -> Option<Ending> {
    let exited = status
        .exit_status()
        .map(|status| Ending::Exited((status & 0xff) as u8));
    exited.or_else(|| {
        status
            .terminating_signal()
            .map(|signal| Ending::Killed(signal as u8))
    })
}
