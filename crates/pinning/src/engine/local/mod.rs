//! The local bucket table: the registrations of own memory, and their users (Table 1).
//!
//! A *request* has runs of own buckets registered and held for somebody: a piece of an own
//! operation, a peer's move, a peer's pull, or memory pinned for good. It holds one reference on
//! each extent that it uses. Missing buckets are registered, and victims are evicted as far as the
//! limits demand. The request waits for registrations in flight.
//!
//! Two counts keep the limit. `planned` has the buckets that are registered once every decision so
//! far is carried out. `actual` has the buckets that the system may have registered at this moment.
//! A decision needs room in `planned`, and a registration starts when there is room in `actual`. So
//! it comes after the deregistrations that made its room, whichever threads carry them out.

mod audit;
mod cover;
mod foreseen;
mod holds;
mod pin;
mod register;
mod request;
mod room;
mod steps;
mod transient;
mod usage;
mod within;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::{
    impossible::Noted,
    pattern::{MissPattern, Sequence},
};
use crate::{
    BucketLimits, Run,
    table::{BucketTable, Editor, Extent},
    wire::Need,
};

/// The most buckets reserved for the own NIC's requests.
const RESERVE: u64 = 4;

pub use foreseen::GivenUp;
use request::{HoldCount, PendingDeregistration, PendingRegistration};
pub(super) use request::{Lifetime, LocalHold, LocalRequest, Requester};
pub use within::CrowdedOut;

/// The counts of the local table's work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocalStats {
    /// Registrations asked for.
    pub registrations: u64,
    /// Of those, the registrations ahead of need.
    pub ahead: u64,
    /// Registrations that failed.
    pub failed: u64,
    /// Deregistrations asked for.
    pub deregistrations: u64,
    /// The buckets registered now, as far as the system may know.
    pub registered: u64,
    /// The most buckets registered at once.
    pub peak: u64,
    /// The number of waits for room.
    pub stalls: u64,
}

/// The local bucket table.
#[derive(Debug)]
pub(super) struct LocalTable {
    /// This rank, for errors; never changed.
    rank: u32,
    /// The limits in buckets; never changed.
    limits: BucketLimits,
    /// True if victims may fill the part of M that peers leave unused; never changed.
    adaptive: bool,
    /// The most buckets that peers together may hold.
    peers_limit: u64,
    /// The buckets reserved for requests of the [own](Requester::Own) NIC.
    reserve: u64,
    /// The registered buckets, with a record for each, and the queue of victims.
    editor: Editor,
    /// The open requests, by name.
    requests: FxHashMap<u64, LocalRequest>,
    /// The next name of a request, a registration or a deregistration.
    next: u64,
    /// The buckets that are registered once every decision so far is carried out.
    planned: u64,
    /// The buckets that the system may have registered at this moment.
    actual: u64,
    /// The buckets of extents that peers hold.
    attached: u64,
    /// The buckets being registered for peers.
    pledged: u64,
    /// The buckets kept for good for own operations.
    permanent: u64,
    /// The references of peers on each extent, by its first bucket.
    outside: FxHashMap<u64, HoldCount>,
    /// The slots of extents kept for good, by first bucket.
    kept: FxHashMap<u64, u32>,
    /// The extents of transient memory, by first bucket, with the request that had each registered.
    transient: FxHashMap<u64, u64>,
    /// Of those, the extents whose request has ended while others hold them, by first bucket.
    ending_transient: BTreeSet<u64>,
    /// The open registrations, by first bucket of the preferred run.
    registering: BTreeMap<u64, PendingRegistration>,
    /// The first buckets of registrations that wait for room in `actual`, the oldest first.
    starting: VecDeque<u64>,
    /// The open deregistrations, by first bucket.
    deregistering: BTreeMap<u64, PendingDeregistration>,
    /// The first bucket of each deregistration, by the name that the driver reports.
    deregistering_ids: FxHashMap<u64, u64>,
    /// The first bucket of each registration, by the name that the driver reports.
    registering_ids: FxHashMap<u64, u64>,
    /// The requests that wait for room, the oldest first.
    queue: BTreeSet<u64>,
    /// The pattern of own operations' misses, which sets the width of registrations.
    pattern: MissPattern,
    /// The counts of its work.
    stats: LocalStats,
    /// The requests whose memory is held for the own NIC, by the driver's name.
    own: FxHashMap<u64, u64>,
    /// The buckets that are registered by themselves, because neighbouring buffers share them.
    apart: BTreeSet<u64>,
    /// The limit below the limits, and the extents evicted for it.
    within: within::Within,
    /// The requests done since the last [`take_done`](Self::take_done).
    done: Vec<(Requester, u64)>,
    /// The impossible states that it met.
    impossible: Noted,
}

