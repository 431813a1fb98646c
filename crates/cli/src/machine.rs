//! What this machine offers and where it sets limits, read from the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use rustix::thread::{MembarrierCommand, membarrier_query};
use serde::Serialize;

use crate::units;

/// One line of `hydrant info`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fact {
    /// What it is.
    pub(crate) name: &'static str,
    /// What it is set to here.
    pub(crate) value: String,
    /// What it decides for Hydrant.
    pub(crate) meaning: &'static str,
}

fn fact(name: &'static str, value: impl Into<String>, meaning: &'static str) -> Fact {
    Fact {
        name,
        value: value.into(),
        meaning,
    }
}

/// The processor and the kernel, as measurements name them.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) model: String,
    /// Cores that this process may use.
    pub(crate) cores_allowed: usize,
    /// Cores that are there.
    pub(crate) cores_present: usize,
    /// The kernel's release.
    pub(crate) kernel: String,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = |key: &str| {
            let line = info.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let model = named("model name")
            .or_else(|| named("Processor"))
            .or_else(|| named("CPU part"));
        let present = info
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count()
            .max(1);
        let allowed =
            rustix::thread::sched_getaffinity(None).map_or(present, |set| set.count() as usize);
        Machine {
            model: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores_allowed: allowed,
            cores_present: present,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// All of it in one line.
    pub(crate) fn line(&self) -> String {
        let cores = match self.cores_allowed == self.cores_present {
            true => format!("{} cores", self.cores_present),
            false => format!("{} of {} cores", self.cores_allowed, self.cores_present),
        };
        format!("{}, {cores}, Linux {}", self.model, self.kernel)
    }

    /// Processor, memory and kernel facilities.
    pub(crate) fn facts(&self) -> Vec<Fact> {
        let page = rustix::param::page_size();
        let memory = format!(
            "{} ({} available)",
            meminfo("MemTotal"),
            meminfo("MemAvailable")
        );
        let cores = format!(
            "{} allowed of {} present",
            self.cores_allowed, self.cores_present
        );
        let facility = |there: bool| if there { "available" } else { "absent" };
        let membarrier =
            membarrier_query().contains_command(MembarrierCommand::RegisterPrivateExpedited);
        vec![
            fact("processor", self.model.clone(), ""),
            fact("cores", cores, "ranks beyond them take turns"),
            fact("kernel", self.kernel.clone(), ""),
            fact("memory", memory, ""),
            fact(
                "memory limit of the cgroup",
                cgroup_limit(),
                "ranks that pass it are killed by the kernel",
            ),
            fact(
                "page size",
                units::bytes(page as f64),
                "the least that is mapped or pinned",
            ),
            fact(
                "transparent huge pages",
                huge_pages("enabled"),
                "for private memory",
            ),
            fact(
                "transparent huge pages, shared",
                huge_pages("shmem_enabled"),
                "for symmetric memory",
            ),
            fact(
                "reserved huge pages",
                reserved_huge_pages(),
                "for symmetric memory that requires them",
            ),
            fact(
                "membarrier",
                facility(membarrier),
                "lets a waiting rank sleep at no cost to the one that wakes it",
            ),
            fact("pidfd", pidfd(), "tells at once that a process has ended"),
            fact(
                "ptrace scope",
                ptrace_scope(),
                "whether ranks may copy from memory outside the shared one",
            ),
        ]
    }

    /// The limits set on this process.
    pub(crate) fn limits(&self) -> Vec<Fact> {
        let bytes = |limit: u64| units::bytes(limit as f64);
        let count = |limit: u64| limit.to_string();
        vec![
            fact(
                "memlock (ulimit -l)",
                limit(Resource::Memlock, bytes),
                "memory that may be registered",
            ),
            fact(
                "open files (ulimit -n)",
                limit(Resource::Nofile, count),
                "bounds the ranks of a host",
            ),
            fact(
                "processes (ulimit -u)",
                limit(Resource::Nproc, count),
                "ranks and their service threads",
            ),
            fact(
                "address space (ulimit -v)",
                limit(Resource::As, bytes),
                "memory that may be mapped",
            ),
        ]
    }
}

fn limit(resource: Resource, words: impl Fn(u64) -> String) -> String {
    let limit = getrlimit(resource);
    let words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), &words);
    match limit.current == limit.maximum {
        true => words(limit.current),
        false => format!(
            "{} (may be raised to {})",
            words(limit.current),
            words(limit.maximum)
        ),
    }
}

