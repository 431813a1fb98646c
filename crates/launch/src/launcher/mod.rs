//! Starts the ranks of a job on this host, serves them PMI-1, and outlives them all.
//!
//! [`run`] takes the calling process over until the job is done. One loop
//! (`supervise`) waits for signals, for the ends of ranks and for their PMI-1
//! commands; two threads (`output`) carry what ranks print. How a job ends:
//!
//! - the first rank that fails decides the status; the others have
//!   [`Spec::grace`] to end by themselves, then get SIGTERM, then SIGKILL;
//! - what the ranks started dies with them: each rank has a process group, and
//!   orphans become this process's children (a subreaper), found and killed;
//! - if this process is killed, the kernel kills the ranks (a parent-death
//!   signal), and a `guard` process kills what the ranks had started.

mod bind;
mod child;
mod connection;
mod error;
mod event;
mod find;
mod guard;
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
pub use spec::{Bind, MAX_RANKS, Prefix, Spec};

/// The status of a job that took longer than [`Spec::timeout`], as `timeout(1)` has it.
pub const TIMED_OUT: u8 = 124;

/// Runs a job to its end and gives the status to exit with.
///
/// `report` hears of what a user should know, as it happens.
///
/// It takes the process over: it reaps every child, blocks signals for its
/// duration, and at the end kills every process that descends from this one.
/// It is meant to be called once, from the main thread of a program that has
/// started nothing else.
pub fn run(spec: &Spec, report: &mut dyn FnMut(Event)) -> Result<u8, LaunchError> {
    spec.check()?;
    let program = find::program(spec, report)?;
    let job = start::start(spec, &program)?;
    Ok(supervise::supervise(job, spec, report))
}
