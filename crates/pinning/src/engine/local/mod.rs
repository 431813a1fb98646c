//! The local bucket table: what of own memory is registered, and for whom (Table 1).
//!
//! A *claim* is somebody's wish to have runs of own buckets registered and held: a piece of an
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
mod passing;
mod pin;
mod register;
mod room;

use crate::engine::impossible::impossible;
use std::collections::{BTreeMap, BTreeSet, VecDeque, hash_map::Entry};

use rustc_hash::FxHashMap;

use super::pattern::Pattern;
use crate::{
    Decisions, Limits, Refusal, Run,
    table::{Editor, Extent, Table},
    wire::{Grant, Need},
};

/// Buckets set aside for own claims, at most.
const RESERVE: u64 = 4;

/// For whom memory is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claimant {
    /// A piece of an own operation.
    Piece(u64),
    /// A piece of an own operation on memory that may come and go unseen.
    Passing(u64),
    /// A peer's move.
    Move(u64),
    /// A peer's pull.
    Pull(u64),
    /// Memory pinned for good, for peers.
    Pin(u64),
    /// Memory kept for good, for own operations.
    Keep(u64),
    /// Memory that the own NIC changes for this rank.
    Own(u64),
}

impl Claimant {
    /// Whether it may wait until others are done. A peer may not: it gets an answer, so that no
    /// rank ever waits for one that waits for it.
    fn may_wait(self) -> bool {
        matches!(self, Claimant::Piece(_) | Claimant::Passing(_))
    }

