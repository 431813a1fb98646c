//! The resources and the limits of this machine, read from the kernel.

use std::fs;
use std::path::Path;

use hydrant_conduit::memory::group_limit;
use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_open};
use rustix::thread::{MembarrierCommand, membarrier_query};
use serde_json::{Map, Value, json};

use crate::units;

/// One line of `hydrant info`.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The name of the fact.
    pub name: &'static str,
    /// The value on this machine.
    pub value: String,
    /// The effect on Hydrant.
    pub meaning: &'static str,
    /// The numbers in the value, for programs. Each key names the unit.
    pub figures: Map<String, Value>,
}

/// A fact without figures.
pub fn fact(name: &'static str, value: impl Into<String>, meaning: &'static str) -> Fact {
    Fact {
        name,
        value: value.into(),
        meaning,
        figures: Map::new(),
    }
}

impl Fact {
    /// Adds a figure; `None` means no limit, or unknown.
    pub fn figure(mut self, key: &str, number: Option<impl Into<Value>>) -> Self {
        let number = number.map_or(Value::Null, Into::into);
        self.figures.insert(key.to_owned(), number);
        self
    }
}

/// The processor and the kernel, as measurements name them.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The processor's name.
    pub model: String,
    /// Cores that this process may use.
    pub cores_allowed: usize,
    /// Cores that are present.
    pub cores_present: usize,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
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
    pub fn line(&self) -> String {
        let cores = if self.cores_allowed == self.cores_present {
            format!("{} cores", self.cores_present)
        } else {
            format!("{} of {} cores", self.cores_allowed, self.cores_present)
        };
        format!("{}, {cores}, Linux {}", self.model, self.kernel)
    }

    /// Processor, memory and kernel facilities.
    pub fn facts(&self) -> Vec<Fact> {
        let page = rustix::param::page_size();
        let (total, available) = (meminfo("MemTotal"), meminfo("MemAvailable"));
        let in_words = |bytes: Option<u64>| {
            bytes.map_or_else(|| "unknown".to_owned(), |bytes| units::bytes(bytes as f64))
        };
        let memory = format!("{} ({} available)", in_words(total), in_words(available));
        let cgroup = group_limit();
        let pools = reserved_huge_pages();
        let cores = format!(
            "{} allowed of {} present",
            self.cores_allowed, self.cores_present
        );
        let facility = |there: bool| if there { "available" } else { "absent" };
        let membarrier =
            membarrier_query().contains_command(MembarrierCommand::RegisterPrivateExpedited);
        vec![
            fact("processor", self.model.clone(), ""),
            fact("cores", cores, "ranks beyond them take turns")
                .figure("allowed_cores", Some(self.cores_allowed))
                .figure("present_cores", Some(self.cores_present)),
            fact("kernel", self.kernel.clone(), ""),
            fact("memory", memory, "")
                .figure("total_bytes", total)
                .figure("available_bytes", available),
            fact(
                "memory limit of the cgroup",
                cgroup.map_or_else(|| "none".to_owned(), |bytes| units::bytes(bytes as f64)),
                "ranks that pass it are killed by the kernel",
            )
            .figure("bytes", cgroup),
            fact(
                "page size",
                units::bytes(page as f64),
                "the least that is mapped or pinned",
            )
            .figure("bytes", Some(page)),
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
                HugePagePool::in_words(pools.as_deref()),
                "for symmetric memory that requires them",
            )
            .figure("pools", pools.map(HugePagePool::figures)),
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
    pub fn limits(&self) -> Vec<Fact> {
        let bytes: fn(u64) -> String = |limit| units::bytes(limit as f64);
        let count: fn(u64) -> String = |limit| limit.to_string();
        let limit = |name, resource, unit: &str, words: fn(u64) -> String, meaning| {
            let limit = getrlimit(resource);
            fact(name, in_words(&limit, words), meaning)
                .figure(unit, limit.current)
                .figure(&format!("most_{unit}"), limit.maximum)
        };
        vec![
            limit(
                "memlock (ulimit -l)",
                Resource::Memlock,
                "bytes",
                bytes,
                "memory that may be registered",
            ),
            limit(
                "size of files (ulimit -f)",
                Resource::Fsize,
                "bytes",
                bytes,
                "bounds the memory that the ranks of a host share, unless it may be raised",
            ),
            limit(
                "open files (ulimit -n)",
                Resource::Nofile,
                "files",
                count,
                "bounds the ranks of a host",
            ),
            limit(
                "processes (ulimit -u)",
                Resource::Nproc,
                "processes",
                count,
                "ranks and their service threads",
            ),
            limit(
                "address space (ulimit -v)",
                Resource::As,
                "bytes",
                bytes,
                "memory that may be mapped",
            ),
            limit(
                "private memory (ulimit -d)",
                Resource::Data,
                "bytes",
                bytes,
                "memory that may be allocated",
            ),
        ]
    }
}

fn in_words(limit: &Rlimit, words: fn(u64) -> String) -> String {
    let words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), words);
    if limit.current == limit.maximum {
        words(limit.current)
    } else {
        format!(
            "{} (may be raised to {})",
            words(limit.current),
            words(limit.maximum)
        )
    }
}

/// A line of `/proc/meminfo`, which counts in KiB, in bytes.
fn meminfo(key: &str) -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    kib.checked_mul(1024)
}

/// The word in brackets is the setting in force.
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

/// The reserved huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HugePagePool {
    page_bytes: u64,
    pages: u64,
    free_pages: u64,
}

impl HugePagePool {
    fn in_words(pools: Option<&[Self]>) -> String {
        let Some(pools) = pools else {
            return "not in this kernel".to_owned();
        };
        let words = pools.iter().map(|pool| {
            let size = units::bytes(pool.page_bytes as f64);
            format!("{} of {size} ({} free)", pool.pages, pool.free_pages)
        });
        words.collect::<Vec<_>>().join(", ")
    }

    fn figures(pools: Vec<Self>) -> Value {
        let figures = pools.into_iter().map(|pool| {
            json!({
                "page_bytes": pool.page_bytes,
                "pages": pool.pages,
                "free_pages": pool.free_pages,
            })
        });
        figures.collect()
    }
}

/// The pools of reserved huge pages, the smallest pages first; none if the kernel has none.
fn reserved_huge_pages() -> Option<Vec<HugePagePool>> {
    let folders = fs::read_dir("/sys/kernel/mm/hugepages").ok()?;
    let pool = |folder: &fs::DirEntry| {
        let name = folder.file_name();
        let kib = name.to_str()?.strip_prefix("hugepages-")?;
        let kib: u64 = kib.strip_suffix("kB")?.parse().ok()?;
        let read = |file| {
            let text = fs::read_to_string(folder.path().join(file)).ok()?;
            text.trim().parse().ok()
        };
        Some(HugePagePool {
            page_bytes: kib.checked_mul(1024)?,
            pages: read("nr_hugepages")?,
            free_pages: read("free_hugepages")?,
        })
    };
    let mut pools: Vec<HugePagePool> = folders
        .flatten()
        .filter_map(|folder| pool(&folder))
        .collect();
    pools.sort();
    Some(pools)
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
}
