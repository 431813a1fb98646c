//! The start of an agent by a remote shell, and its first order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::frame::{GREETING, Start};
use super::link::AgentLink;
use crate::launcher::child::{Tie, tie_to};
use crate::launcher::start::pid_of;
use crate::launcher::{RemoteHosts, Spec, stdin};

/// Variables that concern one host alone, or the access to the others.
const OF_THIS_HOST: [&str; 3] = [crate::HOST_ID, crate::HOST_CPUS, "HYDRANT_RSH"];

/// Starts the agent of a host. Returns the remote shell's process and the link to the agent.
pub(super) fn start(remote: &RemoteHosts, host: &str, tie: Tie) -> io::Result<(Pid, AgentLink)> {
    let agent: Vec<OsString> = remote.agent.iter().map(|word| quote(word)).collect();
    // A local shell splits the setting into words, so the setting may contain quotes and variables.
    let mut script = OsString::from("exec ");
    script.push(&remote.shell);
    script.push(if is_srun(&remote.shell) {
        " \"$1\" sh -c \"$2\""
    } else {
        " \"$@\""
    });
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(script)
        .arg("sh")
        .arg(without_brackets(host))
        .arg(agent.join(OsStr::new(" ")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // The remote shell gets none of the terminal's signals, because the launcher passes them on
    // itself. No signal is blocked, because the ranks of the host would inherit the mask.
    tie_to(&mut command, tie);
    let mut child = command.spawn()?;
    let missing = || io::Error::other("the remote shell has no pipes");
    let to = child.stdin.take().ok_or_else(missing)?;
    let from = child.stdout.take().ok_or_else(missing)?;
    let link = AgentLink::new(from.into(), to.into(), Some(GREETING))?;
    Ok((pid_of(&child)?, link))
}

/// Returns the host as ssh takes it. The brackets around an IPv6 address are for the list of hosts alone.
fn without_brackets(host: &str) -> &str {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// Returns true if the remote shell is Slurm's `srun`, which starts a program with its arguments
/// and does not give a command line to a shell.
fn is_srun(shell: &OsStr) -> bool {
    let words = shell.as_bytes().split(u8::is_ascii_whitespace);
    let first = words.into_iter().find(|word| !word.is_empty());
    first.is_some_and(|word| word == b"srun" || word.ends_with(b"/srun"))
}

/// Makes the start order for the agent of `ranks`.
pub(super) fn order(
    spec: &Spec,
    program: &Path,
    name: &str,
    host: &str,
    ranks: &Range<u32>,
) -> Start {
    let ours = env::vars_os().filter(|(name, _)| {
        let name = name.as_bytes();
        name.starts_with(b"HYDRANT_") && !OF_THIS_HOST.iter().any(|not| not.as_bytes() == name)
    });
    let id = (spec.remote.name_hosts).then(|| (crate::HOST_ID.into(), host.into()));
    let environment = ours.chain(spec.environment.iter().cloned()).chain(id);
    Start {
        name: name.to_owned(),
        first: ranks.start,
        ranks: ranks.len() as u32,
        size: spec.ranks,
        program: program.as_os_str().as_bytes().to_vec(),
        arguments: (spec.arguments.iter())
            .map(|argument| argument.as_bytes().to_vec())
            .collect(),
        environment: environment
            .map(|(name, value)| (name.into_vec(), value.into_vec()))
            .collect(),
        directory: env::current_dir()
            .unwrap_or_default()
            .into_os_string()
            .into_vec(),
        prefix: spec.prefix,
        bind: spec.bind,
        silence: spec.remote.silence.as_millis() as u64,
    }
}

/// Quotes a word for a shell.
fn quote(word: &OsStr) -> OsString {
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

/// The launcher's own input.
pub(super) struct Input {
    from: File,
}

impl Input {
    pub(super) fn open() -> io::Result<Input> {
        if !io::stdin().is_terminal() {
            let from = io::stdin().as_fd().try_clone_to_owned()?;
            return Ok(Input { from: from.into() });
        }
        let (from, to) = io::pipe()?;
        stdin::carry(OwnedFd::from(to))?;
        Ok(Input {
            from: OwnedFd::from(from).into(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Reads a piece of the input, if there is any now. An empty piece is the end.
    pub(super) fn read(&mut self, most: usize) -> Option<Vec<u8>> {
        let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
        // Other processes share the input, so it must not become non-blocking.
        if poll(&mut fds, Some(&Timespec::default())) != Ok(1) {
            return None;
        }
        let mut piece = vec![0; most];
        match self.from.read(&mut piece) {
            Ok(count) => {
                piece.truncate(count);
                Some(piece)
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => None,
            // Unreadable input counts as its end.
            Err(_) => Some(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_gets_an_address_without_brackets() {
        for (host, expected) in [
            ("[fe80::1%eth0]", "fe80::1%eth0"),
            ("node1", "node1"),
            ("[a", "[a"),
        ] {
            assert_eq!(without_brackets(host), expected);
        }
    }

    #[test]
    fn srun_is_known_by_its_name() {
        for shell in ["srun -w", " /opt/slurm/bin/srun --overlap -w", "srun"] {
            assert!(is_srun(OsStr::new(shell)), "{shell}");
        }
        for shell in ["ssh -x", "mysrun -w", "/opt/srun/bin/ssh", "env srun", ""] {
            assert!(!is_srun(OsStr::new(shell)), "{shell}");
        }
    }

    #[test]
    fn a_shell_reads_quoted_words_unchanged() {
        let words = ["plain", "two words", "it's", "$HOME `x` \\ \"", "", "ä*?"];
        let line: Vec<OsString> = words.iter().map(|word| quote(OsStr::new(word))).collect();
        let mut script = OsString::from("printf '<%s>' ");
        script.push(line.join(OsStr::new(" ")));
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}
