//! Starts all ranks of a job, or none.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::CpuSet;

use super::child::{self, RankSetup, Tie};
use super::connection::RankConnection;
use super::group::{BRIEFLY, JobGroup};
use super::guard::{Guard, GuardCharge, MARK};
use super::kin::Kin;
use super::leader::Leader;
use super::rank_process::RankProcess;
use super::signals::{ChildEnds, Signals};
use super::{LaunchError, Spec, bind, stdin, sweep};
use crate::HOST_CPUS;

/// Descriptors that the launcher needs beside those for ranks, with room to spare.
const OWN_FILES: u64 = 64;

/// The part of the job's ranks that this process starts, and their streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobPart {
    /// The number of the first rank.
    pub(super) first: u32,
    /// The number of ranks in the whole job.
    pub(super) size: u32,
    pub(super) streams: Streams,
}

/// The streams of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// The launcher's own streams.
    Inherited,
    /// Pipes for output. Rank 0 reads the launcher's input.
    Printing,
    /// Pipes for output and input.
    Piped,
}

/// Ranks that have started, and the launcher's resources for them.
pub(super) struct StartedRanks {
    pub(super) ranks: Vec<RankProcess>,
    pub(super) signals: Signals,
    pub(super) guard: Guard,
    pub(super) group: Option<Arc<JobGroup>>,
    pub(super) kin: Kin,
    pub(super) pipes: Pipes,
}

/// Starts [`Spec::ranks`] ranks of `program`. If one cannot be started, the others are killed.
pub(super) fn start(
    spec: &Spec,
    program: &Path,
    part: JobPart,
    name: &str,
    ends: &ChildEnds,
) -> Result<StartedRanks, LaunchError> {
    let kin = Kin::of(name);
    let files = allow_files(spec.ranks)?;
    // Processes that ranks leave behind become children of the launcher and can be found.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(
        LaunchError::system("adopting processes that ranks leave behind"),
    )?;
    let signals = Signals::listen(ends).map_err(LaunchError::system("listening for signals"))?;
    let group = JobGroup::plan(name).map(Arc::new);
    let charge = GuardCharge::Ranks(name.to_owned(), group.clone());
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
        let begun = RankStart {
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
    Ok(StartedRanks {
        ranks,
        signals,
        guard,
        group,
        kin,
        pipes,
    })
}

/// Ends the started ranks of a job that cannot start.
pub(super) fn give_up(ranks: &[RankProcess], kin: &Kin, guard: Guard, group: Option<&JobGroup>) {
    sweep::kill_all(ranks, guard.pid(), kin);
    if group.is_none_or(|group| group.end(BRIEFLY)) {
        guard.dismiss();
    }
}

/// The launcher's ends of the ranks' pipes.
#[derive(Default)]
pub(super) struct Pipes {
    /// The ranks' output, in the order of ranks.
    pub(super) out: Vec<PipeReader>,
    pub(super) err: Vec<PipeReader>,
    /// The input of rank 0.
    pub(super) input: Option<ChildStdin>,
}

struct RankStart {
    command: Command,
    cpus: Option<CpuSet>,
    tie: Tie,
    files: Rlimit,
    group: Option<Arc<JobGroup>>,
}

impl RankStart {
    fn begin(self, pipes: &mut Pipes) -> io::Result<RankProcess> {
        let (ours, theirs) = UnixStream::pair()?;
        let connection = RankConnection::new(ours)?;
        let setup = RankSetup {
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
        Ok(RankProcess {
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

fn command(spec: &Spec, program: &Path, rank: u32, part: JobPart, job: &str) -> Command {
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

/// Returns a unique name of the job, for the key-value space and the processes' mark.
pub(super) fn job_name() -> io::Result<String> {
    let mut random = [0; 8];
    crate::fill_random(&mut random)?;
    Ok(format!(
        "hydrant-{}-{:016x}",
        std::process::id(),
        u64::from_ne_bytes(random)
    ))
}

/// Raises the launcher's limit on open files. Returns the limit before, which ranks get.
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
