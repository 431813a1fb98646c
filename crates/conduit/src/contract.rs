//! The contract that every network keeps.
//!
//! [`Segments`], [`Membership`], [`Sleep`] and [`Clock`] are supertraits of [`Conduit`], so that a
//! call through `dyn Conduit` is one jump. One [`Access`] describes a one-sided operation
//! completely: peer, remote memory, local memory with its key, length, operation, and whether the
//! caller waits. The NIC takes inline data with the request, and keeps a copy in case the request
//! waits or is repeated. The caller may therefore reuse the source when [`post`](Conduit::post)
//! returns.
//!
//! Code that conduits share is written once: [`Standings`](crate::Standings),
//! [`FreePlaces`](crate::FreePlaces), [`Segment::check`](crate::memory::Segment::check),
//! [`Caps::check`]. [`Forward`](crate::Forward) wraps another conduit, for tests.

#![allow(unsafe_code)] // declares an unsafe trait

use crate::{
    Access, Caps, Clock, Delivery, Error, Footprint, Key, Membership, Message, Permission, Posted,
    Rank, Segments, Sent, Sink, Sleep,
};
#[cfg(doc)]
use crate::{AccessKind, Standing};

/// A network as Hydrant sees it.
///
/// All calls may come from any thread. A conduit calls back into its caller only through the
/// [`Sink`] passed to [`poll`](Self::poll) and the function passed to [`take`](Self::take).
///
/// # Safety
/// Safe code of the layer above relies on the safe methods, too, including those of the
/// supertraits. An implementor promises:
///
/// 1. **The end of an operation.** An operation has ended when [`post`](Self::post) returned
///    [`Posted::Done`] or an error, or when the [`Sink`] heard that its ticket is
///    [complete](Sink::complete). From then on the conduit does not access the operation's local
///    memory. The local memory of an [inline](crate::RegistrationCaps::inline) put is not accessed
///    after `post` has returned. The poster may rely on that to reuse or free the memory. No two
///    operations in flight have the same ticket, and no ticket is complete that was not returned.
///    For a rank in virtual time, all its operations have also ended once its own
///    [`standing`](Membership::standing) is not [`Present`](Standing::Present).
/// 2. **Extents.** Peers access local memory outside the segment only under a [`Key`] in force or
///    under [`Key::ANY`]. Under a key they stay within its extent and its [`Permission`]. A key
///    names one extent. Once [`deregister`](Self::deregister) has returned, it names nothing.
///    Nothing is accessed then under it or under a copy of it.
/// 3. **The segment.** [`Key::SEGMENT`] reaches only the peer's segment, whose length is
///    [`Caps::segment`]. [`window`](Segments::window) returns that memory, the same in each call.
///    [`decommit`](Segments::decommit) changes only the named part.
/// 4. **Identity.** [`rank`](Self::rank), [`size`](Self::size) and [`caps`](Self::caps) return the
///    same in each call, and `rank` is below `size`.
///
/// A conduit that forwards every call to another keeps that conduit's promises.
pub unsafe trait Conduit: Segments + Membership + Sleep + Clock + Send + Sync {
    /// Returns this process's rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks in the job.
    fn size(&self) -> u32;

    /// Returns the conduit's capabilities.
    fn caps(&self) -> &Caps;

    /// Returns the memory that the conduit takes for itself. For people and measurements: nothing
    /// depends on it.
    fn footprint(&self) -> Footprint;

    /// Returns the port of the network that this rank uses, such as its provider and interface. It is empty where memory
    /// is the network. For people: nothing depends on it.
    fn port(&self) -> String {
        String::new()
    }

    /// Makes local memory usable by peers, and by the NIC, under the returned key.
    ///
    /// # Safety
    /// Until [`deregister`](Self::deregister) has returned:
    ///
    /// 1. The memory stays allocated.
    /// 2. Only this conduit and shared-memory accesses touch the memory.
    ///
    /// With [`Caps::registration`], memory may be used freely while no peer knows its key. It need
    /// not even be mapped: that is an error.
    ///
    /// # Errors
    /// [`Error::Exhausted`] for too many extents or bytes. With [`Caps::registration`] also
    /// [`Error::BadAddress`] for memory that is not mapped or does not permit the access.
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error>;

