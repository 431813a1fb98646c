//! Own memory that peers may name: the segment and exposed buffers. A request is judged by the
//! [`RegionNumber`] that it means, never by the address alone: the next buffer at an address is another
//! region.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use hydrant_conduit::{Key, Rank, memory::PAGE};
use hydrant_monitor::MemoryChange;
use hydrant_pinning::{Geometry, Refusal, RegionNumber, Run};
use parking_lot::{RwLock, RwLockReadGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    loan::Lease,
    persistent::{AddressRange, PersistentRanges},
    watched::{ChangedRanges, WatchedMemory},
};
use crate::segment::SYSTEM;

/// The range of all addresses.
const EVERYTHING: AddressRange = (0, 1 << (hydrant_pinning::BUCKET_BITS + 12));

/// The memory that peers may name here.
pub(super) struct LentMemory {
    rank: Rank,
    segment: AddressRange,
    /// True if peers may name any address.
    anywhere: bool,
    /// True if registrations follow the mapping. Then all memory may stay registered.
    follows: bool,
    state: RwLock<LentState>,
    /// The memory of the program whose changes are heard.
    pub(super) watched: WatchedMemory,
    /// The number of times that memory was withdrawn from peers, or changed; counted before the engine
    /// revokes it.
    ends: AtomicU64,
}

#[derive(Default)]
struct LentState {
    /// The persistent memory: allocated parts of the segment, exposed buffers, and memory lent by
    /// its address.
    persistent: PersistentRanges,
    /// Exposed buffers by key.
    exposed: FxHashMap<u64, ExposedBuffer>,
    /// Memory lent by its address, by key. It may overlap anything.
    steady: FxHashMap<u64, AddressRange>,
    /// Loans that end, by key.
    ending: FxHashMap<u64, EndingLoan>,
    /// Keys of loans whose uses are reported by other code.
    unreported: FxHashSet<u64>,
    /// The last key that was given out. Keys are never reused.
    last: u64,
}

/// An exposed buffer.
struct ExposedBuffer {
    lease: Lease,
    /// Peers that know the address.
    informed: FxHashSet<Rank>,
}

/// The users of a loan that ends.
struct EndingLoan {
    own: bool,
    informed: FxHashSet<Rank>,
}

/// The remaining work for a loan that ends.
pub(super) struct EndedLoan {
    /// The last lease of the table, to be [released](super::Registration::let_go).
    pub(super) lease: Lease,
    /// Peers that must be told of the end.
    pub(super) informed: Vec<Rank>,
}

impl LentState {
    /// Removes a user from a loan that ends.
    fn remove_user(&mut self, key: u64, remove: impl FnOnce(&mut EndingLoan) -> bool) -> bool {
        let Some(ending) = self.ending.get_mut(&key) else {
            return false;
        };
        let known = remove(ending);
        if !ending.own && ending.informed.is_empty() {
            self.ending.remove(&key);
        }
        known
    }
}

impl LentMemory {
    /// `remembers_removed`: a registration may hold pages that no operation has named.
    pub(super) fn new(
        rank: Rank,
        segment: AddressRange,
        anywhere: bool,
        follows: bool,
        remembers_removed: bool,
    ) -> Self {
        let lent = Self {
            rank,
            segment,
            anywhere,
            follows,
            state: RwLock::default(),
            watched: WatchedMemory::new(segment, remembers_removed),
            ends: AtomicU64::new(0),
        };
        // Hydrant's own part stays as long as the job.
        lent.allocate((segment.0, (SYSTEM as u64).min(segment.1)));
        lent
    }

