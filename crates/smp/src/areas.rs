//! The parts of the shared file that belong to a conduit on top of this one.

use std::sync::Arc;

use hydrant_conduit::{Rank, Window};

use crate::{
    mapping::{Mapped, Mapping, Shareable},
    shared::Shared,
};

/// The parts of the shared file that belong to the conduit on top.
pub struct Areas<'a>(&'a Shared);

impl Areas<'_> {
    /// Ranks of the job.
    pub fn ranks(&self) -> usize {
        self.0.shape.ranks()
    }

    /// Extents that a rank may have registered at once.
    pub fn extents(&self) -> usize {
        self.0.shape.extents as usize
    }

    /// The area of a rank: [`Extra::rank_bytes`](crate::layout::Extra::rank_bytes), of which the first four are its wake word.
    pub fn of_rank(&self, rank: Rank) -> Window {
        area(&self.0.mapping, self.0, rank.index())
    }

    /// The area of a pair: [`Extra::pair_bytes`](crate::layout::Extra::pair_bytes), in which `from` asks something of `to`.
    ///
    /// # Panics
    /// If a `T` is longer than that.
    pub fn of_pair<T: Shareable>(&self, to: Rank, from: Rank) -> Mapped<T> {
        let shape = &self.0.shape;
        assert!(size_of::<T>() <= shape.extra.pair_bytes as usize);
        (self.0.mapping).mapped(shape.pair(to.index(), from.index()))
    }
}

fn area(mapping: &Arc<Mapping>, shared: &Shared, rank: usize) -> Window {
    let shape = &shared.shape;
    mapping.window(shape.area(rank), shape.extra.rank_bytes as usize)
}

impl Shared {
    pub(crate) fn areas(&self) -> Areas<'_> {
        Areas(self)
    }
}
