//! The settings of an engine, from the user and the conduit, checked once.

use crate::{Direction, EngineMessage, Error, Geometry, Strategy};

/// The cost of one registration in nanoseconds: `per_op + per_page × pages`, measured for each
/// conduit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostModel {
    /// The cost of each registration, in nanoseconds.
    pub per_op_ns: f64,
    /// The cost of each page, in nanoseconds.
    pub per_page_ns: f64,
}

/// The settings of an engine: the same at every rank, but for `rank`.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// This rank.
    pub rank: u32,
    /// The number of ranks of the job.
    pub ranks: u32,
    /// The registration strategy.
    pub strategy: Strategy,
    /// The bytes of a page.
    pub page: usize,
    /// The bytes of a bucket.
    pub bucket: usize,
    /// M: the bytes that peers together may keep registered here (Firehose §3.2).
    pub m: u64,
    /// MAXVICTIM: the bytes of victims, and of registrations for own operations, kept beside M.
    pub maxvictim: u64,
    /// The most bytes that can be registered at all: M + MAXVICTIM may not be above.
    pub available: u64,
    /// True if victims may fill the part of M that peers leave unused (Firehose §3.2, future work).
    pub adaptive_victims: bool,
    /// True if a peer may borrow firehoses that other peers leave unused (Firehose §3.2, future
    /// work).
    pub borrowing: bool,
    /// True if misses in sequence widen extents beyond the need. The paper's buckets stay as they
    /// are (§4.2).
    pub widening: bool,
    /// The entries of the pin-down cache's page table; PM had 1,024 (Tezuka §5).
    pub entries: u64,
    /// The most bytes of one extent.
    pub max_extent: u64,
    /// The most bytes of one extent of memory that is [pinned](crate::Engine::pin) for good. Several threads may register
    /// the extents of much memory.
    pub chunk: u64,
    /// The cost of registering and deregistering together, which sets how wide extents grow.
    pub cost: CostModel,
    /// The cost of registering alone, where nothing is evicted.
    pub register: CostModel,
    /// The most bytes that are piggybacked on a move, and that are copied where small data is.
    pub piggyback: usize,
    /// The most bytes of a message, its data included.
    pub max_payload: usize,
    /// True if the network reads one-sidedly.
    pub reads: bool,
}

impl Config {
    /// Returns true if data in this direction is pulled: the network does not read one-sidedly, so
    /// the peer writes the data of a get.
    pub(crate) fn pulls(&self, direction: Direction) -> bool {
        direction == Direction::Get && !self.reads
    }

    /// The setting of the Firehose paper (§4.2): M = 400 MB, MAXVICTIM = 50 MB, one-page buckets.
    pub fn firehose_paper(rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            strategy: Strategy::Firehose,
            page: 4096,
            bucket: 4096,
            m: 400 << 20,
            maxvictim: 50 << 20,
            available: 1 << 30,
            adaptive_victims: false,
            borrowing: false,
            widening: false,
            entries: 1024,
            max_extent: 1 << 30,
            chunk: 1 << 30,
            cost: CostModel {
                per_op_ns: 0.0,
                per_page_ns: 40_000.0,
            },
            register: CostModel {
                per_op_ns: 0.0,
                per_page_ns: 40_000.0,
            },
            piggyback: 0,
            max_payload: 16 << 10,
            reads: false,
        }
    }

    /// Checks the settings, and derives the limits in buckets.
    ///
    /// # Errors
    /// [`Error::BucketSize`], [`Error::LimitTooSmall`], [`Error::VictimsTooFew`],
    /// [`Error::AboveMemory`], [`Error::PayloadTooSmall`], [`Error::NoPeer`].
    pub fn check(&self) -> Result<BucketLimits, Error> {
        let geometry = Geometry::new(self.page, self.bucket)?;
        if self.rank >= self.ranks {
            return Err(Error::NoPeer {
                rank: self.rank,
                ranks: self.ranks,
                own: self.rank,
            });
        }
        let wanted = self.m.saturating_add(self.maxvictim);
        if wanted > self.available {
            return Err(Error::AboveMemory {
                wanted,
                available: self.available,
            });
        }
        let least = EngineMessage::MAX_BYTES.saturating_add(self.piggyback);
        if self.max_payload < least {
            return Err(Error::PayloadTooSmall {
                max_payload: self.max_payload,
                piggyback: self.piggyback,
                least,
            });
        }
        let peers = u64::from(self.ranks - 1).max(1);
        let share = geometry.buckets_in(self.m) / peers;
        if share == 0 && matches!(self.strategy, Strategy::Firehose | Strategy::Auto) {
            return Err(Error::LimitTooSmall {
                m: self.m,
                bucket: geometry.bucket(),
                peers,
                least: peers * geometry.bucket(),
            });
        }
        let victims = geometry.buckets_in(self.maxvictim);
        if victims == 0 {
            return Err(Error::VictimsTooFew {
                maxvictim: self.maxvictim,
                bucket: geometry.bucket(),
            });
        }
        let mut total = geometry.buckets_in(wanted);
        if self.strategy == Strategy::PinDown {
            total = total.min((self.entries / geometry.pages()).max(1));
        }
        Ok(BucketLimits {
            geometry,
            share,
            victims: victims.min(total),
            sure: if self.borrowing { share / 8 } else { share },
            peers_total: geometry.buckets_in(self.m),
            total,
            max_extent: geometry.buckets_in(self.max_extent).max(1),
            chunk: (geometry.buckets_in(self.chunk))
                .clamp(1, geometry.buckets_in(self.max_extent).max(1)),
            // Foresight predicts the memory that was used, and not its neighbours.
            amortised: if self.widening && self.strategy != Strategy::Foresight {
                amortised(self.cost, geometry)
            } else {
                1
            },
        })
    }
}

