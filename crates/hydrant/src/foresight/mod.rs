//! The strategy `foresight`: a helper thread gives buffers up after their use and registers them again just
//! before the next, which it predicts (Li and others 2011, §3 and §4).
//!
//! What decides is [`hydrant_foresight`], and who owns what is registered is the engine behind
//! [`registration`](crate::registration). Here are the threads: those of the application [write down](record)
//! each use, and the [helper](helper) reads that, asks the plan what to do and has the engine do it. Without a
//! helper everything is registered on demand, and stays until room is short.
//!
//! In virtual time the helper is one more thread of the rank, on a core of its own: it has turns as all have.
//!
//! # How the helper and the engine share the work
//!
//! The engine takes the place of [`hydrant_foresight::cache`]. The helper asks it to register memory ahead
//! (`Engine::foresee`) and to evict it (`Engine::give_up`). Neither holds anything, so memory in use stays, the
//! limits hold, and memory that goes is taken back as ever. The plan sets how many bytes are registered in all
//! (`Engine::keep_within`). Beyond that the engine evicts unused memory before it registers on demand, and reports
//! it (`take_crowded_out`). The plan also names the pages that long buffers share (`set_apart`).
//!
//! Peers ask for each operation, and keep only firehoses that were moved ahead. So each helper looks after its own
//! rank's memory. A put, a get and a peer's request are recorded when they begin. A message is recorded at its end, in the
//! program's order, because the network's order never repeats itself.
//!
//! Puts and gets are recorded once more as uses of the peer's memory. A second plan moves firehoses there ahead
//! (`Engine::attach`) and gives them back (`detach`). A release leaves with the operation that uses the firehoses, so
//! it is on its way before the program goes on ([`remote`]).
//!
//! Helpers that share idle cores publish what their ranks have registered (`Membership::publish`). All come to the
//! same placements ([`cores`]). In virtual time the helper takes turns from the first use on (`Clock::take_part`).

mod cores;
mod helper;
mod record;
mod remote;
mod unfinished;

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
    plan::{Config, Stats},
};
use hydrant_pinning::Strategy;
use parking_lot::Mutex;

use crate::{progress::Progress, settings::ForesightSettings, transfer::Transfer};
use cores::Cores;
use helper::Helper;
use record::Recorder;

/// Shorter uses are not worth a registration of their own (Li §2, Tezuka §2): they stay registered until room is short.
const WORTH_IT: u64 = 8 << 10;

/// One part in so many of the time may be lost by what was given up in vain, by all ranks together, for own memory and for
/// peers' each. Each rank has the same share of it, because what ranks lose that wait for each other adds up.
const LOST_PART: u64 = 100;

/// What the helper did, and how well it foresaw what the application would use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Foresight {
    /// Whether there is a helper. Without one all is registered on demand.
    pub is_helped: bool,
    /// Uses that found their buffer registered.
    pub found: u64,
    /// Those of them for which the helper had registered it.
    pub ahead: u64,
    /// Uses that had to register it themselves.
    pub on_demand: u64,
    /// Those of them that were expected, and were not registered then.
    pub late: u64,
    /// Registrations of the helper's that nobody used in time: they were early, or the use never came.
    pub early: u64,
    /// Registrations of the helper's.
    pub registered_ahead: u64,
    /// Deregistrations of the helper's.
    pub given_up: u64,
    /// Registrations of the helper's that failed, or for which there was no room.
    pub failed: u64,
    /// Uses of which the helper never heard, because it was behind.
    pub overwritten: u64,
    /// Puts and gets that found the firehoses there that they needed of the peer, of those under this strategy.
    pub firehoses_found: u64,
    /// Those that did not, though they were expected.
    pub firehoses_late: u64,
    /// Moves of firehoses ahead of need.
    pub firehoses_moved: u64,
    /// Times that firehoses were given back after it.
    pub firehoses_given_back: u64,
    /// The helpers on the core that the helper has, itself included; 0 while it has none and rests.
    pub helpers_on_core: u32,
    /// Predictions by their error as a part of the period: up to 0.5 %, 1 %, 5 %, 20 %, and above.
    pub errors: [u64; 5],
}

