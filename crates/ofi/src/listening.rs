//! The state of an endpoint without a job, whose peers come and go.
//!
//! The control thread drives it (`control/acquaintances.rs`). Other threads begin attempts, and look up their keys when
//! an answer arrives.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

use hydrant_conduit::Rank;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    events::{PeerEvent, PeerHandler},
    introduction::Secret,
    locator::LocatorEntry,
};

/// The state of an endpoint whose peers come and go.
pub(crate) struct Listening {
    /// The key that peers must know.
    pub(crate) key: Secret,
    /// This process: a number that no other has.
    pub(crate) process: Secret,
    /// The secret of the keys of own memory.
    pub(crate) memory: Secret,
    pub(crate) own: LocatorEntry,
    pub(crate) handler: Arc<dyn PeerHandler>,
    /// How long an attempt to connect lasts.
    pub(crate) connect_timeout: Duration,
    /// How long this process may stand still. After that its peers may count it as lost.
    pub(crate) most_stall: Option<Duration>,
    pub(crate) book: Mutex<Book>,
    /// The number of each attempt that is under way, and the key that proves the answer.
    pub(crate) attempts: Mutex<FxHashMap<Secret, (Rank, Secret)>>,
    /// The event of each peer that is told with the begin of its session.
    prepared: Mutex<FxHashMap<Rank, PeerEvent>>,
    /// Events for the thread that collects, in order.
    news: Mutex<Vec<PeerEvent>>,
    /// When this process was last seen to run, in milliseconds of a clock that counts while the system sleeps.
    seen: AtomicU64,
    /// Held while sessions are cut because this process stood still.
    pub(crate) stall: Mutex<()>,
}

/// The peers by number and by address.
pub(crate) struct Book {
    pub(crate) entries: FxHashMap<Rank, BookEntry>,
    names: FxHashMap<Vec<u8>, Vec<Rank>>,
    /// The numbers that are free again, in order.
    free: VecDeque<Rank>,
    /// The first number that was never taken, and the first that there is not.
    fresh: u32,
    capacity: u32,
    /// How many attempts this process began.
    pub(crate) begun: u64,
}

/// A number is free for as long as so many others are taken, so that stale names of it stay invalid for a while.
const REST: usize = 64;

/// A peer in the book.
pub(crate) struct BookEntry {
    /// The address of its endpoint, as the provider writes it.
    pub(crate) name: Vec<u8>,
    pub(crate) stage: Acquaintanceship,
}

/// The stage of getting to know a peer.
pub(crate) enum Acquaintanceship {
    /// This process introduces itself.
    Asking(Attempt),
    /// The peer introduced itself, and did not prove yet that it is there.
    Admitting(Newcomer),
    /// A session was begun.
    Met {
        /// The peer's process, and how many attempts it had begun by then. Introductions of these are late.
        process: Secret,
        attempts: u64,
    },
    /// The peer was declined, by this message.
    Declined {
        asked: Secret,
        reply: Vec<u8>,
        until: Instant,
    },
    /// This process left the session, and waits for the acknowledgement until this time.
    Leaving { until: Instant },
    /// This process gave the session up, and waits until nothing of it lands at the peer.
    Abandoned { until: Instant },
    /// The peer gave the session up, and gets the acknowledgement until this time.
    GivenUp { until: Instant },
    /// It is over. The number is free once the layer above released it, and nothing is in flight.
    Over { is_released: bool, since: Instant },
}

/// An attempt of this process to get to know a peer.
pub(crate) struct Attempt {
    pub(crate) asked: Secret,
    /// The key of the peer.
    pub(crate) key: Secret,
    /// The bytes of the layer above.
    pub(crate) text: Vec<u8>,
    /// The message, once it was made.
    pub(crate) message: Vec<u8>,
    pub(crate) began: Instant,
    /// When to send the message next, and how long after that again.
    pub(crate) next: Instant,
    pub(crate) pause: Duration,
}

/// A peer that introduced itself.
pub(crate) struct Newcomer {
    pub(crate) asked: Secret,
    pub(crate) process: Secret,
    pub(crate) attempts: u64,
    /// The answer.
    pub(crate) reply: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) until: Instant,
    /// This process's own attempt, which was given up for the peer's.
    pub(crate) own: Option<Attempt>,
}

impl Attempt {
    pub(crate) fn new(key: Secret, text: Vec<u8>, now: Instant) -> Self {
        Self {
            asked: crate::introduction::fresh(),
            key,
            text,
            message: Vec::new(),
            began: now,
            next: now,
            pause: Duration::ZERO,
        }
    }
}

