//! The kinds of messages. The kind selects the receiver.

/// A request to a user's handler, and its reply.
pub(crate) const USER: u8 = 0;
/// A remote call, and its result.
pub(crate) const CALL: u8 = 1;
/// A reply that reports a failed request.
pub(crate) const FAILURE: u8 = 2;
/// The result of an asynchronous function. It is a request, because the call was answered long
/// before.
pub(crate) const RESULT: u8 = 7;
/// A reply of a user's handler that must follow other messages. It is a request, because replies have no order with
/// these. A reply of this kind announces it.
pub(crate) const LATE_REPLY: u8 = 12;
/// A store into the scratch of a team.
pub(crate) const STORE: u8 = 3;
/// An atomic operation, and the old value of the word.
pub(crate) const ATOMIC: u8 = 4;
/// Runs of bytes packed into a message, and the outcome.
pub(crate) const PACKED: u8 = 8;
/// Two-sided messages: the message or its announcement, and the rest of the protocol.
pub(crate) const TWO_SIDED: u8 = 9;
/// A question to a rank whose program has come to its end: is anything in flight there?
pub(crate) const REST: u8 = 10;
/// A message between the engines that decide what is registered.
pub(crate) const REGISTRATION: u8 = 5;
/// Messages about an exposed buffer: its address, its revocation, the end of its use.
pub(crate) const LOAN: u8 = 6;
/// A question whether a rank has completed a handover of memory.
pub(crate) const HANDOVER: u8 = 11;
