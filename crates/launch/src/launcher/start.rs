//! Starting all ranks of a job, or none.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::CpuSet;

use super::child::{self, Setup, Tie};
use super::connection::Connection;
use super::group::{BRIEFLY, Group};
use super::guard::{Charge, Guard, MARK};
use super::kin::Kin;
use super::leader::Leader;
use super::processes::Process;
use super::signals::{Ends, Signals};
use super::{LaunchError, Spec, bind, stdin, sweep};
use crate::HOST_CPUS;

/// Descriptors that the launcher needs beside those for ranks, with room to spare.
const OWN_FILES: u64 = 64;

/// Which ranks of the job are started here, and what they are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The number of the first.
    pub(super) first: u32,
    /// The ranks of the whole job.
    pub(super) size: u32,
    pub(super) streams: Streams,
}

/// What ranks print to and read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// This process's own.
    Inherited,
    /// Pipes for what they print; rank 0 reads what this process would.
    Printing,
    /// Pipes, for input too.
    Piped,
}

/// Ranks that have begun.
pub(super) struct Begun {
    pub(super) ranks: Vec<Rank>,
    pub(super) signals: Signals,
    pub(super) guard: Guard,
    pub(super) group: Option<Arc<Group>>,
    pub(super) kin: Kin,
    pub(super) pipes: Pipes,
}

/// A rank's process.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) pid: Pid,
    pub(super) running: bool,
    /// Its socket, until either side closes it.
    pub(super) connection: Option<Connection>,
    /// Its process group, which may have other members when the leader has ended.
    leader: Option<Leader>,
}

impl Rank {
    /// Returns whether this is its process, not reaped yet.
    pub(super) fn is(&self, process: Process) -> bool {
        self.running && process.pid() == self.pid
    }

    /// Sends a signal, or none, to its process group. Returns whether the group has a process.
    pub(super) fn signal_group(&self, signal: i32) -> bool {
        (self.leader.as_ref()).is_some_and(|leader| leader.signal_group(signal))
    }
}

/// Starts [`Spec::ranks`] ranks of `program`; if one cannot be started, the others are killed.
pub(super) fn start(
    spec: &Spec,
    program: &Path,
    part: Part,
    name: &str,
    ends: &Ends,
) -> Result<Begun, LaunchError> {
    let kin = Kin::of(name);
    let files = allow_files(spec.ranks)?;
    // What ranks leave behind becomes our child, and can be found.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(LaunchError::system("adopting what ranks leave behind"))?;
    let signals = Signals::hear(ends).map_err(LaunchError::system("listening for signals"))?;
    let group = Group::plan(name).map(Arc::new);
    let charge = Charge::Ranks(name.to_owned(), group.clone());
    let guard = Guard::start(charge).map_err(LaunchError::system("starting the job's guard"))?;
    if let Some(group) = &group {
        group.make();
    }
    let tie = Tie {
        before: signals.before(),
        care: guard.care(),
        farewell: Signal::KILL,
    };

    let mut ranks = Vec::with_capacity(spec.ranks as usize);
    let mut pipes = Pipes::default();
    let host = bind::host();
    for (rank, cpus) in (part.first..).zip(bind::plan(spec.bind, spec.ranks)) {
        let mut command = command(spec, program, rank, part, name);
        match &host {
            Some(cpus) => command.env(HOST_CPUS, cpus),
            None => command.env_remove(HOST_CPUS),
        };
        let begun = Begin {
            command,
            cpus,
            tie: tie.clone(),
            files,
            group: group.clone(),
        }
        .begin(&mut pipes);
        match begun {
            Ok(rank) => ranks.push(rank),
            Err(source) => {
                give_up(&ranks, &kin, guard, group.as_deref());
                return Err(LaunchError::NotStarted {
                    rank,
                    program: program.into(),
                    source,
                });
            }
        }
    }
    Ok(Begun {
        ranks,
        signals,
        guard,
        group,
        kin,
        pipes,
    })
}

/// Ends the ranks that have begun, of a job that will not.
pub(super) fn give_up(ranks: &[Rank], kin: &Kin, guard: Guard, group: Option<&Group>) {
    sweep::kill_all(ranks, guard.pid(), kin);
    if group.is_none_or(|group| group.end(BRIEFLY)) {
        guard.dismiss();
    }
}

/// The other ends of the pipes of ranks.
#[derive(Default)]
pub(super) struct Pipes {
    /// What they print, in the order of ranks.
    pub(super) out: Vec<PipeReader>,
    pub(super) err: Vec<PipeReader>,
    /// What rank 0 reads.
    pub(super) input: Option<ChildStdin>,
}

struct Begin {
    command: Command,
    cpus: Option<CpuSet>,
    tie: Tie,
    files: Rlimit,
    group: Option<Arc<Group>>,
}

impl Begin {
    fn begin(self, pipes: &mut Pipes) -> io::Result<Rank> {
        let (ours, theirs) = UnixStream::pair()?;
        let connection = Connection::new(ours)?;
        let setup = Setup {
            tie: self.tie,
            pmi: OwnedFd::from(theirs),
            cpus: self.cpus,
            files: self.files,
            group: self.group,
        };
        let mut child = child::spawn(self.command, setup)?;
        pipes.out.extend(
            child
                .stdout
                .take()
                .map(|pipe| PipeReader::from(OwnedFd::from(pipe))),
        );
        pipes.err.extend(
            child
                .stderr
                .take()
                .map(|pipe| PipeReader::from(OwnedFd::from(pipe))),
        );
        let pid = pid_of(&child)?;
        pipes.input = pipes.input.take().or(child.stdin.take());
        Ok(Rank {
            pid,
            running: true,
            connection: Some(connection),
            leader: Leader::of_child(pid),
        })
    }
}

pub(super) fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other(format!("the system gave it the process id {}", child.id())))
}

fn command(spec: &Spec, program: &Path, rank: u32, part: Part, job: &str) -> Command {
    let mut command = Command::new(program);
    command.args(&spec.arguments);
    child::forget_other_launchers(&mut command);
    command
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", part.size.to_string())
        .env(MARK, job);
    if part.streams != Streams::Inherited {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    command.stdin(match (rank, part.streams) {
        (0, Streams::Piped) => Stdio::piped(),
        (rank, _) => stdin::of_rank(rank),
    });
    command
}

/// A name that no other job has, for the key-value space and the processes' mark.
pub(super) fn job_name() -> io::Result<String> {
    let mut random = [0; 8];
    crate::fill_random(&mut random)?;
    Ok(format!(
        "hydrant-{}-{:016x}",
        std::process::id(),
        u64::from_ne_bytes(random)
    ))
}

/// Raises the limit on open files for the launcher, and gives the one that ranks get.
fn allow_files(ranks: u32) -> Result<Rlimit, LaunchError> {
    let before = getrlimit(Resource::Nofile);
    let need = 4 * u64::from(ranks) + OWN_FILES;
    let limit = before.maximum.unwrap_or(u64::MAX);
    if limit < need {
        return Err(LaunchError::TooFewFiles { ranks, need, limit });
    }
    if before.current.is_some_and(|current| current < need) {
        let raised = Rlimit {
            current: Some(need),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, raised)
            .map_err(LaunchError::system("raising the limit on open files"))?;
    }
    Ok(before)
}
