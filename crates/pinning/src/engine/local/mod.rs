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

use std::collections::{BTreeMap, BTreeSet, VecDeque, hash_map::Entry};

use rustc_hash::FxHashMap;

use super::extents_in;
use crate::{
    Action, Limits, Refusal, Registered, Run,
    table::{Editor, Extent, Table, Unit},
    wire::{Grant, Need},
};

/// For whom memory is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claimant {
    /// A piece of an own operation.
    Piece(u64),
    /// A peer's move.
    Move(u64),
    /// A peer's pull.
    Pull(u64),
    /// Memory pinned for good.
    Pin(u64),
}

impl Claimant {
    /// Whether it may wait until others are done. A peer may not: it gets an answer, so that no
    /// rank ever waits for one that waits for it.
    fn may_wait(self) -> bool {
        matches!(self, Claimant::Piece(_))
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
    limits: Limits,
    adaptive: bool,
    /// Buckets that peers together may hold.
    peers_limit: u64,
    editor: Editor,
    claims: FxHashMap<u64, Claim>,
    next: u64,
    planned: u64,
    actual: u64,
    /// Buckets of extents that peers hold.
    attached: u64,
    /// Buckets being registered for peers.
    pledged: u64,
    /// References by peers, for each extent they hold; by its first bucket.
    outside: FxHashMap<u64, u32>,
    /// Extents kept for good: their records, by first bucket.
    kept: FxHashMap<u64, u32>,
    /// By first bucket.
    coming: BTreeMap<u64, Coming>,
    starting: VecDeque<u64>,
    leaving: BTreeMap<u64, Leaving>,
    leaving_ids: FxHashMap<u64, u64>,
    coming_ids: FxHashMap<u64, u64>,
    /// Claims that wait for room: the older first.
    queue: BTreeSet<u64>,
    pattern: Pattern,
    pub(super) stats: LocalStats,
    /// Claims done since they were last [taken](Self::take_done).
    done: Vec<(Claimant, u64)>,
}

impl Local {
    pub(super) fn new(limits: Limits, adaptive: bool, peers_limit: u64) -> Self {
        Self {
            limits,
            adaptive,
            peers_limit,
            editor: Editor::new(Unit::Extent),
            claims: FxHashMap::default(),
            next: 1,
            planned: 0,
            actual: 0,
            attached: 0,
            pledged: 0,
            outside: FxHashMap::default(),
            kept: FxHashMap::default(),
            coming: BTreeMap::new(),
            starting: VecDeque::new(),
            leaving: BTreeMap::new(),
            leaving_ids: FxHashMap::default(),
            coming_ids: FxHashMap::default(),
            queue: BTreeSet::new(),
            pattern: Pattern::default(),
            stats: LocalStats::default(),
            done: Vec::new(),
        }
    }

    pub(super) fn table(&self) -> &std::sync::Arc<Table> {
        self.editor.table()
    }