impl Book {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            entries: FxHashMap::default(),
            names: FxHashMap::default(),
            free: VecDeque::new(),
            // Number 0 is this process.
            fresh: 1,
            capacity,
            begun: 0,
        }
    }

    /// Takes a number for a peer: that which was free for longest, or one that was never used.
    pub(crate) fn take(&mut self) -> Option<Rank> {
        if self.free.len() <= REST && self.fresh < self.capacity {
            self.fresh += 1;
            return Some(Rank(self.fresh - 1));
        }
        self.free.pop_front()
    }

    /// Gives a number back that has no entry.
    pub(crate) fn give_back(&mut self, number: Rank) {
        self.free.push_back(number);
    }

    pub(crate) fn add(&mut self, number: Rank, name: Vec<u8>, stage: Acquaintanceship) {
        self.names.entry(name.clone()).or_default().push(number);
        self.entries.insert(number, BookEntry { name, stage });
    }

    /// Removes a peer, and frees its number.
    pub(crate) fn remove(&mut self, number: Rank) {
        if let Some(entry) = self.entries.remove(&number) {
            if let Some(numbers) = self.names.get_mut(&entry.name) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    self.names.remove(&entry.name);
                }
            }
            self.free.push_back(number);
        }
    }

    /// Returns the numbers of the peers at this address.
    pub(crate) fn at(&self, name: &[u8]) -> &[Rank] {
        self.names.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn stage(&mut self, number: Rank) -> Option<&mut Acquaintanceship> {
        Some(&mut self.entries.get_mut(&number)?.stage)
    }
}

impl Listening {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        key: Secret,
        own: LocatorEntry,
        handler: Arc<dyn PeerHandler>,
        capacity: u32,
        connect_timeout: Duration,
        patience: Option<Duration>,
    ) -> Self {
        Self {
            key,
            process: crate::introduction::fresh(),
            memory: crate::introduction::fresh(),
            own,
            handler,
            connect_timeout,
            // A peer may not have heard of this process for two beats before it stood still.
            most_stall: patience.map(|patience| patience * 3 / 4),
            book: Mutex::new(Book::new(capacity)),
            attempts: Mutex::default(),
            prepared: Mutex::default(),
            news: Mutex::default(),
            seen: AtomicU64::new(now_ms()),
            stall: Mutex::new(()),
        }
    }

    /// Sets the event with which the begin of a peer's session is told.
    pub(crate) fn prepare(&self, event: PeerEvent) {
        self.prepared.lock().insert(event.peer(), event);
    }

    /// Forgets that event, and returns it if it was not told.
    pub(crate) fn forget(&self, peer: Rank) -> Option<PeerEvent> {
        self.prepared.lock().remove(&peer)
    }

    /// Notes that the session with a peer began. The thread that collects calls this.
    pub(crate) fn note_met(&self, peer: Rank) {
        let event = self.prepared.lock().remove(&peer);
        self.news.lock().extend(event);
    }

    /// Takes the events that the thread that collects noted.
    pub(crate) fn take_news(&self) -> Vec<PeerEvent> {
        std::mem::take(&mut *self.news.lock())
    }

    /// Returns true if this process may have stood still for too long since it was last seen.
    #[inline]
    pub(crate) fn has_stalled(&self) -> bool {
        let Some(most) = self.most_stall else {
            return false;
        };
        let (now, seen) = (now_ms(), self.seen.load(Acquire));
        if now.saturating_sub(seen) >= most.as_millis() as u64 {
            return true;
        }
        if now != seen {
            self.seen.fetch_max(now, Relaxed);
        }
        false
    }

    /// Notes that this process runs, after sessions were cut.
    pub(crate) fn note_seen(&self) {
        self.seen.fetch_max(now_ms(), Release);
    }
}

/// Returns the time of the system's clock that counts while it sleeps, in milliseconds.
fn now_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over() -> Acquaintanceship {
        Acquaintanceship::Over {
            is_released: true,
            since: Instant::now(),
        }
    }

    #[test]
    fn numbers_are_used_again_but_not_soon() {
        let mut book = Book::new(1000);
        let mut last = [0; 1000];
        for turn in 1..10_000 {
            let number = book.take().expect("a number is free");
            assert!(number.0 > 0 && number.index() <= REST + 1, "{number}");
            let before = std::mem::replace(&mut last[number.index()], turn);
            assert!(before == 0 || turn - before > REST as u32);
            book.add(number, vec![turn as u8], over());
            assert_eq!(book.at(&[turn as u8]), [number]);
            book.remove(number);
            assert!(book.at(&[turn as u8]).is_empty() && book.entries.is_empty());
        }
        assert!(book.names.is_empty());
    }

    #[test]
    fn numbers_are_unique_and_bounded() {
        let mut book = Book::new(5);
        let taken: Vec<_> = std::iter::from_fn(|| book.take()).collect();
        assert_eq!(taken, [1, 2, 3, 4].map(Rank));
        book.give_back(Rank(3));
        assert_eq!((book.take(), book.take()), (Some(Rank(3)), None));
    }
}