    /// Revokes a key. When it returns, no peer accesses the memory any more.
    ///
    /// # Errors
    /// [`Error::Revoked`] if the key is not in force.
    fn deregister(&self, key: Key) -> Result<(), Error>;

    /// As [`deregister`](Self::deregister), for a key that nobody uses. A conduit that must ask its peers whether
    /// something is on its way saves the question.
    ///
    /// # Safety
    /// No peer that is present has an access in flight by the key: none knows it, or each that does has reported that
    /// its accesses are complete.
    ///
    /// # Errors
    /// As there.
    unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
        self.deregister(key)
    }

    /// Posts an access to the network, which carries it out without the peer's processors.
    ///
    /// The peer may be this rank itself. A transfer to or from it under [`Key::ANY`] is a copy by
    /// the processor. It is done on return, and unmapped memory is an error. An atomic operation on
    /// this rank's words is done on return and delivers nothing meanwhile, so it may be posted from
    /// a [`Sink`].
    ///
    /// # Safety
    /// Until the operation has ended (see promise 1 of an implementor):
    ///
    /// 1. [`Access::local`] is valid for [`Access::len`] bytes. With [`AccessKind::Put`] it is
    ///    readable. With [`AccessKind::Get`] it is writable and nothing else uses it. With
    ///    [`AccessKind::Atomic`] it is an aligned `u64`, writable, and nothing else uses it. For an
    ///    [inline](crate::RegistrationCaps::inline) put this holds until the call returns.
    /// 2. With [`AccessKind::Put`] and [`Key::ANY`] as the remote key, the peer tolerates the change
    ///    of its memory. Under any other key the peer lent the memory for that, and the conduit
    ///    checks it.
    ///
    /// # Errors
    /// The access's own errors: [`Error::Revoked`], [`Error::OutOfExtent`], [`Error::BadAddress`],
    /// [`Error::PeerLost`]. With [`AccessKind::Atomic`] also these:
    ///
    /// - [`Error::Misaligned`]: nothing was done.
    /// - [`Error::ResultLost`]: it was done, once, and the old value is unknown.
    /// - [`Error::System`]: [`Caps::atomics`] says that the network has none.
    unsafe fn post(&self, access: &Access) -> Result<Posted, Error>;

    /// Sends a request.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::MessageTooLong`], [`Error::TooManyArgs`].
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error>;

    /// Returns the number of requests to `peer` that its handlers have finished, and the number
    /// sent.
    fn handled(&self, peer: Rank) -> (u64, u64);

    /// Delivers messages that have arrived, at least some from each peer, and returns their number.
    /// After a poll that returns 0 all are delivered, unless another thread polls. Returns at once,
    /// or soon, if another thread is polling.
    fn poll(&self, sink: &mut dyn Sink) -> usize;

    /// Like [`poll`](Self::poll), but may leave requests of one kind in place, and those behind
    /// them: those of one peer, or of all. For a caller that [takes](Self::take) these itself.
    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        let _ = (kind, of);
        self.poll(sink)
    }

    /// Like [`poll`](Self::poll), but waits for its turn. When it returns, everything that had
    /// arrived before the call was delivered. Must not be called from a [`Sink`].
    fn drain(&self, sink: &mut dyn Sink) -> usize;

    /// Passes `take` the requests of one kind that have arrived, until it returns `false`. It
    /// delivers nothing else. A request is skipped if another request of its peer comes first, or
    /// if a reply waits for room. The passed requests count as handled and delivered, and `take`
    /// must not answer them. For a caller that waits for such a request and handles it itself.
    ///
    /// Returns true if other messages may have arrived, for [`poll`](Self::poll) to deliver.
    /// Returns at once if another thread is polling. An implementation may leave everything to
    /// `poll`, as the default does.
    fn take(&self, kind: u8, take: &mut dyn FnMut(&Delivery<'_>) -> bool) -> bool {
        let _ = (kind, take);
        true
    }
}
