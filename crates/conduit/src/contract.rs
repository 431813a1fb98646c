//! The contract every network keeps.
//!
//! [`Segments`], [`Membership`], [`Sleep`] and [`Clock`] are supertraits of [`Conduit`], so that a call through
//! `dyn Conduit` is one jump. One [`Access`] holds all of a one-sided operation: peer, remote place, local
//! place with its key, length, operation, and whether the caller waits. The NIC takes inline data along with the
//! request, and keeps a copy in case the request waits or is repeated. So its source is the caller's again when
//! [`post`](Conduit::post) returns.
//!
//! Code that conduits share is written once: [`Standings`](crate::Standings), [`FreePlaces`](crate::FreePlaces),
//! [`Segment::check`](crate::memory::Segment::check), [`Caps::check`]. [`Forward`](crate::Forward) wraps another
//! conduit, for tests.

#![allow(unsafe_code)] // declares an unsafe trait

use crate::{
    Access, Caps, Clock, Delivery, Error, Footprint, Key, Membership, Message, Permission, Posted,
    Rank, Segments, Sent, Sink, Sleep,
};
#[cfg(doc)]
use crate::{Operation, Standing};

/// A network as Hydrant sees it.
///
/// All calls may come from any thread. A conduit never calls back into its caller but
/// through the [`Sink`] given to [`poll`](Self::poll) and what is given to [`take`](Self::take).
///
/// # Safety
/// What safe code of the layer above may do with memory rests on safe methods, too, those of the
/// traits above this one among them. An implementor promises:
///
/// 1. **The end of an operation.** Once [`post`](Self::post) gave [`Posted::Done`] or an error, or
///    the [`Sink`] was told that its ticket is [complete](Sink::complete), the conduit touches the
///    local memory of the operation no more, nor that of a put whose data goes
///    [along](crate::Registration::inline) once `post` has returned: whoever posted it may rely on
///    that to use the memory again, or to free it. No two operations under way have the same ticket,
///    and no ticket is complete that was not given. The same holds of all operations of a rank that lives in virtual
///    time once its own [`standing`](Membership::standing) is not [`Present`](Standing::Present).
/// 2. **Extents.** Peers reach own memory outside the segment only under a [`Key`] in force, within
///    the extent that it names and as the [`Permission`] it was registered with allows, or under
///    [`Key::ANY`]. A key names one extent and, once [`deregister`](Self::deregister) has returned,
///    nothing: nothing is touched under it then, nor under its like.
/// 3. **The segment.** Under [`Key::SEGMENT`] nothing but the segment of the peer is reached, whose
///    length [`Caps::segment`] says. [`window`](Segments::window) gives that memory, the same one in
///    each call, and [`decommit`](Segments::decommit) changes nothing but what lies in the part named.
/// 4. **Who is who.** [`rank`](Self::rank), [`size`](Self::size) and [`caps`](Self::caps) say the
///    same in each call, and `rank` is below `size`.
///
/// A conduit that hands every call on to another keeps what that one promises.
pub unsafe trait Conduit: Segments + Membership + Sleep + Clock + Send + Sync {
    /// This process.
    fn rank(&self) -> Rank;

    /// Processes in the job.
    fn size(&self) -> u32;

    /// What the conduit can do.
    fn caps(&self) -> &Caps;

    /// What memory it takes for itself. For people and measurements: nothing depends on it.
    fn footprint(&self) -> Footprint;

    /// Makes own memory usable by peers, and by the NIC, under the key returned.
    ///
    /// # Safety
    /// Until [`deregister`](Self::deregister) returned:
    ///
    /// 1. The memory stays allocated.
    /// 2. Nothing but this conduit touches it other than through shared-memory accesses.
    ///
    /// With [`Caps::registration`], memory that no peer was told the key of may be used
    /// freely; it need not even be mapped: that is an error.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there are too many extents or bytes; with
    /// [`Caps::registration`] also [`Error::BadAddress`] for memory that is not mapped or
    /// does not permit the access.
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error>;

    /// Revokes a key. When it returns no peer touches the memory any more.
    ///
    /// # Errors
    /// [`Error::Revoked`] if the key is not in force.
    fn deregister(&self, key: Key) -> Result<(), Error>;

    /// Hands an access to the network, which carries it out without the peer's processors.
    ///
    /// The own rank may be the peer. A transfer to or from it under [`Key::ANY`] is a copy by the
    /// processor: done on return, and an error where memory is not mapped. An atomic operation on
    /// its words is done on return, and delivers nothing meanwhile: it may be posted from a
    /// [`Sink`].
    ///
    /// # Safety
    /// Until the operation is complete (see the promises of an implementor, 1):
    ///
    /// 1. [`Access::local`] is readable for [`Access::len`] bytes with [`Operation::Put`](crate::Operation::Put), and
    ///    writable, by nobody else, with [`Operation::Get`](crate::Operation::Get); with [`Operation::Atomic`](crate::Operation::Atomic) it is
    ///    writable, by nobody else, for an aligned `u64`. That of a put whose data goes
    ///    [along](crate::Registration::inline) is so until this returns.
    /// 2. With [`Operation::Put`](crate::Operation::Put) and [`Key::ANY`] as the remote key, the peer can bear the change
    ///    of its memory. Under any other key it lent the memory for that, and the conduit checks.
    ///
    /// # Errors
    /// What the access itself finds: [`Error::Revoked`], [`Error::OutOfExtent`],
    /// [`Error::BadAddress`], [`Error::PeerLost`]. With [`Operation::Atomic`](crate::Operation::Atomic) also
    /// [`Error::Misaligned`], when nothing was done; [`Error::ResultLost`], when it was done,
    /// once, and what the word was is not known; and [`Error::System`] where [`Caps::atomics`]
    /// says that there are none.
    unsafe fn post(&self, access: &Access) -> Result<Posted, Error>;

    /// Sends a request.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::MessageTooLong`], [`Error::TooManyArgs`].
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error>;

    /// Requests sent to `peer` that its handlers have finished with, and sent at all.
    fn handled(&self, peer: Rank) -> (u64, u64);

    /// Delivers what has arrived, or some of it from each peer; how many things that were. Who polls until that is 0 has
    /// all, unless another thread polls. Returns at once, or soon, if another thread is polling.
    fn poll(&self, sink: &mut dyn Sink) -> usize;

    /// As [`poll`](Self::poll), but may leave requests of one kind where they are, and those behind them: of one peer,
    /// or of all. For who [takes](Self::take) these itself.
    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        let _ = (kind, of);
        self.poll(sink)
    }

    /// As [`poll`](Self::poll), but waits for its turn: when it returns, everything that had
    /// arrived before the call was delivered. Not to be called from a [`Sink`].
    fn drain(&self, sink: &mut dyn Sink) -> usize;

    /// Hands over requests of one kind that have arrived, until `take` says that it wants no more, and nothing else:
    /// only those that no other request of their peer, and no reply that waits for room, is to go before. They count
    /// as handled then, and as delivered. For who waits for one and would handle it itself; `take` answers none.
    ///
    /// Whether something else may have arrived, for [`poll`](Self::poll) to deliver. Returns at once if another thread
    /// is polling, and may leave everything to `poll`, which is what it does unless a conduit does better.
    fn take(&self, kind: u8, take: &mut dyn FnMut(&Delivery<'_>) -> bool) -> bool {
        let _ = (kind, take);
        true
    }
}
