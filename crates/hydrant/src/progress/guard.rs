//! No way out but through the end.
//!
//! A caller's memory is the network's from the moment an operation is posted until its end is
//! seen. Whoever unwinds in between gives the memory back to the caller while the network uses it.
//! What a user's code throws is caught where it runs ([handlers](super::handler), predicates, bodies of
//! scopes), so that nothing should unwind there. Should something do so all the same (a log that
//! panics, a defect of ours), the process ends.

use std::{
    io::{self, Write},
    mem, process,
};

use hydrant_conduit::Standing;

use super::Progress;

impl Progress {
    /// Runs something that returns only when the network uses none of the memory that it was lent,
    /// or when that is known to be the caller's affair again: it posts an operation and says so, or
    /// waits for the end of one.
    #[inline(always)]
    pub(crate) fn to_the_end<R>(&self, act: impl FnOnce() -> R) -> R {
        let guard = NoWayOut(self);
        let result = act();
        mem::forget(guard);
        result
    }

    /// Whether the network is done with all memory of this rank. In virtual time it is when the rank
    /// has ended, as one does by a fault of the machine, which unwinds its thread: with a rank go
    /// its transfers. A rank elsewhere may be taken for lost while its NIC goes on.
    /// The network uses the process's own memory, not a child's copy of it.
    fn has_nothing_lent(&self) -> bool {
        self.is_forked()
            || self.virtual_time && self.conduit.standing(self.rank) != Standing::Present
    }
}

struct NoWayOut<'a>(&'a Progress);

impl Drop for NoWayOut<'_> {
    #[cold]
    fn drop(&mut self) {
        if !self.0.has_nothing_lent() {
            // In one write: other ranks write to the same place meanwhile.
            let why = format!(
                "hydrant: rank {} panicked while the network used memory of the caller; the \
                 process ends, for nobody could use that memory safely\n",
                self.0.rank
            );
            let _ = io::stderr().write_all(why.as_bytes());
            process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::process::ExitStatusExt,
        panic::{self, AssertUnwindSafe},
        process::Command,
    };

    use crate::{ConduitKind, Job};

    /// Set for the process that is to end.
    const TRIES: &str = "HYDRANT_TEST_UNWINDS";
    const SIGABRT: i32 = 6;

    #[test]
    fn nothing_unwinds_while_memory_is_lent() {
        if env::var_os(TRIES).is_some() {
            let job = Job::builder().expect("the settings are valid");
            let conduit = ConduitKind::Smp;
            job.heap(1 << 20).conduit(conduit).run_local(1, |job| {
                let progress = &job.core().progress;
                let _ = panic::catch_unwind(AssertUnwindSafe(|| {
                    progress.to_the_end(|| panic!("in the midst of it"));
                }));
                Ok(())
            });
            return;
        }
        let name = "progress::guard::tests::nothing_unwinds_while_memory_is_lent";
        let itself = env::current_exe().expect("the test has a path");
        let end = Command::new(itself)
            .args([name, "--exact", "--nocapture"])
            .env(TRIES, "1")
            .output()
            .expect("the test starts itself");
        let said = String::from_utf8_lossy(&end.stderr);
        assert_eq!(end.status.signal(), Some(SIGABRT), "{said}");
        assert!(said.contains("rank 0 panicked while the network"), "{said}");
    }
}
