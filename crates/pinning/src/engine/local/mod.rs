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
mod pin;
mod register;
mod room;
mod transient;
mod within;

use std::collections::{BTreeMap, BTreeSet, VecDeque, hash_map::Entry};

use rustc_hash::FxHashMap;

use super::{
    impossible::Noted,
    pattern::{MissPattern, Sequence},
};
use crate::{
    BucketLimits, Decisions, Refusal, Run, Use,
    table::{BucketTable, Editor, Extent},
    wire::{Grant, Need},
};

/// The most buckets reserved for the own NIC's requests.
const RESERVE: u64 = 4;

pub use foreseen::GivenUp;
pub use within::CrowdedOut;

/// The user of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Requester {
    /// A piece of an own operation.
    Piece(u64),
    /// A piece of an own operation on memory that may come and go unseen.
    Transient(u64),
    /// A peer's move.
    Move(u64),
    /// A peer's pull.
    Pull(u64),
    /// A pull that a peer has announced.
    Ahead,
    /// Memory pinned for good, for peers.
    Pin(u64),
    /// Memory kept for good, for own operations.
    Keep(u64),
    /// Memory that the own NIC changes for this rank.
    Own(u64),
    /// Memory held for one transfer outside the engine's operations, with its lifetime.
    Held(u64, Lifetime),
    /// Memory that is expected to be needed soon.
    Foreseen(u64),
}

/// The lifetime of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lifetime {
    /// The memory stays what it is until the engine is told.
    Persistent,
    /// The memory may come and go unseen.
    Transient,
}

impl Requester {
    /// Returns true if the request may wait for others. A peer's request may not: the peer gets an
    /// answer, so that no two ranks ever wait for each other.
    fn may_wait(self) -> bool {
        matches!(self, Requester::Piece(_) | Requester::Transient(_))
    }

    /// Returns true if the registration ends with the request.
    fn is_transient(self) -> bool {
        matches!(
            self,
            Requester::Transient(_) | Requester::Held(_, Lifetime::Transient)
        )
    }

    fn is_peer(self) -> bool {
        matches!(self, Requester::Move(_))
    }
}

/// A reference on an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LocalHold {
    pub(super) slot: u32,
    /// The part of the extent that is used.
    pub(super) run: Run,
    pub(super) key: u64,
    pub(super) writable: bool,
}

impl LocalHold {
    pub(super) fn grant(&self) -> Grant {
        Grant {
            run: self.run,
            key: self.key,
            writable: self.writable,
        }
    }
}

/// The references on an extent by several holders.
#[derive(Clone, Copy, Default, Debug)]
struct HoldCount {
    count: u32,
    /// The most buckets of the extent that one holder uses.
    most: u64,
}

#[derive(Debug)]
pub(super) struct LocalRequest {
    requester: Requester,
    needs: Vec<Need>,
    used: Use,
    /// The holds, sorted by bucket once the request is done.
    pub(super) holds: Vec<LocalHold>,
    pub(super) refused: Vec<(Run, Refusal)>,
    /// The number of registrations and deregistrations that it waits for.
    pending: u32,
    /// True if there was no room, so that the request starts again when there may be.
    restart: bool,
    /// True if it may wait for room. It may not if its needs can never be met all at once, because
    /// parts of it would wait for each other.
    waits: bool,
}

/// A registration that was decided on and is not done.
#[derive(Debug)]
struct PendingRegistration {
    id: u64,
    need: Run,
    preferred: Run,
    /// The requests that wait, with the buckets that each waits for.
    waiters: Vec<(u64, Run)>,
    started: bool,
    retried: bool,
    /// True if a peer will hold it.
    pledged: bool,
    /// True if it serves only the operation of the first waiter.
    transient: bool,
}

