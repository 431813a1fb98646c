//! The capabilities and limits of a conduit.

#[cfg(doc)]
use crate::{AccessKind, Key, Sleeper};
use crate::{Error, Message};

/// The capabilities and limits of a conduit.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The conduit's name, as in `HYDRANT_CONDUIT`.
    pub name: &'static str,
    /// The costs and limits of registration, if the network can only access registered memory; see
    /// [`RegistrationCaps`].
    pub registration: Option<RegistrationCaps>,
    /// True if [`AccessKind::Get`] is one-sided. Otherwise it is an error: a get is then a message
    /// that asks the peer for a write (GM, Firehose §7; cLAN, ARMCI §3).
    pub reads: bool,
    /// True if [`Key::ANY`] reaches the whole address space of a peer. With registration: true if
    /// the NIC pages, so that [`Key::ANY`] needs no registration.
    pub any_address: bool,
    /// The number of the job's ranks on this host, including this rank, with memory mapped here or
    /// not. They share its cores. In virtual time each rank has a host of its own.
    pub host_ranks: u32,
    /// True if a peer's store wakes a thread that sleeps until [memory](Sleeper::Memory) changes.
    /// Otherwise a NIC stores, and the store wakes no thread.
    pub stores_wake: bool,
    /// The atomicity of the network's operations, [`AccessKind::Atomic`], if it has any.
    pub atomics: Option<Atomicity>,
    /// The most 64-bit arguments of a message.
    pub max_args: usize,
    /// The most bytes of payload of a message.
    pub max_payload: usize,
    /// The bytes of each rank's segment.
    pub segment: usize,
}

/// The memory that a conduit takes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of memory that a rank costs before it has sent or received anything.
    pub per_rank: usize,
    /// Bytes of address space that a pair of ranks costs, half of them at each. Memory follows use.
    pub per_pair: usize,
}

/// A network whose NIC can only access registered memory, on both sides.
///
/// On such a network the segment is ordinary memory: [`Key::SEGMENT`] reaches nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegistrationCaps {
    /// Bytes of a page. Extents begin and end at multiples of it.
    pub page: usize,
    /// The cost of registering an extent.
    pub register: Cost,
    /// The cost of deregistering an extent.
    pub deregister: Cost,
    /// The cost of copying a byte in memory, for comparison, in nanoseconds.
    pub copy_ns_per_byte: f64,
    /// The most bytes of an extent.
    pub max_extent: usize,
    /// The most bytes that may be registered at once.
    pub max_bytes: usize,
    /// True if a registration stays valid when its addresses are unmapped and mapped anew.
    /// Otherwise memory that may be unmapped unseen is not kept registered after its use.
    pub follows_mapping: bool,
    /// True if memory that can only be read is registered like other memory. Otherwise a copy of its content at that
    /// time is registered, which later changes of the content do not reach.
    pub pins_read_only: bool,
    /// True if the NIC needs own memory registered, too. Otherwise the local key of an access may be [`Key::ANY`], and
    /// the memory is in use until the operation has ended.
    pub local: bool,
    /// The most bytes of an inline write, whose source needs no registration: its local key is
    /// [`Key::ANY`]. The NIC takes the bytes with the request. The caller may reuse the source as
    /// soon as the operation was posted, even if the request has to wait or to be repeated. That is
    /// its local completion, and [`Sink::local`](crate::Sink::local) need not report it.
    pub inline: usize,
}

impl Caps {
    /// Checks that a message is within the limits.
    ///
    /// # Errors
    /// [`Error::TooManyArgs`], [`Error::MessageTooLong`].
    #[inline]
    pub fn check(&self, message: &Message<'_>) -> Result<(), Error> {
        if message.args.len() > self.max_args {
            return Err(Error::TooManyArgs {
                count: message.args.len(),
                limit: self.max_args,
            });
        }
        if message.payload.len() > self.max_payload {
            return Err(Error::MessageTooLong {
                len: message.payload.len(),
                limit: self.max_payload,
            });
        }
        Ok(())
    }

    /// Makes the error of a conduit without [`atomics`](Self::atomics) for an atomic operation.
    #[cold]
    pub fn no_atomics(&self) -> Error {
        let cause = format!("the conduit {} has none", self.name);
        let what = "an atomic operation of the network";
        Error::System { what, cause }
    }
}

/// The cost of an operation on pages: `per_op + per_page × pages`, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The cost of each operation.
    pub per_op_ns: f64,
    /// The cost of each page.
    pub per_page_ns: f64,
}

impl Cost {
    /// Returns the cost of an operation on this many pages, in nanoseconds.
    pub fn of(self, pages: usize) -> f64 {
        self.per_op_ns + self.per_page_ns * pages as f64
    }
}

/// The accesses among which an atomic operation of the network is one step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Atomicity {
    /// The network's operations on words of the same owner, including the owner's own. Changes by
    /// processors are not among them.
    Network,
    /// The network's operations, and the atomic operations of processors.
    Everything,
}
