//! Descendants of a process, and the environment with which they started, from `/proc`.
//!
//! `/proc` counts only if it belongs to this process's own PID namespace, because in another
//! namespace the same ids name other processes. Otherwise no process is found.
//!
//! Signals go through a pidfd that is checked after it is opened, because process ids are reused.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, pidfd_send_signal, wait,
};

use crate::proc_is_own;

/// A process that was seen: its id and its start time. The start time tells it from a later process
/// with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pid: Pid,
    /// The start time in ticks of the kernel's clock.
    began: u64,
}

impl Process {
    pub(super) fn pid(self) -> Pid {
        self.pid
    }

    /// Sends a signal to the process. If the process is gone, no process gets the signal, even if
    /// its id was reused.
    pub(super) fn signal(self, signal: Signal) -> Result<(), Errno> {
        let handle = pidfd_open(self.pid, PidfdFlags::empty())?;
        // The descriptor belongs to the process that had the id a moment ago. An equal start time
        // proves that it is the process seen before. Otherwise it is a different process.
        match stat(self.pid) {
            Some(stat) if stat.began == self.began && proc_is_own() => {
                pidfd_send_signal(&handle, signal)
            }
            _ => Err(Errno::SRCH),
        }
    }

    /// Returns true if the process started with `variable`, as `NAME=value`, in its environment.
    pub(super) fn has_variable(self, variable: &str) -> bool {
        let path = format!("/proc/{}/environ", self.pid.as_raw_pid());
        let has = fs::read(path).is_ok_and(|environment| {
            environment
                .split(|&b| b == 0)
                .any(|v| v == variable.as_bytes())
        });
        // The start time was read before the environment. If it is still the same, both belong to
        // one process.
        has && stat(self.pid).is_some_and(|stat| stat.began == self.began)
    }

    /// Returns true if the process lives and is no zombie.
    pub(super) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.began == self.began && stat.alive)
    }

    /// Returns the user that the process runs as.
    pub(super) fn user(self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        // The columns: real, effective, saved, file system.
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

/// Returns true if this process's children begin in another PID namespace than its own, as after
/// `unshare --pid` without `--fork`. This process could then make no thread, and a guard would be
/// the first process there.
pub(super) fn begin_elsewhere() -> bool {
    const OF_CHILDREN: &str = "/proc/self/ns/pid_for_children";
    match (
        fs::read_link("/proc/self/ns/pid"),
        fs::read_link(OF_CHILDREN),
    ) {
        (Ok(own), Ok(of_children)) => own != of_children,
        // A namespace without a process has no name yet.
        (Ok(_), Err(_)) => fs::symlink_metadata(OF_CHILDREN).is_ok(),
        (Err(_), _) => false,
    }
}

/// Returns the children of `parent`, including dead ones.
pub(super) fn children(parent: Pid) -> HashSet<Process> {
    let children = all().filter_map(|pid| {
        let stat = stat(pid)?;
        (stat.parent == Some(parent)).then_some(Process {
            pid,
            began: stat.began,
        })
    });
    children.collect()
}

/// Returns every living process that descends from `root` through a child that `wanted` accepts.
pub(super) fn descendants(root: Pid, wanted: impl Fn(Process) -> bool) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<(Process, bool)>> = HashMap::new();
    for pid in all() {
        if let Some(Stat {
            parent: Some(parent),
            alive,
            began,
        }) = stat(pid)
        {
            let process = Process { pid, began };
            children.entry(parent).or_default().push((process, alive));
        }
    }
    let mut found = Vec::new();
    let mut next = children.remove(&root).unwrap_or_default();
    next.retain(|(child, _)| wanted(*child));
    while let Some((process, alive)) = next.pop() {
        next.extend(children.remove(&process.pid).unwrap_or_default());
        if alive {
            found.push(process);
        }
    }
    found
}

/// Returns every process that started with `variable`, as `NAME=value`, in its environment.
pub(super) fn with_variable(variable: &str) -> Vec<Process> {
    let seen = all().filter_map(|pid| {
        let began = stat(pid)?.began;
        Some(Process { pid, began })
    });
    seen.filter(|process| process.has_variable(variable))
        .collect()
}

fn all() -> impl Iterator<Item = Pid> {
    let entries = (proc_is_own()).then(|| fs::read_dir("/proc"));
    let entries = entries.into_iter().flatten().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The kernel's data of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// `None` for the first process.
    parent: Option<Pid>,
    alive: bool,
    began: u64,
}

fn stat(pid: Pid) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

/// Parses `pid (name) state parent …`. The name may contain anything. The 22nd word is the start
/// time.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = words.next()?;
    let parent = Pid::from_raw(words.next()?.parse().ok()?);
    let began = words.nth(17)?.parse().ok()?;
    let alive = !matches!(state, "Z" | "X");
    Some(Stat {
        parent,
        alive,
        began,
    })
}

/// Reaps every child that has ended since the last call, including ranks.
pub(super) fn reap_children() -> Vec<(Pid, WaitStatus)> {
    std::iter::from_fn(|| {
        loop {
            match wait(WaitOptions::NOHANG) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.ok().flatten(),
            }
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_lines_with_odd_names_are_parsed() {
        let words =
            |state, parent| format!("{state} {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 9 9");
        let expected = |parent, alive| {
            let parent = Pid::from_raw(parent);
            let began = 777;
            Some(Stat {
                parent,
                alive,
                began,
            })
        };
        let parse = |name: &str, rest: String| parse_stat(&format!("12 {name} {rest}"));
        assert_eq!(parse("(sh)", words("S", 7)), expected(7, true));
        assert_eq!(parse("(a) Z 9)", words("Z", 7)), expected(7, false));
        assert_eq!(parse("(init)", words("S", 0)), expected(0, true));
        assert_eq!(parse_stat("12 (short) S 7 1 1"), None);
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn no_signal_reaches_a_process_that_only_reuses_the_id() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let began = stat(pid).unwrap().began;
        let earlier = Process {
            pid,
            began: began - 1,
        };
        assert_eq!(earlier.signal(Signal::KILL), Err(Errno::SRCH));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(Process { pid, began }.signal(Signal::KILL), Ok(()));
        child.wait().unwrap();
    }

    #[test]
    fn a_grandchild_is_found_by_descent_and_by_environment() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .env("HYDRANT_PROCESSES_TEST", std::process::id().to_string())
            .spawn()
            .unwrap();
        let me = rustix::process::getpid();
        let marked = format!("HYDRANT_PROCESSES_TEST={}", std::process::id());
        let child_pid = Pid::from_raw(child.id() as i32).unwrap();
        let below = |root| descendants(root, |_| true);
        while below(child_pid).is_empty() || with_variable(&marked).len() < 2 {
            assert!(
                child.try_wait().unwrap().is_none(),
                "they were not found in a minute"
            );
            std::thread::yield_now();
        }
        let grandchild = below(child_pid)[0];
        let known = *(children(me).iter().find(|one| one.pid == child_pid)).unwrap();
        let all = below(me);
        assert!(all.contains(&known) && all.contains(&grandchild));
        let others = descendants(me, |child| child != known);
        assert!(!others.contains(&known) && !others.contains(&grandchild));
        grandchild.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