/// A deregistration that was decided on and is not done.
#[derive(Debug)]
struct PendingDeregistration {
    run: Run,
    waiters: Vec<(u64, Need)>,
}

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

    /// Returns true if a request waits for a registration or a deregistration.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        (self.requests.get(&id)).is_some_and(|request| request.pending > 0)
    }

    /// Takes the requests that are done, with their requesters.
    pub(super) fn take_done(&mut self) -> Vec<(Requester, u64)> {
        std::mem::take(&mut self.done)
    }

    /// Begins a request. It is done when [`take_done`](Self::take_done) returns it.
    pub(super) fn request(
        &mut self,
        requester: Requester,
        needs: Vec<Need>,
        used: Use,
        out: &mut Decisions,
    ) -> u64 {
        let id = self.next_id();
        let request = LocalRequest {
            requester,
            needs,
            used,
            holds: Vec::new(),
            refused: Vec::new(),
            pending: 0,
            restart: false,
            waits: requester.may_wait(),
        };
        self.requests.insert(id, request);
        if requester.may_wait() && !self.queue.is_empty() {
            // The order is kept: the requests before it wait, too.
            self.stats.stalls += 1;
            self.queue.insert(id);
        } else {
            self.begin(id, out);
            if self.queue.contains(&id) {
                // Its own holds may have been in its way.
                self.retry(out);
            }
        }
        id
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

    /// Returns an open request.
    pub(super) fn get(&self, id: u64) -> Option<&LocalRequest> {
        self.requests.get(&id)
    }

    /// Returns true if a request waits for a registration, or for room.
    pub(super) fn is_open(&self, id: u64) -> bool {
        let open = |request: &LocalRequest| request.pending > 0;
        self.queue.contains(&id) || self.requests.get(&id).is_some_and(open)
    }

    /// Ends a request and gives its references back. With `unpin`, extents that nobody else uses
    /// are deregistered at once.
    pub(super) fn end(&mut self, id: u64, unpin: bool, out: &mut Decisions) {
        let Some(request) = self.requests.remove(&id) else {
            return self.impossible.note("a request ends twice");
        };
        self.queue.remove(&id);
        self.drop_holds(id, &request.holds, unpin, out);
        self.retry(out);
    }

    /// Hands a request's holds to a peer, with the preferred buckets that were registered around
    /// them. They stay held until [`detach`](Self::detach).
    pub(super) fn attach(&mut self, id: u64) -> Vec<LocalHold> {
        let Some(mut request) = self.requests.remove(&id) else {
            return Vec::new();
        };
        for index in 0..request.holds.len() {
            let next = request.holds.get(index + 1).map(|hold| hold.run.first);
            let hold = &mut request.holds[index];
            let extent = self.editor.extent(hold.slot);
            let preferred = (request.needs.iter())
                .find(|need| need.run.overlaps(hold.run))
                .map_or(hold.run.end(), |need| need.preferred.end());
            let end = preferred.min(extent.end).min(next.unwrap_or(u64::MAX));
            hold.run.count = end.max(hold.run.end()) - hold.run.first;
            let held = self.outside.entry(extent.base).or_default();
            if held.count == 0 {
                self.attached += extent.end - extent.base;
            }
            held.count += 1;
            held.most = held.most.max(hold.run.count);
        }
        request.holds
    }

    /// Keeps a request's holds registered for good, each extent once.
    fn attach_for_good(&mut self, id: u64, out: &mut Decisions) -> Vec<LocalHold> {
        let holds = self.attach(id);
        for hold in &holds {
            let base = self.editor.extent(hold.slot).base;
            // There is one reference for each extent, on the slot that was noted first.
            match self.kept.entry(base) {
                Entry::Occupied(_) => self.detach(hold.slot, false, out),
                Entry::Vacant(place) => _ = place.insert(hold.slot),
            }
        }
        holds
    }

    /// Counts a request's extents as permanent, so that nobody waits for their room.
    fn settle_for_good(&mut self, id: u64) {
        if let Some(request) = self.requests.get(&id) {
            self.permanent += self.extents(request).iter().map(|it| it.count).sum::<u64>();
        }
    }

    /// Takes back one reference of a peer.
    pub(super) fn detach(&mut self, slot: u32, unpin: bool, out: &mut Decisions) {
        let extent = self.editor.extent(slot);
        if let Some(held) = self.outside.get_mut(&extent.base) {
            held.count -= 1;
            if held.count == 0 {
                self.outside.remove(&extent.base);
                self.attached -= extent.end - extent.base;
            }
        }
        let unused = self.editor.drop_reference(slot);
        if unused && unpin {
            self.evict(slot, out);
        }
    }

    /// Queues a bucket again that an attempt to hit held for a moment without telling a waiter.
    pub(super) fn recover_missed_release(&mut self, bucket: u64, out: &mut Decisions) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
        self.sweep(out);
        self.retry(out);
    }

    /// Queues a record again whose last awaited reference was given back without the lock.
    pub(super) fn released(&mut self, slot: u32, out: &mut Decisions) {
        self.editor.requeue(slot);
        self.sweep(out);
        self.retry(out);
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

    /// Evicts all extents of a run, even those kept for good, where nobody holds them. The caller
    /// tries again when something was given back. No peer uses the extents kept for good.
    pub(super) fn give_up(&mut self, run: Run, out: &mut Decisions) {
        for extent in self.editor.extents_in(run) {
            if let Some(slot) = self.kept.remove(&extent.first) {
                self.detach(slot, false, out);
            }
        }
        self.withdraw(run, out);
    }

    /// Evicts the extents of a run that nobody holds, and closes the others to new holders.
    pub(super) fn withdraw(&mut self, run: Run, out: &mut Decisions) {
        for extent in self.editor.extents_in(run) {
            if let Some(slot) = self.editor.get(extent.first)
                && !self.evict(slot, out)
            {
                // The last holder's release leads here again.
                self.editor.close(slot);
            }
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn begin(&mut self, id: u64, out: &mut Decisions) {
        let Some(request) = self.requests.get_mut(&id) else {
            return self.impossible.note("a request begins after its end");
        };
        request.pending = 1;
        request.restart = false;
        let needs = request.needs.clone();
        for need in needs {
            self.cover(id, need, out);
        }
        self.finish_wait(id, out);
    }

    fn resume(&mut self, id: u64, need: Need, out: &mut Decisions) {
        if self.requests.contains_key(&id) {
            self.cover(id, need, out);
            self.finish_wait(id, out);
        }
    }

    fn finish_wait(&mut self, id: u64, out: &mut Decisions) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.pending -= 1;
            self.finish_if_ready(id, out);
        }
    }

    /// Finishes a request that waits for nothing: it is done, or waits for room.
    fn finish_if_ready(&mut self, id: u64, out: &mut Decisions) {
        let Some(request) = self.requests.get_mut(&id) else {
            return self.impossible.note("a request is looked at after its end");
        };
        if request.pending > 0 {
            return;
        }
        if request.restart {
            let holds = std::mem::take(&mut request.holds);
            request.refused.clear();
            self.stats.stalls += 1;
            self.queue.insert(id);
            self.drop_holds(id, &holds, false, out);
            return;
        }
        request.holds.sort_unstable_by_key(|hold| hold.run.first);
        self.done.push((request.requester, id));
    }

    fn drop_holds(&mut self, of: u64, holds: &[LocalHold], unpin: bool, out: &mut Decisions) {
        for hold in holds {
            let base = self.editor.extent(hold.slot).base;
            let unused = self.editor.drop_reference(hold.slot);
            if self.transient.get(&base) == Some(&of) {
                self.end_transient(base, out);
            } else if unused && unpin {
                self.evict(hold.slot, out);
            }
        }
        self.sweep(out);
    }

    fn with_request(&mut self, id: u64, change: impl FnOnce(&mut LocalRequest)) {
        if let Some(request) = self.requests.get_mut(&id) {
            change(request);
        }
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
