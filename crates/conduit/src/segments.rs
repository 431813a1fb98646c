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

    /// Whether the system lets this rank read private memory of `peer` (cross-memory attach), so that
    /// [`read_attached`](Self::read_attached) is worth a try. It takes a system call to find out: ask once.
    fn attaches(&self, peer: Rank) -> bool {
        let _ = peer;
        false
    }

    /// Copies `into.len()` bytes of `peer`'s memory from the address `addr` there on, wherever that is: done on return.
    /// Of what the peer changes meanwhile, the old or the new arrives. After an error `into` may have changed.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the peer has no such memory, or not for reading; [`Error::PeerLost`]; and
    /// [`Error::System`] if the system does not let this rank read it.
    fn read_attached(&self, peer: Rank, addr: u64, into: &mut [u8]) -> Result<(), Error> {
        let _ = (addr, into);
        Err(Error::System {
            what: "reading a peer's memory",
            cause: format!("this conduit does not, rank {peer} or any other"),
        })
    }
}