impl LocalTable {
    /// Makes a table. With `adaptive`, victims may fill the part of M that peers leave unused.
    /// `peers_limit` is the most buckets that peers together may hold.
    pub(super) fn new(rank: u32, limits: BucketLimits, adaptive: bool, peers_limit: u64) -> Self {
        Self {
            rank,
            limits,
            adaptive,
            peers_limit,
            reserve: 0,
            editor: Editor::new(),
            requests: FxHashMap::default(),
            next: 1,
            planned: 0,
            actual: 0,
            attached: 0,
            pledged: 0,
            permanent: 0,
            outside: FxHashMap::default(),
            kept: FxHashMap::default(),
            transient: FxHashMap::default(),
            ending_transient: BTreeSet::new(),
            registering: BTreeMap::new(),
            starting: VecDeque::new(),
            deregistering: BTreeMap::new(),
            deregistering_ids: FxHashMap::default(),
            registering_ids: FxHashMap::default(),
            queue: BTreeSet::new(),
            pattern: MissPattern::default(),
            stats: LocalStats::default(),
            own: FxHashMap::default(),
            apart: BTreeSet::new(),
            within: within::Within::default(),
            done: Vec::new(),
            impossible: Noted::default(),
        }
    }

    pub(super) fn stats(&self) -> LocalStats {
        self.stats
    }

    pub(super) fn impossible(&self) -> &Noted {
        &self.impossible
    }

    pub(super) fn table(&self) -> &std::sync::Arc<BucketTable> {
        self.editor.table()
    }

    /// Reserves buckets for requests of the own NIC, which then find room whatever is in flight.
    /// Returns false if there are too few.
    pub(super) fn set_reserve(&mut self) -> bool {
        self.reserve = (self.limits.victims / 4).min(RESERVE);
        self.reserve > 0
    }

    pub(super) fn is_crowded(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the requests that are done, with their requesters.
    pub(super) fn take_done(&mut self) -> Vec<(Requester, u64)> {
        std::mem::take(&mut self.done)
    }

    /// The need of an operation: the run of its bytes, widened as the pattern suggests.
    pub(super) fn need_for(&mut self, run: Run, bytes: Sequence) -> Need {
        let most = self.limits.amortised.min(self.limits.victims / 4);
        let geometry = self.limits.geometry;
        let width = (self.pattern).width(run, most, |end| bytes.end_by(end, geometry));
        Need {
            run,
            preferred: Run {
                first: run.first,
                count: width,
            },
        }
    }

    /// Returns true if any bucket of the run is registered.
    pub(super) fn touches(&self, run: Run) -> bool {
        !self.editor.extents_in(run).is_empty()
    }

    /// Returns true if any bucket of the run is about to be registered or deregistered. The cost
    /// does not grow with the run, only with the deregistrations in flight.
    pub(super) fn is_changing(&self, run: Run) -> bool {
        let comes = (self.registering.range(..run.end()).next_back())
            .is_some_and(|(_, registering)| registering.preferred.end() > run.first);
        let leaves = (self.deregistering.range(..run.end()).next_back())
            .is_some_and(|(_, deregistering)| deregistering.run.end() > run.first);
        // A request that waits for a deregistration may register more than that, beyond it.
        let follows = |(id, need): &(u64, Need)| {
            need.preferred.overlaps(run) && self.requests.contains_key(id)
        };
        let mut deregistering = self.deregistering.values();
        comes || leaves || deregistering.any(|it| it.waiters.iter().any(follows))
    }

    /// The run together with the extents that have a bucket of it.
    pub(super) fn reach(&self, run: Run) -> Run {
        let extents = self.editor.extents_in(run);
        let first = (extents.first()).map_or(run.first, |extent| extent.first.min(run.first));
        let end = (extents.last()).map_or(run.end(), |extent| extent.end().max(run.end()));
        Run {
            first,
            count: end - first,
        }
    }

    /// The extents with a bucket of a run that are not kept for good.
    pub(super) fn passing_extents(&self, run: Run) -> Vec<Run> {
        let mut extents = self.editor.extents_in(run);
        extents.retain(|extent| !self.kept.contains_key(&extent.first));
        extents
    }

    /// Returns true if any extent of a run is pinned for good, so that all peers know it.
    pub(super) fn is_pinned(&self, run: Run) -> bool {
        let extents = self.editor.extents_in(run);
        (extents.iter()).any(|extent| self.kept.contains_key(&extent.first))
    }

    /// The whole extent of a slot.
    pub(super) fn extent(&self, slot: u32) -> Run {
        run_of(&self.editor.extent(slot))
    }

    /// The extents that a request holds.
    pub(super) fn extents(&self, request: &LocalRequest) -> Vec<Run> {
        let extents = request
            .holds
            .iter()
            .map(|hold| self.editor.extent(hold.slot));
        extents.map(|extent| run_of(&extent)).collect()
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

fn run_of(extent: &Extent) -> Run {
    Run {
        first: extent.base,
        count: extent.end - extent.base,
    }
}

/// The need for exactly this run.
fn exact_need(run: Run) -> Need {
    Need {
        run,
        preferred: run,
    }
}
