//! The start of the helper thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use hydrant_foresight::{Costs, LinearCost, plan::PlanConfig};
use hydrant_pinning::Strategy;
use parking_lot::Mutex;

use super::{cores::Cores, foreseeing::Foreseeing, helper::Helper, record::Recorder};
use crate::{settings::Settings, transfer::Transfer};

/// Unnecessary evictions may cost all ranks together one part in so many of the time, once for own
/// memory and once for memory of peers. Each rank gets an equal share, because the losses of ranks
/// that wait for each other add up.
const LOST_PART: u64 = 100;

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
