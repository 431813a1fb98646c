//! The layout of the shared file.
//!
//! ```text
//! 0        header page: magic, number of changes of standing, first lost rank, number of programs' ends
//! 4096     blocks, one a rank: standing, pid, its program's end, notify word, opener of a channel to it
//!          tables, on pages of its own for each rank, which only that rank can write to:
//!              hazards: the extents that it accesses now
//!              extents: the memory that it registered
//!          channels, [to][from]: request ring, reply ring
//!          areas of a conduit on top (`upon`): one a rank, and one a pair, [to][from]
//!          segments, one a rank, each at a multiple of 2 MiB
//! ```
//!
//! The file is sparse: untouched parts cost nothing.

use std::mem::size_of;

use hydrant_conduit::Footprint;

use crate::{
    extents::{ExtentEntry, HAZARDS},
    ring::{Consumed, RingSlot},
};

/// Marks the file as Hydrant's, with the version of its layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"hydrant2");

/// The alignment of segments: the huge page of x86-64 and AArch64.
pub(crate) const HUGE: usize = 2 << 20;

const PAGE: usize = 4096;

/// Offsets in the header page.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const CHANGES: usize = 64;
    /// The rank that was lost first, plus one. Zero if none is lost.
    pub(crate) const FIRST_LOST: usize = 72;
    /// The number of announcements about programs' ends.
    pub(crate) const ENDINGS: usize = 80;
}

/// Offsets in the block of a rank.
pub(crate) mod block {
    pub(crate) const STANDING: usize = 0;
    pub(crate) const PID: usize = 4;
    /// 1 if the rank's process takes part in `membarrier`.
    pub(crate) const ASYMMETRIC: usize = 8;
    /// 1 while the rank's program has come to its end.
    pub(crate) const COME_TO_END: usize = 12;
    /// The number that the rank publishes, in a line that hardly ever changes and is rarely read.
    pub(crate) const PUBLISHED: usize = 16;
    /// Read after every message and store: alone on its line.
    pub(crate) const NOTIFY: usize = 64;
    /// On the same line, because a thread that wakes the service thread has written to that line.
    pub(crate) const WOKEN_FROM: usize = 68;
    /// A bit for each rank that ever sent to this rank.
    pub(crate) const OPENED: usize = 128;
}

/// The parts of the shared file for a conduit on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Extra {
    /// Bytes for each rank, a multiple of 64. The first four are the wake word of a thread of the
    /// rank. Zero means no wake words, and no conduit on top.
    pub rank_bytes: u32,
    /// Bytes for each pair and direction.
    pub pair_bytes: u32,
}

/// The parameters of the layout, the same at every rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct FileShape {
    pub(crate) ranks: u64,
    /// The messages in a ring; a power of two.
    pub(crate) slots: u64,
    /// The bytes of payload in a ring; a multiple of 64.
    pub(crate) payload: u64,
    /// The most bytes of a message, at most a quarter of `payload`.
    pub(crate) message: u64,
    /// The bytes of a segment.
    pub(crate) segment: u64,
    /// The extents that a rank may have registered.
    pub(crate) extents: u64,
    /// The areas of a conduit on top.
    pub(crate) extra: Extra,
}

/// The two rings of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RingKind {
    Request = 0,
    Reply = 1,
}

impl FileShape {
    pub(crate) fn ranks(&self) -> usize {
        self.ranks as usize
    }

    fn block_bytes(&self) -> usize {
        (block::OPENED + self.ranks().div_ceil(64) * 8).next_multiple_of(128)
    }

    pub(crate) fn block(&self, rank: usize) -> usize {
        PAGE + rank * self.block_bytes()
    }

    fn tables_bytes(&self) -> usize {
        (HAZARDS * 8 + self.extents as usize * size_of::<ExtentEntry>()).next_multiple_of(PAGE)
    }

    /// Returns the offset of `rank`'s tables. Those of the next rank follow.
    pub(crate) fn tables(&self, rank: usize) -> usize {
        (PAGE + self.ranks() * self.block_bytes()).next_multiple_of(PAGE)
            + rank * self.tables_bytes()
    }

