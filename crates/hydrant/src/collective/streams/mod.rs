//! Long data: streams of chunks from member to member.
//!
//! | carrier | files |
//! |---|---|
//! | boards, in flat teams | [`board`], [`slots`]: slots in scratch; [`outgoing`], [`incoming`], [`fold`]: one stream; [`set`]: all streams of a phase; [`plans`]: the streams of each collective; [`board_scan`] |
//! | channels, in other teams | [`channel`]: chunks with credit; [`direct`], [`cleared`]: writes from buffer to buffer; [`shift`] |
//!
//! Collectives make the streams of a phase by [`plans`] and run them, or open a channel. A stream may call the
//! agreement, and never a collective.

mod board;
mod board_scan;
mod channel;
mod cleared;
mod direct;
mod fold;
mod incoming;
mod outgoing;
mod plans;
mod set;
mod shift;
mod slots;

pub(super) use board::Board;
pub(super) use board_scan::BoardScan;
pub(super) use channel::{Inbound, Outbound, in_chunk};
pub(super) use shift::shift;
pub(super) use slots::DataPhase;
