//! The offsets of payloads in the byte ring.
//!
//! Positions count bytes since the start, including skipped bytes, and never wrap. A payload that
//! would run over the end of the ring begins at the next lap instead. Both sides compute that
//! alike.
//!
//! A lap of only short payloads ends earlier, after as many bytes as all slots may name of short
//! payloads. Short messages therefore keep to the first part of the ring. The pages behind it are
//! touched only when longer messages come. The first touch of a page takes the system longer than a
//! dozen short messages.

/// The alignment of payloads.
const ALIGN: usize = 8;
/// The most bytes of a short payload.
const SHORT: usize = 512;

/// The lengths of a ring's laps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laps {
    /// The bytes of the ring.
    ring: usize,
    /// The bytes of a lap of short payloads.
    short: usize,
}

impl Laps {
    /// Computes the laps of a ring of `ring` bytes and `slots` slots.
    pub(super) fn new(ring: usize, slots: usize) -> Self {
        Self {
            ring,
            short: ring.min(slots.saturating_mul(SHORT)),
        }
    }

    /// Returns the bytes of the ring.
    pub(super) fn ring(&self) -> usize {
        self.ring
    }
}

/// The position behind the last payload. The next payload's offset follows from it and from the
/// payload's length.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// The position at which this lap began.
    lap: u64,
    /// The bytes of this lap before the next payload.
    offset: usize,
    /// True if this lap has a payload that is not short.
    long: bool,
}

/// The offset of a payload, and the cursor behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PayloadPlace {
    /// The offset in the ring.
    pub(super) offset: usize,
    /// The cursor behind the payload.
    pub(super) next: Cursor,
}

impl Cursor {
    /// Returns the position, which the reader publishes to the writer.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.lap + self.offset as u64
    }

    /// Returns the place of the next payload, of `len` bytes.
    ///
    /// Returns `None` if the payload can never fit.
    #[inline]
    pub(super) fn place(mut self, len: usize, laps: &Laps) -> Option<PayloadPlace> {
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
        Some(PayloadPlace { offset, next: self })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_contiguous_and_in_order() {
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
        // A longer payload opens the rest of the ring for this lap.
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

    /// An empty ring has room for any payload of at most half its size, whatever went before.
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
