//! The contract every network keeps.

#![allow(unsafe_code)] // declares an unsafe trait

use std::time::Duration;

use crate::{Access, Error, Key, Permission, Posted, Rank, Ticket, Window, Word32};

/// What a conduit can do and how much of it.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The conduit's name, as in `HYDRANT_CONDUIT`.
    pub name: &'static str,
    /// What registering memory costs and allows, if the network can only touch memory that
    /// was registered; see [`Registration`].
    pub registration: Option<Registration>,
    /// Whether [`Operation::Get`](crate::Operation::Get)(crate::Operation::Get) is one-sided. Where it is not, it is an error: a get is a
    /// message that asks the peer for a write (GM, Firehose §7; cLAN, ARMCI §3).
    pub reads: bool,
    /// Whether [`Key::ANY`] reaches the whole address space of a peer. With registration:
    /// whether the NIC pages, so that [`Key::ANY`] needs none.
    pub any_address: bool,
    /// Whether what a peer stores wakes who sleeps until [memory](Sleeper::Memory) changes. Where
    /// not, a NIC stores it and nobody hears of it.
    pub stores_wake: bool,
    /// What the atomic operations of the network, [`Operation::Atomic`](crate::Operation::Atomic)(crate::Operation::Atomic), are atomic among, if it
    /// has any.
    pub atomics: Option<Atomicity>,
    /// Most 64-bit arguments of a message.
    pub max_args: usize,
    /// Most bytes of payload of a message.
    pub max_payload: usize,
    /// Bytes of the segment each rank owns.
    pub segment: usize,
    /// Bytes of memory that a rank costs before it has spoken to anyone.
    pub bytes_per_rank: usize,
    /// Bytes of address space that a pair of ranks costs; memory follows use.
    pub bytes_per_pair: usize,
    /// Whether sleepers are woken without a fence in the waker.
    pub asymmetric_fence: bool,
}

/// A network whose NIC can only touch registered memory, on both sides.
///
/// There, the segment is memory like any other: [`Key::SEGMENT`] reaches nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Registration {
    /// Bytes of a page: extents begin and end at multiples of it.
    pub page: usize,
    /// The cost of registering an extent.
    pub register: Cost,
    /// The cost of deregistering it.
    pub deregister: Cost,
    /// The cost of copying a byte in memory, for comparison, in nanoseconds.
    pub copy_ns_per_byte: f64,
    /// Most extents at once, if the NIC has a limit.
    pub max_extents: Option<usize>,
    /// Most bytes of an extent.
    pub max_extent: usize,
    /// Most bytes that may be registered at once.
    pub max_bytes: usize,
    /// Whether a registration stays true when its addresses are unmapped and mapped anew. If
    /// not, memory that may come and go unseen is not kept registered after its use.
    pub follows_mapping: bool,
    /// Most bytes of a write whose source need not be registered, because the NIC takes them
    /// with the operation itself: its local key is then [`Key::ANY`].
    pub inline: usize,
}

impl Caps {
    /// Why a conduit without [`atomics`](Self::atomics) refuses an atomic operation.
    #[cold]
    pub fn no_atomics(&self) -> Error {
        let cause = format!("the conduit {} has none", self.name);
        let what = "an atomic operation of the network";
        Error::System { what, cause }
    }
}

/// What an operation on so many pages costs: `per_op + per_page × pages`, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// For each operation.
    pub per_op_ns: f64,
    /// For each page.
    pub per_page_ns: f64,
}

impl Cost {
    /// The cost of an operation on so many pages, in nanoseconds.
    pub fn of(self, pages: usize) -> f64 {
        self.per_op_ns + self.per_page_ns * pages as f64
    }
}

/// Among what an atomic operation of the network is one step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Atomicity {
    /// The operations of the network on words of the same owner, the owner's own among them, but
    /// not what processors change.
    Network,
    /// Those, and the atomic operations of processors.
    Everything,
}

/// Whether a message was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Sent {
    /// Taken: it will be delivered, after every request sent to this peer before it.
    Yes,
    /// No room now. Poll, then try again.
    Full,
}

/// What a message carries.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Meaning to the layer above; below [`Message::KINDS`].
    pub kind: u8,
    /// The handler's number.
    pub tag: u16,
    /// At most [`Caps::max_args`].
    pub args: &'a [u64],
    /// At most [`Caps::max_payload`] bytes.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// The layer above may use kinds from 0 to this, exclusive.
    pub const KINDS: u8 = 12;
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Who sent it.
    pub from: Rank,
    /// As sent.
    pub kind: u8,
    /// As sent.
    pub tag: u16,
    /// As sent.
    pub args: &'a [u64],
    /// As sent; the bytes are gone when the call returns.
    pub payload: &'a [u8],
}

