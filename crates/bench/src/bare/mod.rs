//! The bare references: operations of the processor itself, without Hydrant.
//!
//! All references work on a [`SharedWindow`], memory of the bench that two ranks map, or on a [`BarePlace`]
//! in a peer's part of symmetric memory. Bounds are checked once, before the clock starts, and the
//! loops are as short as possible. A loop with two ends is a pair of functions, one for each
//! process.

mod column;
mod exchange;
mod place;
mod section;
mod window;
mod word;

pub(crate) use column::{By, ColumnShape};
pub(crate) use exchange::{BareWait, ping, pong, send_lines, take_lines};
pub(crate) use place::BarePlace;
pub(crate) use section::{SectionShape, add_list, copy_list};
pub(crate) use window::{SharedWindow, WINDOW};
pub(crate) use word::{compare_swap, fetch_add, load, spin_lock, store, swap};
