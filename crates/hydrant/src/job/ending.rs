//! How a rank leaves.

use std::{
    io::{self, Write},
    sync::Arc,
    thread::JoinHandle,
};

use super::{Core, Job};
use crate::Result;

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

/// Waits until every rank's body has returned, answering them meanwhile.
pub(super) fn wait_for_all(job: &Job) -> Result<()> {
    job.world().end()
}

/// Tells the peers and the launcher, stops the service thread, and makes every handle that
/// is left useless.
pub(super) fn leave(core: &Arc<Core>, service: Option<JoinHandle<()>>, end: End) {
    core.progress.stop();
    if let Some(service) = service
        && service.join().is_err()
    {
        tracing::error!(rank = %core.progress.rank, "the service thread panicked");
    }
    core.memory.close();
    if end == End::Failed {
        // Before the peers hear of it and fail, too. Only our own launcher listens.
        let _ = core.bootstrap().put(hydrant_launch::FAILING, b"1");
    }
    core.progress.conduit().leave(end == End::Orderly);
    if end == End::Orderly {
        let mut bootstrap = core.bootstrap();
        if let Err(cause) = bootstrap.finalize() {
            tracing::warn!(%cause, "the launcher did not take the goodbye");
        }
    }
    if core.settings.counters {
        let counters = format!(
            "counters of rank {}\n{}\n",
            core.progress.rank,
            core.progress.tally.snapshot()
        );
        // Nobody may read it, which is no reason to panic.
        let _ = io::stderr().write_all(counters.as_bytes());
    }
}
