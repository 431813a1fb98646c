//! Own memory that peers may name: the segment, and exposed buffers. What a peer names is judged
//! by the [`Region`] that it means, never by the address alone: the next buffer at an address is
//! another region.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use hydrant_conduit::{Key, Rank};
use hydrant_pinning::{Geometry, Refusal, Region, Run};
use parking_lot::{RwLock, RwLockReadGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{lasting::Lasting, loan::Lease};
use crate::segment::SYSTEM;

/// Where memory lies, and its bytes.
pub(super) type Place = (u64, u64);

/// All addresses that there are.
const EVERYTHING: Place = (0, 1 << (hydrant_pinning::BUCKET_BITS + 12));

/// What peers may name here.
pub(super) struct Lent {
    rank: Rank,
    segment: Place,
    /// Whether peers may name any address.
    anywhere: bool,
    /// Whether registrations follow what is mapped: then all memory may stay registered.
    follows: bool,
    state: RwLock<State>,
    /// How often memory has gone that peers might reach; counted before the engine takes it back.
    ends: AtomicU64,
}

#[derive(Default)]
struct State {
    /// What goes only after it was taken back: allocated parts of the segment, exposed buffers, and
    /// what is lent to whoever names addresses.
    lasting: Lasting,
    /// Exposed buffers, by key.
    exposed: FxHashMap<u64, Loan>,
    /// What is lent to whoever names addresses, by key. It may share bytes with anything.
    steady: FxHashMap<u64, Place>,
    /// Loans that end, by key.
    ending: FxHashMap<u64, Ending>,
    /// Loans whose uses are told by somebody else, by key.
    quiet: FxHashSet<u64>,
    /// The last key that was given out: none is given twice.
    last: u64,
}

/// An exposed buffer.
struct Loan {
    lease: Lease,
    /// Peers that know where it lies.
    informed: FxHashSet<Rank>,
}

/// Who may still be using a loan that ends.
struct Ending {
    own: bool,
    informed: FxHashSet<Rank>,
}

/// What is to be done about a loan that ends.
pub(super) struct Ended {
    /// The last that finds it: to be [let go](super::Registration::let_go).
    pub(super) lease: Lease,
    /// Peers to be informed.
    pub(super) informed: Vec<Rank>,
}

impl State {
    /// Takes a user off a loan that ends.
    fn settle(&mut self, key: u64, settle: impl FnOnce(&mut Ending) -> bool) -> bool {
        let Some(ending) = self.ending.get_mut(&key) else {
            return false;
        };
        let known = settle(ending);
        if !ending.own && ending.informed.is_empty() {
            self.ending.remove(&key);
        }
        known
    }
}

impl Lent {
    pub(super) fn new(rank: Rank, segment: Place, anywhere: bool, follows: bool) -> Self {
        let lent = Self {
            rank,
            segment,
            anywhere,
            follows,
            state: RwLock::default(),
            ends: AtomicU64::new(0),
        };
        // Hydrant's own part is there as long as the job.
        lent.allocate((segment.0, (SYSTEM as u64).min(segment.1)));
        lent
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// How often memory that peers might reach has gone. A verdict is good as long as that stays the
    /// same.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Acquire)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write())
    }

    /// A change after which peers reach less.
    fn withdraw<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = self.change(change);
        self.ends.fetch_add(1, Release);
        result
    }

    /// A part of the segment is in use.
    pub(super) fn allocate(&self, place: Place) {
        self.change(|state| state.lasting.add(place));
    }

    /// A part of the segment goes.
    pub(super) fn free(&self, place: Place) {
        self.withdraw(|state| state.lasting.remove(place));
    }

    /// Lends a buffer to peers: its key.
    pub(super) fn lend(&self, place: Place) -> u64 {
        self.change(|state| {
            state.last += 1;
            let key = state.last;
            let lease = Lease::new(self.rank, key, place);
            let informed = FxHashSet::default();
            state.exposed.insert(key, Loan { lease, informed });
            state.lasting.add(place);
            key
        })
    }

    /// Somebody else tells of the uses of a loan, as long as that lasts.
    pub(super) fn quieten(&self, key: u64) {
        self.change(|state| {
            if state.exposed.contains_key(&key) {
                state.quiet.insert(key);
            }
        });
    }

    /// Whether somebody else tells of the uses of a loan.
    pub(super) fn is_quiet(&self, key: u64) -> bool {
        self.state().quiet.contains(&key)
    }

    /// Lends memory to peers that name it by its address: its key.
    pub(super) fn lend_steady(&self, place: Place) -> u64 {
        self.change(|state| {
            state.last += 1;
            state.steady.insert(state.last, place);
            state.lasting.add(place);
            state.last
        })
    }

    /// What [`lend_steady`](Self::lend_steady) lent ends: where it lies.
    pub(super) fn end_steady(&self, key: u64) -> Option<Place> {
        self.withdraw(|state| {
            let place = state.steady.remove(&key)?;
            state.lasting.remove(place);
            Some(place)
        })
    }

    /// Where a buffer lies, for a peer that asks; it is told when that ends.
    pub(super) fn tell(&self, to: Rank, key: u64) -> Option<Place> {
        self.change(|state| {
            let loan = state.exposed.get_mut(&key)?;
            loan.informed.insert(to);
            Some(loan.lease.place())
        })
    }

    /// Holds an own loan.
    pub(super) fn lease(&self, key: u64) -> Option<Lease> {
        let state = self.state();
        state.exposed.get(&key).map(|loan| loan.lease.clone())
    }

    /// A loan ends: nobody finds it any more. It is [over](Self::is_over) when nobody uses it.
    /// `present` says who is there to be asked.
    pub(super) fn end(&self, key: u64, present: impl Fn(Rank) -> bool) -> Option<Ended> {
        self.withdraw(|state| {
            let Loan { lease, informed } = state.exposed.remove(&key)?;
            state.quiet.remove(&key);
            state.lasting.remove(lease.place());
            let informed: FxHashSet<Rank> =
                informed.into_iter().filter(|rank| present(*rank)).collect();
            let ended = Ended {
                lease,
                informed: informed.iter().copied().collect(),
            };
            state.ending.insert(
                key,
                Ending {
                    own: true,
                    informed,
                },
            );
            Some(ended)
        })
    }

    /// Nobody here uses a loan any more that ends.
    pub(super) fn let_go_here(&self, key: u64) {
        self.change(|state| state.settle(key, |ending| std::mem::take(&mut ending.own)));
    }

    /// A peer says that it uses a loan no more, before that ends.
    pub(super) fn forgotten_by(&self, peer: Rank, key: u64) {
        self.change(|state| {
            if let Some(loan) = state.exposed.get_mut(&key) {
                loan.informed.remove(&peer);
            }
        });
    }

    /// A peer says that it uses a loan no more; `false` if nobody had asked.
    pub(super) fn let_go_by(&self, peer: Rank, key: u64) -> bool {
        self.change(|state| state.settle(key, |ending| ending.informed.remove(&peer)))
    }

    /// A peer has ended: it uses nothing any more.
    pub(super) fn without(&self, peer: Rank) {
        self.change(|state| {
            for loan in state.exposed.values_mut() {
                loan.informed.remove(&peer);
            }
            let ending: Vec<u64> = state.ending.keys().copied().collect();
            for key in ending {
                state.settle(key, |ending| ending.informed.remove(&peer));
            }
        });
    }

    /// Whether nobody uses a loan any more that ended.
    pub(super) fn is_over(&self, key: u64) -> bool {
        !self.state().ending.contains_key(&key)
    }

    /// Whether own bytes go only after they were taken back: those of the segment do, for
    /// whoever has a buffer there has it of what is allocated.
    pub(super) fn lasts(&self, addr: u64, len: u64) -> bool {
        self.follows || is_within(self.segment, addr, len)
    }

    /// The first bucket of a run of which no byte goes only after it was taken back; its end, if
    /// there is none. Where a bucket is a page, one such byte keeps all of it where it is.
    pub(super) fn lasts_until(&self, geometry: Geometry, run: Run) -> u64 {
        if self.follows {
            run.end()
        } else {
            self.known_until(geometry, run)
        }
    }

    /// The first bucket of a run of which no byte is of the segment's allocations or of an exposed
    /// buffer; its end, if there is none. What is registered ahead of need goes no further. What
    /// lies behind a buffer of the program's may be anything: if it counted, a simulated job's
    /// time would depend on what happens to be mapped there.
    pub(super) fn known_until(&self, geometry: Geometry, run: Run) -> u64 {
        let state = self.state();
        let mut bucket = run.first;
        while bucket < run.end() {
            let (start, next) = (geometry.address_of(bucket), geometry.address_of(bucket + 1));
            let Some(stop) = state.lasting.reach_beyond(start, next) else {
                break;
            };
            bucket = (bucket + 1).max(geometry.bucket_of(stop - 1) + 1);
        }
        bucket.min(run.end())
    }

    /// Does something with bytes of a region that stay lent meanwhile; `false` if the peer may
    /// not name them.
    pub(super) fn while_lent(
        &self,
        to: Rank,
        region: Region,
        (addr, len): Place,
        act: impl FnOnce() -> bool,
    ) -> bool {
        match Key(region.0) {
            Key::SEGMENT => is_within(self.segment, addr, len) && act(),
            Key::ANY => self.anywhere && act(),
            Key(key) => {
                // The lock is held: a loan that ends waits for it.
                let state = self.state();
                let place = place_known_to(&state, to, key);
                place.is_some_and(|place| is_within(place, addr, len)) && act()
            }
        }
    }

    /// Whether a peer may name these bytes of a region.
    pub(super) fn is_lent(&self, to: Rank, region: Region, place: Place) -> bool {
        self.while_lent(to, region, place, || true)
    }

    /// Why a peer did not get to bytes that it named.
    pub(super) fn why_not(&self, to: Rank, region: Region, place: Place) -> Refusal {
        if self.is_lent(to, region, place) {
            Refusal::NotMapped
        } else {
            Refusal::NotLent
        }
    }

    /// Whether a peer may have buckets registered: each of them has a part of the region, for
    /// pages are registered as a whole.
    pub(super) fn covers(&self, to: Rank, region: Region, geometry: Geometry, run: Run) -> bool {
        let place = match Key(region.0) {
            Key::SEGMENT => Some(self.segment),
            Key::ANY => self.anywhere.then_some(EVERYTHING),
            Key(key) => place_known_to(&self.state(), to, key),
        };
        let span = place.and_then(|(start, len)| geometry.span(start, len).ok());
        span.is_some_and(|span| span.contains(run))
    }
}

