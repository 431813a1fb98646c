//! Changes of memory, and the queue in which a subscriber finds them.
//!
//! The thread that hears of changes must never wait for a thread that changes memory, because the kernel
//! holds that thread until the change was read. So it takes no lock that is held while memory is freed,
//! and frees nothing itself. The queue has a fixed size. When it is full, changes are counted, and the
//! subscriber hears that anything may have changed. Changes that find no place then count as one, so that
//! the count stays small, however long a subscriber takes none.

use std::sync::{
    Mutex, PoisonError,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// The most changes that wait for a subscriber by themselves.
const PLACES: usize = 1024;

/// A change of own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryChange {
    /// Memory was unmapped, and is no longer watched. Other memory may be mapped there by now.
    Unmapped {
        /// The first address.
        start: u64,
        /// The bytes.
        len: u64,
    },
    /// The pages go, while the mapping stays, and stays watched. They may still be there: they go
    /// once the change was heard.
    Removed {
        /// The first address.
        start: u64,
        /// The bytes.
        len: u64,
    },
    /// The pages moved to another address, where they stay watched. The old address may be another's
    /// by now, and what was mapped at the new address before is gone.
    Moved {
        /// The old address.
        from: u64,
        /// The new address.
        to: u64,
        /// The bytes.
        len: u64,
    },
    /// A block goes back to its allocator, whose memory may hold other blocks, and may be unmapped later.
    Freed {
        /// The first address.
        start: u64,
        /// The bytes.
        len: u64,
    },
    /// Anything may have changed: changes were lost because the subscriber took none for long, or the
    /// monitor ended.
    Anything,
}

/// A change in the queue: its kind, and up to three addresses or lengths.
#[derive(Default)]
struct ChangeSlot([AtomicU64; 4]);

const UNMAPPED: u64 = 1;
const REMOVED: u64 = 2;
const MOVED: u64 = 3;
const FREED: u64 = 4;

impl ChangeSlot {
    fn store(&self, change: MemoryChange) {
        let words = match change {
            MemoryChange::Unmapped { start, len } => [UNMAPPED, start, len, 0],
            MemoryChange::Removed { start, len } => [REMOVED, start, len, 0],
            MemoryChange::Moved { from, to, len } => [MOVED, from, to, len],
            MemoryChange::Freed { start, len } => [FREED, start, len, 0],
            MemoryChange::Anything => return,
        };
        for (place, word) in self.0.iter().zip(words) {
            place.store(word, Relaxed);
        }
    }

    fn load(&self) -> MemoryChange {
        let [kind, first, second, third] = self.0.each_ref().map(|word| word.load(Relaxed));
        match kind {
            UNMAPPED => MemoryChange::Unmapped {
                start: first,
                len: second,
            },
            REMOVED => MemoryChange::Removed {
                start: first,
                len: second,
            },
            FREED => MemoryChange::Freed {
                start: first,
                len: second,
            },
            _ => MemoryChange::Moved {
                from: first,
                to: second,
                len: third,
            },
        }
    }
}

/// Changes on their way from the monitor's thread to one subscriber.
pub(crate) struct ChangeQueue {
    places: Box<[ChangeSlot]>,
    /// The number of changes that were pushed. A thread with the lock counts it up.
    pushed: AtomicU64,
    /// The number of changes that were taken. A subscriber's thread with the lock counts it up.
    taken: AtomicU64,
    /// True if changes found no place since the last look.
    lost: AtomicBool,
    /// Held while a change is pushed. No memory is freed meanwhile.
    pushing: Mutex<()>,
    /// Held while a change is taken. The monitor's thread never takes it.
    taking: Mutex<()>,
}

impl ChangeQueue {
    pub(crate) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| ChangeSlot::default()).collect(),
            pushed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            pushing: Mutex::new(()),
            taking: Mutex::new(()),
        }
    }

    /// Adds a change. Returns false if it is covered by a loss that the subscriber will be told of, and thus does not
    /// count.
    pub(crate) fn push(&self, change: MemoryChange) -> bool {
        let _pushing = self.pushing.lock().unwrap_or_else(PoisonError::into_inner);
        let pushed = self.pushed.load(Relaxed);
        // Acquire ordering: the place was read before it is written again.
        if pushed - self.taken.load(Acquire) >= self.places.len() as u64 {
            return self.lose();
        }
        self.places[pushed as usize % PLACES].store(change);
        self.pushed.store(pushed + 1, Release);
        true
    }

    /// Notes that the subscriber cannot be told a change. Returns false if an earlier loss waits to be told.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.swap(true, AcqRel)
    }

    /// Takes the oldest change. Loss comes first, because it covers what comes later.
    pub(crate) fn take(&self) -> Option<MemoryChange> {
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lost.swap(false, AcqRel) {
            return Some(MemoryChange::Anything);
        }
        let taken = self.taken.load(Relaxed);
        if taken == self.pushed.load(Acquire) {
            return None;
        }
        let change = self.places[taken as usize % PLACES].load();
        self.taken.store(taken + 1, Release);
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_in_order_and_a_loss_is_told() {
        let queue = ChangeQueue::new();
        assert_eq!(queue.take(), None);
        let change = |number: u64| match number % 3 {
            0 => MemoryChange::Unmapped {
                start: number << 12,
                len: 4096,
            },
            1 => MemoryChange::Removed {
                start: number << 12,
                len: 8192,
            },
            _ => MemoryChange::Moved {
                from: number << 12,
                to: 1 << 40,
                len: 4096,
            },
        };
        for round in 0..3 {
            let numbers = round * 1000..round * 1000 + 900;
            numbers
                .clone()
                .for_each(|number| assert!(queue.push(change(number))));
            for number in numbers {
                assert_eq!(queue.take(), Some(change(number)));
            }
        }
        let counted = (0..PLACES as u64 + 5).filter(|number| queue.push(change(*number)));
        assert_eq!(counted.count(), PLACES + 1, "all losses are one change");
        assert_eq!(queue.take(), Some(MemoryChange::Anything));
        assert_eq!(queue.take(), Some(change(0)));
        let rest = std::iter::from_fn(|| queue.take()).count();
        assert_eq!(rest, PLACES - 1);
    }
}
