//! The service thread.

use std::{hint, io, sync::Arc, thread, thread::JoinHandle, time::Duration};

use hydrant_conduit::Sleeper;

use crate::{Error, Result, counters::Count, job::Core};

use std::sync::atomic::Ordering::Relaxed;

/// How long the application may leave messages alone before the service thread takes over.
/// A peer that waits for an answer does not wait so long: it [wakes](super::wait) us.
const NAP: Duration = Duration::from_millis(1);
/// Polls that find nothing before the thread blocks.
const BRIEF: u32 = 200;

/// Starts the service thread of a rank.
pub(crate) fn start_service(core: &Arc<Core>) -> Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    thread::Builder::new()
        .name(format!("hydrant-serve-{}", core.rank))
        .spawn(move || serve(&core))
        .map_err(|cause: io::Error| Error::other(cause))
}

fn serve(core: &Core) {
    let progress = &core.progress;
    let attended = || progress.attended.load(Relaxed);
    let mut seen = attended();
    while !progress.is_stopped() {
        core.conduit
            .wait(Sleeper::Nap, Some(NAP), &mut || progress.is_stopped());
        if progress.asleep.load(Relaxed) > 0 {
            // A sleeping application thread is woken by messages itself.
            progress.park_service();
            seen = attended();
            continue;
        }
        let now = attended();
        if now == seen {
            watch_over(core);
        }
        seen = attended();
    }
}

/// Answers messages while the application does not look at them.
fn watch_over(core: &Core) {
    let progress = &core.progress;
    let since = progress.attended.load(Relaxed);
    let alone = || progress.attended.load(Relaxed) == since && !progress.is_stopped();
    let mut quiet = 0;
    while alone() {
        if core.poll() > 0 {
            core.tally.one(Count::Services);
            quiet = 0;
            continue;
        }
        quiet += 1;
        if quiet < BRIEF && !progress.crowded {
            hint::spin_loop();
        } else {
            core.conduit.wait(Sleeper::Service, None, &mut || !alone());
            quiet = 0;
        }
    }
}
