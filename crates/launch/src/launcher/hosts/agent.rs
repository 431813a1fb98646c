//! An agent: starts the ranks of its host and reports them to the launcher.

use std::env;
use std::ffi::OsString;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::frame::{AgentOrder, AgentReport, GREETING, PIECE, RankStream, Start, WINDOW};
use super::link::{AgentLink, FramesRead};
use crate::launcher::event::signal_name;
use crate::launcher::local::LocalRanks;
use crate::launcher::output;
use crate::launcher::signals::{ChildEnds, Signals};
use crate::launcher::start::{self, JobPart, Pipes, StartedRanks, Streams};
use crate::launcher::supervise::{Hands, Heard, Left, Whom};
use crate::launcher::{LaunchError, Spec, find, processes};

/// The time limit for the launcher's first order.
const FIRST_WORD: Duration = Duration::from_secs(120);

/// The most bytes that may wait for the launcher. With more, the agent does not read from ranks.
const MAX_UNSENT: usize = 1 << 20;

/// The status of an agent that lost its launcher.
const ABANDONED: u8 = 1;

/// Runs this process as the agent of its host. The launcher is at the other end of its standard
/// input and output. Returns the exit status.
///
/// Like [`run`](super::super::run), it takes over the process.
pub fn agent() -> u8 {
    let streams = (
        io::stdin().as_fd().try_clone_to_owned(),
        io::stdout().as_fd().try_clone_to_owned(),
    );
    let link = match streams {
        (Ok(from), Ok(to)) => AgentLink::new(from, to, None),
        (Err(cause), _) | (_, Err(cause)) => Err(cause),
    };
    let mut link = match link {
        Ok(link) => link,
        Err(cause) => {
            complain(&format!("it has no way to the launcher: {cause}"));
            return ABANDONED;
        }
    };
    link.greet(GREETING);
    let Some(start) = first_order(&mut link) else {
        return ABANDONED;
    };
    let silence = Duration::from_millis(start.silence);
    let begun = ChildEnds::listen()
        .map_err(LaunchError::system("asking for the ends of children"))
        .and_then(|ends| begin(start, &ends).map(|begun| (begun, ends)));
    match begun {
        Ok(((local, signals, pipes), _ends)) => {
            link.send(&AgentReport::Begun);
            HostAgent::new(link, local, signals, pipes, silence).run()
        }
        Err(error) => {
            let status = error.status();
            let why = error.to_string();
            link.send(&AgentReport::Refused { status, why });
            say_all(&mut link, silence);
            status
        }
    }
}

/// Writes an error to standard error, if anybody reads it.
fn complain(why: &str) {
    let _ = io::stderr().write_all(format!("hydrant agent: {why}\n").as_bytes());
}

/// Waits for the launcher's first order, the ranks to start.
fn first_order(link: &mut AgentLink) -> Option<Start> {
    let until = Instant::now() + FIRST_WORD;
    let mut orders = Vec::new();
    loop {
        link.flush();
        match link.receive(&mut orders) {
            Ok(FramesRead::All) => {}
            Ok(FramesRead::End) => return None,
            Err(why) => {
                complain(&format!("the launcher broke the protocol: {why}"));
                return None;
            }
        }
        match orders.pop() {
            Some(AgentOrder::Start(start)) => return Some(*start),
            _ if Instant::now() > until => return None,
            _ => {}
        }
        let mut fds = vec![PollFd::from_borrowed_fd(link.from(), PollFlags::IN)];
        if link.wants_to_send() {
            fds.push(PollFd::from_borrowed_fd(link.to(), PollFlags::OUT));
        }
        let second = Timespec::try_from(Duration::from_secs(1)).ok();
        let _ = poll(&mut fds, second.as_ref());
    }
}

