//! The receiving end of a ring.

use std::array;

use crate::sync::Ordering::{Acquire, Relaxed, Release};

use super::{
    Head, MAX_ARGS, MalformedHeader, Slots,
    cursor::{Cursor, Laps},
    header::SlotTurn,
};

/// The one reader of a ring.
pub(crate) struct RingReader<S> {
    memory: S,
    head: SlotTurn,
    laps: Laps,
    /// The cursor behind the last payload taken.
    payload: Cursor,
    /// The number of messages published as finished.
    published: u64,
}

/// The header of a message in the ring, unchecked.
#[derive(Clone, Copy)]
pub(crate) struct FrontHeader(u64);

impl FrontHeader {
    /// Returns the kind of the message.
    #[inline]
    pub(crate) fn kind(self) -> u8 {
        Head::kind(self.0)
    }
}

/// A message in the ring. Its payload stays in place until [`RingReader::finish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenMessage {
    /// The checked header.
    pub(crate) head: Head,
    /// The offset of the payload's `head.payload` bytes in the byte ring.
    pub(crate) offset: usize,
}

impl<S: Slots> RingReader<S> {
    /// Makes the reader of a fresh ring.
    pub(crate) fn new(memory: S) -> Self {
        Self {
            head: SlotTurn::first(memory.slots().len()),
            laps: Laps::new(memory.payload_len(), memory.slots().len()),
            memory,
            payload: Cursor::default(),
            published: 0,
        }
    }

    /// Returns the ring's memory.
    pub(crate) fn memory(&self) -> &S {
        &self.memory
    }

    /// Returns the next message, if there is one.
    ///
    /// # Errors
    /// [`MalformedHeader`] if the writer broke a rule. The ring cannot be read further.
    #[inline]
    pub(crate) fn take(&self) -> Result<Option<TakenMessage>, MalformedHeader> {
        self.front().map(|front| self.read(front)).transpose()
    }

    /// Returns the header of the next message, if there is one.
    #[inline]
    pub(crate) fn front(&self) -> Option<FrontHeader> {
        let slot = &self.memory.slots()[self.head.slot()];
        let word = slot.header.load(Acquire);
        (Head::lap(word) == self.head.lap).then_some(FrontHeader(word))
    }

    /// Reads the next message, with this header.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline]
    pub(crate) fn read(
        &self,
        FrontHeader(word): FrontHeader,
    ) -> Result<TakenMessage, MalformedHeader> {
        let head = Head::decode(word)?;
        let offset = if head.payload == 0 {
            0
        } else {
            let place = self.payload.place(head.payload, &self.laps);
            (place.ok_or(MalformedHeader("a payload longer than the ring"))?).offset
        };
        Ok(TakenMessage { head, offset })
    }

    /// Returns the arguments of the next message, which must exist. Those behind its `head.count`
    /// are of an earlier message.
    #[inline]
    pub(crate) fn args(&self) -> [u64; MAX_ARGS] {
        let slot = &self.memory.slots()[self.head.slot()];
        // All arguments are copied: they are in one cache line, and a loop over `count` costs more.
        array::from_fn(|at| slot.args[at].load(Relaxed))
    }

    /// Returns true if there is a message.
    #[inline]
    pub(crate) fn waiting(&self) -> bool {
        self.front().is_some()
    }

    /// Finishes the message that [`take`](Self::take) returned. Returns true if the writer was
    /// notified.
    #[inline]
    pub(crate) fn finish(&mut self, taken: &TakenMessage) -> bool {
        self.pass(taken);
        if self.head.index - self.published >= (self.memory.slots().len() as u64 / 8).max(1)
            || taken.head.payload != 0
        {
            return self.publish();
        }
        false
    }

    /// Like [`finish`](Self::finish), but does not notify the writer until the next
    /// [`publish`](Self::publish).
    #[inline]
    pub(crate) fn pass(&mut self, taken: &TakenMessage) {
        self.head.advance();
        // The place is computed again, because most messages have no payload and `TakenMessage`
        // stays small.
        if taken.head.payload != 0
            && let Some(place) = self.payload.place(taken.head.payload, &self.laps)
        {
            self.payload = place.next;
        }
    }

    /// Publishes the reader's progress to the writer. Returns `false` if nothing changed.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        let news = self.published != self.head.index;
        if news {
            self.published = self.head.index;
            let consumed = self.memory.consumed();
            consumed.payload.store(self.payload.position(), Release);
            consumed.slots.store(self.published, Release);
        }
        news
    }
}
