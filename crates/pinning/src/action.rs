//! The decisions of an engine: messages to send, and actions to carry out.

use crate::{Direction, EngineMessage, Error, RegionNumber, Run, wire::Grant};

/// The decisions of an engine in one step, for the driver to carry out.
///
/// The driver sends the messages to one peer in the order given, and carries out the actions in the
/// order given. Between the two lists there is no order: no message claims that an action is done
/// before the engine was told so. A driver sends first, so that peers work while this rank
/// registers.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Decisions {
    /// The messages to send.
    pub messages: Vec<OutgoingMessage>,
    /// The actions to carry out.
    pub actions: Vec<Action>,
}

/// A message to send, followed by its data.
#[derive(Clone, PartialEq, Debug)]
pub struct OutgoingMessage {
    /// The rank of the receiver.
    pub to: u32,
    /// The message.
    pub message: EngineMessage,
    /// The data that follows the message.
    pub data: Data,
    /// The put whose buffer is read for the last time by this message: sending it is the put's
    /// local completion.
    pub last_of: Option<u64>,
    /// True if the operation that caused the message already has its answer. The driver may then
    /// batch the message with the next one for that peer, if that one comes soon. Other operations
    /// may wait for this message.
    pub may_wait: bool,
}

impl Decisions {
    /// Returns true if there is nothing to send and nothing to carry out.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.actions.is_empty()
    }
}

/// One action. A driver must carry out each kind.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Register own memory, and report the outcome with
    /// [`Engine::registered`](crate::Engine::registered).
    Register {
        /// The name of the registration.
        id: u64,
        /// The buckets that must be registered.
        need: Run,
        /// A superset of `need` that is preferred. Where not all of it is mapped, the driver
        /// registers less.
        preferred: Run,
    },
    /// Deregister, and report it with [`Engine::deregistered`](crate::Engine::deregistered).
    Deregister {
        /// The name of the deregistration.
        id: u64,
        /// The key.
        key: u64,
        /// The buckets of the extent.
        run: Run,
    },
    /// Write to a peer or read from it, and report the outcome with
    /// [`Engine::transferred`](crate::Engine::transferred).
    Transfer {
        /// The name of the transfer.
        id: u64,
        /// The rank of the peer.
        peer: u32,
        /// The direction of the data.
        direction: Direction,
        /// The own address.
        local: u64,
        /// The key that covers the own address.
        local_key: u64,
        /// The peer's address.
        remote: u64,
        /// The key that covers the peer's address.
        remote_key: u64,
        /// The length in bytes.
        len: u64,
        /// The put whose buffer is read for the last time by this transfer: the NIC takes inline
        /// data along, so that posting it is the put's local completion.
        last_of: Option<u64>,
    },
    /// Copy the data of the message just handled to the buffer of an own operation.
    Land {
        /// The own address.
        to: u64,
        /// The length in bytes.
        len: u32,
    },
    /// The operation is complete.
    Done {
        /// The operation, by the driver's name.
        op: u64,
        /// The result of the operation.
        result: Result<(), Error>,
    },
    /// The outcome for memory that [`Engine::pin`](crate::Engine::pin),
    /// [`hold_own`](crate::Engine::hold_own) or a kin of theirs asked for.
    Pinned {
        /// The driver's name for the request.
        id: u64,
        /// The grants that peers may use, extent after extent.
        result: Result<Vec<Grant>, Error>,
    },
    /// Nobody uses the memory any more that the driver [revoked](crate::Engine::revoke).
    Revoked {
        /// The driver's name for the revocation.
        id: u64,
    },
}

/// The data that follows a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// No data.
    None,
    /// The buffer of an own operation, or a part of it.
    Own {
        /// The own address.
        addr: u64,
        /// The length in bytes.
        len: u32,
    },
    /// Memory that a peer asked for. The driver checks the peer's right to it, and otherwise
    /// [refuses](EngineMessage::refuse) the message.
    Asked {
        /// The region that the peer means.
        region: RegionNumber,
        /// The own address.
        addr: u64,
        /// The length in bytes.
        len: u32,
    },
}

/// An extent that the driver has registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisteredExtent {
    /// The buckets: at least those needed.
    pub run: Run,
    /// The key of the registration.
    pub key: u64,
    /// True if the NIC may write to the extent.
    pub writable: bool,
}
