//! Finds out whether the program has threads besides the calling one. Such a thread could still do what a rank waits
//! for, whether or not it has used the job before.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// The threads that Hydrant starts have names that begin so.
const OWN_NAMES: &str = "hydrant-";

/// The number of ranks in this process.
static RANKS: AtomicU32 = AtomicU32::new(0);

/// A rank in this process, until it is dropped.
pub(super) struct RankHere(());

impl RankHere {
    pub(super) fn new() -> Self {
        RANKS.fetch_add(1, Relaxed);
        Self(())
    }

    /// Returns whether the process is one rank and has several threads that Hydrant did not start. Where ranks are
    /// threads of one process, a thread's rank is not known, and this returns false.
    pub(super) fn has_several_threads(&self) -> bool {
        RANKS.load(Relaxed) == 1 && others() > 1
    }
}

impl Drop for RankHere {
    fn drop(&mut self) {
        RANKS.fetch_sub(1, Relaxed);
    }
}

/// The number of threads of this process that Hydrant did not start; 0 where the system does not tell.
fn others() -> usize {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    (tasks.flatten().filter_map(name))
        .filter(|name| !name.starts_with(OWN_NAMES))
        .count()
}
