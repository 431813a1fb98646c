//! The end of a rank: it leaves the job.

use std::{
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread::{self, JoinHandle},
};

use hydrant_launch::Bootstrap;
use hydrant_pinning::Impossible;
use parking_lot::Mutex;

use super::Job;
use crate::{
    Error, Rank, Result, Settings,
    foresight::Foreseeing,
    memory::Registry,
    message::Messages,
    progress::{self, Progress},
    top::SnapshotServer,
    transfer::Transfer,
    two_sided::TwoSided,
};

/// The ways in which a rank comes to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    /// Every rank came to the end.
    Orderly,
    /// This rank failed.
    Failed,
    /// Another rank was lost, whose end decides the job's status. The launcher may see that end
    /// later, because the memory of a killed process goes first.
    LostPeer,
}

/// Holds what a rank needs to leave.
pub(super) struct Leaving {
    progress: Arc<Progress>,
    transfer: Arc<Transfer>,
    memory: Arc<Registry>,
    messages: Arc<Messages>,
    two_sided: Arc<TwoSided>,
    bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
    service: Option<JoinHandle<()>>,
    foreseeing: Option<Arc<Foreseeing>>,
    /// Answers those who look at the rank.
    snapshots: Option<SnapshotServer>,
    /// True if the counters are printed.
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
            snapshots: None,
            counters: settings.counters,
        }
    }

    /// Starts the service thread, if there is to be one.
    pub(super) fn start_service(&mut self, settings: &Settings) -> Result<()> {
        if settings.service && !self.progress.virtual_time {
            self.service = Some(progress::start_service(&self.progress, settings)?);
        }
        Ok(())
    }

    /// Sets the predictor of uses that is stopped at the end.
    pub(super) fn set_foreseeing(&mut self, foreseeing: Option<Arc<Foreseeing>>) {
        self.foreseeing = foreseeing;
    }

    /// Begins to answer those who look at the rank, if that is wanted.
    pub(super) fn serve_snapshots(&mut self, settings: &Settings) {
        self.snapshots = SnapshotServer::start(&self.transfer, settings);
    }

    /// Stops the service thread, closes the rooms so that remaining handles fail, and tells the
    /// peers and the launcher.
    pub(super) fn leave(self, end: EndKind) {
        let progress = &self.progress;
        drop(self.snapshots);
        progress.stop();
        if let Some(service) = self.service
            && service.join().is_err()
        {
            tracing::error!(rank = %progress.rank, "the service thread panicked");
        }
        if let Some(foreseeing) = &self.foreseeing {
            foreseeing.stop();
        }
        self.transfer.stop_background();
        progress.drop_tasks();
        self.messages.close();
        self.two_sided.close();
        self.memory.close();
        self.transfer.wake_tasks();
        progress.advance_errands();
        progress.close();
        // Before the peers hear of it and fail too. Only Hydrant's own launcher reads this.
        let _ = match end {
            EndKind::Orderly => Ok(()),
            EndKind::Failed => (self.bootstrap.lock()).put(hydrant_launch::FAILING, b"1"),
            EndKind::LostPeer => (self.bootstrap.lock()).put(hydrant_launch::BEREFT, b"1"),
        };
        progress.conduit().leave(end == EndKind::Orderly);
        if end == EndKind::Orderly
            && let Err(cause) = self.bootstrap.lock().finalize()
        {
            tracing::warn!(%cause, "the launcher was not told of the end");
        }
        if let Some(impossible) = (self.transfer.registration()).and_then(|it| it.impossible()) {
            let words = bug_report(progress.rank, impossible);
            let _ = io::stderr().write_all(words.as_bytes());
        }
        if self.counters {
            let counters = format!(
                "counters of rank {}\n{}\n",
                progress.rank,
                progress.tally.snapshot()
            );
            // Nobody may read stderr, which is no reason to panic.
            let _ = io::stderr().write_all(counters.as_bytes());
        }
    }

    /// Leaves because the last handle was dropped before the job was finalized.
    pub(super) fn leave_unfinalized(self) {
        let lost = self.progress.check_all_present().is_err();
        let end = if lost && !self.progress.is_lost_itself() {
            EndKind::LostPeer
        } else {
            EndKind::Failed
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

/// Returns a rank's report of a bug that it survived.
fn bug_report(rank: Rank, impossible: Impossible) -> String {
    format!(
        "hydrant: rank {rank}: {impossible}; steps were skipped, and memory may stay registered: this is a bug of \
         Hydrant, please report it\n"
    )
}

/// Runs a body in a job, and ends the job. The body is called once and keeps its result itself. So
/// this function is compiled once, and not in every program for each body.
pub(super) fn run_to_end(job: Job, body: &mut dyn FnMut(&Job) -> Result<()>) -> Result<()> {
    let progress = job.progress();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        body(&job)?;
        match job.finalize() {
            // The body finalized the job itself.
            Err(Error::JobOver) => Ok(()),
            ended => ended,
        }
    }));
    let lost_peer = matches!(outcome, Ok(Err(Error::PeerLost(_)))) && !progress.is_lost_itself();
    let outcome = if progress.is_forked() {
        // In a child, while the parent goes on in the body.
        outcome
    } else {
        outcome.map(|result| result.map_err(|error| progress.cause_of(error)))
    };
    job.core().leave(if lost_peer {
        EndKind::LostPeer
    } else {
        EndKind::Failed
    });
    match outcome {
        Ok(result) => result,
        Err(cause) => panic::resume_unwind(cause),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::{ConduitKind, Job};

    #[test]
    fn a_survived_bug_is_counted_and_reported() {
        let builder = Job::builder().expect("the settings are valid");
        let builder = builder.conduit(ConduitKind::Sim("myrinet-gm".to_owned()));
        let ends = builder.run_local(1, |job| {
            let registration = job.core().transfer.registration().expect("there is a NIC");
            assert_eq!(
                (registration.impossible(), job.counters().impossible),
                (None, 0)
            );
            for _ in 0..2 {
                // Debug builds panic at such a bug.
                let step = || registration.step(&[], |engine, out| engine.deregistered(77, out));
                let _ = catch_unwind(AssertUnwindSafe(step));
            }
            registration.step(&[], |_, _| {});
            assert_eq!(job.counters().impossible, 2);
            let met = registration.impossible().expect("the engine met one");
            Ok(bug_report(job.rank(), met))
        });
        let said = ends
            .into_iter()
            .next()
            .expect("one rank")
            .expect("the rank survives");
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
