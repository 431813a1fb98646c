//! A ring of messages from one rank to one other, in memory that both map.
//!
//! One writer, one reader, no lock. A message is one [`Slot`], a cache line: a header word
//! and up to seven arguments, so that a short message costs one line crossing between the
//! cores. Longer payloads lie in a second ring of bytes beside the slots, each in one piece.
//!
//! # How it works
//!
//! - The writer fills arguments and payload, then *publishes* the slot by storing its header
//!   (release). The header carries the lap of the ring it was written in, so the reader knows
//!   a new header from the one that lay there a lap before, and nobody ever clears a slot.
//! - The reader takes a slot when its header shows the lap it expects (acquire), and stores
//!   how far it came in [`Consumed`] (release), at the latest every eighth of the ring.
//! - The writer looks at `Consumed` (acquire) only when the ring seems full by what it saw
//!   last; both sides so stay on their own lines while messages flow.
//! - Where a payload lies is computed by both sides from the lengths alone
//!   ([`cursor`]), so no offset is sent that would have to be believed.
//!
//! Everything a reader takes from the ring it checks: a peer that writes rubbish gets an
//! error, and nothing outside the ring is touched.

mod cursor;
mod header;
mod reader;
mod slots;
mod writer;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use header::{Head, MAX_PAYLOAD, Malformed};
pub(crate) use reader::{Reader, Taken};
pub(crate) use slots::{Consumed, Slot, Slots};
pub(crate) use writer::Writer;

/// Arguments in a slot.
pub(crate) const MAX_ARGS: usize = 7;