/// The foresight of a rank.
pub(crate) struct Foreseeing {
    progress: Arc<Progress>,
    recorder: Arc<Recorder>,
    /// What the helper last said of itself.
    said: Mutex<Stats>,
    /// And of peers' memory: the plan's count, moves ahead, and times that firehoses were given back.
    said_of_peers: Mutex<(Stats, u64, u64)>,
    registered_ahead: AtomicU64,
    given_up: AtomicU64,
    overwritten: AtomicU64,
    is_helped: AtomicBool,
    helpers_on_core: AtomicU32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Foreseeing {
    /// Begins to foresee, if that is the strategy: a helper that cannot be started is a warning.
    pub(crate) fn start(
        transfer: &Arc<Transfer>,
        settings: &ForesightSettings,
    ) -> Option<Arc<Self>> {
        let registration = transfer.registration()?;
        if registration.strategy() != Strategy::Foresight {
            return None;
        }
        let progress = &transfer.progress;
        let recorder = Arc::new(Recorder::new(progress, settings.firehoses));
        let cores = Cores::new(progress, settings);
        let this = Arc::new(Self {
            progress: Arc::clone(progress),
            recorder: Arc::clone(&recorder),
            said: Mutex::default(),
            said_of_peers: Mutex::default(),
            registered_ahead: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            is_helped: AtomicBool::new(false),
            // One that shares cores has none before it has looked.
            helpers_on_core: AtomicU32::new(u32::from(cores.is_none())),
            thread: Mutex::new(None),
        });
        let most_bytes = settings.firehoses.then(|| firehose_bytes(transfer));
        let helper = Helper::new(
            (&this, transfer),
            config(transfer, settings)?,
            most_bytes.flatten(),
            cores,
        );
        // Until the helper knows what uses need.
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
                    "the thread that foresees what is used could not be started: all is registered on demand"
                );
            }
        }
        Some(this)
    }

    /// What the helper did so far.
    pub(crate) fn stats(&self) -> Foresight {
        let said = *self.said.lock();
        let (of_peers, firehoses_moved, firehoses_given_back) = *self.said_of_peers.lock();
        Foresight {
            // It may have ended by a fault of its own.
            is_helped: self.is_helped.load(SeqCst)
                && (self.recorder.ends() || !self.recorder.is_over()),
            found: said.found,
            ahead: said.ahead,
            on_demand: said.on_demand,
            late: said.late,
            early: said.unused,
            registered_ahead: self.registered_ahead.load(SeqCst),
            given_up: self.given_up.load(SeqCst),
            failed: said.failed,
            overwritten: self.overwritten.load(SeqCst),
            firehoses_found: of_peers.found,
            firehoses_late: of_peers.late,
            firehoses_moved,
            firehoses_given_back,
            helpers_on_core: self.helpers_on_core.load(SeqCst),
            errors: said.errors,
        }
    }

    /// Ends the helper, when the job is over here.
    pub(crate) fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        let takes_part = self.recorder.end();
        if takes_part {
            // Its last turn comes before this thread's next.
            let over = || self.recorder.is_over();
            while !over() {
                (self.progress.conduit()).wait(Sleeper::Nap, None, &mut || over());
            }
        }
        if thread.join().is_err() {
            tracing::error!(rank = %self.progress.rank, "the thread that foresees what is used panicked");
        }
    }
}

/// The bytes of peers' memory that there are firehoses for.
fn firehose_bytes(transfer: &Transfer) -> Option<u64> {
    let limits = transfer.registration()?.limits();
    let peers = u64::from(transfer.progress.size.saturating_sub(1));
    let buckets = limits.share.saturating_mul(peers);
    Some(buckets.saturating_mul(limits.geometry.bucket()))
}

/// How the helper plans, by what the conduit measured or models. None where nothing is registered.
fn config(transfer: &Transfer, settings: &ForesightSettings) -> Option<Config> {
    let caps = transfer.progress.conduit().caps();
    let costs = caps.registration.as_ref()?;
    let limits = transfer.registration()?.limits();
    let ranks = u64::from(transfer.progress.size.max(1));
    let line = |it: hydrant_conduit::Cost| LinearCost {
        per_page_ns: it.per_page_ns,
        per_operation_ns: it.per_op_ns,
    };
    Some(Config {
        costs: Costs {
            register: line(costs.register),
            deregister: line(costs.deregister),
            ..Costs::TYPICAL
        },
        page_bytes: limits.geometry.bucket(),
        limit_bytes: limits.total.saturating_mul(limits.geometry.bucket()),
        lost_part: if settings.steps_back {
            LOST_PART.saturating_mul(ranks)
        } else {
            0
        },
        ..Config::DEFAULT
    })
}
