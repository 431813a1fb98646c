//! The local bucket table: what of own memory is registered, and for whom (Table 1).
//!
//! A *request* is somebody's wish to have runs of own buckets registered and held: a piece of an
//! own operation, a peer's move, a peer's pull, or memory pinned for good. It holds one
//! reference on each extent it uses. What is missing is registered, victims being given up
//! for it as far as the limits ask; what is on its way is waited for.
//!
//! Two counts keep the limit: `planned`, the buckets registered once everything decided so far
//! is done, and `actual`, those that the system may have registered at this moment. A decision
//! needs room in `planned`; a registration starts when there is room in `actual`, so that
//! it comes after the deregistrations that made its room, whichever threads do them.

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
    pattern::{Pattern, Sequence},
};
use crate::{
    Decisions, Limits, Refusal, Run, Use,
    table::{BucketTable, Editor, Extent},
    wire::{Grant, Need},
};

/// Buckets set aside for own requests, at most.
const RESERVE: u64 = 4;

pub use foreseen::GivenUp;
pub use within::CrowdedOut;

/// For whom memory is registered.
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
    /// A pull that a peer said is coming.
    Ahead,
    /// Memory pinned for good, for peers.
    Pin(u64),
    /// Memory kept for good, for own operations.
    Keep(u64),
    /// Memory that the own NIC changes for this rank.
    Own(u64),
    /// Memory held for one transfer that is not an operation of the engine's, and whether it lasts beyond that.
    Held(u64, Lasting),
    /// Memory that is expected to be needed soon.
    Foreseen(u64),
}

/// Whether memory stays what it is until the engine is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lasting {
    Yes,
    /// It may come and go unseen.
    No,
}

impl Requester {
    /// Whether it may wait until others are done. A peer may not: it gets an answer, so that no
    /// rank ever waits for one that waits for it.
    fn may_wait(self) -> bool {
        matches!(self, Requester::Piece(_) | Requester::Transient(_))
    }

    /// Whether what is registered for it is deregistered when it is over.
    fn is_transient(self) -> bool {
        matches!(
            self,
            Requester::Transient(_) | Requester::Held(_, Lasting::No)
        )
    }

    fn is_peer(self) -> bool {
        matches!(self, Requester::Move(_))
    }
}

/// A reference on an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hold {
    pub(super) slot: u32,
    /// The part of the extent that is used.
    pub(super) run: Run,
    pub(super) key: u64,
    pub(super) writable: bool,
}

impl Hold {
    pub(super) fn grant(&self) -> Grant {
        Grant {
            run: self.run,
            key: self.key,
            writable: self.writable,
        }
    }
}

/// References on an extent by some who hold it.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    count: u32,
    /// The most buckets of it that one of them uses.
    most: u64,
}

#[derive(Debug)]
pub(super) struct Request {
    requester: Requester,
    needs: Vec<Need>,
    used: Use,
    /// Sorted by bucket once the request is done.
    pub(super) holds: Vec<Hold>,
    pub(super) refused: Vec<(Run, Refusal)>,
    /// Registrations and deregistrations waited for.
    pending: u32,
    /// There was no room: to be begun anew when there may be.
    restart: bool,
    /// Whether it may wait for room. Not if all of it can never be there at once: parts of it
    /// would wait for each other.
    waits: bool,
}

/// A registration decided on.
#[derive(Debug)]
struct Registering {
    id: u64,
    need: Run,
    preferred: Run,
    /// Requests, and the buckets each of them waits for.
    waiters: Vec<(u64, Run)>,
    started: bool,
    retried: bool,
    /// Whether a peer will hold it.
    pledged: bool,
    /// Whether it is of use only to the operation of the request that waits first.
    transient: bool,
}

/// A deregistration decided on.
#[derive(Debug)]
struct Deregistering {
    run: Run,
    waiters: Vec<(u64, Need)>,
}

/// How often what happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocalStats {
    /// Registrations asked for.
    pub registrations: u64,
    /// Those of them ahead of need.
    pub ahead: u64,
    /// Registrations that failed.
    pub failed: u64,
    /// Deregistrations asked for.
    pub deregistrations: u64,
    /// Buckets registered now, as far as the system may know.
    pub registered: u64,
    /// At most.
    pub peak: u64,
    /// Times that something waited for room.
    pub stalls: u64,
}

