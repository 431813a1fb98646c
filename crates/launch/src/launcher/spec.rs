//! What a user asks of the launcher.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{DEFAULT_SHELL, Host, LaunchError};

/// The most ranks one launcher starts.
///
/// Each takes up to four file descriptors here, and no known host has more cores than this.
pub const MAX_RANKS: u32 = 4096;

/// A job to run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spec {
    /// How many ranks to start.
    pub ranks: u32,
    /// The program: a path, or a name to look for.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables that ranks see beside those of the launcher.
    pub environment: Vec<(OsString, OsString)>,
    /// What stands before each line that a rank prints.
    pub prefix: Prefix,
    /// Which cores each rank may run on.
    pub bind: Bind,
    /// How long ranks may take to end by themselves once one has failed.
    pub grace: Duration,
    /// How long the whole job may take.
    pub timeout: Option<Duration>,
    /// Where to look for a program before `PATH`: beside the `hydrant` command.
    pub beside: Option<PathBuf>,
    /// Hydrant's own workspace, whose programs are built when they are missing.
    pub workspace: Option<PathBuf>,
    /// The hosts of the job and how they are reached.
    pub remote: Remote,
}

/// Where ranks are started, if not here.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The hosts: none is this one, without any shell.
    pub hosts: Vec<Host>,
    /// The remote shell: a command that takes a host and a command line to run there.
    pub shell: OsString,
    /// The command that is the [`agent`](super::agent) on each host.
    pub agent: Vec<OsString>,
    /// How long a host may be silent before it counts as lost.
    pub silence: Duration,
    /// True if the ranks of each host get its name as [`HOST_ID`](crate::HOST_ID). They then share memory within a
    /// host of the list and nowhere else.
    pub name_hosts: bool,
}

impl Spec {
    /// A job of `ranks` ranks of `program`, with the defaults for the rest.
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
            remote: Remote {
                hosts: Vec::new(),
                shell: DEFAULT_SHELL.into(),
                agent: Vec::new(),
                silence: Duration::from_secs(20),
                name_hosts: false,
            },
        }
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

/// What stands before each line that a rank prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Prefix {
    /// The rank, as in `[3] `; lines come out whole, one after the other.
    #[default]
    Rank,
    /// Nothing: ranks have the launcher's own output, to the byte.
    None,
}

/// Which cores each rank may run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Bind {
    /// [`Bind::Share`] when there is a core for every rank, else [`Bind::None`].
    #[default]
    Auto,
    /// One core each, in turn.
    Core,
    /// An equal share of the cores each, so that a rank's threads have room.
    Share,
    /// All that the launcher may run on.
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
