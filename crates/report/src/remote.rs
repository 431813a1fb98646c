//! The options of all commands that work on other hosts.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use hydrant_launch::launcher::{Host, RemoteHosts};

/// The hosts, and the way to reach them.
#[derive(Clone, Debug, Default, Args)]
pub struct RemoteArgs {
    /// Hosts that share the ranks evenly, in blocks; one with slots, as in `a:4`, gets so many at
    /// most, before the others
    #[arg(long, value_name = "HOST[:SLOTS],...", value_delimiter = ',')]
    pub hosts: Vec<Host>,

    /// The remote shell: a command that takes a host and a command line [default: $HYDRANT_RSH, or
    /// ssh -x -o BatchMode=yes]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub rsh: Option<OsString>,

    /// Where hydrant is on the other hosts, if not where it is here
    #[arg(long, value_name = "PATH", requires = "hosts")]
    pub remote_hydrant: Option<PathBuf>,

    /// Give the ranks of each host its name as HYDRANT_HOST_ID: they share memory within a host of the list
    /// and nowhere else, as for containers of one kernel
    #[arg(long, requires = "hosts")]
    pub name_hosts: bool,
}

impl RemoteArgs {
    /// Returns the hosts for the launcher.
    pub fn reach(self) -> RemoteHosts {
        let hydrant = self.hydrant();
        RemoteHosts {
            name_hosts: self.name_hosts,
            ..RemoteHosts::new(self.hosts, self.rsh, hydrant)
        }
    }

    /// Returns the path of hydrant on the hosts: that of this command, unless the user named another.
    pub fn hydrant(&self) -> PathBuf {
        let own = || env::current_exe().unwrap_or_else(|_| "hydrant".into());
        self.remote_hydrant.clone().unwrap_or_else(own)
    }
}
