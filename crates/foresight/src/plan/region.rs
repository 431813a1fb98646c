//! The regions of memory that are registered over and over, and the uses expected of each.

use std::collections::BTreeMap;

use super::{RegionId, ThreadId};
use crate::communication::{Communication, Region, Way};
use crate::predictor::Forecast;
use crate::signature::Signature;
use crate::time::Time;

/// The most uses remembered of one region; the one that came longest ago is forgotten.
const MOST_USES: usize = 64;

/// What is known of a region's registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Absent,
    /// The helper was told to register it.
    Registering,
    Registered,
    /// The helper was told to deregister it.
    Deregistering,
}

/// One call site's use of a region (§3.2: a region "which multiple communication call sites may use").
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) thread: ThreadId,
    pub(super) signature: Signature,
    /// When it is expected again, until that is over.
    pub(super) forecast: Option<Forecast>,
}

impl Use {
    /// When it is no longer expected: a period after the moment at which it should have come.
    fn expires(&self) -> Option<Time> {
        let forecast = self.forecast?;
        Some(forecast.expected.after(forecast.period_ns.max(1)))
    }
}

/// What is known of a region.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) memory: Region,
    pub(super) state: State,
    /// Somebody used it when it was to be deregistered: that is not tried again before its next record.
    pub(super) is_held: bool,
    /// The helper registered it, and it was not used since.
    pub(super) is_ahead: bool,
    /// It was to be registered, and there was no room.
    pub(super) is_postponed: bool,
    /// The most bytes by which there would have been more registered than there [may be](super::bound), when it was to be
    /// registered since its last use.
    pub(super) short: u64,
    /// When the helper last began to register it.
    pub(super) registered_from: Time,
    pub(super) last_used: Time,
    /// When it is to be looked at.
    pub(super) looked_at: Option<Time>,
    uses: Vec<Use>,
}

