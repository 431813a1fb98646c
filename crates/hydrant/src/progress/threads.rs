//! Finds out whether the program has threads besides the calling one. Such a thread may still do
//! what the rank waits for, even if it has not used the job yet.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// The prefix of the names of threads that Hydrant starts.
const OWN_NAMES: &str = "hydrant-";

/// The number of ranks in this process.
static RANKS: AtomicU32 = AtomicU32::new(0);

/// Counts a rank of this process until it is dropped.
pub(super) struct RankHere(());

impl RankHere {
    pub(super) fn new() -> Self {
        RANKS.fetch_add(1, Relaxed);
        Self(())
    }

    /// Returns whether the process is one rank and has several threads that Hydrant did not start.
    /// Returns false if ranks are threads of one process, because the rank of a thread is then
    /// unknown.
    pub(super) fn has_several_threads(&self) -> bool {
        RANKS.load(Relaxed) == 1 && others() > 1
    }
}

impl Drop for RankHere {
    fn drop(&mut self) {
        RANKS.fetch_sub(1, Relaxed);
    }
}

/// Returns the number of threads of this process that Hydrant did not start, or 0 if the system
/// does not tell.
fn others() -> usize {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    (tasks.flatten().filter_map(name))
        .filter(|name| !name.starts_with(OWN_NAMES))
        .count()
}
