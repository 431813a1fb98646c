//! What a message is for: its kind on the conduit, which says who gets it.

/// A request for a user's handler, and the reply to one.
pub(crate) const USER: u8 = 0;
/// A remote call, and its result.
pub(crate) const CALL: u8 = 1;
/// A reply that says how a request failed.
pub(crate) const FAILURE: u8 = 2;
/// The result of a function that took its time: a request, for the call was answered long ago.
pub(crate) const RESULT: u8 = 7;
/// A store into the scratch of a team.
pub(crate) const STORE: u8 = 3;
/// An atomic operation, and what the word was.
pub(crate) const ATOMIC: u8 = 4;
/// Runs of bytes packed into a message, and what became of them.
pub(crate) const PACKED: u8 = 8;
/// Two-sided messages: one, its announcement, and what follows from that.
pub(crate) const TWO_SIDED: u8 = 9;
/// Asks a rank whose program has come to its end whether anything is in flight there.
pub(crate) const REST: u8 = 10;
/// A message between the engines that decide what is registered.
pub(crate) const REGISTRATION: u8 = 5;
/// About an exposed buffer: where it lies, that it goes, that it is used no more.
pub(crate) const LOAN: u8 = 6;
