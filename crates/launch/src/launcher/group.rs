//! The control group of a job, where this process may make one.
//!
//! A process can leave its session, its process group and its environment, but not its control
//! group. The job gets a group of its own where control groups of version 2 exist and this user may
//! make one below the launcher's. The ranks begin in that group, and the kernel can kill it as a
//! whole.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The time that the launcher waits for an empty group. The guard continues after that.
pub(super) const BRIEFLY: Duration = Duration::from_secs(2);

/// The time that the guard waits, which has nothing else to do.
pub(super) const PATIENTLY: Duration = Duration::from_secs(60);

/// The first and the longest pause between two checks.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A control group that this process makes.
#[derive(Debug)]
pub(super) struct JobGroup {
    path: PathBuf,
    /// The group's `cgroup.procs`, once the group exists. A process that writes to it moves into
    /// the group.
    procs: OnceLock<OwnedFd>,
}

impl JobGroup {
    /// Plans the group of `job`. `None` if this process has no control group of version 2.
    pub(super) fn plan(job: &str) -> Option<JobGroup> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = own(&mounts, &groups)?.join(job);
        let procs = OnceLock::new();
        Some(JobGroup { path, procs })
    }

    /// Makes the group if this user may. The guard runs by then, and will remove the group.
    pub(super) fn make(&self) {
        if fs::create_dir(&self.path).is_err() {
            return;
        }
        let procs = self.path.join("cgroup.procs");
        let procs = File::options().write(true).open(procs);
        let can_kill = self.path.join("cgroup.kill").exists();
        match procs {
            Ok(procs) if can_kill => drop(self.procs.set(procs.into())),
            _ => drop(fs::remove_dir(&self.path)),
        }
    }

    /// Moves the calling process into the group. Safe to call between fork and exec.
    pub(super) fn enter(&self) {
        if let Some(procs) = self.procs.get() {
            // A process that may not move is found in other ways.
            let _ = rustix::io::write(procs, b"0");
        }
    }

    /// Returns the number of processes in the group and in the groups below it.
    pub(super) fn count(&self) -> usize {
        count(&self.path)
    }

    /// Kills all processes in the group, whatever user they run as.
    pub(super) fn kill(&self) -> bool {
        let kill = self.path.join("cgroup.kill");
        let killed = File::options().write(true).open(kill);
        killed.is_ok_and(|mut kill| kill.write_all(b"1").is_ok())
    }

    /// Kills all processes in the group and removes it. Returns true if the group is gone within
    /// `patience`.
    ///
    /// Each round kills again, because a process may have moved into the group since.
    pub(super) fn end(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            self.kill();
            if remove(&self.path) {
                return true;
            }
            if begun.elapsed() > patience {
                return false;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Returns the directory of this process's group, from the mounts and groups that the kernel
/// reports.
fn own(mounts: &str, groups: &str) -> Option<PathBuf> {
    let (root, at) = mounts.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut words = head.split(' ').skip(3);
        let (root, at) = (words.next()?, words.next()?);
        tail.starts_with("cgroup2 ").then_some((root, at))
    })?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A container sees only a part of the groups.
    let below = Path::new(group).strip_prefix(root).ok()?;
    Some(Path::new(at).join(below))
}

fn below(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

fn count(path: &Path) -> usize {
    let here = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    here.lines().count() + below(path).map(|group| count(&group)).sum::<usize>()
}

/// Removes a group and the groups below it, such as those of nested launchers. Returns true if the
/// group is gone.
fn remove(path: &Path) -> bool {
    for group in below(path) {
        remove(&group);
    }
    fs::remove_dir(path).is_ok() || !path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_where_it_is_mounted() {
        let v1 = "29 25 0:24 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let v2 =
            |root| format!("{v1}30 25 0:25 {root} /sys/fs/cgroup rw,nosuid - cgroup2 none rw\n");
        let groups = "4:memory:/x\n0::/user/a\n";
        assert_eq!(own(&v2("/"), groups), Some("/sys/fs/cgroup/user/a".into()));
        assert_eq!(own(&v2("/user"), groups), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(own(&v2("/other"), groups), None);
        assert_eq!(own(v1, groups), None);
        assert_eq!(own(&v2("/"), "4:memory:/x\n"), None);
    }
}