    pub(super) fn is_crowded(&self) -> bool {
        !self.queue.is_empty()
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
        out: &mut Vec<Action>,
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
    pub(super) fn end(&mut self, id: u64, unpin: bool, out: &mut Vec<Action>) {
        let Some(claim) = self.claims.remove(&id) else {
            return;
        };
        self.queue.remove(&id);
        self.drop_holds(&claim.holds, unpin, out);
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
    pub(super) fn keep(&mut self, id: u64, out: &mut Vec<Action>) -> Vec<Hold> {
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

    /// Takes back one reference that a peer had.
    pub(super) fn detach(&mut self, slot: u32, unpin: bool, out: &mut Vec<Action>) {
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

    /// After peers gave back: no more victims stay than the limits allow, and who waited for
    /// room is looked at.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        while self.rest() > self.rest_limit() {
            if !self.evict_next(out) {
                break;
            }
        }
        self.retry(out);
    }

    /// A hit found one side only, and nobody was told when it gave that back.
    pub(super) fn missed(&mut self, bucket: u64, out: &mut Vec<Action>) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
        self.retry(out);
    }

    /// A reference taken without the lock was the last of a record that was looked for.
    pub(super) fn released(&mut self, slot: u32, out: &mut Vec<Action>) {
        self.editor.requeue(slot);
        self.retry(out);
    }

    /// A registration was done.
    pub(super) fn registered(
        &mut self,
        id: u64,
        result: Result<Registered, Refusal>,
        out: &mut Vec<Action>,
    ) {
        let Some(first) = self.coming_ids.remove(&id) else {
            return;
        };
        let Some(coming) = self.coming.remove(&first) else {
            return;
        };
        if coming.pledged {
            self.pledged -= coming.welcome.count;
        }
        match result {
            Ok(got) if got.run.contains(coming.need) && coming.welcome.contains(got.run) => {
                self.arrived(&coming, got, out);
            }
            Ok(_) => self.failed(coming, Refusal::NotMapped, out),
            Err(why) => self.failed(coming, why, out),
        }
        self.start(out);
        self.retry(out);
    }

    fn arrived(&mut self, coming: &Coming, got: Registered, out: &mut Vec<Action>) {
        let spare = coming.welcome.count - got.run.count;
        self.planned -= spare;
        self.actual -= spare;
        let extent = Extent {
            key: got.key,
            base: got.run.first,
            end: got.run.end(),
            writable: got.writable,
        };
        for bucket in got.run.buckets() {
            if self.editor.insert(bucket, &extent, 0).is_err() {
                // The table is full, or was told nonsense: what is in is taken out again.
                if bucket > extent.base
                    && let Some(slot) = self.editor.get(extent.base)
                {
                    self.editor.remove(slot);
                }
                self.planned -= got.run.count;
                self.leave(got.key, got.run, out);
                self.refuse(&coming.waiters, Refusal::Exhausted, out);
                return;
            }
        }
        for (id, run) in &coming.waiters {
            self.resume(*id, only(*run), out);
        }
        if let Some(slot) = self.editor.get(got.run.first) {
            self.editor.queue(slot);
        }
    }

    fn failed(&mut self, mut coming: Coming, why: Refusal, out: &mut Vec<Action>) {
        self.stats.failed += 1;
        self.actual -= coming.welcome.count;
        self.planned -= coming.welcome.count;
        let narrower = coming.welcome != coming.need;
        if narrower || (why == Refusal::Exhausted && !coming.retried) {
            // Less, or the same after victims are given up, a quarter of what is there.
            if !narrower {
                coming.retried = true;
                let mut spare = (self.planned / 4).max(coming.need.count);
                while spare > 0 {
                    let before = self.planned;
                    if !self.evict_next(out) {
                        break;
                    }
                    spare = spare.saturating_sub(before - self.planned);
                }
            }
            coming.welcome = coming.need;
            coming.started = false;
            self.planned += coming.welcome.count;
            if coming.pledged {
                self.pledged += coming.welcome.count;
            }
            self.await_registration(coming, out);
            return;
        }
        // Who waits for what was only welcome has it tried anew.
        let need = coming.need;
        let (refused, others): (Vec<_>, Vec<_>) = std::mem::take(&mut coming.waiters)
            .into_iter()
            .partition(|(_, run)| run.overlaps(need));
        for (id, run) in refused {
            let first = run.first.max(need.first);
            let count = run.end().min(need.end()) - first;
            let rest = Run {
                first: need.end(),
                count: run.end().saturating_sub(need.end()),
            };
            if rest.count > 0 {
                self.with(id, |claim| claim.pending += 1);
            }
            self.refuse(&[(id, Run { first, count })], why, out);
            if rest.count > 0 {
                self.resume(id, only(rest), out);
            }
        }
        for (id, run) in others {
            self.resume(id, only(run), out);
        }
    }

    fn refuse(&mut self, waiters: &[(u64, Run)], why: Refusal, out: &mut Vec<Action>) {
        for (id, run) in waiters {
            if let Some(claim) = self.claims.get_mut(id) {
                claim.refused.push((*run, why));
                claim.pending -= 1;
                self.look_at(*id, out);
            }
        }
    }

    /// A deregistration was done.
    pub(super) fn deregistered(&mut self, id: u64, out: &mut Vec<Action>) {
        let Some(leaving) =
            (self.leaving_ids.remove(&id)).and_then(|first| self.leaving.remove(&first))
        else {
            return;
        };
        self.actual -= leaving.run.count;
        self.note();
        self.start(out);
        for (id, need) in leaving.waiters {
            self.resume(id, need, out);
        }
        self.retry(out);
    }

    /// Whether some bucket of the run is registered, or about to be.
    pub(super) fn touches(&self, run: Run) -> bool {
        let comes = (self.coming.range(..run.end()).next_back())
            .is_some_and(|(_, coming)| coming.welcome.end() > run.first);
        let leaves = (self.leaving.range(..run.end()).next_back())
            .is_some_and(|(_, leaving)| leaving.run.end() > run.first);
        comes || leaves || !extents_in(&self.editor, run).is_empty()
    }

    /// A run and the extents that have a bucket of it.
    pub(super) fn reach(&self, run: Run) -> Run {
        let extents = extents_in(&self.editor, run);
        let first = (extents.first()).map_or(run.first, |extent| extent.first.min(run.first));
        let end = (extents.last()).map_or(run.end(), |extent| extent.end().max(run.end()));
        Run {
            first,
            count: end - first,
        }
    }

    /// The extents that a claim holds.
    pub(super) fn extents(&self, claim: &Claim) -> Vec<Run> {
        let extents = claim.holds.iter().map(|hold| self.editor.extent(hold.slot));
        extents.map(|extent| run_of(&extent)).collect()
    }

    /// Gives up everything of a run that nobody holds; what was kept for good, too.
    pub(super) fn give_up(&mut self, run: Run, out: &mut Vec<Action>) {
        for extent in extents_in(&self.editor, run) {
            if let Some(slot) = self.kept.remove(&extent.first) {
                self.detach(slot, false, out);
            }
            if let Some(slot) = self.editor.get(extent.first) {
                self.evict(slot, out);
            }
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Buckets that may be registered beside what peers hold.
    fn rest_limit(&self) -> u64 {
        if self.adaptive {
            self.limits.total
        } else {
            self.limits.victims
        }
    }

    fn begin(&mut self, id: u64, out: &mut Vec<Action>) {
        let Some(claim) = self.claims.get_mut(&id) else {
            return;
        };
        claim.pending = 1;
        claim.restart = false;
        let needs = claim.needs.clone();
        for need in needs {
            self.cover(id, need, out);
        }
        self.done_waiting(id, out);
    }

    fn resume(&mut self, id: u64, need: Need, out: &mut Vec<Action>) {
        if self.claims.contains_key(&id) {
            self.cover(id, need, out);
            self.done_waiting(id, out);
        }
    }

    fn done_waiting(&mut self, id: u64, out: &mut Vec<Action>) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.pending -= 1;
            self.look_at(id, out);
        }
    }

    /// A claim may be done.
    fn look_at(&mut self, id: u64, out: &mut Vec<Action>) {
        let Some(claim) = self.claims.get_mut(&id) else {
            return;
        };
        if claim.pending > 0 {
            return;
        }
        if claim.restart {
            let holds = std::mem::take(&mut claim.holds);
            claim.refused.clear();
            self.stats.stalls += 1;
            self.queue.insert(id);
            self.drop_holds(&holds, false, out);
            return;
        }
        claim.holds.sort_unstable_by_key(|hold| hold.run.first);
        self.done.push((claim.claimant, id));
    }

    fn drop_holds(&mut self, holds: &[Hold], unpin: bool, out: &mut Vec<Action>) {
        for hold in holds {
            let unused = self.editor.drop_reference(hold.slot);
            if unused && unpin {
                self.evict(hold.slot, out);
            }
        }
    }

    /// Who waits for room is begun anew, in order, as long as there is some.
    fn retry(&mut self, out: &mut Vec<Action>) {
        while let Some(id) = self.queue.pop_first() {
            // All it needs, as if nothing of it were there: extents that it would use a little
            // of may be what is in its way.
            if let Some(claim) = self.claims.get(&id) {
                let count = claim.needs.iter().map(|need| need.run.count).sum();
                let claimant = claim.claimant;
                match self.make_room(count, claimant, out) {
                    Room::Yes => {}
                    Room::Later => {
                        self.queue.insert(id);
                        return;
                    }
                    Room::Never => self.with(id, |claim| claim.waits = false),
                }
            }
            self.begin(id, out);
            if self.queue.contains(&id) {
                return;
            }
        }
    }

    /// Holds what is there of a need, and sees to the rest.
    fn cover(&mut self, id: u64, need: Need, out: &mut Vec<Action>) {
        let Some(claim) = self.claims.get(&id) else {
            return;
        };
        let (write, claimant) = (claim.write, claim.claimant);
        let mut bucket = need.run.first;
        while bucket < need.run.end() {
            let rest = Run {
                first: bucket,
                count: need.run.end() - bucket,
            };
            bucket = if let Some(found) = self.hold(bucket) {
                let run = cut(rest, found.end);
                let hold = Hold {
                    slot: found.slot,
                    run,
                    key: found.key,
                    writable: found.writable,
                };
                let new = claimant.is_peer() && !self.outside.contains_key(&found.base);
                if new && self.attached + self.pledged + (found.end - found.base) > self.peers_limit
                {
                    self.editor.drop_reference(found.slot);
                    self.with(id, |claim| claim.refused.push((run, Refusal::Limit)));
                } else if found.writable || !write {
                    self.with(id, |claim| claim.holds.push(hold));
                } else {
                    self.editor.drop_reference(found.slot);
                    self.with(id, |claim| claim.refused.push((run, Refusal::ReadOnly)));
                }
                run.end()
            } else if let Some(coming) = at(&mut self.coming, bucket, |coming| coming.welcome) {
                let run = cut(rest, coming.welcome.end());
                coming.waiters.push((id, run));
                self.with(id, |claim| claim.pending += 1);
                run.end()
            } else if let Some(leaving) = at(&mut self.leaving, bucket, |leaving| leaving.run) {
                let run = cut(rest, leaving.run.end());
                leaving.waiters.push((id, only(run)));
                self.with(id, |claim| claim.pending += 1);
                run.end()
            } else {
                let gap = self.gap(rest);
                let end = if gap.end() == need.run.end() {
                    need.welcome.end()
                } else {
                    gap.end()
                };
                let welcome = self.gap(Run {
                    first: gap.first,
                    count: end - gap.first,
                });
                self.fetch(id, claimant, gap, welcome, out)
            };
        }
    }

    /// Has a gap registered, as far as one extent goes: where it ends.
    fn fetch(
        &mut self,
        id: u64,
        claimant: Claimant,
        gap: Run,
        welcome: Run,
        out: &mut Vec<Action>,
    ) -> u64 {
        let most = match claimant {
            Claimant::Piece(_) | Claimant::Pull(_) => {
                self.limits.max_extent.min(self.limits.victims)
            }
            Claimant::Move(_) | Claimant::Pin(_) => self.limits.max_extent,
        };
        let gap = cut(gap, gap.first + most);
        let mut welcome = cut(welcome, welcome.first + most);
        let mut room = self.make_room(welcome.count, claimant, out);
        if !matches!(room, Room::Yes) && welcome.count > gap.count {
            welcome = gap;
            room = self.make_room(welcome.count, claimant, out);
        }
        match room {
            Room::Yes => {
                self.planned += welcome.count;
                let pledged = matches!(claimant, Claimant::Move(_) | Claimant::Pin(_));
                if pledged {
                    self.pledged += welcome.count;
                }
                self.with(id, |claim| claim.pending += 1);
                let name = self.next_id();
                self.await_registration(
                    Coming {
                        id: name,
                        need: gap,
                        welcome,
                        waiters: vec![(id, gap)],
                        started: false,
                        retried: false,
                        pledged,
                    },
                    out,
                );
            }
            room => self.with(id, |claim| match room {
                Room::Later if claim.waits => claim.restart = true,
                _ => claim.refused.push((gap, Refusal::Limit)),
            }),
        }
        gap.end()
    }

    fn await_registration(&mut self, coming: Coming, out: &mut Vec<Action>) {
        let first = coming.welcome.first;
        self.coming_ids.insert(coming.id, first);
        self.coming.insert(first, coming);
        self.starting.push_back(first);
        self.start(out);
    }

    /// Starts registrations for which there is room by now.
    fn start(&mut self, out: &mut Vec<Action>) {
        while let Some(first) = self.starting.front() {
            let Some(coming) = self.coming.get_mut(first).filter(|coming| !coming.started) else {
                self.starting.pop_front();
                continue;
            };
            if self.actual + coming.welcome.count > self.limits.total {
                break;
            }
            self.actual += coming.welcome.count;
            coming.started = true;
            out.push(Action::Register {
                id: coming.id,
                need: coming.need,
                welcome: coming.welcome,
            });
            self.stats.registrations += 1;
            self.starting.pop_front();
        }
        self.note();
    }

    /// Buckets that are neither held by peers nor registered for them.
    fn rest(&self) -> u64 {
        self.planned
            .saturating_sub(self.attached.saturating_add(self.pledged))
    }

    fn has_room(&self, count: u64, claimant: Claimant) -> bool {
        let of_its_kind = match claimant {
            Claimant::Move(_) => self.attached + self.pledged + count <= self.peers_limit,
            Claimant::Pin(_) => true,
            Claimant::Piece(_) | Claimant::Pull(_) => self.rest() + count <= self.rest_limit(),
        };
        of_its_kind && self.planned + count <= self.limits.total
    }

    fn make_room(&mut self, count: u64, claimant: Claimant, out: &mut Vec<Action>) -> Room {
        if let Claimant::Move(_) = claimant
            && self.attached + self.pledged + count > self.peers_limit
        {
            // What peers hold is not given up for peers.
            return Room::Never;
        }
        while !self.has_room(count, claimant) {
            if self.evict_next(out) {
                continue;
            }
            // Whoever uses the rest gives it back, unless that is peers.
            let possible = count <= self.limits.total.saturating_sub(self.attached)
                && (claimant.is_peer() || count <= self.rest_limit());
            return if possible && self.planned > self.attached {
                Room::Later
            } else {
                Room::Never
            };
        }
        Room::Yes
    }

    /// Gives up the oldest victim.
    fn evict_next(&mut self, out: &mut Vec<Action>) -> bool {
        match self.editor.take_victim() {
            Some(extent) => {
                self.gone(extent, out);
                true
            }
            None => false,
        }
    }

    fn evict(&mut self, slot: u32, out: &mut Vec<Action>) {
        if let Some(extent) = self.editor.remove(slot) {
            self.gone(extent, out);
        }
    }

    fn gone(&mut self, extent: Extent, out: &mut Vec<Action>) {
        let run = run_of(&extent);
        self.planned -= run.count;
        self.leave(extent.key, run, out);
    }

    fn leave(&mut self, key: u64, run: Run, out: &mut Vec<Action>) {
        let id = self.next_id();
        self.stats.deregistrations += 1;
        self.leaving_ids.insert(id, run.first);
        self.leaving.insert(
            run.first,
            Leaving {
                run,
                waiters: Vec::new(),
            },
        );
        out.push(Action::Deregister { id, key, run });
    }

    /// A reference on the extent of a bucket, if there is one. A reader may miss what is there
    /// only while somebody changes the table, and that would be us.
    fn hold(&mut self, bucket: u64) -> Option<crate::table::Found> {
        self.editor.table().acquire(bucket)
    }

    /// What of a run is neither there nor on its way, from its first bucket on.
    fn gap(&self, run: Run) -> Run {
        let mut end = run.end();
        for next in [
            self.coming
                .range(run.first..)
                .next()
                .map(|(first, _)| *first),
            self.leaving
                .range(run.first..)
                .next()
                .map(|(first, _)| *first),
        ] {
            end = end.min(next.unwrap_or(end));
        }
        let mut count = 1;
        while run.first + count < end && self.editor.get(run.first + count).is_none() {
            count += 1;
        }
        Run {
            first: run.first,
            count,
        }
    }

    fn with(&mut self, id: u64, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = self.claims.get_mut(&id) {
            change(claim);
        }
    }

    fn note(&mut self) {
        self.stats.registered = self.actual;
        self.stats.peak = self.stats.peak.max(self.actual);
    }
}

enum Room {
    Yes,
    /// When others are done.
    Later,
    /// Not while peers hold what they hold.
    Never,
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

/// The part of a run before `end`.
fn cut(run: Run, end: u64) -> Run {
    Run {
        first: run.first,
        count: run.count.min(end - run.first),
    }
}

/// The entry, by first bucket, whose run holds the bucket.
fn at<T>(map: &mut BTreeMap<u64, T>, bucket: u64, run: impl Fn(&T) -> Run) -> Option<&mut T> {
    let (_, entry) = map.range_mut(..=bucket).next_back()?;
    (bucket < run(entry).end()).then_some(entry)
}

/// How misses follow each other: in sequence or not.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    expected: u64,
    width: u64,
}

impl Pattern {
    /// How many buckets to ask for from the first of a miss on. Misses in sequence widen it up
    /// to where the cost of a call hardly matters; any other makes it as small as the need.
    pub(super) fn width(&mut self, need: Run, amortised: u64) -> u64 {
        let in_sequence = need.first == self.expected && need.first != 0;
        self.width = if in_sequence {
            (self.width * 2).clamp(need.count, amortised.max(need.count))
        } else {
            need.count
        };
        self.expected = need.first + self.width;
        self.width
    }
}
