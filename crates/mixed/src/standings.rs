//! The standings of the ranks, combined from two conduits.
//!
//! Both conduits report a mate's end, one after the other, but it is one change. The combined
//! standings are therefore kept here, and updated when either conduit counts a change.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use hydrant_conduit::{Conduit, Rank, Standing, Standings};
use parking_lot::Mutex;

use crate::mates::Mates;

/// The combined standings of the ranks.
#[derive(Debug)]
pub(crate) struct Joint {
    /// The standings at the last update.
    known: Standings,
    /// The conduits' changes at the last update.
    counted: AtomicU64,
    /// Held during an update.
    updating: Mutex<()>,
}

impl Joint {
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            known: Standings::new(ranks),
            counted: AtomicU64::new(0),
            updating: Mutex::new(()),
        }
    }

    /// Returns the standings, updated if the conduits have counted a change since.
    #[inline]
    pub(crate) fn updated(
        &self,
        intra: &dyn Conduit,
        inter: &dyn Conduit,
        mates: &Mates,
    ) -> &Standings {
        let counted = intra.changes().wrapping_add(inter.changes());
        if self.counted.load(Acquire) != counted {
            self.update(counted, intra, inter, mates);
        }
        &self.known
    }

    #[cold]
    fn update(&self, counted: u64, intra: &dyn Conduit, inter: &dyn Conduit, mates: &Mates) {
        let _updating = self.updating.lock();
        for rank in (0..inter.size()).map(Rank) {
            if self.known.of(rank) != Standing::Present {
                continue;
            }
            let by_intra = mates.intra(rank).map(|mate| intra.standing(mate));
            let standing = match by_intra {
                None | Some(Standing::Present) => inter.standing(rank),
                Some(ended) => ended,
            };
            match standing {
                Standing::Present => {}
                Standing::Left => _ = self.known.end(rank, true),
                Standing::Lost => {
                    if rank == inter.rank() {
                        // The mates lost or expelled this rank. The inter-node conduit must know before this rank takes
                        // memory back: it cuts off what peers still write.
                        inter.leave(false);
                    }
                    // The inter-node conduit knows all ranks, and therefore which was lost first.
                    // It may not have noticed yet.
                    let by_inter = inter.first_lost();
                    let first =
                        by_inter.or_else(|| intra.first_lost().map(|mate| mates.global(mate)));
                    self.known.lose(rank, first.unwrap_or(rank));
                }
            }
        }
        self.counted.store(counted, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use hydrant_conduit::Membership;
    use hydrant_smp::{Smp, SmpOptions, attach};
    use hydrant_testing::ranks;

    use super::*;

    fn two_ranks() -> Vec<Smp> {
        let options = SmpOptions {
            segment: 4096,
            ..SmpOptions::default()
        };
        ranks::joined(2, |mut bootstrap| {
            attach(&mut bootstrap, &options).expect("two ranks")
        })
    }

    #[test]
    fn a_rank_that_its_mates_expelled_leaves_the_other_network() {
        let (intra, inter) = (two_ranks(), two_ranks());
        let (mates, joint) = (Mates::of(Rank(1), &[0, 0]), Joint::new(2));
        intra[0].expel(Rank(1));
        let since = Instant::now();
        let is_lost = || joint.updated(&intra[1], &inter[1], &mates).of(Rank(1)) == Standing::Lost;
        while !is_lost() {
            assert!(since.elapsed() < Duration::from_secs(30), "never told");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(inter[1].standing(Rank(1)), Standing::Lost);
    }
}
