//! What an engine decides: messages to send, and things to do.

use crate::{Direction, Error, Message, Region, Run, wire::Grant};

/// What an engine decided in one step, for the driver to carry out.
///
/// Messages to one peer go out in the order given, and actions are done in the order given.
/// Between the two lists there is no order: no message says that an action was done before the
/// engine was told so. A driver sends first, so that peers work while this rank registers.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Decisions {
    /// To be sent.
    pub messages: Vec<Outgoing>,
    /// To be done.
    pub actions: Vec<Action>,
}

/// A message to send; then its data.
#[derive(Clone, PartialEq, Debug)]
pub struct Outgoing {
    /// To whom.
    pub to: u32,
    /// The message.
    pub message: Message,
    /// What follows it.
    pub data: Data,
    /// The put whose buffer is not read any more once this is sent: its local completion.
    pub last_of: Option<u64>,
    /// Whether the operation that asked for it has its answer already: it may go along with what is next
    /// for that peer, if that comes soon. Others may wait for it.
    pub may_wait: bool,
}

impl Decisions {
    /// Whether there is nothing to send and nothing to do.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.actions.is_empty()
    }
}

/// One thing to do. Whoever carries decisions out does each of these.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Register own memory, and say how that went by
    /// [`Engine::registered`](crate::Engine::registered).
    Register {
        /// Names the registration.
        id: u64,
        /// What must be registered.
        need: Run,
        /// What is preferred: a superset. Where not all of it is mapped, less.
        preferred: Run,
    },
    /// Deregister, and say so by [`Engine::deregistered`](crate::Engine::deregistered).
    Deregister {
        /// Names the deregistration.
        id: u64,
        /// The key.
        key: u64,
        /// Its buckets.
        run: Run,
    },
    /// Write to a peer, or read from it; and say how that went by
    /// [`Engine::transferred`](crate::Engine::transferred).
    Transfer {
        /// Names the transfer.
        id: u64,
        /// With whom.
        peer: u32,
        /// Which way.
        direction: Direction,
        /// The own address.
        local: u64,
        /// The key that covers it.
        local_key: u64,
        /// The peer's address.
        remote: u64,
        /// The key that covers it.
        remote_key: u64,
        /// Bytes.
        len: u64,
        /// The put whose buffer is not read any more once this was posted, because the NIC takes its data
        /// along: its local completion.
        last_of: Option<u64>,
    },
    /// Copy data of the message just handled to the buffer of an own operation.
    Land {
        /// Where in own memory.
        to: u64,
        /// Bytes.
        len: u32,
    },
    /// The operation is complete.
    Done {
        /// The operation.
        op: u64,
        /// How it ended.
        result: Result<(), Error>,
    },
    /// Memory asked for by [`Engine::pin`](crate::Engine::pin), or
    /// [`hold_own`](crate::Engine::hold_own), is registered, or not.
    Pinned {
        /// What was asked for.
        id: u64,
        /// What peers may use, extent after extent.
        result: Result<Vec<Grant>, Error>,
    },
    /// Nobody uses the memory any more that was [revoked](crate::Engine::revoke).
    Revoked {
        /// The revocation.
        id: u64,
    },
}

/// What follows a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Nothing.
    None,
    /// The buffer of an own operation, or part of it.
    Own {
        /// Where.
        addr: u64,
        /// Bytes.
        len: u32,
    },
    /// Memory that a peer asked for: the driver checks that it may, and otherwise
    /// [refuses](Message::refuse).
    Asked {
        /// The memory that the peer means.
        region: Region,
        /// Where.
        addr: u64,
        /// Bytes.
        len: u32,
    },
}

/// What was registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The buckets: at least those needed.
    pub run: Run,
    /// The key.
    pub key: u64,
    /// Whether it may be written.
    pub writable: bool,
}
