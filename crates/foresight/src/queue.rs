//! The deregistration queue: a lock-free circular queue (§4.1, Figure 7).
//!
//! One thread of the application writes records of its communications, and the helper reads them. The writer never
//! waits: if the helper falls behind, the oldest records are overwritten. A lost record is harmless: its region stays
//! registered until its next use, which costs memory for a while. An application that outruns the helper communicates
//! too often for deregistration in between to pay off.
//!
//! The paper does not say how the helper handles a record that is overwritten during the read. Here each slot has a
//! sequence number, which is odd during a write. The reader detects a torn record by that number, and skips it.

use std::sync::Arc;

use crate::communication::{Communication, WORDS};
use crate::sync::{AtomicU64, Ordering, fence};

/// The default number of records: 6.5 KB, near the paper's 5.6 KB (§6).
pub const DEFAULT_RECORDS: usize = 64;

/// Makes a queue of at least `records` records, and at least one.
pub fn queue(records: usize) -> (RecordWriter, RecordReader) {
    let records = records.clamp(1, 1 << 24).next_power_of_two();
    let shared = Arc::new(RecordRing {
        head: AtomicU64::new(0),
        slots: (0..records).map(|_| RecordSlot::new()).collect(),
    });
    let writer = RecordWriter {
        shared: Arc::clone(&shared),
        head: 0,
    };
    let reader = RecordReader {
        shared,
        tail: 0,
        overwritten: 0,
    };
    (writer, reader)
}

/// The application's end. Each communicating thread has its own.
#[derive(Debug)]
pub struct RecordWriter {
    shared: Arc<RecordRing>,
    head: u64,
}

impl RecordWriter {
    /// Records a communication that has completed: a dozen stores, without waiting.
    #[inline]
    pub fn write(&mut self, communication: &Communication) {
        let slot = self.shared.slot(self.head);
        slot.sequence.store(writing(self.head), Ordering::Relaxed);
        // Pairs with the reader's fence: a reader that sees a word below also sees the odd number above.
        fence(Ordering::Release);
        for (to, word) in slot.words.iter().zip(communication.to_words()) {
            to.store(word, Ordering::Relaxed);
        }
        // The release store of `head` below publishes this number.
        slot.sequence.store(written(self.head), Ordering::Relaxed);
        self.head += 1;
        self.shared.head.store(self.head, Ordering::Release);
    }

    /// The bytes of the queue's records.
    pub fn bytes(&self) -> usize {
        self.shared.slots.len() * size_of::<RecordSlot>()
    }
}

/// The helper's end.
#[derive(Debug)]
pub struct RecordReader {
    shared: Arc<RecordRing>,
    tail: u64,
    overwritten: u64,
}

impl RecordReader {
    /// Takes the oldest record still in the queue, if any.
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
                // The writer has overwritten the slot since.
                None => self.overwritten += 1,
            }
        }
    }

    /// True if there is no record to read.
    pub fn is_empty(&self) -> bool {
        self.shared.head.load(Ordering::Acquire) == self.tail
    }

    /// The number of records that were overwritten before they were read.
    pub fn overwritten(&self) -> u64 {
        self.overwritten
    }
}

#[derive(Debug)]
struct RecordRing {
    /// The number of records written so far.
    head: AtomicU64,
    slots: Box<[RecordSlot]>,
}

impl RecordRing {
    #[inline]
    fn slot(&self, number: u64) -> &RecordSlot {
        // The length is a power of two.
        &self.slots[number as usize & (self.slots.len() - 1)]
    }
}

#[derive(Debug)]
struct RecordSlot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The sequence number of a slot while record `number` is written to it.
#[inline]
fn writing(number: u64) -> u64 {
    2 * number + 1
}

/// The sequence number of a slot that holds record `number`.
#[inline]
fn written(number: u64) -> u64 {
    2 * number + 2
}

impl RecordSlot {
    fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns record `number`, if the slot holds it during the whole read.
    fn read(&self, number: u64) -> Option<Communication> {
        if self.sequence.load(Ordering::Acquire) != written(number) {
            return None;
        }
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        // If a word above is of a later record, the load below sees that record's number.
        fence(Ordering::Acquire);
        let still = self.sequence.load(Ordering::Relaxed) == written(number);
        still.then(|| Communication::from_words(&words))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::communication::{CommunicationKind, FRAMES, PageRun, RegistrationOutcome};
    use crate::time::Time;
    use proptest::prelude::*;

    fn record(number: u64) -> Communication {
        Communication {
            begun: Time(number),
            kind: CommunicationKind(number as u16),
            outcome: RegistrationOutcome::Found,
            addr: !number,
            bytes: number << 12,
            region: PageRun {
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
        /// Compares with a queue that drops its oldest record.
        #[test]
        fn reads_all_records_that_were_not_overwritten(
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
