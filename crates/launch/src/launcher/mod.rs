//! Starts the ranks of a job on this host, serves them PMI-1, and outlives them all.
//!
//! [`run`] takes over the calling process until the job is done. One loop (`supervise`) waits for
//! signals, for the ends of ranks and for their PMI-1 commands. The ranks are this process's
//! children (`local`) or run under agents on other hosts (`hosts`). Two threads (`output`) copy the
//! ranks' output. A job ends like this:
//!
//! - The first rank that fails decides the status. The others have [`Spec::grace`] to end by
//!   themselves. Then they get SIGTERM, then SIGKILL.
//! - Processes that the ranks started end with their ranks. Each rank has a process group. Orphans
//!   become this process's children (it is a subreaper), which finds and kills them.
//! - If this process is killed, the kernel kills the ranks (a parent-death signal), and a `guard`
//!   process kills the processes that the ranks had started.
//! - A process that this user may not kill, such as a rank that became another user, is reported
//!   and not waited for.
//!
//! A process of the job is found by its process group and by its descent from this process. It is
//! also found by the environment and the control group with which it began. A process that left its
//! session *and* its environment escapes all of these if this user may make no control group
//! (version 2). That holds in these cases:
//!
//! - The launcher was killed.
//! - `/proc` is not that of the launcher's own PID namespace.
//! - The launcher is a script that had children before it became the launcher.
//!
//! The launcher never ends those earlier children. It never ends a process that only reuses the id
//! of one of the job's.

mod bind;
mod child;
mod connection;
mod error;
mod event;
mod find;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod group;
mod guard;
mod hosts;
mod image;
mod kin;
mod leader;
mod local;
mod output;
mod processes;
mod rank_process;
mod server;
mod signals;
mod spec;
mod start;
mod stdin;
mod supervise;
mod sweep;
mod workspace;

pub use error::LaunchError;
pub use event::{Ending, Event};
pub use find::program as find_program;
pub use hosts::{ADVICE, DEFAULT_SHELL, Host, agent};
pub use signals::EndSignals;
pub use spec::{Bind, MAX_RANKS, Prefix, RemoteHosts, Spec};

use hosts::Agents;
use local::LocalRanks;
use output::OutputThreads;
use server::Server;
use signals::ChildEnds;
use start::{JobPart, Streams};

/// The status of a job that exceeded [`Spec::timeout`], as with `timeout(1)`.
pub const TIMED_OUT: u8 = 124;

/// Runs a job to its end and returns the exit status.
///
/// `report` gets each event for the user as it happens.
///
/// The call takes over the process. It reaps every child, blocks signals while it runs, and kills
/// every process of the job at the end. Call it once, from the main thread of a program that has
/// started nothing else.
pub fn run(spec: &Spec, report: &mut dyn FnMut(Event)) -> Result<u8, LaunchError> {
    spec.check()?;
    if processes::begin_elsewhere() {
        return Err(LaunchError::OtherNamespace);
    }
    let ends =
        ChildEnds::listen().map_err(LaunchError::system("asking for the ends of children"))?;
    let program = find::program(spec, report)?;
    let name = start::job_name().map_err(LaunchError::system("drawing a name for the job"))?;
    if !spec.remote.hosts.is_empty() {
        let (agents, signals) = Agents::start(spec, &program, &name, &ends)?;
        let server = Server::new(name, spec.ranks, &agents.ranks_by_host());
        return Ok(supervise::supervise(agents, server, signals, spec, report));
    }
    let part = JobPart {
        first: 0,
        size: spec.ranks,
        streams: match spec.prefix {
            Prefix::Rank => Streams::Printing,
            Prefix::None => Streams::Inherited,
        },
    };
    let begun = start::start(spec, &program, part, &name, &ends)?;
    let pipes = begun.pipes;
    let carried = (pipes.input)
        .map_or(Ok(()), |to| stdin::carry(to.into()))
        .and_then(|()| match spec.prefix {
            Prefix::Rank => OutputThreads::carry(pipes.out, pipes.err).map(Some),
            Prefix::None => Ok(None),
        });
    let output = match carried {
        Ok(output) => output,
        Err(source) => {
            start::give_up(
                &begun.ranks,
                &begun.kin,
                begun.guard,
                begun.group.as_deref(),
            );
            let doing = "starting the threads that carry input and output";
            return Err(LaunchError::System { doing, source });
        }
    };
    let care = (begun.guard, begun.group, begun.kin);
    let local = LocalRanks::new(begun.ranks, 0, care, output);
    let server = Server::new(name, spec.ranks, &[spec.ranks]);
    Ok(supervise::supervise(
        local,
        server,
        begun.signals,
        spec,
        report,
    ))
}
