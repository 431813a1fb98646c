//! The user's description of a job.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{DEFAULT_SHELL, Host, LaunchError};

/// The most ranks that one launcher starts.
///
/// Each rank takes up to four file descriptors here, and no known host has more cores than this.
pub const MAX_RANKS: u32 = 4096;

/// The longest silence of a host, if the user sets no other.
const SILENCE: Duration = Duration::from_secs(20);

/// A job to run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spec {
    /// The number of ranks to start.
    pub ranks: u32,
    /// The program: a path, or a name to look up.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables of the ranks' environment, in addition to the launcher's.
    pub environment: Vec<(OsString, OsString)>,
    /// The prefix of each line that a rank prints.
    pub prefix: Prefix,
    /// The processors on which each rank may run.
    pub bind: Bind,
    /// The time for the other ranks to end by themselves after one has failed.
    pub grace: Duration,
    /// The time limit for the whole job.
    pub timeout: Option<Duration>,
    /// The directory in which programs are looked up before `PATH`: that of the `hydrant` command.
    pub beside: Option<PathBuf>,
    /// Hydrant's own workspace. Its programs are built when they are missing.
    pub workspace: Option<PathBuf>,
    /// The hosts of the job and the way to reach them.
    pub remote: RemoteHosts,
}

/// The hosts of a job that does not run only here.
#[derive(Clone, Debug)]
pub struct RemoteHosts {
    /// The hosts. With none, the job runs on this host without a remote shell.
    pub hosts: Vec<Host>,
    /// The remote shell: a command whose arguments are a host and a command line to run there.
    pub shell: OsString,
    /// The command that runs the [`agent`](super::agent) on each host.
    pub agent: Vec<OsString>,
    /// The longest silence of a host before it counts as lost.
    pub silence: Duration,
    /// True if the ranks of each host get its name as [`HOST_ID`](crate::HOST_ID). They then share
    /// memory within a host of the list and nowhere else.
    pub name_hosts: bool,
}

impl RemoteHosts {
    /// Describes hosts that the command `hydrant`, a path, is on. They are reached by the remote shell, else by the one
    /// that the variable `HYDRANT_RSH` names, else by ssh.
    pub fn new(hosts: Vec<Host>, shell: Option<OsString>, hydrant: impl Into<OsString>) -> Self {
        let named = || env::var_os("HYDRANT_RSH").filter(|shell| !shell.is_empty());
        RemoteHosts {
            hosts,
            shell: shell.or_else(named).unwrap_or_else(|| DEFAULT_SHELL.into()),
            agent: vec![hydrant.into(), "agent".into()],
            silence: SILENCE,
            name_hosts: false,
        }
    }

    /// Returns the ranks that each host gets of `ranks`.
    ///
    /// # Errors
    /// [`LaunchError::TooFewSlots`].
    pub fn place(&self, ranks: u32) -> Result<Vec<u32>, LaunchError> {
        super::hosts::place(ranks, &self.hosts)
    }
}

impl Spec {
    /// Describes a job of `ranks` ranks of `program`, with defaults for the rest.
    pub fn new(ranks: u32, program: impl Into<OsString>) -> Spec {
        Spec {
            ranks,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            prefix: Prefix::default(),
            bind: Bind::default(),
            grace: Duration::from_secs(3),
            timeout: None,
            beside: None,
            workspace: None,
            remote: RemoteHosts {
                hosts: Vec::new(),
                shell: DEFAULT_SHELL.into(),
                agent: Vec::new(),
                silence: SILENCE,
                name_hosts: false,
            },
        }
    }

    /// Describes a job of `ranks` ranks of `program`. If it is `simulated`, in virtual time, the ranks
    /// are threads of one process and share its output.
    pub fn for_network(simulated: bool, ranks: u32, program: impl Into<OsString>) -> Spec {
        let mut spec = Spec::new(if simulated { 1 } else { ranks }, program);
        if simulated {
            let ranks = ranks.to_string().into();
            spec.environment = vec![("HYDRANT_SIM_RANKS".into(), ranks)];
            spec.prefix = Prefix::None;
        }
        spec
    }

    pub(super) fn check(&self) -> Result<(), LaunchError> {
        match self.ranks {
            0 => Err(LaunchError::NoRanks),
            n if n > MAX_RANKS => Err(LaunchError::TooManyRanks {
                ranks: n,
                limit: MAX_RANKS,
            }),
            _ => Ok(()),
        }
    }
}

/// The prefix of each line that a rank prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Prefix {
    /// The rank, as in `[3] `. Lines are written whole, one after the other.
    #[default]
    Rank,
    /// No prefix: ranks write to the launcher's own streams.
    None,
}

/// The processors on which each rank may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Bind {
    /// [`Bind::Share`] if there is a core for every rank, else [`Bind::None`].
    #[default]
    Auto,
    /// One core for each rank, in turn.
    Core,
    /// An equal share of the cores for each rank, so that its threads have room.
    Share,
    /// All processors of the launcher.
    None,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Prefix::Rank => "rank",
            Prefix::None => "none",
        })
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Prefix, String> {
        choose([Prefix::Rank, Prefix::None], text)
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Bind::Auto => "auto",
            Bind::Core => "core",
            Bind::Share => "share",
            Bind::None => "none",
        })
    }
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Bind, String> {
        choose([Bind::Auto, Bind::Core, Bind::Share, Bind::None], text)
    }
}

fn choose<T: fmt::Display, const N: usize>(all: [T; N], text: &str) -> Result<T, String> {
    let names = all.each_ref().map(T::to_string).join(", ");
    all.into_iter()
        .find(|one| one.to_string() == text)
        .ok_or_else(|| format!("it is one of {names}"))
}
