//! The parts of the shared file that belong to a conduit on top of this one.

use std::sync::Arc;

use hydrant_conduit::{Rank, Window};

use crate::{
    mapping::{MappedValue, Shareable, SharedMapping},
    shared::SharedState,
};

/// The parts of the shared file that belong to the conduit on top.
pub struct Areas<'a>(&'a SharedState);

impl Areas<'_> {
    /// Returns the number of ranks in the job.
    pub fn ranks(&self) -> usize {
        self.0.shape.ranks()
    }

    /// Returns the number of extents that a rank may have registered at once.
    pub fn extents(&self) -> usize {
        self.0.shape.extents as usize
    }

    /// Returns the area of a rank. It has [`Extra::rank_bytes`](crate::layout::Extra::rank_bytes).
    /// The first four bytes are the rank's wake word.
    pub fn of_rank(&self, rank: Rank) -> Window {
        area(&self.0.mapping, self.0, rank.index())
    }

    /// Returns the area of a pair, in which `from` puts requests to `to`. It has
    /// [`Extra::pair_bytes`](crate::layout::Extra::pair_bytes).
    ///
    /// # Panics
    /// If a `T` is longer than the area.
    pub fn of_pair<T: Shareable>(&self, to: Rank, from: Rank) -> MappedValue<T> {
        let shape = &self.0.shape;
        assert!(size_of::<T>() <= shape.extra.pair_bytes as usize);
        (self.0.mapping).mapped(shape.pair(to.index(), from.index()))
    }
}

fn area(mapping: &Arc<SharedMapping>, shared: &SharedState, rank: usize) -> Window {
    let shape = &shared.shape;
    mapping.window(shape.area(rank), shape.extra.rank_bytes as usize)
}

impl SharedState {
    pub(crate) fn areas(&self) -> Areas<'_> {
        Areas(self)
    }
}
