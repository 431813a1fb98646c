//! The header word of a slot.
//!
//! ```text
//! 63      48 47      44 43      40 39      24 23             0
//! |  lap    |  kind    |  count   |   tag    |    payload    |
//! ```

use super::MAX_ARGS;

/// The most bytes of payload that a header can name.
pub(crate) const MAX_PAYLOAD: usize = (1 << 24) - 1;

/// The fields of a header, except the lap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Four bits for the user.
    pub(crate) kind: u8,
    /// For the user.
    pub(crate) tag: u16,
    /// The number of arguments in the slot.
    pub(crate) count: usize,
    /// The bytes of payload in the byte ring.
    pub(crate) payload: usize,
}

/// A header that no writer of this program makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedHeader(pub(crate) &'static str);

impl Head {
    #[inline]
    pub(super) fn encode(self, lap: u16) -> u64 {
        debug_assert!(self.kind < 16 && self.count <= MAX_ARGS && self.payload <= MAX_PAYLOAD);
        u64::from(lap) << 48
            | u64::from(self.kind & 0xf) << 44
            | (self.count as u64) << 40
            | u64::from(self.tag) << 24
            | self.payload as u64
    }

    /// # Errors
    /// [`MalformedHeader`] if it names more arguments than a slot has.
    #[inline]
    pub(super) fn decode(word: u64) -> Result<Self, MalformedHeader> {
        let count = (word >> 40 & 0xf) as usize;
        if count > MAX_ARGS {
            return Err(MalformedHeader("more arguments than a slot holds"));
        }
        Ok(Self {
            kind: Self::kind(word),
            tag: (word >> 24) as u16,
            count,
            payload: (word & MAX_PAYLOAD as u64) as usize,
        })
    }

    /// Returns the kind in a header.
    #[inline]
    pub(super) fn kind(word: u64) -> u8 {
        (word >> 44 & 0xf) as u8
    }

    /// Returns the lap in which a header was written.
    #[inline]
    pub(super) fn lap(word: u64) -> u16 {
        (word >> 48) as u16
    }
}

/// The slot of the next message, and the lap in its header.
///
/// Laps count from one, so the zeroed ring holds no message of the first lap. The count may wrap,
/// because a slot only ever holds this lap or the one before.
#[derive(Clone, Copy)]
pub(super) struct SlotTurn {
    /// The number of messages before.
    pub(super) index: u64,
    mask: u64,
    pub(super) lap: u16,
}

impl SlotTurn {
    pub(super) fn first(slots: usize) -> Self {
        Self {
            index: 0,
            mask: slots as u64 - 1,
            lap: 1,
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> usize {
        (self.index & self.mask) as usize
    }

    #[inline]
    pub(super) fn advance(&mut self) {
        self.index += 1;
        if self.index & self.mask == 0 {
            self.lap = self.lap.wrapping_add(1);
        }
    }
}
