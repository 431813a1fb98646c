//! The predictor of a rank: its helper thread, and the counts of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
};

use hydrant_conduit::Sleeper;
use hydrant_foresight::{
    Costs, LinearCost,
    plan::{PlanConfig, Stats},
};
use hydrant_pinning::Strategy;
use parking_lot::Mutex;

use super::{cores::Cores, helper::Helper, record::Recorder};
use crate::{progress::Progress, settings::Settings, transfer::Transfer};

/// Shorter uses are not worth a registration of their own (Li §2, Tezuka §2). They stay registered
/// until room is short.
pub(super) const SHORTEST_RECORDED: u64 = 8 << 10;

/// Unnecessary evictions may cost all ranks together one part in so many of the time, once for own
/// memory and once for memory of peers. Each rank gets an equal share, because the losses of ranks
/// that wait for each other add up.
const LOST_PART: u64 = 100;

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
    progress: Arc<Progress>,
    pub(super) recorder: Arc<Recorder>,
    /// The last counts of the plan for own memory.
    pub(super) own_stats: Mutex<Stats>,
    /// The last counts of the plan for peers' memory, the moves of firehoses ahead, and their
    /// releases.
    pub(super) peer_stats: Mutex<(Stats, u64, u64)>,
    pub(super) registered_ahead: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) overwritten: AtomicU64,
    is_helped: AtomicBool,
    pub(super) helpers_on_core: AtomicU32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Foreseeing {
    /// Starts the helper, if the strategy is `foresight`. If the thread cannot be started, this
    /// logs a warning.
    pub(crate) fn start(transfer: &Arc<Transfer>, settings: &Settings) -> Option<Arc<Self>> {
        let registration = transfer.registration()?;
        if registration.strategy() != Strategy::Foresight {
            return None;
        }
        let progress = &transfer.progress;
        let recorder = Arc::new(Recorder::new(progress, settings.foresight_firehoses));
        let cores = Cores::new(progress, settings);
        let this = Arc::new(Self {
            progress: Arc::clone(progress),
            recorder: Arc::clone(&recorder),
            own_stats: Mutex::default(),
            peer_stats: Mutex::default(),
            registered_ahead: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            is_helped: AtomicBool::new(false),
            // A helper that shares cores has none before its first check.
            helpers_on_core: AtomicU32::new(u32::from(cores.is_none())),
            thread: Mutex::new(None),
        });
        let most_bytes = settings
            .foresight_firehoses
            .then(|| firehose_bytes(transfer));
        let helper = Helper::new(
            (&this, transfer),
            config(transfer, settings)?,
            most_bytes.flatten(),
            cores,
        );
        // Until the helper knows the needs of uses.
        registration.keep_within(0);
        let started = thread::Builder::new()
            .name(format!("hydrant-foresee-{}", progress.rank))
            .spawn(move || helper.run());
        match started {
            Ok(thread) => {
                this.is_helped.store(true, SeqCst);
                *this.thread.lock() = Some(thread);
                registration.tell_uses_to(recorder);
            }
            Err(cause) => {
                registration.keep_within(u64::MAX);
                tracing::warn!(
                    rank = %progress.rank, %cause,
                    "the helper thread of the strategy foresight could not be started: all memory is registered on demand"
                );
            }
        }
        Some(this)
    }

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

/// Returns the bytes of peers' memory that this rank has firehoses for.
fn firehose_bytes(transfer: &Transfer) -> Option<u64> {
    let limits = transfer.registration()?.limits();
    let peers = u64::from(transfer.progress.size.saturating_sub(1));
    let buckets = limits.share.saturating_mul(peers);
    Some(buckets.saturating_mul(limits.geometry.bucket()))
}

/// Returns the configuration of the plan, from the measured or modelled costs of the conduit.
/// Returns `None` if nothing is registered.
fn config(transfer: &Transfer, settings: &Settings) -> Option<PlanConfig> {
    let caps = transfer.progress.conduit().caps();
    let costs = caps.registration.as_ref()?;
    let limits = transfer.registration()?.limits();
    let ranks = u64::from(transfer.progress.size.max(1));
    let line = |it: hydrant_conduit::Cost| LinearCost {
        per_page_ns: it.per_page_ns,
        per_operation_ns: it.per_op_ns,
    };
    Some(PlanConfig {
        costs: Costs {
            register: line(costs.register),
            deregister: line(costs.deregister),
            ..Costs::TYPICAL
        },
        page_bytes: limits.geometry.bucket(),
        limit_bytes: limits.total.saturating_mul(limits.geometry.bucket()),
        lost_part: if settings.foresight_steps_back {
            LOST_PART.saturating_mul(ranks)
        } else {
            0
        },
        ..PlanConfig::DEFAULT
    })
}