/// The local table's state.
#[derive(Debug)]
pub(super) struct Local {
    /// This rank, for errors; never changed.
    rank: u32,
    /// The limits in buckets; never changed.
    limits: Limits,
    /// Whether victims may fill what peers leave unused; never changed.
    adaptive: bool,
    /// Buckets that peers together may hold.
    peers_limit: u64,
    /// Buckets of what may be registered that are for [own](Requester::Own) requests alone.
    reserve: u64,
    /// What is registered: a record for each bucket, and the queue of victims.
    editor: Editor,
    /// Requests that are not over, by name.
    requests: FxHashMap<u64, Request>,
    /// The next name of a request, a registration or a deregistration.
    next: u64,
    /// Buckets registered once everything decided so far is done.
    planned: u64,
    /// Buckets that the system may have registered at this moment.
    actual: u64,
    /// Buckets of extents that peers hold.
    attached: u64,
    /// Buckets being registered for peers.
    pledged: u64,
    /// Buckets kept for good for own operations.
    permanent: u64,
    /// References by peers, for each extent they hold; by its first bucket.
    outside: FxHashMap<u64, Held>,
    /// Extents kept for good: their records, by first bucket.
    kept: FxHashMap<u64, u32>,
    /// Extents of memory that may come and go unseen: by first bucket, the request that had them
    /// registered.
    transient: FxHashMap<u64, u64>,
    /// Those of them whose request is over, though others hold them still; by first bucket.
    ending_transient: BTreeSet<u64>,
    /// Registrations decided on and not done, by first bucket of what is preferred.
    registering: BTreeMap<u64, Registering>,
    /// First buckets of registrations that wait for room in `actual`, the older first.
    starting: VecDeque<u64>,
    /// Deregistrations decided on and not done, by first bucket.
    deregistering: BTreeMap<u64, Deregistering>,
    /// The first bucket of each deregistration, by the name that the driver reports.
    deregistering_ids: FxHashMap<u64, u64>,
    /// The first bucket of each registration, by the name that the driver reports.
    registering_ids: FxHashMap<u64, u64>,
    /// Requests that wait for room: the older first.
    queue: BTreeSet<u64>,
    /// How own operations miss, which says how wide to register for them.
    pattern: Pattern,
    /// What it did so far.
    stats: LocalStats,
    /// Requests whose memory is held for the own NIC, by the driver's name for each.
    own: FxHashMap<u64, u64>,
    /// Buckets that are registered by themselves, because buffers that lie side by side share them.
    apart: BTreeSet<u64>,
    /// How much is to be registered, if that is less than the limits.
    within: within::Within,
    /// Requests done since they were last [taken](Self::take_done).
    done: Vec<(Requester, u64)>,
    /// The bugs that it met.
    impossible: Noted,
}

