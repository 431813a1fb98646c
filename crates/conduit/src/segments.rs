//! The memory that every rank owns from the start.

use crate::{Error, Rank, Window};

/// The segments of the ranks. Each rank has one, of [`Caps::segment`](crate::Caps::segment) bytes,
/// which peers access under [`Key::SEGMENT`](crate::Key::SEGMENT).
pub trait Segments {
    /// Returns the segment of `peer` if it is mapped here. This rank's own always is.
    fn window(&self, peer: Rank) -> Option<&Window>;

    /// Makes `len` bytes of this rank's segment usable, zeroed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has no such memory. Nothing is kept then.
    fn commit(&self, offset: usize, len: usize) -> Result<(), Error>;

    /// Like [`commit`](Self::commit), in huge pages if the system has them. Returns the bytes in
    /// huge pages. Offset and length are multiples of the huge page, 2 MiB.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error>;

    /// Gives the memory of a committed part back to the system.
    fn decommit(&self, offset: usize, len: usize);

    /// Returns true if the system lets this rank read private memory of `peer` (cross-memory
    /// attach), so that [`read_attached`](Self::read_attached) is worth a try. The answer costs a
    /// system call: ask once.
    fn attaches(&self, peer: Rank) -> bool {
        let _ = peer;
        false
    }

    /// Copies `into.len()` bytes of `peer`'s memory, from `addr` on. The copy is done on return. If
    /// the peer changes the memory meanwhile, the old or the new bytes arrive. After an error
    /// `into` may have changed.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the peer has no such memory, or not for reading;
    /// [`Error::PeerLost`]; and [`Error::System`] if the system does not let this rank read it.
    fn read_attached(&self, peer: Rank, addr: u64, into: &mut [u8]) -> Result<(), Error> {
        let _ = (addr, into);
        Err(Error::System {
            what: "reading a peer's memory",
            cause: format!("this conduit does not, rank {peer} or any other"),
        })
    }
}
