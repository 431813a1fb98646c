//! Checks for remains of a job on the host.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::{HANG, running};

/// The state of the host before a job, and identifiers of the job.
pub struct JobRemains {
    sockets: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
    shared_memory: u64,
    /// A token in the arguments of every process of the job.
    token: String,
    /// The inodes of the job's shared memory.
    memory: BTreeSet<String>,
}

impl JobRemains {
    /// Records the state of the host before a job begins. `token` is in the arguments of every
    /// process of the job, and of no other process.
    pub fn before(token: &str) -> Self {
        Self {
            sockets: sockets(),
            files: files(),
            shared_memory: shared_memory(),
            token: token.to_owned(),
            memory: BTreeSet::new(),
        }
    }

    /// Notes the memory that a living rank shares.
    pub fn note_rank(&mut self, pid: &str) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let inodes = maps.lines().filter(|line| line.contains("memfd:hydrant"));
        self.memory
            .extend(inodes.filter_map(|line| Some(line.split_whitespace().nth(4)?.to_owned())));
    }

    /// Checks that the noted ranks share one file.
    ///
    /// # Panics
    /// If they do not.
    pub fn assert_one_file(&self) {
        assert_eq!(self.memory.len(), 1, "the ranks of a host share one file");
    }

    /// Waits until everything of the job is gone: its processes, its shared memory, its files and
    /// sockets. Other jobs may run, begin and end meanwhile.
    ///
    /// # Panics
    /// If something is left.
    pub fn assert_nothing_left(&self) {
        let mut left = Vec::new();
        let is_clean = running::within(HANG, || {
            left = self.find_remains();
            left.is_empty()
        });
        assert!(is_clean, "the job left behind: {}", left.join(", "));
        let kib = shared_memory() as i64 - self.shared_memory as i64;
        println!("nothing left; shared memory of the host {kib:+} KiB");
    }

    fn find_remains(&self) -> Vec<String> {
        let mut left: Vec<String> = (sockets().difference(&self.sockets))
            .map(|name| format!("socket {name}"))
            .chain(
                files()
                    .difference(&self.files)
                    .map(|file| file.display().to_string()),
            )
            .collect();
        for process in processes() {
            let read = |file| fs::read_to_string(process.join(file)).unwrap_or_default();
            if read("cmdline").contains(&self.token) {
                left.push(format!("process {}", process.display()));
            }
            let maps = read("maps");
            if (maps.lines().filter(|line| line.contains("memfd:hydrant")))
                .any(|line| (self.memory.iter()).any(|inode| line.contains(&format!(" {inode} "))))
            {
                left.push(format!("shared memory in {}", process.display()));
            }
        }
        left
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir("/proc").expect("/proc is mounted");
    all.filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// The abstract sockets that ranks meet at.
fn sockets() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    (text
        .lines()
        .filter_map(|line| line.split_whitespace().last()))
    .filter(|name| name.starts_with("@hydrant-"))
    .map(str::to_owned)
    .collect()
}

/// Files that may name shared memory.
fn files() -> BTreeSet<PathBuf> {
    ["/dev/shm", "/tmp"]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().contains("hydrant"))
        .collect()
}

/// KiB of shared memory in use on the host.
fn shared_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    (text.lines().find_map(|line| line.strip_prefix("Shmem:")))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