impl Local {
    /// `adaptive`: whether victims may fill what peers leave unused. `peers_limit`: buckets that
    /// peers together may hold.
    pub(super) fn new(rank: u32, limits: Limits, adaptive: bool, peers_limit: u64) -> Self {
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
            pattern: Pattern::default(),
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

    /// Sets buckets aside for own requests, which then find room whatever else is under way; if
    /// there is enough beside them.
    pub(super) fn set_reserve(&mut self) -> bool {
        self.reserve = (self.limits.victims / 4).min(RESERVE);
        self.reserve > 0
    }

    pub(super) fn is_crowded(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a request waits for the system.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        (self.requests.get(&id)).is_some_and(|request| request.pending > 0)
    }

    /// Requests done, with their requesters.
    pub(super) fn take_done(&mut self) -> Vec<(Requester, u64)> {
        std::mem::take(&mut self.done)
    }

    /// Begins a request; it is done when [`take_done`](Self::take_done) says so.
    pub(super) fn request(
        &mut self,
        requester: Requester,
        needs: Vec<Need>,
        used: Use,
        out: &mut Decisions,
    ) -> u64 {
        let id = self.next_id();
        let request = Request {
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
            // In order: those before it wait, too.
            self.stats.stalls += 1;
            self.queue.insert(id);
        } else {
            self.begin(id, out);
            if self.queue.contains(&id) {
                // What it held itself may have been in its way.
                self.retry(out);
            }
        }
        id
    }

    /// The request of an operation around the run of its bytes, widened as its pattern suggests.
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

    /// What a request has; it goes on holding it.
    pub(super) fn get(&self, id: u64) -> Option<&Request> {
        self.requests.get(&id)
    }

    /// Whether a request waits for a registration, or for room.
    pub(super) fn is_open(&self, id: u64) -> bool {
        let open = |request: &Request| request.pending > 0;
        self.queue.contains(&id) || self.requests.get(&id).is_some_and(open)
    }

    /// Ends a request: its references are given back, and what nobody else uses is deregistered
    /// at once, if it is to be `unpinned`.
    pub(super) fn end(&mut self, id: u64, unpin: bool, out: &mut Decisions) {
        let Some(request) = self.requests.remove(&id) else {
            return self.impossible.note("a request ends twice");
        };
        self.queue.remove(&id);
        self.drop_holds(id, &request.holds, unpin, out);
        self.retry(out);
    }

    /// Hands what a request holds to a peer, and what was registered around it because that was preferred:
    /// it stays held until [`detach`](Self::detach).
    pub(super) fn attach(&mut self, id: u64) -> Vec<Hold> {
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

    /// Keeps what a request holds registered for good, each extent once.
    fn attach_for_good(&mut self, id: u64, out: &mut Decisions) -> Vec<Hold> {
        let holds = self.attach(id);
        for hold in &holds {
            let base = self.editor.extent(hold.slot).base;
            // One reference an extent, on the record that was noted first.
            match self.kept.entry(base) {
                Entry::Occupied(_) => self.detach(hold.slot, false, out),
                Entry::Vacant(place) => _ = place.insert(hold.slot),
            }
        }
        holds
    }

    /// What a request holds stays so for good: nobody waits for its room.
    fn settle_for_good(&mut self, id: u64) {
        if let Some(request) = self.requests.get(&id) {
            self.permanent += self.extents(request).iter().map(|it| it.count).sum::<u64>();
        }
    }

    /// Takes back one reference that a peer had.
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

    /// A hit found one side only, and nobody was told when it gave that back.
    pub(super) fn missed(&mut self, bucket: u64, out: &mut Decisions) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
        self.sweep(out);
        self.retry(out);
    }

    /// A reference taken without the lock was the last of a record that was looked for.
    pub(super) fn released(&mut self, slot: u32, out: &mut Decisions) {
        self.editor.requeue(slot);
        self.sweep(out);
        self.retry(out);
    }

    /// Whether some bucket of the run is registered.
    pub(super) fn touches(&self, run: Run) -> bool {
        !self.editor.extents_in(run).is_empty()
    }

    /// Whether some bucket of the run is about to be registered, or is just being given up. Costs
    /// the same however long the run is, and more for each that is being deregistered.
    pub(super) fn is_changing(&self, run: Run) -> bool {
        let comes = (self.registering.range(..run.end()).next_back())
            .is_some_and(|(_, registering)| registering.preferred.end() > run.first);
        let leaves = (self.deregistering.range(..run.end()).next_back())
            .is_some_and(|(_, deregistering)| deregistering.run.end() > run.first);
        // Who waits for a deregistration may register more than that, behind it.
        let follows = |(id, need): &(u64, Need)| {
            need.preferred.overlaps(run) && self.requests.contains_key(id)
        };
        let mut deregistering = self.deregistering.values();
        comes || leaves || deregistering.any(|it| it.waiters.iter().any(follows))
    }

    /// A run and the extents that have a bucket of it.
    pub(super) fn reach(&self, run: Run) -> Run {
        let extents = self.editor.extents_in(run);
        let first = (extents.first()).map_or(run.first, |extent| extent.first.min(run.first));
        let end = (extents.last()).map_or(run.end(), |extent| extent.end().max(run.end()));
        Run {
            first,
            count: end - first,
        }
    }

    /// Whether some extent of a run was pinned for good, and all peers were told so.
    pub(super) fn is_pinned(&self, run: Run) -> bool {
        let extents = self.editor.extents_in(run);
        (extents.iter()).any(|extent| self.kept.contains_key(&extent.first))
    }

    /// The whole extent of a record.
    pub(super) fn extent(&self, slot: u32) -> Run {
        run_of(&self.editor.extent(slot))
    }

    /// The extents that a request holds.
    pub(super) fn extents(&self, request: &Request) -> Vec<Run> {
        let extents = request
            .holds
            .iter()
            .map(|hold| self.editor.extent(hold.slot));
        extents.map(|extent| run_of(&extent)).collect()
    }

    /// Gives up everything of a run, what was kept for good, too: at once if nobody holds it,
    /// else it is to be tried again when something was given back. No peer uses what was kept.
    pub(super) fn give_up(&mut self, run: Run, out: &mut Decisions) {
        for extent in self.editor.extents_in(run) {
            if let Some(slot) = self.kept.remove(&extent.first) {
                self.detach(slot, false, out);
            }
        }
        self.withdraw(run, out);
    }

    /// Gives up what nobody holds of a run, and lets nobody new hold the rest.
    pub(super) fn withdraw(&mut self, run: Run, out: &mut Decisions) {
        for extent in self.editor.extents_in(run) {
            if let Some(slot) = self.editor.get(extent.first)
                && !self.evict(slot, out)
            {
                // Nobody new may hold it, and who holds it says when that ends.
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
        self.done_waiting(id, out);
    }

    fn resume(&mut self, id: u64, need: Need, out: &mut Decisions) {
        if self.requests.contains_key(&id) {
            self.cover(id, need, out);
            self.done_waiting(id, out);
        }
    }

    fn done_waiting(&mut self, id: u64, out: &mut Decisions) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.pending -= 1;
            self.look_at(id, out);
        }
    }

    /// A request may be done.
    fn look_at(&mut self, id: u64, out: &mut Decisions) {
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

    fn drop_holds(&mut self, of: u64, holds: &[Hold], unpin: bool, out: &mut Decisions) {
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

    fn with(&mut self, id: u64, change: impl FnOnce(&mut Request)) {
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

/// A run around which nothing is preferred.
fn only(run: Run) -> Need {
    Need {
        run,
        preferred: run,
    }
}