/// Starts the ranks.
fn begin(start: Start, ends: &ChildEnds) -> Result<(LocalRanks, Signals, Pipes), LaunchError> {
    if processes::begin_elsewhere() {
        return Err(LaunchError::OtherNamespace);
    }
    let directory = PathBuf::from(OsString::from_vec(start.directory));
    env::set_current_dir(&directory)
        .map_err(|source| LaunchError::NoDirectory { directory, source })?;
    let mut spec = Spec::new(start.ranks, OsString::from_vec(start.program));
    spec.arguments = (start.arguments.into_iter())
        .map(OsString::from_vec)
        .collect();
    spec.environment = (start.environment.into_iter())
        .map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value)))
        .collect();
    spec.prefix = start.prefix;
    spec.bind = start.bind;
    let program = find::program(&spec, &mut |_| {})?;
    let part = JobPart {
        first: start.first,
        size: start.size,
        streams: Streams::Piped,
    };
    // Several agents of one job may be on one host, and each ends only its own processes.
    let mark = format!("{}.{}", start.name, start.first);
    let StartedRanks {
        ranks,
        signals,
        guard,
        group,
        kin,
        pipes,
    } = start::start(&spec, &program, part, &mark, ends)?;
    let local = LocalRanks::new(ranks, start.first, (guard, group, kin), None);
    Ok((local, signals, pipes))
}

struct HostAgent {
    link: AgentLink,
    local: LocalRanks,
    signals: Signals,
    outputs: Vec<RankOutput>,
    input: Option<OwnedFd>,
    /// Input that rank 0 has not read yet.
    unread: Vec<u8>,
    /// Bytes of output that the launcher has not written yet.
    unwritten: usize,
    /// The time of the launcher's last message.
    heard: Instant,
    silence: Duration,
    /// The launcher is stopped, and may be silent.
    stopped: bool,
}

/// An output stream of a rank.
struct RankOutput {
    rank: u32,
    stream: RankStream,
    pipe: PipeReader,
    ready: bool,
}

/// The reason why the loop ended.
enum AgentEnd {
    /// The launcher ordered the end.
    Finish(Left),
    /// The launcher is lost: the error to print, unless the launcher itself ended.
    Abandoned(Option<String>),
}

impl HostAgent {
    fn new(
        link: AgentLink,
        local: LocalRanks,
        signals: Signals,
        pipes: Pipes,
        silence: Duration,
    ) -> HostAgent {
        let first = local.running().first().copied().unwrap_or(0);
        let of = |stream| {
            move |(rank, pipe)| RankOutput {
                rank,
                stream,
                pipe,
                ready: false,
            }
        };
        let out = (first..).zip(pipes.out).map(of(RankStream::Out));
        let err = (first..).zip(pipes.err).map(of(RankStream::Err));
        let outputs: Vec<RankOutput> = out.chain(err).collect();
        // A pipe that cannot be made non-blocking is not read.
        let cannot_wait =
            |output: &RankOutput| rustix::io::ioctl_fionbio(&output.pipe, true).is_ok();
        HostAgent {
            link,
            local,
            signals,
            outputs: outputs.into_iter().filter(cannot_wait).collect(),
            input: pipes.input.map(OwnedFd::from),
            unread: Vec::new(),
            unwritten: 0,
            heard: Instant::now(),
            silence,
            stopped: false,
        }
    }

    fn run(mut self) -> u8 {
        if let Some(input) = &self.input {
            let _ = rustix::io::ioctl_fionbio(input, true);
        }
        let end = loop {
            self.wait();
            // Signals are read before children are reaped. A child that ends after that leaves a
            // signal, which wakes the next wait.
            let fatal = self.fatal_signal();
            if let Some(end) = self.obey() {
                break end;
            }
            self.report();
            self.print();
            self.feed();
            if let Some(end) = self.reason_to_end(fatal) {
                break end;
            }
        };
        let HostAgent {
            mut link,
            local,
            outputs,
            silence,
            ..
        } = self;
        match end {
            AgentEnd::Abandoned(why) => {
                if let Some(why) = why {
                    complain(&format!("{why}; it kills the ranks of this host"));
                }
                local.sweep(Left::Killed);
                ABANDONED
            }
            AgentEnd::Finish(left) => {
                let (behind, _) = local.sweep(left);
                for mut output in outputs {
                    output.print_rest(&mut link);
                }
                link.send(&AgentReport::Done(behind));
                say_all(&mut link, silence);
                0
            }
        }
    }

