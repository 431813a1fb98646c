//! Where payloads lie in the byte ring.
//!
//! Positions count bytes since the start, those that were skipped included, and never wrap. A payload that would
//! run over the end of the ring begins at the next lap instead; both sides work that out alike.
//!
//! A lap of nothing but short payloads ends earlier, behind as many bytes as all slots may name of them. So short messages
//! keep to the first part of the ring, as many as there are slots for, and the pages behind it are touched
//! only when longer ones come: the first touch of a page takes the system longer than a dozen short messages take.

/// Payloads begin at multiples of this.
const ALIGN: usize = 8;
/// Most bytes of a short payload.
const SHORT: usize = 512;

/// How long the laps of a ring are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laps {
    /// Bytes of the ring.
    ring: usize,
    /// Bytes of a lap of short payloads.
    short: usize,
}

impl Laps {
    /// Those of a ring of so many bytes, beside so many slots.
    pub(super) fn new(ring: usize, slots: usize) -> Self {
        Self {
            ring,
            short: ring.min(slots.saturating_mul(SHORT)),
        }
    }

    /// Bytes of the ring.
    pub(super) fn ring(&self) -> usize {
        self.ring
    }
}

/// How far payloads have come: where the next one goes follows from this and from its length.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// The position at which this lap began.
    lap: u64,
    /// Bytes of the ring before the next payload.
    offset: usize,
    /// Whether a payload that is not short lies in this lap.
    long: bool,
}

/// A payload's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Offset in the ring.
    pub(super) offset: usize,
    /// Behind the payload.
    pub(super) next: Cursor,
}

impl Cursor {
    /// The position, which the reader tells the writer.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.lap + self.offset as u64
    }

    /// The place of a payload of `len` bytes that follows.
    ///
    /// `None` if it can never fit.
    #[inline]
    pub(super) fn place(mut self, len: usize, laps: &Laps) -> Option<Place> {
        if len > laps.ring {
            return None;
        }
        let long = len > SHORT;
        let end = if long || self.long {
            laps.ring
        } else {
            laps.short
        };
        if self.offset + len > end {
            self = Self {
                lap: self.lap + laps.ring as u64,
                ..Self::default()
            };
        }
        let offset = self.offset;
        self.long |= long;
        self.offset = (offset + len).next_multiple_of(ALIGN);
        Some(Place { offset, next: self })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn payloads_lie_in_one_piece_and_in_order() {
        let laps = Laps::new(256, 4);
        let mut cursor = Cursor::default();
        for len in (0..=128).chain((0..=128).rev()).cycle().take(4000) {
            let before = cursor.position();
            let place = cursor.place(len, &laps).unwrap();
            cursor = place.next;
            assert!(place.offset + len <= 256);
            assert!(cursor.position() >= before + len as u64);
            assert!(cursor.position() - before < (256 + len + ALIGN) as u64);
        }
        assert_eq!(cursor.place(257, &laps), None);
    }

    #[test]
    fn short_payloads_keep_to_the_first_part() {
        const RING: usize = 64 << 10;
        let laps = Laps::new(RING, 16);
        let mut cursor = Cursor::default();
        for len in (1..=SHORT).cycle().take(10_000) {
            let place = cursor.place(len, &laps).unwrap();
            assert!(place.offset + len <= 16 * SHORT);
            cursor = place.next;
        }
        // One that is longer opens the rest of the ring, for this lap.
        let long = cursor.place(16 * SHORT, &laps).unwrap();
        assert!(long.offset > 0 && long.next.offset > 16 * SHORT);
        let mut cursor = long.next;
        let lap = cursor.lap;
        while cursor.lap == lap {
            cursor = cursor.place(SHORT, &laps).unwrap().next;
        }
        assert_eq!(cursor.lap, lap + RING as u64);
        let reach = (0..10_000).map(|_| {
            let place = cursor.place(SHORT, &laps).unwrap();
            cursor = place.next;
            place.offset + SHORT
        });
        assert_eq!(reach.max(), Some(16 * SHORT));
    }

    /// Whatever went before, an empty ring has room for any payload of at most half of it.
    #[test]
    fn an_empty_ring_has_room() {
        let laps = Laps::new(16 << 10, 4);
        let mut cursor = Cursor::default();
        for len in [1, 513, 2048, 512, 7, 4096, 8192, 3, 511]
            .into_iter()
            .cycle()
            .take(5000)
        {
            let place = cursor.place(len, &laps).unwrap();
            assert!(place.next.position() - cursor.position() <= laps.ring as u64);
            cursor = place.next;
        }
    }
}
