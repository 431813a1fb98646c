//! The deregistration queue: a circular queue without a lock (§4.1, Figure 7).
//!
//! One thread of the application writes records of its communications, the helper reads them.
//! The writer never waits: where the helper falls behind, the oldest records are overwritten. That is
//! safe because a record is news and no debt: a region whose record is lost stays registered
//! until its next use, which costs memory for a while and correctness nothing. An
//! application that writes faster than the helper reads communicates too often for registrations
//! to be worth giving back in between anyhow.
//!
//! The paper leaves open what the helper reads of a record that is overwritten at that moment. Here
//! each slot has a sequence number, odd while it is written, by which the reader finds out that
//! what it read is torn, and skips it.

use std::sync::Arc;

use crate::communication::{Communication, WORDS};
use crate::sync::{AtomicU64, Ordering, fence};

/// The records of a queue where nothing else is asked for: 6.5 KB, near the paper's 5.6 KB (§6).
pub const DEFAULT_RECORDS: usize = 64;

/// Makes a queue of at least `records` records, and at least one.
pub fn queue(records: usize) -> (Writer, Reader) {
    let records = records.clamp(1, 1 << 24).next_power_of_two();
    let shared = Arc::new(Shared {
        head: AtomicU64::new(0),
        slots: (0..records).map(|_| Slot::new()).collect(),
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        head: 0,
    };
    let reader = Reader {
        shared,
        tail: 0,
        overwritten: 0,
    };
    (writer, reader)
}

/// The application's end. Each thread that communicates has one of its own.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    head: u64,
}

impl Writer {
    /// Records a communication that has completed: a dozen stores, and no wait.
    #[inline]
    pub fn write(&mut self, communication: &Communication) {
        let slot = self.shared.slot(self.head);
        slot.sequence.store(writing(self.head), Ordering::Relaxed);
        // What is read of the words below is known to be torn: pairs with the reader's fence.
        fence(Ordering::Release);
        for (to, word) in slot.words.iter().zip(communication.to_words()) {
            to.store(word, Ordering::Relaxed);
        }
        // Seen by who sees the head below.
        slot.sequence.store(written(self.head), Ordering::Relaxed);
        self.head += 1;
        self.shared.head.store(self.head, Ordering::Release);
    }

    /// The bytes of the queue's records.
    pub fn bytes(&self) -> usize {
        self.shared.slots.len() * size_of::<Slot>()
    }
}

/// The helper's end.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    tail: u64,
    overwritten: u64,
}

impl Reader {
    /// The oldest record that is still there, if there is one.
    pub fn read(&mut self) -> Option<Communication> {
        loop {
            let head = self.shared.head.load(Ordering::Acquire);
            if head == self.tail {
                return None;
            }
            let oldest = head.saturating_sub(self.shared.slots.len() as u64);
            if oldest > self.tail {
                self.overwritten += oldest - self.tail;
                self.tail = oldest;
            }
            let found = self.shared.slot(self.tail).read(self.tail);
            self.tail += 1;
            match found {
                Some(communication) => return Some(communication),
                // The writer has come round to it since.
                None => self.overwritten += 1,
            }
        }
    }

    /// Whether there is something to read.
    pub fn is_empty(&self) -> bool {
        self.shared.head.load(Ordering::Acquire) == self.tail
    }

    /// How many records were overwritten before they were read.
    pub fn overwritten(&self) -> u64 {
        self.overwritten
    }
}

#[derive(Debug)]
struct Shared {
    /// How many records were written, ever.
    head: AtomicU64,
    slots: Box<[Slot]>,
}

impl Shared {
    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        // The length is a power of two.
        &self.slots[number as usize & (self.slots.len() - 1)]
    }
}

#[derive(Debug)]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The sequence number of a slot while record `number` is written to it.
#[inline]
fn writing(number: u64) -> u64 {
    2 * number + 1
}

/// The sequence number of a slot that has record `number`.
#[inline]
fn written(number: u64) -> u64 {
    2 * number + 2
}

impl Slot {
    fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Record `number`, if it is there and stays there while it is read.
    fn read(&self, number: u64) -> Option<Communication> {
        if self.sequence.load(Ordering::Acquire) != written(number) {
            return None;
        }
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        // If one of the words above is of a later record, the load below sees its number.
        fence(Ordering::Acquire);
        let still = self.sequence.load(Ordering::Relaxed) == written(number);
        still.then(|| Communication::from_words(&words))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::communication::{FRAMES, Kind, Region, Way};
    use crate::time::Time;
    use proptest::prelude::*;

    fn record(number: u64) -> Communication {
        Communication {
            begun: Time(number),
            kind: Kind(number as u16),
            way: Way::Found,
            addr: !number,
            bytes: number << 12,
            region: Region {
                addr: number,
                bytes: number,
            },
            stack: [number; FRAMES],
        }
    }

    #[test]
    fn the_default_fits_a_cache() {
        let (writer, _reader) = queue(DEFAULT_RECORDS);
        assert_eq!(writer.bytes(), 6656);
    }

    proptest! {
        /// Against a queue that forgets its oldest.
        #[test]
        fn reads_what_was_written_but_for_what_was_overwritten(
            records in 1usize..20,
            steps in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let (mut writer, mut reader) = queue(records);
            let mut model = VecDeque::new();
            let (mut number, mut lost) = (0, 0);
            for write in steps {
                if write {
                    writer.write(&record(number));
                    model.push_back(number);
                    number += 1;
                    if model.len() > records.next_power_of_two() {
                        model.pop_front();
                        lost += 1;
                    }
                } else {
                    prop_assert_eq!(reader.is_empty(), model.is_empty());
                    prop_assert_eq!(reader.read(), model.pop_front().map(record));
                }
            }
            while let Some(read) = reader.read() {
                prop_assert_eq!(Some(read), model.pop_front().map(record));
            }
            prop_assert!(model.is_empty());
            prop_assert_eq!(reader.overwritten(), lost);
        }
    }

    #[test]
    fn a_slow_reader_sees_whole_records_in_order() {
        const RECORDS: u64 = 200_000;
        let (mut writer, mut reader) = queue(8);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..RECORDS).for_each(|it| writer.write(&record(it))));
            let (mut next, mut seen) = (0, 0);
            while next < RECORDS {
                let Some(read) = reader.read() else {
                    std::thread::yield_now();
                    continue;
                };
                assert!(read.begun.0 >= next, "{read:?} after {next}");
                assert_eq!(read, record(read.begun.0));
                next = read.begun.0 + 1;
                seen += 1;
            }
            assert_eq!(seen + reader.overwritten(), RECORDS);
        });
    }
}
