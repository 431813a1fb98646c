//! What a conduit can do, and how much of it.

use crate::{Error, Message};
#[cfg(doc)]
use crate::{Key, Operation, Sleeper};

/// What a conduit can do and how much of it.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The conduit's name, as in `HYDRANT_CONDUIT`.
    pub name: &'static str,
    /// What registering memory costs and allows, if the network can only touch memory that
    /// was registered; see [`Registration`].
    pub registration: Option<Registration>,
    /// Whether [`Operation::Get`](crate::Operation::Get) is one-sided. Where it is not, it is an error: a get is a
    /// message that asks the peer for a write (GM, Firehose §7; cLAN, ARMCI §3).
    pub reads: bool,
    /// Whether [`Key::ANY`] reaches the whole address space of a peer. With registration:
    /// whether the NIC pages, so that [`Key::ANY`] needs none.
    pub any_address: bool,
    /// The number of the job's ranks on this host, this one included, with memory mapped here or not. They share its
    /// cores. In virtual time each rank has a host of its own.
    pub host_ranks: u32,
    /// Whether what a peer stores wakes who sleeps until [memory](Sleeper::Memory) changes. Where
    /// not, a NIC stores it and nobody hears of it.
    pub stores_wake: bool,
    /// What the atomic operations of the network, [`Operation::Atomic`](crate::Operation::Atomic), are atomic among, if it
    /// has any.
    pub atomics: Option<Atomicity>,
    /// Most 64-bit arguments of a message.
    pub max_args: usize,
    /// Most bytes of payload of a message.
    pub max_payload: usize,
    /// Bytes of the segment each rank owns.
    pub segment: usize,
}

/// What memory a conduit takes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of memory that a rank costs before it has spoken to anyone.
    pub per_rank: usize,
    /// Bytes of address space that a pair of ranks costs, half of them at each; memory follows use.
    pub per_pair: usize,
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
    /// Most bytes of an extent.
    pub max_extent: usize,
    /// Most bytes that may be registered at once.
    pub max_bytes: usize,
    /// Whether a registration stays true when its addresses are unmapped and mapped anew. If
    /// not, memory that may come and go unseen is not kept registered after its use.
    pub follows_mapping: bool,
    /// Most bytes of a write whose source need not be registered, because the NIC takes them
    /// with the operation itself: its local key is then [`Key::ANY`]. The source may be used again
    /// as soon as the operation was posted, also if it has to wait for its turn or to be repeated: that
    /// is its local completion, and no [`Sink::local`](crate::Sink::local) need tell it.
    pub inline: usize,
}

impl Caps {
    /// Whether a message is within the limits.
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