/// A line of `/proc/meminfo`, which counts in KiB.
fn meminfo(key: &str) -> String {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    match line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()) {
        Some(kib) => units::bytes(kib * 1024.0),
        None => "unknown".to_owned(),
    }
}

/// The word in brackets is the one in force.
fn huge_pages(file: &str) -> String {
    let modes = fs::read_to_string(Path::new("/sys/kernel/mm/transparent_hugepage").join(file));
    match modes {
        Ok(modes) => chosen(&modes).unwrap_or("unknown").to_owned(),
        Err(_) => "not in this kernel".to_owned(),
    }
}

fn chosen(modes: &str) -> Option<&str> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

fn reserved_huge_pages() -> String {
    let Ok(pools) = fs::read_dir("/sys/kernel/mm/hugepages") else {
        return "not in this kernel".to_owned();
    };
    let mut sizes: Vec<(u64, String)> = pools
        .flatten()
        .filter_map(|pool| {
            let kib = pool
                .file_name()
                .to_str()?
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse::<u64>()
                .ok()?;
            let read = |file| {
                fs::read_to_string(pool.path().join(file))
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()
            };
            let (all, free) = (read("nr_hugepages")?, read("free_hugepages")?);
            Some((
                kib,
                format!(
                    "{all} of {} ({free} free)",
                    units::bytes(kib as f64 * 1024.0)
                ),
            ))
        })
        .collect();
    sizes.sort();
    sizes
        .into_iter()
        .map(|(_, words)| words)
        .collect::<Vec<_>>()
        .join(", ")
}

fn pidfd() -> &'static str {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => "available",
        Err(_) => "absent",
    }
}

fn ptrace_scope() -> String {
    match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .as_deref()
        .map(str::trim)
    {
        Ok("0") => "0: processes of one user may".to_owned(),
        Ok("1") => "1: only parents, unless a rank allows it".to_owned(),
        Ok("2") => "2: only administrators".to_owned(),
        Ok("3") => "3: nobody".to_owned(),
        Ok(other) => other.to_owned(),
        Err(_) => "no Yama: processes of one user may".to_owned(),
    }
}

/// The tightest memory limit on the way from our control group to the root, of either version.
fn cgroup_limit() -> String {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let least = groups
        .lines()
        .filter_map(limit_files)
        .flatten()
        .filter_map(|file| {
            let text = fs::read_to_string(file).ok()?;
            text.trim().parse::<u64>().ok()
        });
    match least.min() {
        // Version 1 says "none" by the largest multiple of a page.
        Some(limit) if limit < i64::MAX as u64 / 2 => units::bytes(limit as f64),
        _ => "none".to_owned(),
    }
}

/// The files that may hold a limit, for one line of `/proc/self/cgroup`.
fn limit_files(line: &str) -> Option<Vec<PathBuf>> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        list if list.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = Path::new(group.trim_start_matches('/'));
    Some(
        group
            .ancestors()
            .map(|part| Path::new(root).join(part).join(file))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::here();
        assert!(machine.cores_allowed >= 1 && machine.cores_allowed <= machine.cores_present);
        let facts = machine.facts();
        for name in [
            "processor",
            "memory",
            "page size",
            "transparent huge pages, shared",
            "pidfd",
        ] {
            let fact = facts.iter().find(|fact| fact.name == name).unwrap();
            assert!(
                !fact.value.is_empty() && fact.value != "unknown",
                "{fact:?}"
            );
        }
        assert!(machine.limits().iter().all(|limit| !limit.value.is_empty()));
    }

    #[test]
    fn mode_in_brackets_is_the_chosen_one() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("nonsense"), None);
    }

    #[test]
    fn limits_are_looked_for_up_to_the_root_of_both_versions() {
        let files = limit_files("0::/a/b").unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(limit_files("4:cpuacct,memory:/x").unwrap().len(), 2);
        assert!(limit_files("3:cpuset:/").is_none());
        assert!(limit_files("nonsense").is_none());
    }
}