    /// Sleeps until a rank or the launcher writes, or a signal arrives.
    fn wait(&mut self) {
        // The agent does not read from ranks while the launcher is behind.
        let may_read = self.link.unsent() < MAX_UNSENT;
        let sources = self.local.sources().filter(|_| may_read);
        let (ranks, mut fds): (Vec<usize>, Vec<_>) = sources.unzip();
        let may_print = self.unwritten < WINDOW;
        if may_print {
            fds.extend(
                (self.outputs.iter()).map(|output| PollFd::new(&output.pipe, PollFlags::IN)),
            );
        }
        let beside = fds.len();
        fds.push(PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.link.from(), PollFlags::IN));
        if self.link.wants_to_send() {
            fds.push(PollFd::from_borrowed_fd(self.link.to(), PollFlags::OUT));
        }
        if let Some(input) = self.input.as_ref().filter(|_| !self.unread.is_empty()) {
            fds.push(PollFd::new(input, PollFlags::OUT));
        }
        let left = self.silence.saturating_sub(self.heard.elapsed());
        let left = Timespec::try_from(left).ok().filter(|_| !self.stopped);
        let woken = poll(&mut fds, left.as_ref()).is_ok();
        let revents: Vec<bool> = (fds[..beside].iter())
            .map(|fd| woken && !fd.revents().is_empty())
            .collect();
        let (of_ranks, of_outputs) = revents.split_at(ranks.len());
        let speaking = ranks.into_iter().zip(of_ranks).filter(|(_, ready)| **ready);
        let speaking = speaking.map(|(index, _)| index).collect();
        for (output, ready) in self.outputs.iter_mut().zip(of_outputs) {
            output.ready = *ready;
        }
        self.local.speaking(speaking);
    }

    /// Carries out the launcher's orders, and notices when the launcher is gone.
    fn obey(&mut self) -> Option<AgentEnd> {
        self.link.flush();
        let mut orders = Vec::new();
        let came = self.link.receive(&mut orders);
        if !orders.is_empty() {
            self.heard = Instant::now();
        }
        for order in orders {
            match order {
                AgentOrder::Line { rank, line } => {
                    if let Err(why) = self.local.send(rank, &line) {
                        self.link.send(&AgentReport::Wrong { rank, why });
                    }
                }
                AgentOrder::HangUp { rank } => self.local.hang_up(rank),
                AgentOrder::Signal(number) => self.signal(number),
                AgentOrder::Kill => self.local.kill(),
                AgentOrder::Input(bytes) if bytes.is_empty() => self.input = None,
                AgentOrder::Input(bytes) => self.unread = bytes,
                AgentOrder::Written(bytes) => {
                    self.unwritten = self.unwritten.saturating_sub(bytes as usize);
                }
                AgentOrder::Deaf(stream) => {
                    // Ranks that continue to print get SIGPIPE.
                    self.outputs.retain(|output| output.stream != stream);
                    self.unwritten = 0;
                }
                AgentOrder::Beat => self.link.send(&AgentReport::Beat),
                AgentOrder::Finish { gently: true } => return Some(AgentEnd::Finish(Left::Ended)),
                AgentOrder::Finish { gently: false } => {
                    return Some(AgentEnd::Finish(Left::Killed));
                }
                AgentOrder::Start(_) => {
                    let why = "the launcher broke the protocol: it started the ranks twice";
                    return Some(AgentEnd::Abandoned(Some(why.to_owned())));
                }
            }
        }
        match came {
            Ok(FramesRead::All) => None,
            Ok(FramesRead::End) => Some(AgentEnd::Abandoned(None)),
            Err(why) => {
                let why = format!("the launcher broke the protocol: {why}");
                Some(AgentEnd::Abandoned(Some(why)))
            }
        }
    }

    fn signal(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else {
            return;
        };
        self.stopped = signal == Signal::TSTP;
        self.local.signal(signal);
    }

    /// Reports the ranks' lines and ends to the launcher.
    fn report(&mut self) {
        self.pass_on(Whom::Ready);
        let ended = self.local.take_ended();
        if !ended.is_empty() {
            // A rank's last lines come before its end.
            self.pass_on(Whom::All);
        }
        for (rank, ending) in ended {
            self.link.send(&AgentReport::Ended { rank, ending });
        }
    }

    fn pass_on(&mut self, whom: Whom) {
        for (rank, heard) in self.local.take_heard(whom) {
            let report = match heard {
                Heard::Line(line) => AgentReport::Line { rank, line },
                Heard::Closed => {
                    self.local.hang_up(rank);
                    AgentReport::Closed { rank }
                }
                Heard::Wrong(why) => {
                    self.local.hang_up(rank);
                    AgentReport::Wrong { rank, why }
                }
            };
            self.link.send(&report);
        }
    }

    /// Passes on a piece of each rank's output, as long as the launcher keeps up.
    fn print(&mut self) {
        let (link, unwritten) = (&mut self.link, &mut self.unwritten);
        self.outputs.retain_mut(|output| {
            if !output.ready || *unwritten >= WINDOW {
                return true;
            }
            match output.print(link) {
                Some(count) => *unwritten += count,
                None => return output.is_open(),
            }
            true
        });
    }

    /// Writes input to rank 0.
    fn feed(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        let written = match &self.input {
            Some(input) => rustix::io::write(input, &self.unread),
            None => Ok(self.unread.len()),
        };
        match written {
            Ok(count) => drop(self.unread.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => return,
            // Rank 0 does not read. Its input is dropped.
            Err(_) => {
                self.input = None;
                self.unread.clear();
            }
        }
        if self.unread.is_empty() {
            self.link.send(&AgentReport::Taken);
        }
    }

    /// Reads all signals, and returns the last one that asks this process to end.
    fn fatal_signal(&self) -> Option<Signal> {
        let fatal = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        let signals = std::iter::from_fn(|| self.signals.next());
        signals.filter(|it| fatal.contains(it)).last()
    }

    /// Returns the end if a signal asks this process to end, or the launcher was silent for too
    /// long.
    fn reason_to_end(&self, fatal: Option<Signal>) -> Option<AgentEnd> {
        if let Some(signal) = fatal {
            let name = signal_name(signal.as_raw()).unwrap_or("unnamed");
            let why = format!("a signal ended it ({name})");
            return Some(AgentEnd::Abandoned(Some(why)));
        }
        let is_silent = !self.stopped && self.heard.elapsed() >= self.silence;
        is_silent.then(|| {
            let seconds = self.silence.as_secs_f64();
            let why = format!("it has heard nothing from the launcher for {seconds} s");
            AgentEnd::Abandoned(Some(why))
        })
    }
}

