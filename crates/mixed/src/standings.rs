//! Who takes part, of what two conduits say.
//!
//! A mate's end is told by both conduits, one after the other, and is one change all the same.
//! So what is known is kept here, and looked at anew when either conduit counts a change.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use hydrant_conduit::{Conduit, Rank, Standing, Standings};
use parking_lot::Mutex;

use crate::mates::Mates;

/// What is known of the ranks of the job by either conduit.
#[derive(Debug)]
pub(crate) struct Joint {
    /// As last looked at.
    known: Standings,
    /// How many changes the conduits had counted when they were last looked at.
    counted: AtomicU64,
    /// Held by who looks.
    looking: Mutex<()>,
}

impl Joint {
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            known: Standings::new(ranks),
            counted: AtomicU64::new(0),
            looking: Mutex::new(()),
        }
    }

    /// What is known, after a look at the conduits if they have counted a change since.
    #[inline]
    pub(crate) fn look(
        &self,
        intra: &dyn Conduit,
        inter: &dyn Conduit,
        mates: &Mates,
    ) -> &Standings {
        let counted = intra.changes().wrapping_add(inter.changes());
        if self.counted.load(Acquire) != counted {
            self.look_closely(counted, intra, inter, mates);
        }
        &self.known
    }

    #[cold]
    fn look_closely(&self, counted: u64, intra: &dyn Conduit, inter: &dyn Conduit, mates: &Mates) {
        let _one = self.looking.lock();
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
                    // The inter-node conduit knows all ranks, and so which of them was first; it
                    // may not have heard yet.
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
