//! Aborts the process if a thread unwinds while the network uses memory of the caller.
//!
//! From the post of an operation until its completion, the network uses the caller's memory. A
//! thread that unwinds in between gives the memory back to the caller too early. Panics of user
//! code are caught where they occur ([handlers](super::handler), predicates, bodies of scopes), so
//! nothing should unwind here. If something does, such as a log that panics or a defect of ours,
//! the process aborts.

use std::{
    io::{self, Write},
    mem, process,
};

use hydrant_conduit::Standing;

use super::Progress;

impl Progress {
    /// Runs `act`, and aborts the process if it panics. `act` posts an operation and records it, or
    /// waits for one. It returns only when the network uses none of the memory, or when another
    /// owner is responsible for that memory.
    #[inline(always)]
    pub(crate) fn abort_on_unwind<R>(&self, act: impl FnOnce() -> R) -> R {
        let guard = AbortOnUnwind(self);
        let result = act();
        mem::forget(guard);
        result
    }

    /// Returns whether the network is done with all memory of this rank. In virtual time that holds
    /// once the rank has ended: a fault of the machine unwinds its thread and ends its transfers.
    /// Elsewhere, the NIC of a rank that counts as lost may still transfer. For a forked child it
    /// also holds: the network uses the memory of the parent, not the child's copy.
    fn has_nothing_lent(&self) -> bool {
        self.is_forked()
            || self.virtual_time && self.conduit.standing(self.rank) != Standing::Present
    }
}

struct AbortOnUnwind<'a>(&'a Progress);

impl Drop for AbortOnUnwind<'_> {
    #[cold]
    fn drop(&mut self) {
        if !self.0.has_nothing_lent() {
            // In one write, because other ranks write to the same stream.
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

    /// Set for the child process that is to abort.
    const IS_CHILD: &str = "HYDRANT_TEST_UNWINDS";
    const SIGABRT: i32 = 6;

    #[test]
    fn a_panic_while_memory_is_lent_aborts_the_process() {
        if env::var_os(IS_CHILD).is_some() {
            let job = Job::builder().expect("the settings are valid");
            let conduit = ConduitKind::Smp;
            job.heap(1 << 20).conduit(conduit).run_local(1, |job| {
                let progress = &job.core().progress;
                let _ = panic::catch_unwind(AssertUnwindSafe(|| {
                    progress.abort_on_unwind(|| panic!("while memory is lent"));
                }));
                Ok(())
            });
            return;
        }
        let name = "progress::guard::tests::a_panic_while_memory_is_lent_aborts_the_process";
        let program = env::current_exe().expect("the test has a path");
        let end = Command::new(program)
            .args([name, "--exact", "--nocapture"])
            .env(IS_CHILD, "1")
            .output()
            .expect("the test starts itself");
        let said = String::from_utf8_lossy(&end.stderr);
        assert_eq!(end.status.signal(), Some(SIGABRT), "{said}");
        assert!(said.contains("rank 0 panicked while the network"), "{said}");
    }
}
