//! What descends from a process, and what it was started with, from `/proc`.

use std::collections::HashMap;
use std::fs;

use rustix::process::Pid;

/// Every process that descends from `root`, `except` one and the dead.
pub(super) fn descendants(root: Pid, except: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<(Pid, bool)>> = HashMap::new();
    for pid in all() {
        if let Some((parent, alive)) = parent(pid) {
            children.entry(parent).or_default().push((pid, alive));
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for (child, alive) in children.remove(&pid).unwrap_or_default() {
            if child != except {
                next.push(child);
                if alive {
                    found.push(child);
                }
            }
        }
    }
    found
}

/// Every process that was started with `variable`, as `NAME=value`, in its environment.
pub(super) fn with_variable(variable: &str) -> Vec<Pid> {
    let has = |pid: &Pid| {
        fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).is_ok_and(|environment| {
            environment
                .split(|&b| b == 0)
                .any(|v| v == variable.as_bytes())
        })
    };
    all().filter(has).collect()
}

fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The parent of a process, and whether the process is alive.
fn parent(pid: Pid) -> Option<(Pid, bool)> {
    parse_stat(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

/// `pid (name) state parent …`, where the name may hold anything.
fn parse_stat(stat: &str) -> Option<(Pid, bool)> {
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = words.next()?;
    let parent = Pid::from_raw(words.next()?.parse().ok()?)?;
    Some((parent, !matches!(state, "Z" | "X")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_lines_with_odd_names() {
        let parent = |n| Pid::from_raw(n).unwrap();
        assert_eq!(parse_stat("12 (sh) S 7 1 1"), Some((parent(7), true)));
        assert_eq!(parse_stat("12 (a) Z 9) Z 7 1 1"), Some((parent(7), false)));
        assert_eq!(parse_stat("12 (init) S 0 1 1"), None);
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn a_grandchild_is_found_by_descent_and_by_its_environment() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .env("HYDRANT_PROCESSES_TEST", std::process::id().to_string())
            .spawn()
            .unwrap();
        let me = rustix::process::getpid();
        let marked = format!("HYDRANT_PROCESSES_TEST={}", std::process::id());
        let child_pid = Pid::from_raw(child.id() as i32).unwrap();
        while descendants(child_pid, me).is_empty() || with_variable(&marked).len() < 2 {
            assert!(
                child.try_wait().unwrap().is_none(),
                "they were not found in a minute"
            );
            std::thread::yield_now();
        }
        let grandchild = descendants(child_pid, me)[0];
        assert!(descendants(me, grandchild).contains(&child_pid));
        assert!(!descendants(me, grandchild).contains(&grandchild));
        assert!(
            descendants(me, child_pid)
                .iter()
                .all(|p| *p != child_pid && *p != grandchild)
        );
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
