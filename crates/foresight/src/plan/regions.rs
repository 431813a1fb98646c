//! All regions, and the indexes that find them. A query takes as long with a thousand regions as with ten, except for
//! the depth of a tree.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::region::{IndexKeys, KnownRegion};
use super::tree::{Ordered, Weight, count};
use super::uses::RegionUse;
use super::{RegionId, ThreadId};
use crate::communication::{Communication, PageRun, RegistrationOutcome};
use crate::predictor::Forecast;
use crate::signature::Signature;
use crate::time::Time;

/// The region that a communication used.
pub(super) struct FoundRegion {
    pub(super) id: RegionId,
    /// True if it was not known before.
    pub(super) is_new: bool,
    /// The region that was forgotten for its sake.
    pub(super) gone: Vec<KnownRegion>,
}

/// The last bytes of regions, by their state. Zero means that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RegionEnds {
    any: u64,
    /// Of regions that are not idle.
    busy: u64,
    /// Of regions that are registered and not in use.
    registered: u64,
    /// Of regions that were in use when they were to be deregistered.
    held: u64,
}

impl Weight for RegionEnds {
    fn join(self, later: Self) -> Self {
        Self {
            any: self.any.max(later.any),
            busy: self.busy.max(later.busy),
            registered: self.registered.max(later.registered),
            held: self.held.max(later.held),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bytes(u64);

impl Weight for Bytes {
    fn join(self, later: Self) -> Self {
        Self(self.0.saturating_add(later.0))
    }
}

/// All regions, and their users.
#[derive(Debug)]
pub(super) struct Regions {
    all: FxHashMap<RegionId, KnownRegion>,
    exact: FxHashMap<PageRun, RegionId>,
    by_start: Ordered<u64, RegionEnds>,
    /// The region of each use.
    sites: FxHashMap<(ThreadId, Signature), RegionId>,
    /// The time at which a region's first expected use is no longer expected.
    overdue: BTreeSet<(Time, RegionId)>,
    /// Regions that are not registered and have no expected use, least recently used first.
    idle: BTreeSet<(Time, RegionId)>,
    /// Regions that can be deregistered; the region needed last is at the end.
    can_go: Ordered<Time, Bytes>,
    /// Regions for which there was no room, the most urgent first.
    postponed: BTreeSet<(Time, RegionId)>,
    /// Regions to be deregistered once that is worth its cost, least recently used first.
    spared: BTreeSet<(Time, RegionId)>,
    /// The most bytes by which a registration of the region since its last use would have exceeded the
    /// [bound](super::bound).
    short: FxHashMap<RegionId, u64>,
    /// The length of the longest region so far, in bytes.
    longest: u64,
    next: u64,
    most: usize,
}

impl Regions {
    /// At most `most` regions, not counting those that are registered or expected to be.
    pub(super) fn new(most: usize) -> Self {
        Self {
            all: FxHashMap::default(),
            exact: FxHashMap::default(),
            by_start: Ordered::default(),
            sites: FxHashMap::default(),
            overdue: BTreeSet::new(),
            idle: BTreeSet::new(),
            can_go: Ordered::default(),
            postponed: BTreeSet::new(),
            spared: BTreeSet::new(),
            short: FxHashMap::default(),
            longest: 0,
            next: 0,
            most,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn longest_bytes(&self) -> u64 {
        self.longest
    }

    /// A region that exists.
    pub(super) fn at(&self, id: RegionId) -> &KnownRegion {
        count();
        self.all
            .get(&id)
            .expect("a region with something to do is not forgotten")
    }

    /// A region, if it is not forgotten.
    pub(super) fn get(&self, id: RegionId) -> Option<&KnownRegion> {
        self.all.get(&id)
    }

    /// A region that exists, for changes. It is [settled](Self::settle) afterwards.
    pub(super) fn at_mut(&mut self, id: RegionId) -> &mut KnownRegion {
        count();
        self.all
            .get_mut(&id)
            .expect("a region with something to do is not forgotten")
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn iter(&self) -> impl Iterator<Item = (RegionId, &KnownRegion)> {
        self.all.iter().map(|(id, region)| (*id, region))
    }

    /// Updates the indexes to a region's new state.
    pub(super) fn settle(&mut self, id: RegionId) {
        count();
        let region = self
            .all
            .get_mut(&id)
            .expect("a region that was changed is there");
        let now = IndexKeys {
            overdue_at: region.expires(),
            idle: region.is_idle().then_some(region.last_used),
            can_go: (region.can_go()).then(|| region.earliest().unwrap_or(Time::NEVER)),
            postponed: (region.is_postponed).then(|| region.due().unwrap_or(Time::NEVER)),
            spared: (region.can_go() && region.is_spared).then_some(region.last_used),
            is_held: region.is_held,
        };
        let before = std::mem::replace(&mut region.index_keys, now);
        if before == now {
            return;
        }
        let (start, end, bytes) = (region.memory.addr, region.memory.end(), region.bytes());
        let move_key = |set: &mut BTreeSet<_>, before: Option<Time>, now: Option<Time>| {
            if before != now {
                before.map(|at| set.remove(&(at, id)));
                now.map(|at| set.insert((at, id)));
            }
        };
        move_key(&mut self.overdue, before.overdue_at, now.overdue_at);
        move_key(&mut self.idle, before.idle, now.idle);
        move_key(&mut self.postponed, before.postponed, now.postponed);
        move_key(&mut self.spared, before.spared, now.spared);
        if before.can_go != now.can_go {
            if let Some(at) = before.can_go {
                self.can_go.remove(&(at, id));
            }
            if let Some(at) = now.can_go {
                self.can_go.insert((at, id), Bytes(bytes));
            }
        }
        if ends(end, &before) != ends(end, &now) {
            self.by_start.set(&(start, id), ends(end, &now));
        }
    }

    /// The region that a communication used. For a refused communication, the largest known region that
    /// contains its bytes.
    pub(super) fn find_or_add(&mut self, communication: &Communication, now: Time) -> FoundRegion {
        let memory = communication.region;
        let found = match communication.outcome {
            RegistrationOutcome::Refused => self.largest(memory),
            _ => self.exact(memory),
        };
        if let Some(id) = found {
            return FoundRegion {
                id,
                is_new: false,
                gone: Vec::new(),
            };
        }
        let gone = self.make_room();
        let id = RegionId(self.next);
        self.next += 1;
        self.all.insert(id, KnownRegion::new(memory, now));
        self.exact.insert(memory, id);
        let ends = ends(memory.end(), &IndexKeys::default());
        self.by_start.insert((memory.addr, id), ends);
        self.settle(id);
        self.longest = self.longest.max(memory.bytes);
        FoundRegion {
            id,
            is_new: true,
            gone,
        }
    }

    /// The first region to look at, and the time for it.
    pub(super) fn first_overdue(&self) -> Option<(Time, RegionId)> {
        self.overdue.first().copied()
    }

    /// Regions that were put off for want of room, the most urgent first.
    pub(super) fn postponed(&self) -> impl Iterator<Item = RegionId> {
        self.postponed.iter().map(|it| it.1)
    }

    /// The spared region that is to be deregistered first, once that is worth its cost.
    pub(super) fn first_spared(&self) -> Option<RegionId> {
        self.spared.first().map(|it| it.1)
    }

    /// The region needed last among those that can be deregistered, and the time of that need.
    pub(super) fn last_needed(&self) -> Option<(Time, RegionId)> {
        self.can_go.last().map(|it| it.0)
    }

    /// The bytes of regions that can be deregistered and are needed after a moment.
    pub(super) fn needed_after(&self, moment: Time) -> u64 {
        let later = self.can_go.all_after(&(moment, RegionId(u64::MAX)));
        later.map_or(0, |it| it.0)
    }

    /// Notes that a region is put off for want of `bytes` bytes.
    pub(super) fn note_shortage(&mut self, id: RegionId, bytes: u64) {
        let short = self.short.entry(id).or_default();
        *short = bytes.max(*short);
    }

    /// The most bytes that were missing for a region. Resets that number.
    pub(super) fn take_shortage(&mut self, id: RegionId) -> u64 {
        self.short.remove(&id).unwrap_or(0)
    }

    /// Forgets the missing bytes of all regions: there is more room from now on.
    pub(super) fn forget_shortages(&mut self) {
        self.short.clear();
    }

    /// The region with exactly these bytes, if it is not forgotten.
    pub(super) fn exact(&self, memory: PageRun) -> Option<RegionId> {
        self.exact.get(&memory).copied()
    }

    /// Up to `most` of the other regions that overlap one.
    pub(super) fn sharing_with(&self, id: RegionId, most: usize) -> Vec<PageRun> {
        let mut found = Vec::new();
        self.visit(self.at(id).memory, |it| it.any, &mut |other| {
            if other != id {
                found.push(self.at(other).memory);
            }
            found.len() < most
        });
        found
    }

    /// Up to `most` of the other regions that overlap one, are registered, and are not in use.
    pub(super) fn registered_beside(&self, id: RegionId, most: usize) -> Vec<(RegionId, PageRun)> {
        let mut found = Vec::new();
        self.visit(self.at(id).memory, |it| it.registered, &mut |other| {
            if other != id {
                found.push((other, self.at(other).memory));
            }
            found.len() < most
        });
        found
    }

    /// The regions that overlap this memory and were in use when they were to be deregistered.
    pub(super) fn held_within(&self, memory: PageRun) -> Vec<RegionId> {
        let mut found = Vec::new();
        self.visit(memory, |it| it.held, &mut |id| {
            found.push(id);
            true
        });
        found
    }

    /// True if all regions that overlap this memory are idle.
    pub(super) fn are_idle(&self, memory: PageRun) -> bool {
        let mut are_idle = true;
        self.visit(memory, |it| it.busy, &mut |_| {
            are_idle = false;
            false
        });
        are_idle
    }

    /// True if two regions or more overlap this memory.
    pub(super) fn are_shared(&self, memory: PageRun) -> bool {
        let mut count = 0;
        self.visit(memory, |it| it.any, &mut |_| {
            count += 1;
            count < 2
        });
        count == 2
    }

    /// Calls `each` for the overlapping regions whose end `end_of` reports, until `each` returns false.
    fn visit(
        &self,
        memory: PageRun,
        end_of: fn(&RegionEnds) -> u64,
        each: &mut dyn FnMut(RegionId) -> bool,
    ) {
        let before = (memory.end(), RegionId(0));
        let reaches = |ends: &RegionEnds| end_of(ends) > memory.addr;
        (self.by_start).visit_before(&before, &reaches, &mut |(_, id), _| each(id));
    }

    /// The largest region that contains all of this memory.
    fn largest(&self, memory: PageRun) -> Option<RegionId> {
        let mut largest = None;
        let after = (memory.addr.saturating_add(1), RegionId(0));
        let has_all = |ends: &RegionEnds| ends.any >= memory.end();
        self.by_start
            .visit_before(&after, &has_all, &mut |(start, id), ends| {
                largest = largest.max(Some((ends.any - start, start, id)));
                true
            });
        largest.map(|it| it.2)
    }

    /// Forgets the least recently used idle regions, if there are too many. Returns those.
    fn make_room(&mut self) -> Vec<KnownRegion> {
        let mut gone = Vec::new();
        while self.all.len() >= self.most
            && let Some((_, id)) = self.idle.pop_first()
            && let Some(region) = self.all.remove(&id)
        {
            self.by_start.remove(&(region.memory.addr, id));
            self.exact.remove(&region.memory);
            self.short.remove(&id);
            if let Some(at) = region.index_keys.postponed {
                self.postponed.remove(&(at, id));
            }
            for it in region.uses.iter() {
                self.sites.remove(&(it.thread, it.signature));
            }
            gone.push(region);
        }
        gone
    }

    /// The region of a known use.
    pub(super) fn of(&self, thread: ThreadId, signature: Signature) -> Option<RegionId> {
        self.sites.get(&(thread, signature)).copied()
    }

    /// The time at which a use of a region is expected, if it is.
    pub(super) fn expected(
        &self,
        id: RegionId,
        thread: ThreadId,
        signature: Signature,
    ) -> Option<Forecast> {
        self.at(id).uses.forecast(thread, signature)
    }

    /// Sets the expected time of a use of a region. Returns the region that the use belonged to before, if that is
    /// another.
    pub(super) fn expect(
        &mut self,
        id: RegionId,
        thread: ThreadId,
        signature: Signature,
        forecast: Option<Forecast>,
    ) -> Option<RegionId> {
        let left = self.remove_from_other(id, thread, signature);
        let region = self
            .all
            .get_mut(&id)
            .expect("a region that is used is there");
        let oldest = region.uses.put(RegionUse {
            thread,
            signature,
            forecast,
        });
        if let Some(it) = oldest {
            self.sites.remove(&(it.thread, it.signature));
        }
        self.sites.insert((thread, signature), id);
        left
    }

    /// Moves a use to its present region; a use belongs to one region at a time.
    fn remove_from_other(
        &mut self,
        id: RegionId,
        thread: ThreadId,
        signature: Signature,
    ) -> Option<RegionId> {
        let before = self.of(thread, signature).filter(|&before| before != id)?;
        let region = self.all.get_mut(&before)?;
        region.uses.remove(thread, signature);
        Some(before)
    }
}

fn ends(end: u64, index_keys: &IndexKeys) -> RegionEnds {
    let of = |is_there: bool| if is_there { end } else { 0 };
    RegionEnds {
        any: end,
        busy: of(index_keys.idle.is_none()),
        registered: of(index_keys.can_go.is_some()),
        held: of(index_keys.is_held),
    }
}