    fn is_peer(self) -> bool {
        matches!(self, Claimant::Move(_))
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

#[derive(Debug)]
pub(super) struct Claim {
    claimant: Claimant,
    needs: Vec<Need>,
    write: bool,
    /// Sorted by bucket once the claim is done.
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
struct Coming {
    id: u64,
    need: Run,
    welcome: Run,
    /// Claims, and the buckets each of them waits for.
    waiters: Vec<(u64, Run)>,
    started: bool,
    retried: bool,
    /// Whether a peer will hold it.
    pledged: bool,
    /// Whether it is of use only to the operation of the claim that waits first.
    passing: bool,
}

/// A deregistration decided on.
#[derive(Debug)]
struct Leaving {
    run: Run,
    waiters: Vec<(u64, Need)>,
}

/// How often what happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocalStats {
    /// Registrations asked for.
    pub registrations: u64,
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

#[derive(Debug)]
pub(super) struct Local {
    rank: u32,
    limits: Limits,
    adaptive: bool,
    /// Buckets that peers together may hold.
    peers_limit: u64,
    /// Buckets of what may be registered that are for [own](Claimant::Own) claims alone.
    reserve: u64,
    editor: Editor,
    claims: FxHashMap<u64, Claim>,
    next: u64,
    planned: u64,
    actual: u64,
    /// Buckets of extents that peers hold.
    attached: u64,
    /// Buckets being registered for peers.
    pledged: u64,
    /// Buckets kept for good for own operations.
    permanent: u64,
    /// References by peers, for each extent they hold; by its first bucket.
    outside: FxHashMap<u64, u32>,
    /// Extents kept for good: their records, by first bucket.
    kept: FxHashMap<u64, u32>,
    /// Extents of memory that may come and go unseen: by first bucket, the claim that had them
    /// registered.
    passing: FxHashMap<u64, u64>,
    /// Those of them whose claim is over, though others hold them still; by first bucket.
    ending: BTreeSet<u64>,
    /// By first bucket.
    coming: BTreeMap<u64, Coming>,
    starting: VecDeque<u64>,
    leaving: BTreeMap<u64, Leaving>,
    leaving_ids: FxHashMap<u64, u64>,
    coming_ids: FxHashMap<u64, u64>,
    /// Claims that wait for room: the older first.
    queue: BTreeSet<u64>,
    pattern: Pattern,
    stats: LocalStats,
    own: FxHashMap<u64, u64>,
    /// Claims done since they were last [taken](Self::take_done).
    done: Vec<(Claimant, u64)>,
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
            claims: FxHashMap::default(),
            next: 1,
            planned: 0,
            actual: 0,
            attached: 0,
            pledged: 0,
            permanent: 0,
            outside: FxHashMap::default(),
            kept: FxHashMap::default(),
            passing: FxHashMap::default(),
            ending: BTreeSet::new(),
            coming: BTreeMap::new(),
            starting: VecDeque::new(),
            leaving: BTreeMap::new(),
            leaving_ids: FxHashMap::default(),
            coming_ids: FxHashMap::default(),
            queue: BTreeSet::new(),
            pattern: Pattern::default(),
            stats: LocalStats::default(),
            own: FxHashMap::default(),
            done: Vec::new(),
        }
    }

    pub(super) fn stats(&self) -> LocalStats {
        self.stats
    }

    pub(super) fn table(&self) -> &std::sync::Arc<Table> {
        self.editor.table()
    }

    /// Sets buckets aside for own claims, which then find room whatever else is under way; if
    /// there is enough beside them.
    pub(super) fn set_reserve(&mut self) -> bool {
        self.reserve = (self.limits.victims / 4).min(RESERVE);
        self.reserve > 0
    }

    pub(super) fn is_crowded(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a claim waits for the system.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        (self.claims.get(&id)).is_some_and(|claim| claim.pending > 0)
    }

    /// Claims done, with their claimants.
    pub(super) fn take_done(&mut self) -> Vec<(Claimant, u64)> {
        std::mem::take(&mut self.done)
    }

    /// Begins a claim; it is done when [`take_done`](Self::take_done) says so.
    pub(super) fn claim(
        &mut self,
        claimant: Claimant,
        needs: Vec<Need>,
        write: bool,
        out: &mut Decisions,
    ) -> u64 {
        let id = self.next_id();
        let claim = Claim {
            claimant,
            needs,
            write,
            holds: Vec::new(),
            refused: Vec::new(),
            pending: 0,
            restart: false,
            waits: claimant.may_wait(),
        };
        self.claims.insert(id, claim);
        if claimant.may_wait() && !self.queue.is_empty() {
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

    /// The claim of an operation around one run, widened as its pattern suggests.
    pub(super) fn need_for(&mut self, run: Run) -> Need {
        let width = self.pattern.width(run, self.limits.amortised);
        let width = width.min(self.limits.victims / 4).max(run.count);
        Need {
            run,
            welcome: Run {
                first: run.first,
                count: width,
            },
        }
    }

    /// What a claim has; it goes on holding it.
    pub(super) fn get(&self, id: u64) -> Option<&Claim> {
        self.claims.get(&id)
    }

    /// Ends a claim: its references are given back, and what nobody else uses is deregistered
    /// at once, if it is to be `unpinned`.
    pub(super) fn end(&mut self, id: u64, unpin: bool, out: &mut Decisions) {
        let Some(claim) = self.claims.remove(&id) else {
            return impossible("a claim ends twice");
        };
        self.queue.remove(&id);
        self.drop_holds(id, &claim.holds, unpin, out);
        self.retry(out);
    }

    /// Hands what a claim holds to a peer, and what was registered around it that was welcome:
    /// it stays held until [`detach`](Self::detach).
    pub(super) fn attach(&mut self, id: u64) -> Vec<Hold> {
        let Some(mut claim) = self.claims.remove(&id) else {
            return Vec::new();
        };
        for index in 0..claim.holds.len() {
            let next = claim.holds.get(index + 1).map(|hold| hold.run.first);
            let hold = &mut claim.holds[index];
            let extent = self.editor.extent(hold.slot);
            let welcome = (claim.needs.iter())
                .find(|need| need.run.overlaps(hold.run))
                .map_or(hold.run.end(), |need| need.welcome.end());
            let end = welcome.min(extent.end).min(next.unwrap_or(u64::MAX));
            hold.run.count = end.max(hold.run.end()) - hold.run.first;
            let count = self.outside.entry(extent.base).or_insert(0);
            if *count == 0 {
                self.attached += extent.end - extent.base;
            }
            *count += 1;
        }
        claim.holds
    }

    /// Keeps what a claim holds registered for good, each extent once.
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

    /// What a claim holds stays so for good: nobody waits for its room.
    fn settle_for_good(&mut self, id: u64) {
        if let Some(claim) = self.claims.get(&id) {
            self.permanent += self.extents(claim).iter().map(|it| it.count).sum::<u64>();
        }
    }

    /// Takes back one reference that a peer had.
    pub(super) fn detach(&mut self, slot: u32, unpin: bool, out: &mut Decisions) {
        let extent = self.editor.extent(slot);
        if let Some(count) = self.outside.get_mut(&extent.base) {
            *count -= 1;
            if *count == 0 {
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
    /// the same however long the run is.
    pub(super) fn is_changing(&self, run: Run) -> bool {
        let comes = (self.coming.range(..run.end()).next_back())
            .is_some_and(|(_, coming)| coming.welcome.end() > run.first);
        let leaves = (self.leaving.range(..run.end()).next_back())
            .is_some_and(|(_, leaving)| leaving.run.end() > run.first);
        comes || leaves
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

    /// The extents that a claim holds.
    pub(super) fn extents(&self, claim: &Claim) -> Vec<Run> {
        let extents = claim.holds.iter().map(|hold| self.editor.extent(hold.slot));
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
        let Some(claim) = self.claims.get_mut(&id) else {
            return impossible("a claim begins after its end");
        };
        claim.pending = 1;
        claim.restart = false;
        let needs = claim.needs.clone();
        for need in needs {
            self.cover(id, need, out);
        }
        self.done_waiting(id, out);
    }

    fn resume(&mut self, id: u64, need: Need, out: &mut Decisions) {
        if self.claims.contains_key(&id) {
            self.cover(id, need, out);
            self.done_waiting(id, out);
        }
    }

    fn done_waiting(&mut self, id: u64, out: &mut Decisions) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.pending -= 1;
            self.look_at(id, out);
        }
    }

    /// A claim may be done.
    fn look_at(&mut self, id: u64, out: &mut Decisions) {
        let Some(claim) = self.claims.get_mut(&id) else {
            return impossible("a claim is looked at after its end");
        };
        if claim.pending > 0 {
            return;
        }
        if claim.restart {
            let holds = std::mem::take(&mut claim.holds);
            claim.refused.clear();
            self.stats.stalls += 1;
            self.queue.insert(id);
            self.drop_holds(id, &holds, false, out);
            return;
        }
        claim.holds.sort_unstable_by_key(|hold| hold.run.first);
        self.done.push((claim.claimant, id));
    }

    fn drop_holds(&mut self, of: u64, holds: &[Hold], unpin: bool, out: &mut Decisions) {
        for hold in holds {
            let base = self.editor.extent(hold.slot).base;
            let unused = self.editor.drop_reference(hold.slot);
            if self.passing.get(&base) == Some(&of) {
                self.pass(base, out);
            } else if unused && unpin {
                self.evict(hold.slot, out);
            }
        }
        self.sweep(out);
    }

    fn with(&mut self, id: u64, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = self.claims.get_mut(&id) {
            change(claim);
        }
    }
}

fn run_of(extent: &Extent) -> Run {
    Run {
        first: extent.base,
        count: extent.end - extent.base,
    }
}

/// A run of which nothing around is welcome.
fn only(run: Run) -> Need {
    Need { run, welcome: run }
}
