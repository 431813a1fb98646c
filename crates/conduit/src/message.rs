//! Messages: what is sent, what arrives, and what a poll hands up.

#[cfg(doc)]
use crate::{Caps, Clock};
use crate::{Error, Rank, Ticket};

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

/// A message with its parts, for who cannot send it yet or sends it later.
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
    /// A copy of a message.
    pub fn new(message: &Message<'_>) -> Self {
        Self {
            kind: message.kind,
            tag: message.tag,
            args: message.args.into(),
            payload: message.payload.into(),
        }
    }

    /// The message.
    pub fn message(&self) -> Message<'_> {
        Message {
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
    /// [`Clock::compute`], when there may be room: a poll or a wait belongs to that layer, which
    /// then sees to this itself.
    fn send_waiting(&mut self) -> bool {
        false
    }
    /// Whether somebody else than the caller may wait for what follows from the end of an operation.
    /// Asked by [`Clock::compute`], of operations that have ended: who computes is interrupted for
    /// those, and hears of the others when it next looks.
    fn is_awaited(&mut self, ticket: Ticket) -> bool {
        let _ = ticket;
        false
    }
}