/// Where the handler of a request puts its reply.
pub trait ReplyPort {
    /// Sends a reply to the request being delivered. Always taken: a conduit that has no
    /// room keeps it and takes no further request from that peer meanwhile, so no handler
    /// ever waits and memory stays bounded at one reply a peer.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`], [`Error::TooManyArgs`].
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error>;
}

/// What a poll hands up.
pub trait Sink {
    /// A request arrived. Requests of one peer arrive in the order sent.
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort);
    /// A reply arrived. Replies of one peer arrive in the order sent; nothing may be sent
    /// in answer.
    fn reply(&mut self, delivery: Delivery<'_>);
    /// The local memory of a pending write may be used again: local completion.
    fn local(&mut self, ticket: Ticket);
    /// A pending operation ended: remote completion.
    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>);
    /// A peer broke a rule; nothing of its message was delivered.
    fn malformed(&mut self, error: Error);
    /// Sends what the layer above found no room for; whether some of it still finds none. Asked by
    /// [`Conduit::compute`], when there may be room: a poll or a wait belongs to that layer, which
    /// then sees to this itself.
    fn send_waiting(&mut self) -> bool {
        false
    }
}

/// Who is about to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// The service thread, until a message comes.
    Service,
    /// The service thread while the application looks after messages itself: it is not
    /// called for each message, only by [`Conduit::wake`] or the end of the time.
    Nap,
    /// An application thread, until a message comes or a peer that stored what it waits for
    /// [rings](Conduit::ring).
    Application,
    /// As [`Application`](Self::Application), but any store to its memory may be what it waits
    /// for: its [`Door`] asks everybody to ring.
    Memory,
    /// As [`Application`](Self::Application), or until a peer has taken requests: there may be
    /// room for another, and [`Conduit::handled`] may have changed.
    Room,
}

/// How a peer stands to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Taking part.
    Present,
    /// Ended in good order.
    Left,
    /// Ended otherwise.
    Lost,
}

/// The bell of a mapped peer: whoever stores into its memory looks here afterwards, and
/// [rings](Conduit::ring) if a bit asks for it.
#[derive(Debug)]
pub struct Door {
    /// The bits below.
    pub bell: Word32,
}

impl Door {
    /// An application thread of the rank sleeps. Who stores a word that is only ever stored to
    /// be waited for rings then.
    pub const APPLICATION: u32 = 2;
    /// A thread of the rank sleeps until its memory changes. Who stores anything rings then.
    pub const MEMORY: u32 = 4;
}

/// A network as Hydrant sees it.
///
/// All calls may come from any thread. A conduit never calls back into its caller but
/// through the [`Sink`] given to [`poll`](Self::poll).
///
/// # Safety
/// What safe code of the layer above may do with memory rests on safe methods, too. An implementor
/// promises:
///
/// 1. **The end of an operation.** Once [`post`](Self::post) gave [`Posted::Done`] or an error, or
///    the [`Sink`] was told that its ticket is [complete](Sink::complete), the conduit touches the
///    local memory of the operation no more: whoever posted it may rely on that to use the memory
///    again, or to free it. No two operations under way have the same ticket, and no ticket is complete that was
///    not given. The same holds of all operations of a rank that lives in virtual time once its
///    own [`standing`](Self::standing) is not [`Present`](Standing::Present).
/// 2. **Extents.** Peers reach own memory outside the segment only under a [`Key`] in force, within
///    the extent that it names and as the [`Permission`] it was registered with allows, or under [`Key::ANY`]. A key names
///    one extent and, once [`deregister`](Self::deregister) has returned, nothing: nothing is
///    touched under it then, nor under its like.
/// 3. **The segment.** Under [`Key::SEGMENT`] nothing but the segment of the peer is reached, whose
///    length [`Caps::segment`] says. [`window`](Self::window) gives that memory, the same one in
///    each call, and [`decommit`](Self::decommit) changes nothing but what lies in the part named.
/// 4. **Who is who.** [`rank`](Self::rank), [`size`](Self::size) and [`caps`](Self::caps) say the
///    same in each call, and `rank` is below `size`.
///
/// A conduit that hands every call on to another keeps what that one promises.
pub unsafe trait Conduit: Send + Sync {
    /// This process.
    fn rank(&self) -> Rank;

