//! Messages: sent, arrived, and delivered by a poll.

#[cfg(doc)]
use crate::{Caps, Clock};
use crate::{Error, Rank, Ticket};

/// The result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Sent {
    /// The conduit took the message. It will be delivered, after every request sent to this peer
    /// before it.
    Yes,
    /// There is no room now. Poll, then try again.
    Full,
}

/// The contents of a message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The kind, whose meaning the layer above defines; below [`Message::KINDS`].
    pub kind: u8,
    /// The handler's number.
    pub tag: u16,
    /// At most [`Caps::max_args`].
    pub args: &'a [u64],
    /// At most [`Caps::max_payload`] bytes.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// The number of kinds. The layer above may use kinds from 0 to this, exclusive.
    pub const KINDS: u8 = 14;
}

/// A message that owns its parts, to be sent later.
#[derive(Clone, Debug)]
pub struct OwnedMessage {
    /// As in [`Message`].
    pub kind: u8,
    /// As in [`Message`].
    pub tag: u16,
    /// As in [`Message`].
    pub args: Box<[u64]>,
    /// As in [`Message`].
    pub payload: Box<[u8]>,
}

impl OwnedMessage {
    /// Copies a message.
    pub fn new(message: &Message<'_>) -> Self {
        Self {
            kind: message.kind,
            tag: message.tag,
            args: message.args.into(),
            payload: message.payload.into(),
        }
    }

    /// Borrows the message.
    pub fn message(&self) -> Message<'_> {
        Message {
            kind: self.kind,
            tag: self.tag,
            args: &self.args,
            payload: &self.payload,
        }
    }

    /// The message as it arrives from `from`.
    pub fn delivery(&self, from: Rank) -> Delivery<'_> {
        Delivery {
            from,
            kind: self.kind,
            tag: self.tag,
            args: &self.args,
            payload: &self.payload,
        }
    }
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The sender.
    pub from: Rank,
    /// As sent.
    pub kind: u8,
    /// As sent.
    pub tag: u16,
    /// As sent.
    pub args: &'a [u64],
    /// As sent. The bytes are valid until the call returns.
    pub payload: &'a [u8],
}

/// The port for the reply to a request.
pub trait ReplyPort {
    /// Sends a reply to the current request. The conduit always takes it. A conduit without room
    /// keeps the reply, and takes no further request from that peer meanwhile. No handler ever
    /// waits, and memory is bounded by one reply a peer.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`], [`Error::TooManyArgs`].
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error>;
}

/// The receiver of a poll's deliveries.
pub trait Sink {
    /// A request arrived. Requests of one peer arrive in the order sent.
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort);
    /// A reply arrived. Replies of one peer arrive in the order sent. No message may be sent in
    /// answer.
    fn reply(&mut self, delivery: Delivery<'_>);
    /// The local memory of a pending write may be reused: local completion.
    fn local(&mut self, ticket: Ticket);
    /// A pending operation ended: remote completion.
    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>);
    /// A peer broke a rule. Nothing of its message was delivered.
    fn malformed(&mut self, error: Error);
    /// Sends messages for which the layer above found no room. Returns true if some still find
    /// none. [`Clock::compute`] calls this when there may be room. During a poll or a wait the
    /// layer above does this itself.
    fn send_waiting(&mut self) -> bool {
        false
    }
    /// Returns true if another thread or rank may wait for the consequences of an operation's end.
    /// [`Clock::compute`] asks this about operations that have ended. A computing thread is
    /// interrupted for those, and learns of the others at its next check.
    fn is_awaited(&self, ticket: Ticket) -> bool {
        let _ = ticket;
        false
    }
}
