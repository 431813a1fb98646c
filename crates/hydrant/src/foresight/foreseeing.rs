//! The predictor of a rank, and its counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

use hydrant_conduit::Sleeper;
use hydrant_foresight::plan::Stats;
use parking_lot::Mutex;

use super::record::Recorder;
use crate::progress::Progress;

/// The work of the helper, and how well it predicted the uses of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Foresight {
    /// True if there is a helper. Without one, all memory is registered on demand.
    pub is_helped: bool,
    /// Uses that found their buffer registered.
    pub found: u64,
    /// Such uses whose buffer the helper had registered.
    pub ahead: u64,
    /// Uses whose buffer was not registered.
    pub on_demand: u64,
    /// Such uses that were expected.
    pub late: u64,
    /// Registrations of the helper that were not used in time: they were early, or the use never
    /// came.
    pub early: u64,
    /// Registrations of the helper.
    pub registered_ahead: u64,
    /// Deregistrations of the helper.
    pub given_up: u64,
    /// Registrations of the helper that failed or found no room.
    pub failed: u64,
    /// Uses whose records were overwritten before the helper read them.
    pub overwritten: u64,
    /// Puts and gets that found the firehoses they needed.
    pub firehoses_found: u64,
    /// Puts and gets that did not find their firehoses, though they were expected.
    pub firehoses_late: u64,
    /// Moves of firehoses ahead of use.
    pub firehoses_moved: u64,
    /// Releases of such firehoses.
    pub firehoses_given_back: u64,
    /// The helpers on this helper's core, itself included; 0 while it has no core and rests.
    pub helpers_on_core: u32,
    /// Predictions by their error as a part of the period: up to 0.5 %, 1 %, 5 %, 20 %, and above.
    pub errors: [u64; 5],
}

/// The predictor of a rank.
pub(crate) struct Foreseeing {
    pub(super) progress: Arc<Progress>,
    pub(super) recorder: Arc<Recorder>,
    /// The last counts of the plan for own memory.
    pub(super) own_stats: Mutex<Stats>,
    /// The last counts of the plan for peers' memory, the moves of firehoses ahead, and their
    /// releases.
    pub(super) peer_stats: Mutex<(Stats, u64, u64)>,
    pub(super) registered_ahead: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) overwritten: AtomicU64,
    pub(super) is_helped: AtomicBool,
    pub(super) helpers_on_core: AtomicU32,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Foreseeing {
    /// Returns the counts of the helper so far.
    pub(crate) fn stats(&self) -> Foresight {
        let own = *self.own_stats.lock();
        let (of_peers, firehoses_moved, firehoses_given_back) = *self.peer_stats.lock();
        Foresight {
            // The helper may have ended by a defect.
            is_helped: self.is_helped.load(SeqCst)
                && (self.recorder.ends() || !self.recorder.is_over()),
            found: own.found,
            ahead: own.ahead,
            on_demand: own.on_demand,
            late: own.late,
            early: own.unused,
            registered_ahead: self.registered_ahead.load(SeqCst),
            given_up: self.given_up.load(SeqCst),
            failed: own.failed,
            overwritten: self.overwritten.load(SeqCst),
            firehoses_found: of_peers.found,
            firehoses_late: of_peers.late,
            firehoses_moved,
            firehoses_given_back,
            helpers_on_core: self.helpers_on_core.load(SeqCst),
            errors: own.errors,
        }
    }

    /// Stops the helper when the job is over here.
    pub(crate) fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        let takes_part = self.recorder.end();
        if takes_part {
            // The helper's last turn comes before this thread's next.
            let over = || self.recorder.is_over();
            while !over() {
                (self.progress.conduit()).wait(Sleeper::Nap, None, &mut || over());
            }
        }
        if thread.join().is_err() {
            tracing::error!(rank = %self.progress.rank, "the helper thread of the strategy foresight panicked");
        }
    }
}