    /// Processes in the job.
    fn size(&self) -> u32;

    /// What the conduit can do.
    fn caps(&self) -> &Caps;

    /// The segment of `peer`, if it is mapped here (own rank: always).
    fn window(&self, peer: Rank) -> Option<&Window>;

    /// The bell of `peer`, if its segment is mapped here.
    fn door(&self, peer: Rank) -> Option<&Door>;

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

    /// Makes own memory usable by peers, and by the NIC, under the key returned.
    ///
    /// # Safety
    /// The memory stays allocated, and nothing but this conduit touches it other than
    /// through shared-memory accesses, until [`deregister`](Self::deregister) returned.
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
    /// 1. [`Access::local`] is readable for [`Access::len`] bytes with [`Operation::Put`](crate::Operation::Put)(crate::Operation::Put), and
    ///    writable, by nobody else, with [`Operation::Get`](crate::Operation::Get)(crate::Operation::Get); with [`Operation::Atomic`](crate::Operation::Atomic)(crate::Operation::Atomic) it is
    ///    writable, by nobody else, for an aligned `u64`.
    /// 2. With [`Operation::Put`](crate::Operation::Put)(crate::Operation::Put) and [`Key::ANY`] as the remote key, the peer can bear the change
    ///    of its memory. Under any other key it lent the memory for that, and the conduit checks.
    ///
    /// # Errors
    /// What the access itself finds: [`Error::Revoked`], [`Error::OutOfExtent`],
    /// [`Error::BadAddress`], [`Error::PeerLost`]. With [`Operation::Atomic`](crate::Operation::Atomic)(crate::Operation::Atomic) also
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

    /// Delivers what has arrived; how many things that were. Returns at once, or soon, if another
    /// thread is polling.
    fn poll(&self, sink: &mut dyn Sink) -> usize;

    /// As [`poll`](Self::poll), but waits for its turn: when it returns, everything that had
    /// arrived before the call was delivered. Not to be called from a [`Sink`].
    fn drain(&self, sink: &mut dyn Sink) -> usize;

    /// Blocks until something arrives, `ready` says yes, somebody [wakes](Self::wake) this
    /// rank or the time is over. It may return early. `ready` is asked after peers can see
    /// that somebody sleeps, and, but for a [`Sleeper::Nap`], after all that other threads were
    /// handing to a [`Sink`] by then has been handed over, or else the sleep is a brief one: so
    /// nothing can be missed, whoever polls.
    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool);

    /// Wakes the sleepers of `peer` that its [`Door`] shows; called after a store to its
    /// memory.
    fn ring(&self, peer: Rank);

    /// Wakes every sleeper of `peer`, the own rank included, shown or not.
    fn wake(&self, peer: Rank);

    /// How `peer` stands to the job. Costs a load.
    fn standing(&self, peer: Rank) -> Standing;

    /// The rank that was [lost](Standing::Lost) before all others: those lost later may only
    /// have given up for its sake. Costs a load.
    fn first_lost(&self) -> Option<Rank>;

    /// Counts up whenever some rank's standing changes. Costs a load.
    fn changes(&self) -> u64;

    /// Tells the peers that this rank ends: in good order, or not.
    fn leave(&self, orderly: bool);

    /// Puts a peer out of the job, because a message of it follows no rule of the layer above: it is
    /// [lost](Standing::Lost) to all from now on, to itself as well, as if its process had ended.
    ///
    /// Where ranks are threads of one program in virtual time this does nothing: the message was
    /// thrown away, and the program is to be mended.
    fn expel(&self, peer: Rank) {
        let _ = peer;
    }

    /// Time since the job started, on the clock of the conduit.
    fn now(&self) -> Duration;

    /// The application computes so many operations. In real time that takes what it takes
    /// and this does nothing; in virtual time it is what computing costs, and messages that
    /// arrive meanwhile are delivered as the host attends to them.
    fn compute(&self, operations: u64, sink: &mut dyn Sink) {
        let _ = (operations, sink);
    }

    /// The caller looks at memory that others change. In virtual time that takes a moment, and what
    /// is earlier happens first; nothing is delivered. Does nothing in real time, where memory
    /// changes by itself.
    fn glance(&self) {}

    /// The layer above copied so many bytes in memory, beside what messages carry: those are
    /// copied once where they are sent and once where they are received, and that is counted
    /// already. Does nothing in real time, as [`compute`](Self::compute).
    fn copied(&self, bytes: usize) {
        let _ = bytes;
    }
}