impl RankOutput {
    /// Passes on a piece of the stream. Returns its length, or `None` if there was nothing.
    fn print(&mut self, link: &mut AgentLink) -> Option<usize> {
        let mut bytes = vec![0; PIECE];
        let count = loop {
            match self.pipe.read(&mut bytes) {
                Ok(count) => break count,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    self.ready = cause.kind() != io::ErrorKind::WouldBlock;
                    return None;
                }
            }
        };
        if count == 0 {
            return None;
        }
        bytes.truncate(count);
        link.send(&AgentReport::Printed {
            rank: self.rank,
            stream: self.stream,
            bytes,
        });
        Some(count)
    }

    /// Passes on the bytes in the pipe, and no more. A process that ranks left behind may print for
    /// ever.
    fn print_rest(&mut self, link: &mut AgentLink) {
        let mut held = output::capacity(&self.pipe);
        while let Some(count) = self.print(link)
            && held > count
        {
            held -= count;
        }
    }

    /// Returns true if the last read found the pipe empty, false if it found its end.
    fn is_open(&self) -> bool {
        !self.ready
    }
}

/// Sends all waiting bytes, within a time limit.
fn say_all(link: &mut AgentLink, silence: Duration) {
    let until = Instant::now() + silence;
    while link.wants_to_send() && Instant::now() < until {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut fds = [PollFd::from_borrowed_fd(link.to(), PollFlags::OUT)];
        let _ = poll(&mut fds, left.as_ref());
        link.flush();
    }
}
