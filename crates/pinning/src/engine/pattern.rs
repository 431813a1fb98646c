//! The width of an extent, as the misses before it suggest.

use crate::{Geometry, Run};

/// The bytes of an operation on one side. The operations that follow in sequence have their bytes
/// behind these, and as many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    pub(super) addr: u64,
    pub(super) len: u64,
}

impl Sequence {
    /// The end of an extent that is wider than its operation, `most` at the latest. It lies in a
    /// bucket in which an operation of the sequence ends. An operation across two extents takes two
    /// transfers, and cannot hit.
    pub(super) fn end_by(self, most: u64, geometry: Geometry) -> u64 {
        let room = geometry.address_of(most).saturating_sub(self.addr);
        match room.checked_div(self.len) {
            None | Some(0) => most,
            Some(whole) => {
                let end = self.addr + whole * self.len;
                geometry.bucket_of(end - 1) + 1
            }
        }
    }
}

/// The order of misses: in sequence or not.
#[derive(Debug, Default)]
pub(super) struct MissPattern {
    expected: u64,
    width: u64,
    /// The number of buckets that came in sequence, up to the last one.
    streak: u64,
}

impl MissPattern {
    /// Returns the number of buckets to ask for, from the first of a miss on. Misses in sequence
    /// widen it until the cost of a call hardly matters. Any other miss narrows it to the need.
    /// `ends` moves an end to the end of an operation.
    pub(super) fn width(
        &mut self,
        need: Run,
        amortised: u64,
        ends: impl FnOnce(u64) -> u64,
    ) -> u64 {
        self.width = if self.is_next(need) {
            let most = (self.width * 2).clamp(need.count, amortised.max(need.count));
            (ends(need.first + most) - need.first).max(need.count)
        } else {
            need.count
        };
        self.expected = need.first + self.width;
        self.width
    }

    /// Returns true if a need follows the last one: with its first bucket, or with its second where
    /// both share a bucket.
    fn is_next(&self, need: Run) -> bool {
        need.first != 0
            && (need.first == self.expected || (need.count > 1 && need.first + 1 == self.expected))
    }

    /// Returns the number of buckets that came in sequence, these included.
    pub(super) fn streak(&self, need: Run) -> u64 {
        match need.first {
            0 => need.count,
            first if first == self.expected => self.streak + need.count,
            // The last bucket came again.
            _ if need.end() == self.expected => self.streak.max(need.count),
            _ => need.count,
        }
    }

    /// Notes a miss, of which `width` buckets are attached or copied.
    pub(super) fn follow(&mut self, need: Run, width: u64) {
        self.streak = self.streak(need) - need.count + width;
        self.expected = need.first + width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// Registers for operations of `len` bytes, one behind the other from an address on. An earlier
    /// operation has registered the first bucket alone. Returns the first buckets of the extents.
    fn extents(pattern: &mut MissPattern, addr: u64, len: u64, count: u64) -> Vec<u64> {
        let geometry = Geometry::new(PAGE as usize, PAGE as usize).expect("a page is a bucket");
        let mut firsts = vec![geometry.bucket_of(addr)];
        let mut end = firsts[0] + 1;
        for index in 0..count {
            let bytes = Sequence {
                addr: addr + index * len,
                len,
            };
            let run = geometry.span(bytes.addr, len).expect("an address");
            if run.end() > end {
                let gap = Run {
                    first: run.first.max(end),
                    count: run.end() - run.first.max(end),
                };
                let width = pattern.width(gap, 64, |end| bytes.end_by(end, geometry));
                assert!(width >= gap.count, "{gap:?} of {width}");
                firsts.push(gap.first);
                end = gap.first + width;
            }
        }
        firsts
    }

    #[test]
    fn extents_end_where_operations_do() {
        let (first, blocks) = (1 << 20, 16);
        let firsts = extents(&mut MissPattern::default(), first * PAGE, blocks * PAGE, 64);
        assert!(firsts.len() < 24, "they widen: {firsts:?}");
        let inside = firsts[2..]
            .iter()
            .filter(|bucket| (*bucket - first) % blocks != 0);
        assert_eq!(inside.count(), 0, "an operation lies in two: {firsts:?}");
    }

    #[test]
    fn extents_widen_where_operations_share_a_bucket() {
        let firsts = extents(&mut MissPattern::default(), (1 << 32) + 2048, 16 * PAGE, 64);
        assert!(firsts.len() < 24, "{firsts:?}");
    }

    #[test]
    fn an_end_is_at_the_operation_and_by_the_bucket_given() {
        let geometry = Geometry::new(PAGE as usize, PAGE as usize).expect("a page is a bucket");
        let of = |addr, len, most| Sequence { addr, len }.end_by(most, geometry);
        assert_eq!(of(0, 8, 7), 7, "words end anywhere");
        assert_eq!(of(PAGE, 3 * PAGE, 9), 7);
        assert_eq!(of(PAGE, 3 * PAGE, 4), 4);
        assert_eq!(
            of(PAGE + 8, 3 * PAGE, 9),
            8,
            "the third would leave the last bucket"
        );
        assert_eq!(
            of(PAGE, 3 * PAGE, 3),
            3,
            "what is cut off has no end of its own"
        );
        assert_eq!(of(PAGE, 0, 3), 3);
    }
}
