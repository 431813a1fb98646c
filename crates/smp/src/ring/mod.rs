//! A ring of messages from one rank to another, in memory that both map.
//!
//! A ring has one writer, one reader and no lock. A message is one [`RingSlot`], which is a cache
//! line: a header word and up to seven arguments. A short message therefore costs one line transfer
//! between the cores. Longer payloads are in a second ring of bytes beside the slots, each in one
//! piece.
//!
//! # Protocol
//!
//! - The writer fills in arguments and payload, then *publishes* the slot by storing its header
//!   (release). The header carries the lap of the ring. The reader thereby tells a new header from
//!   that of the previous lap, and slots are never cleared.
//! - The reader takes a slot when its header has the expected lap (acquire). It stores its progress
//!   in [`Consumed`] (release), at least after every eighth of the ring.
//! - The writer reads `Consumed` (acquire) only when the ring seems full by its last value. While
//!   messages flow, both sides therefore stay on their own lines.
//! - Both sides compute the offset of a payload from the lengths alone ([`cursor`]), so no offset
//!   is sent that would have to be trusted.
//!
//! The reader checks everything it reads from the ring. Garbage from a peer is an error, and no
//! access leaves the ring.

mod cursor;
mod header;
mod reader;
mod slots;
mod writer;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use header::{Head, MAX_PAYLOAD, MalformedHeader};
pub(crate) use reader::{RingReader, TakenMessage};
pub(crate) use slots::{Consumed, RingSlot, Slots};
pub(crate) use writer::RingWriter;

/// The arguments in a slot.
pub(crate) const MAX_ARGS: usize = 7;
