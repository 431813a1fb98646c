//! The service thread.

use std::{
    hint, io,
    sync::Arc,
    thread,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hydrant_conduit::Sleeper;

use crate::{Error, Result, counters::Count, job::Core};

use std::sync::atomic::Ordering::Relaxed;

/// How long the application may leave messages alone before the service thread takes over.
/// A peer that waits for an answer does not wait so long: it [wakes](super::wait) us.
const NAP: Duration = Duration::from_millis(1);
/// Naps during which an application thread may stay inside one call. Who waits for an answer
/// wakes the service thread out of one.
const NAPS_INSIDE: u32 = 100;
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
    let mut seen = progress.attended();
    let mut inside = 0;
    while !progress.is_stopped() {
        let since = Instant::now();
        core.conduit
            .wait(Sleeper::Nap, Some(NAP), &mut || progress.is_stopped());
        if progress.asleep.load(Relaxed) > 0 {
            // A sleeping application thread is woken by messages itself.
            progress.park_service();
        } else if progress.attended() == seen {
            if progress.is_inside() && inside < NAPS_INSIDE && since.elapsed() >= NAP {
                inside += 1;
                continue;
            }
            watch_over(core);
        }
        inside = 0;
        seen = progress.attended();
    }
}

/// Answers messages while the application does not look at them.
fn watch_over(core: &Core) {
    let progress = &core.progress;
    let (since, was_inside) = (progress.attended(), progress.is_inside());
    // Who is found inside a call has been there for long.
    let alone = || {
        let enters = progress.is_inside() && !was_inside;
        progress.attended() == since && !enters && !progress.is_stopped()
    };
    let mut quiet = 0;
    // Once in any case: a peer may have asked for it.
    loop {
        if core.poll() > 0 {
            core.tally.one(Count::Services);
            quiet = 0;
        } else {
            quiet += 1;
        }
        if !alone() {
            return;
        }
        if quiet == 0 {
            continue;
        }
        if quiet < BRIEF && !progress.crowded {
            hint::spin_loop();
        } else {
            core.conduit.wait(Sleeper::Service, None, &mut || !alone());
            quiet = 0;
        }
    }
}
