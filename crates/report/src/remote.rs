//! The options of all commands that work on other hosts.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use hydrant_launch::launcher::{Host, RemoteHosts};

/// The name of the command `hydrant` for [`RemoteArgs::command`].
pub const HYDRANT: &str = "hydrant";

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

    /// Returns the command that runs `program`, which is this one, on the hosts. It is beside hydrant there.
    pub fn command(&self, program: &str) -> Vec<OsString> {
        let Some(hydrant) = &self.remote_hydrant else {
            return vec![self.hydrant().into()];
        };
        let there = match program {
            HYDRANT => hydrant.clone(),
            _ => hydrant.with_file_name(program),
        };
        // The launcher looks for its program here, and this one may be on the other hosts alone.
        let shell = ["/bin/sh", "-c", "exec \"$0\" \"$@\""].map(OsString::from);
        shell.into_iter().chain([there.into()]).collect()
    }

    /// Returns the words that say the same of these hosts to another command.
    pub fn words(&self, hosts: &[Host]) -> Vec<OsString> {
        if hosts.is_empty() {
            return Vec::new();
        }
        let hosts: Vec<String> = hosts.iter().map(Host::to_string).collect();
        let mut words = vec!["--hosts".into(), hosts.join(",").into()];
        let rsh = self.rsh.clone().map(|rsh| ["--rsh".into(), rsh]);
        words.extend(rsh.into_iter().flatten());
        let path = self.remote_hydrant.clone();
        let path = path.map(|path| ["--remote-hydrant".into(), path.into()]);
        words.extend(path.into_iter().flatten());
        words.extend(self.name_hosts.then(|| "--name-hosts".into()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_beside_the_hydrant_of_the_hosts() {
        let remote = RemoteArgs {
            remote_hydrant: Some("/opt/bin/hydrant-2".into()),
            ..RemoteArgs::default()
        };
        let last = |program| remote.command(program).pop().unwrap();
        assert_eq!(last("hydrant-bench"), "/opt/bin/hydrant-bench");
        assert_eq!(last(HYDRANT), "/opt/bin/hydrant-2");
        let here = RemoteArgs::default().command("hydrant-bench");
        assert_eq!(here, [env::current_exe().unwrap()]);
    }

    #[test]
    fn another_command_is_told_the_same() {
        let remote = RemoteArgs {
            rsh: Some("rsh -x".into()),
            name_hosts: true,
            ..RemoteArgs::default()
        };
        let hosts = ["a:2".parse().unwrap(), "b".parse().unwrap()];
        let words = remote.words(&hosts);
        assert_eq!(
            words,
            ["--hosts", "a:2,b", "--rsh", "rsh -x", "--name-hosts"]
        );
        assert!(remote.words(&[]).is_empty());
    }
}
