//! Starts the ranks of a job on this host, serves them PMI-1, and outlives them all.
//!
//! [`run`] takes the calling process over until the job is done. One loop
//! (`supervise`) waits for signals, for the ends of ranks and for their PMI-1
//! commands, whether this process has the ranks in hand (`local`) or agents on
//! other hosts (`hosts`); two threads (`output`) carry what ranks print. How a job ends:
//!
//! - the first rank that fails decides the status; the others have
//!   [`Spec::grace`] to end by themselves, then get SIGTERM, then SIGKILL;
//! - what the ranks started dies with them: each rank has a process group, and
//!   orphans become this process's children (a subreaper), found and killed;
//! - if this process is killed, the kernel kills the ranks (a parent-death
//!   signal), and a `guard` process kills what the ranks had started;
//! - what may not be ended, such as a rank that became another user, is named and not
//!   waited for.
//!
//! What a rank started is found by its process group, by its descent from this process, and by
//! the environment and the control group that it began with. It escapes where none of them holds
//! it: after a launcher was killed, a process that left its session *and* its environment, where
//! this user may make no control group (version 2). It escapes likewise after any job where `/proc` is not that of
//! the launcher's own PID namespace. The same holds in a script that had children before it became the launcher.
//! Those children, and processes that only reuse the number of one of the job's, are never ended.

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
pub use hosts::{DEFAULT_SHELL, Host, agent};
pub use spec::{Bind, MAX_RANKS, Prefix, Remote, Spec};

use hosts::Agents;
use local::Local;
use output::Output;
use server::Server;
use signals::Ends;
use start::{Part, Streams};

/// The status of a job that took longer than [`Spec::timeout`], as `timeout(1)` has it.
pub const TIMED_OUT: u8 = 124;

/// Runs a job to its end and gives the status to exit with.
///
/// `report` hears of what a user should know, as it happens.
///
/// It takes the process over: it reaps every child, blocks signals for its
/// duration, and at the end kills every process that the job has started.
/// It is meant to be called once, from the main thread of a program that has
/// started nothing else.
pub fn run(spec: &Spec, report: &mut dyn FnMut(Event)) -> Result<u8, LaunchError> {
    spec.check()?;
    if processes::begin_elsewhere() {
        return Err(LaunchError::OtherNamespace);
    }
    let ends = Ends::hear().map_err(LaunchError::system("asking for the ends of children"))?;
    let program = find::program(spec, report)?;
    let name = start::job_name().map_err(LaunchError::system("drawing a name for the job"))?;
    if !spec.remote.hosts.is_empty() {
        let (agents, signals) = Agents::start(spec, &program, &name, &ends)?;
        let server = Server::new(name, spec.ranks, &agents.ranks_by_host());
        return Ok(supervise::supervise(agents, server, signals, spec, report));
    }
    let part = Part {
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
            Prefix::Rank => Output::carry(pipes.out, pipes.err).map(Some),
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
    let local = Local::new(begun.ranks, 0, care, output);
    let server = Server::new(name, spec.ranks, &[spec.ranks]);
    Ok(supervise::supervise(
        local,
        server,
        begun.signals,
        spec,
        report,
    ))
}
