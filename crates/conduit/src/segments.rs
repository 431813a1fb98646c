//! The memory that every rank owns from the start.

use crate::{Error, Rank, Window};

/// The segments of the ranks: one each, of the length that [`Caps::segment`](crate::Caps::segment)
/// says, reached by peers under [`Key::SEGMENT`](crate::Key::SEGMENT).
pub trait Segments {
    /// The segment of `peer`, if it is mapped here (own rank: always).
    fn window(&self, peer: Rank) -> Option<&Window>;

    /// Makes `len` bytes of the own segment usable, zeroed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the system has no such memory; nothing is kept then.
    fn commit(&self, offset: usize, len: usize) -> Result<(), Error>;

    /// As [`commit`](Self::commit), in huge pages if the system has them: how many bytes
    /// are. Offset and length are multiples of the huge page, 2 MiB.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error>;

    /// Gives the memory of a committed part back to the system.
    fn decommit(&self, offset: usize, len: usize);
}