/// Where a buffer lies, if the peer was informed of that.
fn place_known_to(state: &State, peer: Rank, key: u64) -> Option<Place> {
    let loan = state.exposed.get(&key)?;
    loan.informed.contains(&peer).then(|| loan.lease.place())
}

fn is_within((start, size): Place, addr: u64, len: u64) -> bool {
    addr >= start && len <= size && addr - start <= size - len
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Rank = Rank(1);
    const SEGMENT: Place = (1 << 40, 1 << 30);

    fn lent() -> Lent {
        Lent::new(Rank(0), SEGMENT, false, false)
    }

    fn region(key: u64) -> Region {
        Region(key)
    }

    #[test]
    fn the_next_buffer_at_an_address_is_another() {
        let lent = lent();
        let first = lent.lend((0x5000, 100));
        assert_eq!(lent.tell(PEER, first), Some((0x5000, 100)));
        assert!(lent.is_lent(PEER, region(first), (0x5000, 100)));
        assert!(!lent.is_lent(PEER, region(first), (0x5000, 101)));
        let ended = lent.end(first, |_| true).expect("it was lent");
        assert_eq!(ended.informed, [PEER]);
        let second = lent.lend((0x5000, 100));
        assert_ne!(first, second);
        assert!(!lent.is_lent(PEER, region(first), (0x5000, 100)));
        // Whoever was not informed of its place names it by chance.
        assert!(!lent.is_lent(PEER, region(second), (0x5000, 100)));
        assert_eq!(lent.tell(PEER, second), Some((0x5000, 100)));
        assert!(lent.is_lent(PEER, region(second), (0x5000, 100)));
    }

    #[test]
    fn a_loan_is_over_when_nobody_uses_it() {
        let lent = lent();
        let key = lent.lend((0x5000, 100));
        let held = lent.lease(key).expect("it is lent");
        for peer in [1, 2, 3] {
            let _ = lent.tell(Rank(peer), key);
        }
        let ended = lent.end(key, |rank| rank != Rank(3)).expect("it was lent");
        assert!(ended.lease.end().is_none(), "it is held");
        assert!(lent.lease(key).is_none());
        assert!(lent.let_go_by(Rank(1), key));
        assert!(!lent.let_go_by(Rank(1), key), "it said so before");
        assert!(!lent.is_over(key));
        lent.without(Rank(2));
        assert!(!lent.is_over(key));
        let (owner, ended) = held.end().expect("the last");
        assert_eq!((owner, ended), (Rank(0), key));
        lent.let_go_here(key);
        assert!(lent.is_over(key));
        assert!(!lent.let_go_by(Rank(1), key));
    }

    #[test]
    fn who_has_forgotten_a_loan_is_not_asked() {
        let lent = lent();
        let key = lent.lend((0x5000, 100));
        let _ = lent.tell(PEER, key);
        let _ = lent.tell(Rank(2), key);
        lent.forgotten_by(PEER, key);
        assert!(!lent.is_lent(PEER, region(key), (0x5000, 100)));
        let ended = lent.end(key, |_| true).expect("it was lent");
        assert_eq!(ended.informed, [Rank(2)]);
        lent.forgotten_by(PEER, key);
    }

    #[test]
    fn buckets_last_as_far_as_some_of_each_does() {
        let lent = lent();
        let geometry = Geometry::new(4096, 4096).expect("a page");
        let run = |first, count| Run { first, count };
        let key = lent.lend((0x5800, 0x1000));
        let _ = lent.lend((0x6900, 0x100));
        let _ = lent.lend((0x7fff, 0x2001));
        assert_eq!(lent.lasts_until(geometry, run(5, 6)), 10);
        assert_eq!(lent.lasts_until(geometry, run(4, 6)), 4);
        assert_eq!(lent.lasts_until(geometry, run(5, 2)), 7);
        let _ = lent.end(key, |_| true);
        assert_eq!(lent.lasts_until(geometry, run(5, 6)), 5);
        assert_eq!(lent.lasts_until(geometry, run(6, 6)), 10);
        let steady = lent.lend_steady((0x5000, 0x100));
        assert_eq!(lent.lasts_until(geometry, run(5, 6)), 10);
        assert_eq!(lent.end_steady(steady), Some((0x5000, 0x100)));
        assert_eq!(lent.lasts_until(geometry, run(5, 6)), 5);
    }

    #[test]
    fn buckets_are_registered_for_what_lies_in_them_alone() {
        let lent = lent();
        let geometry = Geometry::new(4096, 4096).expect("a page");
        let run = |first, count| Run { first, count };
        let key = lent.lend((0x5800, 0x1000));
        let covers = |region: Region, run| lent.covers(PEER, region, geometry, run);
        assert!(!covers(region(key), run(5, 2)), "the peer was not informed");
        let _ = lent.tell(PEER, key);
        assert!(covers(region(key), run(5, 2)));
        assert!(!covers(region(key), run(5, 3)));
        assert!(!covers(region(key), run(4, 2)));
        assert!(!covers(Region(Key::ANY.0), run(5, 1)));
        let first = geometry.bucket_of(SEGMENT.0);
        assert!(covers(Region(Key::SEGMENT.0), run(first, 100)));
        assert!(!covers(Region(Key::SEGMENT.0), run(first - 1, 100)));
    }
}
