//! The receiving end of a ring.

use std::array;

use crate::sync::Ordering::{Acquire, Relaxed, Release};

use super::{
    Head, MAX_ARGS, Malformed, Slots,
    cursor::{Cursor, Laps},
    header::Turn,
};

/// The one reader of a ring.
pub(crate) struct Reader<S> {
    memory: S,
    head: Turn,
    laps: Laps,
    /// Behind the last payload taken.
    payload: Cursor,
    /// Messages of which the writer was notified.
    published: u64,
}

/// The header of a message in the ring, as it lies there.
#[derive(Clone, Copy)]
pub(crate) struct Front(u64);

impl Front {
    /// The kind of the message.
    #[inline]
    pub(crate) fn kind(self) -> u8 {
        Head::kind(self.0)
    }
}

/// A message in the ring. Its payload stays in place until [`Reader::finish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// What the header says, checked.
    pub(crate) head: Head,
    /// Offset of the payload in the byte ring; `head.payload` bytes lie there.
    pub(crate) offset: usize,
}

impl<S: Slots> Reader<S> {
    /// The reader of a ring that nothing was taken from yet.
    pub(crate) fn new(memory: S) -> Self {
        Self {
            head: Turn::first(memory.slots().len()),
            laps: Laps::new(memory.payload_len(), memory.slots().len()),
            memory,
            payload: Cursor::default(),
            published: 0,
        }
    }

    /// The ring's memory.
    pub(crate) fn memory(&self) -> &S {
        &self.memory
    }

    /// The next message, if it is there.
    ///
    /// # Errors
    /// [`Malformed`] if the writer broke a rule; the ring cannot be read further.
    #[inline]
    pub(crate) fn take(&self) -> Result<Option<Taken>, Malformed> {
        self.front().map(|front| self.read(front)).transpose()
    }

    /// The header of the next message, if that is there.
    #[inline]
    pub(crate) fn front(&self) -> Option<Front> {
        let slot = &self.memory.slots()[self.head.slot()];
        let word = slot.header.load(Acquire);
        (Head::lap(word) == self.head.lap).then_some(Front(word))
    }

    /// The next message, whose header is this.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline]
    pub(crate) fn read(&self, Front(word): Front) -> Result<Taken, Malformed> {
        let head = Head::decode(word)?;
        let offset = if head.payload == 0 {
            0
        } else {
            let place = self.payload.place(head.payload, &self.laps);
            (place.ok_or(Malformed("a payload longer than the ring"))?).offset
        };
        Ok(Taken { head, offset })
    }

    /// The arguments of the next message, which is there; those behind its `head.count` are what an earlier one left.
    #[inline]
    pub(crate) fn args(&self) -> [u64; MAX_ARGS] {
        let slot = &self.memory.slots()[self.head.slot()];
        // All of them: they are in one cache line, and a loop over those that were sent costs more.
        array::from_fn(|at| slot.args[at].load(Relaxed))
    }

    /// Whether a message is there.
    #[inline]
    pub(crate) fn waiting(&self) -> bool {
        self.front().is_some()
    }

    /// Done with the message that [`take`](Self::take) gave; whether the writer was notified.
    #[inline]
    pub(crate) fn finish(&mut self, taken: &Taken) -> bool {
        self.pass(taken);
        if self.head.index - self.published >= (self.memory.slots().len() as u64 / 8).max(1)
            || taken.head.payload != 0
        {
            return self.publish();
        }
        false
    }

    /// As [`finish`](Self::finish), of which the writer is told when it is [published](Self::publish).
    #[inline]
    pub(crate) fn pass(&mut self, taken: &Taken) {
        self.head.advance();
        // Worked out once more, for most messages have none and are to be small.
        if taken.head.payload != 0
            && let Some(place) = self.payload.place(taken.head.payload, &self.laps)
        {
            self.payload = place.next;
        }
    }

    /// Tells the writer how far the reader came; `false` if it knew.
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
