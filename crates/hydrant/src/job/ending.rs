//! How a rank leaves.

use std::{
    io::{self, Write},
    sync::Arc,
    thread::{self, JoinHandle},
};

use hydrant_launch::Bootstrap;
use hydrant_pinning::Impossible;
use parking_lot::Mutex;

use crate::{
    Rank, Result, Settings,
    foresight::Foreseeing,
    memory::Registry,
    message::Messages,
    progress::{self, Progress},
    transfer::Transfer,
    two_sided::TwoSided,
};

/// How a rank came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Every rank got here.
    Orderly,
    /// By a failure of its own.
    Failed,
    /// For the loss of another rank, whose end decides the job's status. The launcher may see
    /// that one later: a killed process is felt as soon as its memory goes.
    Bereft,
}

/// What is to be done when a rank leaves, and with what.
pub(super) struct Leaving {
    progress: Arc<Progress>,
    transfer: Arc<Transfer>,
    memory: Arc<Registry>,
    messages: Arc<Messages>,
    two_sided: Arc<TwoSided>,
    bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
    service: Option<JoinHandle<()>>,
    foreseeing: Option<Arc<Foreseeing>>,
    /// Whether to print the counters.
    counters: bool,
}

impl Leaving {
    pub(super) fn new(
        (transfer, memory, messages, two_sided): (
            &Arc<Transfer>,
            &Arc<Registry>,
            &Arc<Messages>,
            &Arc<TwoSided>,
        ),
        bootstrap: &Arc<Mutex<Box<dyn Bootstrap>>>,
        settings: &Settings,
    ) -> Self {
        Self {
            progress: Arc::clone(&transfer.progress),
            transfer: Arc::clone(transfer),
            memory: Arc::clone(memory),
            messages: Arc::clone(messages),
            two_sided: Arc::clone(two_sided),
            bootstrap: Arc::clone(bootstrap),
            service: None,
            foreseeing: None,
            counters: settings.counters,
        }
    }

    /// Starts the service thread, where there is to be one.
    pub(super) fn start_service(&mut self, settings: &Settings) -> Result<()> {
        if settings.service && !self.progress.virtual_time {
            self.service = Some(progress::start_service(&self.progress, settings)?);
        }
        Ok(())
    }

    /// What is to be ended with the job, if it foresees.
    pub(super) fn end_foreseeing(&mut self, foreseeing: Option<Arc<Foreseeing>>) {
        self.foreseeing = foreseeing;
    }

    /// Tells the peers and the launcher, stops the service thread, and makes every handle that
    /// is left useless.
    pub(super) fn leave(self, end: End) {
        let progress = &self.progress;
        progress.stop();
        if let Some(service) = self.service
            && service.join().is_err()
        {
            tracing::error!(rank = %progress.rank, "the service thread panicked");
        }
        if let Some(foreseeing) = &self.foreseeing {
            foreseeing.stop();
        }
        progress.drop_tasks();
        self.messages.close();
        self.two_sided.close();
        self.memory.close();
        self.transfer.wake_tasks();
        progress.advance_errands();
        progress.close();
        // Before the peers hear of it and fail, too. Only our own launcher uses this.
        let _ = match end {
            End::Orderly => Ok(()),
            End::Failed => (self.bootstrap.lock()).put(hydrant_launch::FAILING, b"1"),
            End::Bereft => (self.bootstrap.lock()).put(hydrant_launch::BEREFT, b"1"),
        };
        progress.conduit().leave(end == End::Orderly);
        if end == End::Orderly
            && let Err(cause) = self.bootstrap.lock().finalize()
        {
            tracing::warn!(%cause, "the launcher did not take the goodbye");
        }
        if let Some(impossible) = (self.transfer.registration()).and_then(|it| it.impossible()) {
            let words = last_words(progress.rank, impossible);
            let _ = io::stderr().write_all(words.as_bytes());
        }
        if self.counters {
            let counters = format!(
                "counters of rank {}\n{}\n",
                progress.rank,
                progress.tally.snapshot()
            );
            // Nobody may read it, which is no reason to panic.
            let _ = io::stderr().write_all(counters.as_bytes());
        }
    }

    /// Leaves because nothing of the program holds the job any more, though it has not ended.
    pub(super) fn give_up(self) {
        let lost = self.progress.check_all_present().is_err();
        let end = if lost && !self.progress.is_lost_itself() {
            End::Bereft
        } else {
            End::Failed
        };
        let rank = self.progress.rank;
        tracing::warn!(%rank, "the job was dropped before it was finalized");
        if progress::may_wait("leave").is_ok() {
            return self.leave(end);
        }
        // The service thread may run this very handler, or wait for its end.
        let leave = move || self.leave(end);
        if let Err(cause) = thread::Builder::new().spawn(leave) {
            tracing::error!(%rank, %cause, "the job was dropped in a handler and cannot be left");
        }
    }
}

/// A rank's report, at its end, of a bug that it survived.
fn last_words(rank: Rank, impossible: Impossible) -> String {
    format!(
        "hydrant: rank {rank}: {impossible}; steps were left undone, and memory may stay registered: this is a bug of \
         Hydrant, please report it\n"
    )
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::{ConduitKind, Job};

    #[test]
    fn a_bug_that_was_lived_through_is_counted_and_named() {
        let builder = Job::builder().expect("the settings are valid");
        let builder = builder.conduit(ConduitKind::Sim("myrinet-gm".to_owned()));
        let ends = builder.run_local(1, |job| {
            let registration = job.core().transfer.registration().expect("there is a NIC");
            assert_eq!(
                (registration.impossible(), job.counters().impossible),
                (None, 0)
            );
            for _ in 0..2 {
                // Debug builds stop at such a bug.
                let step = || registration.step(&[], |engine, out| engine.deregistered(77, out));
                let _ = catch_unwind(AssertUnwindSafe(step));
            }
            registration.step(&[], |_, _| {});
            assert_eq!(job.counters().impossible, 2);
            let met = registration.impossible().expect("it met something");
            Ok(last_words(job.rank(), met))
        });
        let said = ends
            .into_iter()
            .next()
            .expect("one rank")
            .expect("it lives on");
        assert!(
            said.contains("rank 0") && said.contains("2 times"),
            "{said}"
        );
        assert!(
            said.contains("a deregistration ended that was not begun"),
            "{said}"
        );
    }
}