    /// Returns the offset of `rank`'s hazards.
    pub(crate) fn hazards(&self, rank: usize) -> usize {
        self.tables(rank)
    }

    /// Returns the offset of `rank`'s extents.
    pub(crate) fn extents(&self, rank: usize) -> usize {
        self.tables(rank) + HAZARDS * 8
    }

    fn channels_at(&self) -> usize {
        self.tables(self.ranks())
    }

    fn ring_bytes(&self) -> usize {
        (size_of::<Consumed>()
            + self.slots as usize * size_of::<RingSlot>()
            + self.payload as usize)
            .next_multiple_of(PAGE)
    }

    /// Returns the offsets of the ring from `from` to `to`: its `Consumed`, slots and payload.
    pub(crate) fn ring(&self, to: usize, from: usize, kind: RingKind) -> (usize, usize, usize) {
        let number = (to * self.ranks() + from) * 2 + kind as usize;
        let consumed = self.channels_at() + number * self.ring_bytes();
        let slots = consumed + size_of::<Consumed>();
        (
            consumed,
            slots,
            slots + self.slots as usize * size_of::<RingSlot>(),
        )
    }

    fn areas_at(&self) -> usize {
        self.channels_at() + self.ranks() * self.ranks() * 2 * self.ring_bytes()
    }

    /// Returns the offset of `rank`'s area of the conduit on top.
    pub(crate) fn area(&self, rank: usize) -> usize {
        self.areas_at() + rank * self.extra.rank_bytes as usize
    }

    fn pair_bytes(&self) -> usize {
        (self.extra.pair_bytes as usize).next_multiple_of(PAGE)
    }

    /// Returns the offset of the pair's area of the conduit on top, in which `from` puts requests
    /// to `to`.
    pub(crate) fn pair(&self, to: usize, from: usize) -> usize {
        let pairs = self.area(self.ranks()).next_multiple_of(PAGE);
        pairs + (to * self.ranks() + from) * self.pair_bytes()
    }

    fn segments_at(&self) -> usize {
        self.pair(self.ranks(), 0).next_multiple_of(HUGE)
    }

    /// Returns the offset of the segment of `rank`.
    pub(crate) fn segment(&self, rank: usize) -> usize {
        self.segments_at() + rank * (self.segment as usize).next_multiple_of(HUGE)
    }

    /// Returns the bytes of the file.
    pub(crate) fn total(&self) -> usize {
        self.segment(self.ranks())
    }

    /// A rank without messages costs its block and the first page of the tables it uses. A pair
    /// costs the address space of its rings once it sends both ways.
    pub(crate) fn footprint(&self) -> Footprint {
        Footprint {
            per_rank: self.block_bytes() + PAGE,
            per_pair: 4 * self.ring_bytes() + 2 * self.pair_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let shape = FileShape {
            ranks: 67,
            slots: 256,
            payload: 65536,
            message: 16384,
            segment: 3 << 20,
            extents: 4096,
            extra: Extra {
                rank_bytes: 192,
                pair_bytes: 2112,
            },
        };
        let mut parts = vec![(0, PAGE)];
        let n = shape.ranks();
        parts.extend((0..n).map(|r| (shape.block(r), block::OPENED + n.div_ceil(64) * 8)));
        parts.extend((0..n).map(|r| (shape.extents(r), 4096 * size_of::<ExtentEntry>())));
        parts.extend((0..n).map(|r| (shape.hazards(r), HAZARDS * 8)));
        parts.extend((0..n).map(|r| (shape.area(r), 192)));
        for to in 0..n {
            for from in 0..n {
                parts.push((shape.pair(to, from), 2112));
                for kind in [RingKind::Request, RingKind::Reply] {
                    let (consumed, slots, payload) = shape.ring(to, from, kind);
                    assert_eq!(consumed % 64, 0);
                    assert_eq!(slots % 64, 0);
                    parts.push((consumed, payload + 65536 - consumed));
                }
            }
        }
        parts.extend((0..n).map(|r| (shape.segment(r), 3 << 20)));
        parts.sort_unstable();
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        let last = parts[parts.len() - 1];
        assert!(last.0 + last.1 <= shape.total());
    }
}