    fn state(&self) -> RwLockReadGuard<'_, LentState> {
        self.state.read()
    }

    /// Returns how often memory was withdrawn from peers, or changed. A verdict is valid as long as this count
    /// stays the same.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Acquire)
    }

    fn change<R>(&self, change: impl FnOnce(&mut LentState) -> R) -> R {
        change(&mut self.state.write())
    }

    /// Makes a change after which peers reach less memory.
    fn withdraw<R>(&self, change: impl FnOnce(&mut LentState) -> R) -> R {
        let result = self.change(change);
        self.ends.fetch_add(1, Release);
        result
    }

    /// Applies a change of own memory. Returns the memory that is no longer what it was. Peers' requests for it that were
    /// judged before are judged again.
    pub(super) fn apply(&self, change: &MemoryChange) -> ChangedRanges {
        let changed = self.watched.apply(change);
        self.ends.fetch_add(1, Release);
        changed
    }

    /// Adds an allocated part of the segment.
    pub(super) fn allocate(&self, place: AddressRange) {
        self.change(|state| state.persistent.add(place));
    }

    /// Removes an allocated part of the segment.
    pub(super) fn free(&self, place: AddressRange) {
        self.withdraw(|state| state.persistent.remove(place));
    }

    /// Lends a buffer to peers. Returns its key.
    pub(super) fn lend(&self, place: AddressRange) -> u64 {
        self.watched.name(place);
        self.change(|state| {
            state.last += 1;
            let key = state.last;
            let lease = Lease::new(self.rank, key, place);
            let informed = FxHashSet::default();
            state.exposed.insert(key, ExposedBuffer { lease, informed });
            state.persistent.add(place);
            key
        })
    }

    /// Suppresses reports of uses of a loan, as long as the loan lasts.
    pub(super) fn suppress_uses(&self, key: u64) {
        self.change(|state| {
            if state.exposed.contains_key(&key) {
                state.unreported.insert(key);
            }
        });
    }

    /// Returns whether reports of uses of a loan are suppressed.
    pub(super) fn suppresses_uses(&self, key: u64) -> bool {
        self.state().unreported.contains(&key)
    }

    /// Lends memory to peers that name it by its address. Returns its key.
    pub(super) fn lend_steady(&self, place: AddressRange) -> u64 {
        self.watched.name(place);
        self.change(|state| {
            state.last += 1;
            state.steady.insert(state.last, place);
            state.persistent.add(place);
            state.last
        })
    }

    /// Ends a loan of [`lend_steady`](Self::lend_steady). Returns its range.
    pub(super) fn end_steady(&self, key: u64) -> Option<AddressRange> {
        self.withdraw(|state| {
            let place = state.steady.remove(&key)?;
            state.persistent.remove(place);
            Some(place)
        })
    }

    /// Returns the range of a buffer for a peer that asks. The peer is told when the loan ends.
    pub(super) fn inform(&self, to: Rank, key: u64) -> Option<AddressRange> {
        self.change(|state| {
            let loan = state.exposed.get_mut(&key)?;
            loan.informed.insert(to);
            Some(loan.lease.place())
        })
    }

    /// Takes a lease on an own loan.
    pub(super) fn lease(&self, key: u64) -> Option<Lease> {
        let state = self.state();
        state.exposed.get(&key).map(|loan| loan.lease.clone())
    }

    /// Ends a loan. New lookups fail, and the loan [is over](Self::is_over) once its users have
    /// ended. `present` tells which peers can still answer.
    pub(super) fn end(&self, key: u64, present: impl Fn(Rank) -> bool) -> Option<EndedLoan> {
        self.withdraw(|state| {
            let ExposedBuffer { lease, informed } = state.exposed.remove(&key)?;
            state.unreported.remove(&key);
            state.persistent.remove(lease.place());
            let informed: FxHashSet<Rank> =
                informed.into_iter().filter(|rank| present(*rank)).collect();
            let ended = EndedLoan {
                lease,
                informed: informed.iter().copied().collect(),
            };
            state.ending.insert(
                key,
                EndingLoan {
                    own: true,
                    informed,
                },
            );
            Some(ended)
        })
    }

    /// Notes that the last lease of this rank on a loan that ends is gone.
    pub(super) fn let_go_here(&self, key: u64) {
        self.change(|state| state.remove_user(key, |ending| std::mem::take(&mut ending.own)));
    }

    /// Notes that a peer no longer uses a loan that has not ended.
    pub(super) fn forgotten_by(&self, peer: Rank, key: u64) {
        self.change(|state| {
            if let Some(loan) = state.exposed.get_mut(&key) {
                loan.informed.remove(&peer);
            }
        });
    }

    /// Notes that a peer no longer uses a loan that ends. Returns `false` if the peer had not been
    /// asked.
    pub(super) fn let_go_by(&self, peer: Rank, key: u64) -> bool {
        self.change(|state| state.remove_user(key, |ending| ending.informed.remove(&peer)))
    }

    /// Removes a peer that has ended from all loans.
    pub(super) fn remove_peer(&self, peer: Rank) {
        self.change(|state| {
            for loan in state.exposed.values_mut() {
                loan.informed.remove(&peer);
            }
            let ending: Vec<u64> = state.ending.keys().copied().collect();
            for key in ending {
                state.remove_user(key, |ending| ending.informed.remove(&peer));
            }
        });
    }

    /// Returns whether no user is left of a loan that was ended.
    pub(super) fn is_over(&self, key: u64) -> bool {
        !self.state().ending.contains_key(&key)
    }

    /// Returns whether own bytes are persistent. All bytes of the segment count, because a buffer
    /// in the segment lies in an allocated part.
    pub(super) fn is_persistent(&self, addr: u64, len: u64) -> bool {
        self.follows || is_within(self.segment, addr, len)
    }

    /// Returns the first bucket of a run without persistent bytes, or the end of the run. If a
    /// bucket is a page, one persistent byte keeps the whole bucket mapped.
    pub(super) fn persistent_until(&self, geometry: Geometry, run: Run) -> u64 {
        if self.follows {
            run.end()
        } else {
            self.known_until(geometry, run)
        }
    }

    /// Returns the first bucket of a run without bytes of allocations or exposed buffers, or the
    /// end of the run. Registration ahead of need stops there. Memory behind a buffer of the
    /// program may be anything: otherwise the time of a simulated job would depend on what happens
    /// to be mapped there.
    pub(super) fn known_until(&self, geometry: Geometry, run: Run) -> u64 {
        let state = self.state();
        let mut bucket = run.first;
        while bucket < run.end() {
            let (start, next) = (geometry.address_of(bucket), geometry.address_of(bucket + 1));
            let Some(stop) = state.persistent.reach_beyond(start, next) else {
                break;
            };
            bucket = (bucket + 1).max(geometry.bucket_of(stop - 1) + 1);
        }
        bucket.min(run.end())
    }

    /// Returns the range from the first to the last page of a range without persistent bytes, or `None` if there is no such
    /// page. The segment's pages stay as long as the job.
    pub(super) fn not_persistent(&self, (start, len): AddressRange) -> Option<AddressRange> {
        let state = self.state();
        let end = start.saturating_add(len);
        let mut at = start;
        let mut found = None;
        while at < end {
            let page = (at, PAGE as u64);
            if is_within(self.segment, page.0, page.1) {
                at = end.min(self.segment.0 + self.segment.1);
            } else if let Some(stop) = state.persistent.reach_beyond(at, at + page.1) {
                at = (at + page.1).max(stop.next_multiple_of(page.1));
            } else {
                let first = found.map_or(at, |(first, _)| first);
                // A peer may name any number of pages, so those without persistent bytes are not looked at one by one.
                let next = state.persistent.next_begin(at + page.1).unwrap_or(end);
                let next = match self.segment.0 > at {
                    true => next.min(self.segment.0),
                    false => next,
                };
                at = end.min((next & !(page.1 - 1)).max(at + page.1));
                found = Some((first, at));
            }
        }
        found.map(|(first, last)| (first, last - first))
    }

    /// Runs `act` on bytes of a region that stay lent meanwhile. Returns `false` if the peer may
    /// not name them.
    pub(super) fn while_lent(
        &self,
        to: Rank,
        region: RegionNumber,
        (addr, len): AddressRange,
        act: impl FnOnce() -> bool,
    ) -> bool {
        match Key(region.0) {
            Key::SEGMENT => is_within(self.segment, addr, len) && act(),
            Key::ANY => self.anywhere && act(),
            Key(key) => {
                // The lock is held, so the end of a loan waits.
                let state = self.state();
                let place = place_known_to(&state, to, key);
                place.is_some_and(|place| is_within(place, addr, len)) && act()
            }
        }
    }

    /// Returns whether a peer may name these bytes of a region.
    pub(super) fn is_lent(&self, to: Rank, region: RegionNumber, place: AddressRange) -> bool {
        self.while_lent(to, region, place, || true)
    }

    /// Returns the reason why a peer could not reach bytes that it named.
    pub(super) fn why_not(&self, to: Rank, region: RegionNumber, place: AddressRange) -> Refusal {
        if self.is_lent(to, region, place) {
            Refusal::NotMapped
        } else {
            Refusal::NotLent
        }
    }

    /// Returns whether a peer may have buckets registered. Each must hold a part of the region,
    /// because pages are registered as a whole.
    pub(super) fn covers(
        &self,
        to: Rank,
        region: RegionNumber,
        geometry: Geometry,
        run: Run,
    ) -> bool {
        let place = match Key(region.0) {
            Key::SEGMENT => Some(self.segment),
            Key::ANY => self.anywhere.then_some(EVERYTHING),
            Key(key) => place_known_to(&self.state(), to, key),
        };
        let span = place.and_then(|(start, len)| geometry.span(start, len).ok());
        span.is_some_and(|span| span.contains(run))
    }
}

