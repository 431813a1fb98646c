//! The launcher's side of agents.

mod hands;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::ADVICE;
use super::frame::{AgentOrder, AgentReport, Framed, PIECE, Start, WINDOW};
use super::link::{AgentLink, FramesRead};
use super::place;
use super::printer::{Printer, Written};
use super::shell::{self, Input};
use crate::launcher::child::Tie;
use crate::launcher::guard::{Guard, GuardCharge};
use crate::launcher::local::ending;
use crate::launcher::output::Lines;
use crate::launcher::processes::reap_children;
use crate::launcher::signals::{ChildEnds, Signals};
use crate::launcher::supervise::{Behind, Heard, HostFailure};
use crate::launcher::{Ending, LaunchError, Prefix, Spec, find};

/// The time limit for a host's first answer.
const ANSWER: Duration = Duration::from_secs(60);

/// The time limit for agents to kill their ranks, and for remote shells to end.
const PATIENCE: Duration = Duration::from_secs(7);

/// The time limit for a remote shell to end after it closed its output.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// The most bytes that may wait for an agent: the start order, and all that its ranks can request
/// before they have their answers. An agent for which more bytes wait does not read.
const MAX_UNSENT: usize = AgentOrder::LONGEST + (4 << 20);

/// The most bytes of output that an agent may have sent and that are not written. It keeps to
/// [`WINDOW`] until it sends the rest at the end. The launcher reads more from it after some of
/// them are written.
const MAX_UNPRINTED: u64 = (2 * WINDOW) as u64;

/// The agents of a job.
pub(in crate::launcher) struct Agents {
    agents: Vec<RemoteAgent>,
    /// Ends the remote shells if this process is killed.
    guard: Guard,
    printer: Printer,
    /// True for a stream that has no reader any more.
    deaf: [bool; 2],
    prefix: Prefix,
    /// The input of rank 0, until its end.
    input: Option<Input>,
    /// True if rank 0 has read all input so far.
    hungry: bool,
    silence: Duration,
    next_beat: Instant,
    /// The time limit for killed ranks to end.
    killed: Option<Instant>,
    heard: VecDeque<(u32, Heard)>,
    ended: Vec<(u32, Ending)>,
    failed: Vec<HostFailure>,
}

/// The agent of one host.
#[derive(Debug)]
struct RemoteAgent {
    host: String,
    ranks: Range<u32>,
    running: Vec<bool>,
    /// Incomplete output lines of each rank, for both streams.
    lines: [Vec<Lines>; 2],
    /// The remote shell, which leads a process group.
    shell: Pid,
    /// The shell's end.
    exit: Option<Ending>,
    /// The link, until either side closes it.
    link: Option<AgentLink>,
    /// The start order, until it is sent.
    start: Option<Start>,
    begun: bool,
    /// Bytes of output that are not written.
    unprinted: u64,
    /// The time of the agent's last message.
    heard: Instant,
    /// The time at which the agent closed the link.
    closed: Option<Instant>,
    /// The agent's last report: the processes that were left behind.
    done: Option<Behind>,
}

impl Agents {
    /// Starts an agent on every host that gets ranks. The ranks begin after all agents have
    /// answered.
    pub(in crate::launcher) fn start(
        spec: &Spec,
        program: &Path,
        name: &str,
        ends: &ChildEnds,
    ) -> Result<(Agents, Signals), LaunchError> {
        let counts = place(spec.ranks, &spec.remote.hosts)?;
        find::remote_shell(&spec.remote.shell)?;
        let signals =
            Signals::listen(ends).map_err(LaunchError::system("listening for signals"))?;
        let guard = Guard::start(GuardCharge::Shells(PATIENCE))
            .map_err(LaunchError::system("starting the job's guard"))?;
        let printer = Printer::start().map_err(LaunchError::system("starting to carry output"))?;
        let input = Input::open().map_err(LaunchError::system("opening the input"))?;
        let mut all = Agents {
            agents: Vec::new(),
            guard,
            printer,
            deaf: [false; 2],
            prefix: spec.prefix,
            input: Some(input),
            hungry: false,
            silence: spec.remote.silence,
            next_beat: Instant::now() + spec.remote.silence / 4,
            killed: None,
            heard: VecDeque::new(),
            ended: Vec::new(),
            failed: Vec::new(),
        };
        let mut first = 0;
        for (host, count) in spec.remote.hosts.iter().zip(counts) {
            if count == 0 {
                continue;
            }
            let ranks = first..first + count;
            first = ranks.end;
            let tie = Tie {
                before: signals.before(),
                care: all.guard.care(),
                farewell: Signal::TERM,
            };
            let begun = shell::start(&spec.remote, &host.name, tie);
            let (shell, link) = begun.map_err(|source| LaunchError::NoShell {
                host: host.name.clone(),
                source,
            })?;
            let lines = || {
                (ranks.clone())
                    .map(|rank| Lines::new(rank as usize))
                    .collect()
            };
            all.agents.push(RemoteAgent {
                host: host.name.clone(),
                running: vec![true; count as usize],
                lines: [lines(), lines()],
                shell,
                exit: None,
                link: Some(link),
                start: Some(shell::order(spec, program, name, &host.name, &ranks)),
                begun: false,
                unprinted: 0,
                heard: Instant::now(),
                closed: None,
                done: None,
                ranks,
            });
        }
        Ok((all, signals))
    }

