//! The memory that control groups leave to this process.
//!
//! Limits are read from both versions of control groups, because a system may have both at once.
//! They are read from the process's own group up to the root, and the tightest holds. Version 1:
//! the kernel's `admin-guide/cgroup-v1/memory`; version 2: `admin-guide/cgroup-v2`, *Memory*.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The file names of one version.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// The part of the used memory that the kernel drops first.
    droppable: &'static str,
}

static V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file ",
};

static V2: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    droppable: "inactive_file ",
};

/// The memory limit of one control group, and its remaining bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    limit: u64,
    left: u64,
}

/// Returns the tightest memory limit among the control groups of this process. `None` without a
/// limit.
pub fn group_limit() -> Option<u64> {
    rooms().map(|room| room.limit).min()
}

/// Returns the bytes that the control groups leave to this process. `None` without a limit.
pub fn group_room() -> Option<u64> {
    rooms().map(|room| room.left).min()
}

fn rooms() -> impl Iterator<Item = Room> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = groups(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    groups
        .into_iter()
        .filter_map(|(path, names)| room(&path, names))
}

/// Returns the groups of a process, from the kernel's files: its own and all above it.
fn groups(mounts: &str, memberships: &str) -> Vec<(PathBuf, &'static Names)> {
    let mut found = Vec::new();
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let names = match controllers {
            "" => &V2,
            list if list.split(',').any(|name| name == "memory") => &V1,
            _ => continue,
        };
        let Some((root, at)) = mounts.lines().find_map(|line| mount(line, names)) else {
            continue;
        };
        // A container sees only a part of the groups. The first group that it sees is then its own.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let ancestors = below
            .ancestors()
            .map(|part| (Path::new(at).join(part), names));
        found.extend(ancestors);
    }
    found
}

/// Returns the mounted group and the mount point, if a line of `mountinfo` is of this version.
fn mount<'a>(line: &'a str, names: &Names) -> Option<(&'a str, &'a str)> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ').skip(3);
    let (root, at) = (head.next()?, head.next()?);
    let mut tail = tail.split(' ');
    let (kind, options) = (tail.next()?, tail.nth(1)?);
    let fits = if std::ptr::eq(names, &V2) {
        kind == "cgroup2"
    } else {
        kind == "cgroup" && options.split(',').any(|option| option == "memory")
    };
    fits.then_some((root, at))
}

fn room(group: &Path, names: &Names) -> Option<Room> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // Without a limit, version 2 has `max`, and version 1 the largest multiple of a page.
    let limit = number(names.limit).filter(|limit| *limit < i64::MAX as u64 / 2)?;
    let used = number(names.used).unwrap_or(0);
    let droppable = read("memory.stat").and_then(|stat| {
        let line = stat
            .lines()
            .find_map(|line| line.strip_prefix(names.droppable));
        line?.trim().parse::<u64>().ok()
    });
    let used = used.saturating_sub(droppable.unwrap_or(0));
    let left = limit.saturating_sub(used);
    Some(Room { limit, left })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        24 1 254:0 / / rw - ext4 /dev/vda rw\n\
        29 25 0:24 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        32 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        38 25 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn paths(mounts: &str, memberships: &str) -> Vec<String> {
        let found = groups(mounts, memberships).into_iter();
        found.map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn groups_of_both_versions_are_found_up_to_the_root() {
        let memberships = "4:cpuset,memory:/a/b\n1:cpu:/x\n0::/c\nnonsense\n";
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory/",
            "/sys/fs/cgroup/unified/c",
            "/sys/fs/cgroup/unified/",
        ];
        assert_eq!(paths(MOUNTS, memberships), expected);
        assert!(paths("", memberships).is_empty());
        // In a container the group that is mounted is the process's own.
        let mounts = "9 8 0:27 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        for group in ["/docker/1", "/"] {
            let found = paths(mounts, &format!("4:memory:{group}\n"));
            assert_eq!(found, ["/sys/fs/cgroup/memory/"]);
        }
    }

    #[test]
    fn the_remaining_bytes_are_read_from_both_versions() {
        for names in [&V1, &V2] {
            let group = tempfile::tempdir().unwrap();
            let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
            assert_eq!(room(group.path(), names), None);
            write(names.limit, "max\n");
            assert_eq!(room(group.path(), names), None);
            write(names.limit, "9223372036854771712\n");
            assert_eq!(room(group.path(), names), None);
            write(names.limit, "1000\n");
            write(names.used, "900\n");
            let some = |left| Some(Room { limit: 1000, left });
            assert_eq!(room(group.path(), names), some(100));
            write(
                "memory.stat",
                &format!("active_file 5\n{}300\n", names.droppable),
            );
            assert_eq!(room(group.path(), names), some(400));
            write(names.used, "5000\n");
            assert_eq!(room(group.path(), names), some(0));
        }
    }
}