/// Returns the range of a buffer, if the peer was told of it.
fn place_known_to(state: &LentState, peer: Rank, key: u64) -> Option<AddressRange> {
    let loan = state.exposed.get(&key)?;
    loan.informed.contains(&peer).then(|| loan.lease.place())
}

fn is_within((start, size): AddressRange, addr: u64, len: u64) -> bool {
    addr >= start && len <= size && addr - start <= size - len
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Rank = Rank(1);
    const SEGMENT: AddressRange = (1 << 40, 1 << 30);

    fn lent() -> LentMemory {
        LentMemory::new(Rank(0), SEGMENT, false, false, false)
    }

    fn region(key: u64) -> RegionNumber {
        RegionNumber(key)
    }

    #[test]
    fn the_next_buffer_at_an_address_is_another() {
        let lent = lent();
        let first = lent.lend((0x5000, 100));
        assert_eq!(lent.inform(PEER, first), Some((0x5000, 100)));
        assert!(lent.is_lent(PEER, region(first), (0x5000, 100)));
        assert!(!lent.is_lent(PEER, region(first), (0x5000, 101)));
        let ended = lent.end(first, |_| true).expect("it was lent");
        assert_eq!(ended.informed, [PEER]);
        let second = lent.lend((0x5000, 100));
        assert_ne!(first, second);
        assert!(!lent.is_lent(PEER, region(first), (0x5000, 100)));
        // A peer that was not told of the buffer can only guess its key.
        assert!(!lent.is_lent(PEER, region(second), (0x5000, 100)));
        assert_eq!(lent.inform(PEER, second), Some((0x5000, 100)));
        assert!(lent.is_lent(PEER, region(second), (0x5000, 100)));
    }

    #[test]
    fn a_verdict_ends_with_the_memory_that_it_was_about() {
        let lent = lent();
        let judged = lent.ends();
        let unmapped = MemoryChange::Unmapped {
            start: 0x5000,
            len: 4096,
        };
        assert_eq!(lent.apply(&unmapped).as_slice(), [(0x5000, 4096)]);
        assert_ne!(lent.ends(), judged);
    }

    #[test]
    fn a_loan_is_over_when_nobody_uses_it() {
        let lent = lent();
        let key = lent.lend((0x5000, 100));
        let held = lent.lease(key).expect("it is lent");
        for peer in [1, 2, 3] {
            let _ = lent.inform(Rank(peer), key);
        }
        let ended = lent.end(key, |rank| rank != Rank(3)).expect("it was lent");
        assert!(ended.lease.end().is_none(), "it is held");
        assert!(lent.lease(key).is_none());
        assert!(lent.let_go_by(Rank(1), key));
        assert!(!lent.let_go_by(Rank(1), key), "it was removed before");
        assert!(!lent.is_over(key));
        lent.remove_peer(Rank(2));
        assert!(!lent.is_over(key));
        let (owner, ended) = held.end().expect("the last");
        assert_eq!((owner, ended), (Rank(0), key));
        lent.let_go_here(key);
        assert!(lent.is_over(key));
        assert!(!lent.let_go_by(Rank(1), key));
    }

    #[test]
    fn a_peer_that_has_forgotten_a_loan_is_not_asked() {
        let lent = lent();
        let key = lent.lend((0x5000, 100));
        let _ = lent.inform(PEER, key);
        let _ = lent.inform(Rank(2), key);
        lent.forgotten_by(PEER, key);
        assert!(!lent.is_lent(PEER, region(key), (0x5000, 100)));
        let ended = lent.end(key, |_| true).expect("it was lent");
        assert_eq!(ended.informed, [Rank(2)]);
        lent.forgotten_by(PEER, key);
    }

    #[test]
    fn a_run_is_persistent_as_long_as_each_bucket_has_persistent_bytes() {
        let lent = lent();
        let geometry = Geometry::new(4096, 4096).expect("a page");
        let run = |first, count| Run { first, count };
        let key = lent.lend((0x5800, 0x1000));
        let _ = lent.lend((0x6900, 0x100));
        let _ = lent.lend((0x7fff, 0x2001));
        assert_eq!(lent.persistent_until(geometry, run(5, 6)), 10);
        assert_eq!(lent.persistent_until(geometry, run(4, 6)), 4);
        assert_eq!(lent.persistent_until(geometry, run(5, 2)), 7);
        let _ = lent.end(key, |_| true);
        assert_eq!(lent.persistent_until(geometry, run(5, 6)), 5);
        assert_eq!(lent.persistent_until(geometry, run(6, 6)), 10);
        let steady = lent.lend_steady((0x5000, 0x100));
        assert_eq!(lent.persistent_until(geometry, run(5, 6)), 10);
        assert_eq!(lent.end_steady(steady), Some((0x5000, 0x100)));
        assert_eq!(lent.persistent_until(geometry, run(5, 6)), 5);
    }

    #[test]
    fn pages_without_persistent_bytes_are_found() {
        let lent = lent();
        let page = |number: u64, count: u64| (number << 12, count << 12);
        assert_eq!(lent.not_persistent(page(4, 4)), Some(page(4, 4)));
        let key = lent.lend((0x5800, 0x1000));
        assert_eq!(lent.not_persistent(page(5, 2)), None);
        assert_eq!(lent.not_persistent(page(4, 4)), Some(page(4, 4)));
        assert_eq!(lent.not_persistent(page(4, 3)), Some(page(4, 1)));
        assert_eq!(lent.not_persistent(page(6, 3)), Some(page(7, 2)));
        let _ = lent.lend((0x7fff, 0x2001));
        assert_eq!(lent.not_persistent(page(5, 5)), None);
        assert_eq!(lent.not_persistent(page(5, 6)), Some(page(10, 1)));
        let _ = lent.end(key, |_| true);
        assert_eq!(lent.not_persistent(page(4, 6)), Some(page(4, 3)));
        // However many pages are named, the answer takes no time.
        let all = 1 << 52;
        assert_eq!(lent.not_persistent((0, all)), Some((0, all)));
        assert_eq!(lent.not_persistent((0, 0x8000)), Some((0, 0x7000)));
        // All of the segment stays.
        let first = SEGMENT.0 >> 12;
        assert_eq!(lent.not_persistent(page(first, 100)), None);
        assert_eq!(
            lent.not_persistent(page(first - 1, 3)),
            Some(page(first - 1, 1))
        );
    }

    #[test]
    fn peers_may_register_only_buckets_that_hold_part_of_the_region() {
        let lent = lent();
        let geometry = Geometry::new(4096, 4096).expect("a page");
        let run = |first, count| Run { first, count };
        let key = lent.lend((0x5800, 0x1000));
        let covers = |region: RegionNumber, run| lent.covers(PEER, region, geometry, run);
        assert!(!covers(region(key), run(5, 2)), "the peer was not informed");
        let _ = lent.inform(PEER, key);
        assert!(covers(region(key), run(5, 2)));
        assert!(!covers(region(key), run(5, 3)));
        assert!(!covers(region(key), run(4, 2)));
        assert!(!covers(RegionNumber(Key::ANY.0), run(5, 1)));
        let first = geometry.bucket_of(SEGMENT.0);
        assert!(covers(RegionNumber(Key::SEGMENT.0), run(first, 100)));
        assert!(!covers(RegionNumber(Key::SEGMENT.0), run(first - 1, 100)));
    }
}