impl Known {
    fn new(memory: Region, now: Time) -> Self {
        Self {
            memory,
            state: State::Absent,
            is_held: false,
            is_ahead: false,
            is_postponed: false,
            short: 0,
            registered_from: Time::default(),
            last_used: now,
            looked_at: None,
            uses: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// The registration deadline: the earliest of those of all its uses (§3.2).
    pub(super) fn earliest(&self) -> Option<Time> {
        self.forecasts().map(|it| it.earliest).min()
    }

    /// The earliest deadline that is to be acted upon: not of a use before which something is
    /// yet to come.
    pub(super) fn due(&self) -> Option<Time> {
        self.forecasts()
            .filter(|it| !it.awaits)
            .map(|it| it.earliest)
            .min()
    }

    /// When the first of its uses is no longer expected. At once, if it is registered though none is.
    pub(super) fn expires(&self) -> Option<Time> {
        let first = self.uses.iter().filter_map(Use::expires).min();
        let is_left = self.state == State::Registered && !self.is_held;
        first.or(is_left.then_some(self.last_used))
    }

    fn forecasts(&self) -> impl Iterator<Item = &Forecast> {
        self.uses.iter().filter_map(|it| it.forecast.as_ref())
    }

    /// Nobody is expected any more who should have come.
    pub(super) fn expire(&mut self, now: Time) {
        for it in &mut self.uses {
            if it.expires().is_some_and(|at| at <= now) {
                it.forecast = None;
            }
        }
    }

    /// Nothing is expected any more.
    pub(super) fn expect_nothing(&mut self) {
        self.uses.iter_mut().for_each(|it| it.forecast = None);
    }

    /// Whether it is registered for a use to come.
    pub(super) fn is_kept(&self) -> bool {
        self.state == State::Registered && !self.is_held && self.earliest().is_some()
    }

    /// Whether it is neither registered nor expected to be, so that it can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Absent && self.forecasts().next().is_none()
    }
}

/// The region that a communication used.
pub(super) struct Found {
    pub(super) id: RegionId,
    /// Whether it was not known before.
    pub(super) is_new: bool,
    /// What was forgotten for its sake.
    pub(super) gone: Option<Region>,
}

/// All regions, and who uses them.
#[derive(Debug)]
pub(super) struct Regions {
    all: BTreeMap<RegionId, Known>,
    /// By their start.
    by_start: BTreeMap<(u64, RegionId), u64>,
    /// Which region each use is of.
    sites: rustc_hash::FxHashMap<(ThreadId, Signature), RegionId>,
    /// The longest of all so far, in bytes: how far before an address its region may begin.
    longest: u64,
    next: u64,
    most: usize,
}

impl Regions {
    /// At most `most` regions, but for those that are registered or expected to be.
    pub(super) fn new(most: usize) -> Self {
        Self {
            all: BTreeMap::new(),
            by_start: BTreeMap::new(),
            sites: Default::default(),
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

    /// A region that is there.
    pub(super) fn at(&self, id: RegionId) -> &Known {
        self.all
            .get(&id)
            .expect("a region with something to do is not forgotten")
    }

    /// A region, if it is not forgotten.
    pub(super) fn get(&self, id: RegionId) -> Option<&Known> {
        self.all.get(&id)
    }

    /// A region that is there, to change it.
    pub(super) fn at_mut(&mut self, id: RegionId) -> &mut Known {
        self.all
            .get_mut(&id)
            .expect("a region with something to do is not forgotten")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RegionId, &Known)> {
        self.all.iter().map(|(id, region)| (*id, region))
    }

    /// The region that a communication used. Where it was refused one, that is the largest that is known to have its
    /// bytes.
    pub(super) fn find_or_add(&mut self, communication: &Communication, now: Time) -> Found {
        let memory = communication.region;
        let found = match communication.way {
            Way::Refused => self.largest(memory),
            _ => self.exact(memory),
        };
        if let Some(id) = found {
            return Found {
                id,
                is_new: false,
                gone: None,
            };
        }
        let gone = self.make_room();
        let id = RegionId(self.next);
        self.next += 1;
        self.all.insert(id, Known::new(memory, now));
        self.by_start.insert((memory.addr, id), memory.end());
        self.longest = self.longest.max(memory.bytes);
        Found {
            id,
            is_new: true,
            gone,
        }
    }

    /// None was put off for want of room any more: there is more of it from now on.
    pub(super) fn forget_short(&mut self) {
        self.all.values_mut().for_each(|it| it.short = 0);
    }

    /// The region of just these bytes, if it is not forgotten.
    pub(super) fn exact(&self, memory: Region) -> Option<RegionId> {
        let from = (memory.addr, RegionId(0))..=(memory.addr, RegionId(u64::MAX));
        let mut starting = self.by_start.range(from);
        starting.find(|it| *it.1 == memory.end()).map(|it| it.0.1)
    }

    /// The other regions that share bytes with one.
    pub(super) fn sharing_with(&self, id: RegionId) -> impl Iterator<Item = (RegionId, &Known)> {
        let sharing = self.that_have(self.at(id).memory);
        sharing.filter(move |(other, _)| *other != id)
    }

    /// The regions that have bytes of this memory.
    pub(super) fn sharing(&self, memory: Region) -> impl Iterator<Item = &Known> {
        self.that_have(memory).map(|it| it.1)
    }

    fn that_have(&self, memory: Region) -> impl Iterator<Item = (RegionId, &Known)> {
        let first = (memory.addr.saturating_sub(self.longest), RegionId(0));
        let before = self.by_start.range(first..(memory.end(), RegionId(0)));
        let sharing = before.filter(move |(_, end)| **end > memory.addr);
        sharing.map(|((_, id), _)| (*id, self.at(*id)))
    }

    fn largest(&self, memory: Region) -> Option<RegionId> {
        let first = (memory.addr.saturating_sub(self.longest), RegionId(0));
        let before = self
            .by_start
            .range(first..=(memory.addr, RegionId(u64::MAX)));
        let fitting = before.filter(|it| *it.1 >= memory.end());
        let largest = fitting.max_by_key(|((start, _), end)| *end - start);
        largest.map(|it| it.0.1)
    }

    /// Forgets the idle region that was not used for longest, if there are too many: which that was.
    fn make_room(&mut self) -> Option<Region> {
        if self.all.len() < self.most {
            return None;
        }
        let idle = self.all.iter().filter(|it| it.1.is_idle());
        let id = idle.min_by_key(|it| it.1.last_used).map(|it| *it.0)?;
        let region = self.all.remove(&id)?;
        self.by_start.remove(&(region.memory.addr, id));
        for it in region.uses {
            self.sites.remove(&(it.thread, it.signature));
        }
        Some(region.memory)
    }

    /// The region of a use that is known.
    pub(super) fn of(&self, thread: ThreadId, signature: Signature) -> Option<RegionId> {
        self.sites.get(&(thread, signature)).copied()
    }

    /// When a use of a region is expected, if it is.
    pub(super) fn expected(
        &self,
        id: RegionId,
        thread: ThreadId,
        signature: Signature,
    ) -> Option<Forecast> {
        let is_it = |it: &&Use| (it.thread, it.signature) == (thread, signature);
        self.at(id).uses.iter().find(is_it)?.forecast
    }

    /// Says when a use of a region is expected. Gives the region that it was of before, if that is
    /// another.
    pub(super) fn expect(
        &mut self,
        id: RegionId,
        thread: ThreadId,
        signature: Signature,
        forecast: Option<Forecast>,
    ) -> Option<RegionId> {
        let left = self.leave_other(id, thread, signature);
        let region = self
            .all
            .get_mut(&id)
            .expect("a region that is used is there");
        let is_it = |it: &Use| (it.thread, it.signature) == (thread, signature);
        if let Some(at) = region.uses.iter().position(is_it) {
            region.uses.remove(at);
        } else if region.uses.len() == MOST_USES {
            let oldest = region.uses.remove(0);
            self.sites.remove(&(oldest.thread, oldest.signature));
        }
        region.uses.push(Use {
            thread,
            signature,
            forecast,
        });
        self.sites.insert((thread, signature), id);
        left
    }

    /// A use is of one region: of the larger one, where its bytes grew.
    fn leave_other(
        &mut self,
        id: RegionId,
        thread: ThreadId,
        signature: Signature,
    ) -> Option<RegionId> {
        let before = self.of(thread, signature).filter(|&before| before != id)?;
        let region = self.all.get_mut(&before)?;
        region
            .uses
            .retain(|it| (it.thread, it.signature) != (thread, signature));
        Some(before)
    }
}