    /// Returns the number of ranks of each host.
    pub(in crate::launcher) fn ranks_by_host(&self) -> Vec<u32> {
        (self.agents.iter())
            .map(|agent| agent.ranks.len() as u32)
            .collect()
    }

    /// Waits for an agent, the user, a signal, or the time `until`. Then takes the agents' reports.
    fn turn(&mut self, signals: Option<&Signals>, until: Option<Instant>) {
        self.sleep(signals, until);
        self.print();
        self.read_input();
        for index in 0..self.agents.len() {
            self.receive(index);
        }
        for (pid, status) in reap_children() {
            let agent = (self.agents.iter_mut()).find(|agent| agent.shell == pid);
            if let Some(agent) = agent {
                agent.exit = ending(status);
            }
        }
        self.start_if_all_answered();
        self.judge();
        self.beat();
    }

    fn sleep(&self, signals: Option<&Signals>, until: Option<Instant>) {
        let live = self.agents.iter().filter(|agent| agent.is_live());
        let closing = live.filter_map(|agent| Some(agent.closed? + AFTERWARDS));
        let until = (until.into_iter().chain([self.next_beat]))
            .chain(self.killed)
            .chain(closing)
            .min();
        let mut fds = vec![PollFd::from_borrowed_fd(self.printer.bell(), PollFlags::IN)];
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN));
        }
        if self.hungry
            && let Some(input) = &self.input
        {
            fds.push(PollFd::from_borrowed_fd(input.fd(), PollFlags::IN));
        }
        let open = self.agents.iter().filter(|agent| agent.closed.is_none());
        for (agent, link) in open.filter_map(|agent| Some((agent, agent.link.as_ref()?))) {
            if agent.may_read() {
                fds.push(PollFd::from_borrowed_fd(link.from(), PollFlags::IN));
            }
            if link.wants_to_send() {
                fds.push(PollFd::from_borrowed_fd(link.to(), PollFlags::OUT));
            }
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // After an interrupted or refused wait, the loop only runs once more.
        let _ = poll(&mut fds, left.as_ref());
    }

    /// Acknowledges written output to its agents.
    fn print(&mut self) {
        for written in self.printer.written() {
            match written {
                Written::Bytes { agent, bytes } => {
                    let agent = &mut self.agents[agent];
                    agent.unprinted = agent.unprinted.saturating_sub(bytes);
                    agent.tell(&AgentOrder::Written(bytes));
                }
                Written::Deaf(stream) => {
                    // Bytes that wait for this stream will never be written.
                    self.deaf[stream as usize] = true;
                    self.agents.iter_mut().for_each(|agent| agent.unprinted = 0);
                    self.tell_all(&AgentOrder::Deaf(stream));
                }
            }
        }
    }

    /// Sends input to rank 0, a piece at a time.
    fn read_input(&mut self) {
        if !self.hungry {
            return;
        }
        let Some(piece) = self.input.as_mut().and_then(|input| input.read(PIECE)) else {
            return;
        };
        self.hungry = false;
        if piece.is_empty() {
            self.input = None;
        }
        if let Some(agent) = self.agents.first_mut() {
            agent.tell(&AgentOrder::Input(piece));
        }
    }

    /// Takes an agent's reports.
    fn receive(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        let may_read = agent.may_read();
        let Some(link) = &mut agent.link else {
            return;
        };
        link.flush();
        if !may_read {
            // The agent counts as heard, because the launcher does not read from it.
            agent.heard = Instant::now();
            return;
        }
        let mut reports = Vec::new();
        let came = link.receive(&mut reports);
        if !reports.is_empty() {
            agent.heard = Instant::now();
        }
        for report in reports {
            self.take(index, report);
        }
        match came {
            Ok(FramesRead::All) => {}
            Ok(FramesRead::End) => {
                let agent = &mut self.agents[index];
                agent.closed.get_or_insert_with(Instant::now);
                if agent.done.is_some() {
                    agent.link = None;
                }
            }
            Err(why) => self.fail(index, 125, format!("broke the protocol: {why}")),
        }
    }

    fn take(&mut self, index: usize, report: AgentReport) {
        let agent = &mut self.agents[index];
        let of_its_own = |rank: u32| agent.ranks.contains(&rank);
        match report {
            AgentReport::Begun => {
                agent.begun = true;
                self.hungry |= index == 0;
            }
            AgentReport::Refused { status, why } => {
                self.fail(index, status, format!("refused: {why}"))
            }
            AgentReport::Line { rank, line } if of_its_own(rank) => {
                self.heard.push_back((rank, Heard::Line(line)));
            }
            AgentReport::Closed { rank } if of_its_own(rank) => {
                self.heard.push_back((rank, Heard::Closed));
            }
            AgentReport::Wrong { rank, why } if of_its_own(rank) => {
                self.heard.push_back((rank, Heard::Wrong(why)));
            }
            AgentReport::Ended { rank, ending } if of_its_own(rank) => {
                let running = &mut agent.running[(rank - agent.ranks.start) as usize];
                if std::mem::take(running) {
                    self.ended.push((rank, ending));
                }
            }
            AgentReport::Printed {
                rank,
                stream,
                bytes,
            } if of_its_own(rank) => {
                let lines = &mut agent.lines[stream as usize][(rank - agent.ranks.start) as usize];
                let printed = bytes.len() as u64;
                if self.deaf[stream as usize] {
                    return;
                }
                agent.unprinted += printed;
                let mut text = Vec::new();
                match self.prefix {
                    Prefix::Rank => lines.feed(&bytes, &mut text),
                    Prefix::None => text = bytes,
                }
                self.printer.print(stream, index, printed, text);
            }
            AgentReport::Taken => self.hungry = index == 0,
            AgentReport::Done(behind) => agent.done = Some(behind),
            AgentReport::Beat => {}
            AgentReport::Line { rank, .. }
            | AgentReport::Closed { rank }
            | AgentReport::Wrong { rank, .. }
            | AgentReport::Ended { rank, .. }
            | AgentReport::Printed { rank, .. } => {
                let why = format!("broke the protocol: it named rank {rank}, which is not its own");
                self.fail(index, 125, why);
            }
        }
    }

    /// Starts the ranks of all hosts. After an earlier failure no rank of the job begins, because
    /// the failed agent has no link.
    fn start_if_all_answered(&mut self) {
        let answered =
            |agent: &RemoteAgent| (agent.link.as_ref()).is_some_and(AgentLink::is_greeted);
        if self.agents.iter().all(answered) {
            for agent in &mut self.agents {
                if let Some(start) = agent.start.take() {
                    agent.tell(&AgentOrder::Start(Box::new(start)));
                }
            }
        }
    }

    /// Finds the hosts that are lost.
    fn judge(&mut self) {
        let now = Instant::now();
        for index in 0..self.agents.len() {
            let agent = &self.agents[index];
            if !agent.is_live() {
                continue;
            }
            let greeted = agent.link.as_ref().is_some_and(AgentLink::is_greeted);
            let other = agent.link.as_ref().and_then(AgentLink::other_version);
            let ended = (agent.closed).is_some_and(|closed| {
                agent.exit.is_some() || now.duration_since(closed) >= AFTERWARDS
            });
            let silent = now.duration_since(agent.heard);
            let unread = agent.link.as_ref().map_or(0, AgentLink::unsent);
            if unread > MAX_UNSENT {
                let why = format!("broke the protocol: it left {unread} bytes unread");
                self.fail(index, 125, why);
            } else if let Some(version) = other {
                let ours = env!("CARGO_PKG_VERSION");
                let why = format!(
                    "has hydrant {version}, and this is {ours}: every host needs the same version (--remote-hydrant names \
                     its path there)"
                );
                self.fail(index, 125, why);
            } else if ended {
                self.fail_by_end(index, greeted);
            } else if !greeted && silent > ANSWER {
                let why = format!("did not answer in {} s{ADVICE}", ANSWER.as_secs());
                self.fail(index, 125, why);
            } else if agent.begun && silent > self.silence {
                let seconds = self.silence.as_secs_f64();
                let why = format!("was lost: nothing was heard of it for {seconds} s");
                self.fail(index, Ending::Killed(9).status(), why);
            } else if self.killed.is_some_and(|until| until <= now) && agent.has_ranks() {
                self.fail(
                    index,
                    Ending::Killed(9).status(),
                    "did not end its ranks".into(),
                );
            }
        }
    }

    /// Fails a host whose remote shell ended, or closed its output, too early.
    fn fail_by_end(&mut self, index: usize, greeted: bool) {
        let agent = &self.agents[index];
        let how = match agent.exit {
            Some(ending) => format!("its remote shell {ending}"),
            None => "its remote shell closed its output".to_owned(),
        };
        if greeted {
            let status = Ending::Killed(9).status();
            return self.fail(index, status, format!("was lost: {how}"));
        }
        let noise = agent.link.as_ref().and_then(AgentLink::noise);
        let noise = noise.map_or_else(String::new, |noise| format!("; its last output: {noise}"));
        let hint = match agent.exit {
            Some(Ending::Exited(126 | 127)) => {
                "; is hydrant there under the same path? (--remote-hydrant says where it is)"
            }
            _ => ADVICE,
        };
        self.fail(
            index,
            125,
            format!("could not be reached: {how}{noise}{hint}"),
        );
    }

    fn fail(&mut self, index: usize, status: u8, why: String) {
        let agent = &mut self.agents[index];
        if !agent.is_live() {
            return;
        }
        let ranks = agent.running_ranks();
        agent.running.fill(false);
        agent.start = None;
        // A live agent ends its ranks when the link closes.
        agent.link = None;
        if agent.exit.is_none() {
            let _ = kill_process_group(agent.shell, Signal::TERM);
            // A stopped shell handles SIGTERM only after it continues.
            let _ = kill_process_group(agent.shell, Signal::CONT);
        }
        agent.done = Some(Behind::default());
        self.failed.push(HostFailure {
            host: agent.host.clone(),
            ranks,
            status,
            why,
            begun: agent.begun,
        });
    }

    fn beat(&mut self) {
        let now = Instant::now();
        if now >= self.next_beat {
            self.next_beat = now + self.silence / 4;
            for agent in self.agents.iter_mut().filter(|agent| agent.begun) {
                agent.tell(&AgentOrder::Beat);
            }
        }
    }

    fn tell_all(&mut self, order: &AgentOrder) {
        for agent in &mut self.agents {
            agent.tell(order);
        }
    }

    fn of_rank(&mut self, rank: u32) -> Option<&mut RemoteAgent> {
        (self.agents.iter_mut()).find(|agent| agent.ranks.contains(&rank))
    }
}

impl RemoteAgent {
    /// Returns true if the agent has neither failed nor ended.
    fn is_live(&self) -> bool {
        self.done.is_none()
    }

    /// Returns true if the launcher may read from the agent.
    fn may_read(&self) -> bool {
        self.unprinted <= MAX_UNPRINTED
    }

    fn has_ranks(&self) -> bool {
        self.running.contains(&true)
    }

    fn running_ranks(&self) -> Vec<u32> {
        let ranks = self.ranks.clone().zip(&self.running);
        ranks
            .filter(|(_, runs)| **runs)
            .map(|(rank, _)| rank)
            .collect()
    }

    fn tell(&mut self, order: &AgentOrder) {
        if let Some(link) = &mut self.link {
            link.send(order);
        }
    }
}