/// The limits in buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketLimits {
    /// The cut of addresses into buckets.
    pub geometry: Geometry,
    /// F = floor(M / (P × (ranks − 1))): the firehoses that each peer owns.
    pub share: u64,
    /// The firehoses for which each peer finds room, whatever others keep. That is all that the
    /// peer owns, or an eighth of them where the rest may be lent to others.
    pub sure: u64,
    /// MAXVICTIM.
    pub victims: u64,
    /// M.
    pub peers_total: u64,
    /// M + MAXVICTIM: never exceeded.
    pub total: u64,
    /// The most buckets of an extent.
    pub max_extent: u64,
    /// The most buckets of an extent of pinned memory; `max_extent` at most.
    pub chunk: u64,
    /// The width in buckets from which on one more bucket costs hardly anything for each byte.
    pub amortised: u64,
}

/// The width at which `per_op` is an eighth of the cost of the pages: wider extents save little and
/// spend credit.
fn amortised(cost: CostModel, geometry: Geometry) -> u64 {
    let per_bucket = cost.per_page_ns * geometry.pages() as f64;
    if per_bucket <= 0.0 {
        return if cost.per_op_ns > 0.0 { 1 << 20 } else { 1 };
    }
    ((8.0 * cost.per_op_ns / per_bucket).ceil() as u64).clamp(1, 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_gives_each_peer_its_share() {
        for (ranks, share) in [(2, 102_400), (4, 34_133), (8, 14_628)] {
            let limits = Config::firehose_paper(0, ranks)
                .check()
                .expect("the paper's");
            assert_eq!(limits.share, share);
            assert_eq!(limits.total, 115_200);
            // GM's cost is all in the pages, so wider extents gain nothing.
            assert_eq!(limits.amortised, 1);
        }
    }

    #[test]
    fn impossible_limits_are_refused() {
        let paper = || Config::firehose_paper(0, 4);
        let with = |change: fn(&mut Config)| {
            let mut config = paper();
            change(&mut config);
            config.check().expect_err("it cannot be")
        };
        assert!(matches!(
            with(|c| c.m = 8192),
            Error::LimitTooSmall { least: 12288, .. }
        ));
        assert!(matches!(
            with(|c| c.maxvictim = 4095),
            Error::VictimsTooFew { .. }
        ));
        assert!(matches!(
            with(|c| c.available = 1 << 20),
            Error::AboveMemory { .. }
        ));
        assert!(matches!(with(|c| c.rank = 4), Error::NoPeer { .. }));
        assert!(matches!(
            with(|c| c.max_payload = 1000),
            Error::PayloadTooSmall { .. }
        ));
        assert!(matches!(
            with(|c| c.piggyback = usize::MAX),
            Error::PayloadTooSmall { .. }
        ));
        assert!(matches!(
            with(|c| c.m = u64::MAX),
            Error::AboveMemory { .. }
        ));
    }

    #[test]
    fn dear_calls_make_wide_extents() {
        let mut config = Config::firehose_paper(0, 2);
        config.widening = true;
        // Soft-RoCE in a virtual machine: 39.8 µs a call and 0.181 µs a page.
        config.cost = CostModel {
            per_op_ns: 39_800.0,
            per_page_ns: 181.0,
        };
        let limits = config.check().expect("as measured");
        assert!((1_000..4_000).contains(&limits.amortised), "{limits:?}");
    }
}
