//! The sending end of a ring.

use crate::sync::Ordering::{Acquire, Relaxed, Release};

use super::{
    Head, Slots,
    cursor::{Cursor, Laps, PayloadPlace},
    header::SlotTurn,
};

/// The one writer of a ring.
pub(crate) struct RingWriter<S> {
    memory: S,
    tail: SlotTurn,
    laps: Laps,
    /// The cursor behind the last payload.
    payload: Cursor,
    /// The reader's progress when it was last read.
    seen: u64,
    seen_payload: u64,
}

impl<S: Slots> RingWriter<S> {
    /// Makes the writer of a fresh ring.
    pub(crate) fn new(memory: S) -> Self {
        debug_assert!(memory.slots().len().is_power_of_two());
        Self {
            tail: SlotTurn::first(memory.slots().len()),
            laps: Laps::new(memory.payload_len(), memory.slots().len()),
            memory,
            payload: Cursor::default(),
            seen: 0,
            seen_payload: 0,
        }
    }

    /// Returns the number of finished messages and of published messages.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.memory.consumed().slots.load(Acquire), self.tail.index)
    }

    /// Publishes a message. Returns `false` if there is no room now.
    ///
    /// The caller has checked the limits: at most `MAX_ARGS` arguments, and a payload of at most a
    /// quarter of the byte ring.
    #[inline]
    pub(crate) fn push(&mut self, kind: u8, tag: u16, args: &[u64], payload: &[u8]) -> bool {
        let slots = self.memory.slots();
        let capacity = slots.len() as u64;
        if self.tail.index.wrapping_sub(self.seen) >= capacity {
            self.seen = self.memory.consumed().slots.load(Acquire);
            if self.tail.index.wrapping_sub(self.seen) >= capacity {
                return false;
            }
        }
        if !payload.is_empty() {
            match self.room(payload.len()) {
                Some(place) => {
                    self.memory.write_payload(place.offset, payload);
                    self.payload = place.next;
                }
                None => return false,
            }
        }
        let slot = &self.memory.slots()[self.tail.slot()];
        for (word, arg) in slot.args.iter().zip(args) {
            word.store(*arg, Relaxed);
        }
        let head = Head {
            kind,
            tag,
            count: args.len(),
            payload: payload.len(),
        };
        slot.header.store(head.encode(self.tail.lap), Release);
        self.tail.advance();
        true
    }

    /// Reads the reader's position again. Returns true if [`push`](Self::push) has room for a payload of
    /// `len` bytes now.
    pub(crate) fn find_room(&mut self, len: usize) -> bool {
        let capacity = self.memory.slots().len() as u64;
        self.seen = self.memory.consumed().slots.load(Acquire);
        self.tail.index.wrapping_sub(self.seen) < capacity && (len == 0 || self.room(len).is_some())
    }

    /// Returns a place for `len` bytes that the reader has finished.
    fn room(&mut self, len: usize) -> Option<PayloadPlace> {
        let place = self.payload.place(len, &self.laps)?;
        let end = place.next.position();
        let ring = self.laps.ring() as u64;
        if end.wrapping_sub(self.seen_payload) > ring {
            self.seen_payload = self.memory.consumed().payload.load(Acquire);
            if end.wrapping_sub(self.seen_payload) > ring {
                return None;
            }
        }
        Some(place)
    }
}
