//! The bare references: operations of the processor itself, without Hydrant.
//!
//! All references work on a [`Window`], memory of the bench that two ranks map, or on a [`Place`]
//! in a peer's part of symmetric memory. Bounds are checked once, before the clock starts, and the
//! loops are as short as possible. A loop with two ends is a pair of functions, one for each
//! process.

mod column;
mod exchange;
mod place;
mod section;
mod window;
mod word;

pub(crate) use column::{By, Column};
pub(crate) use exchange::{Wait, ping, pong, send_lines, take_lines};
pub(crate) use place::Place;
pub(crate) use section::{Shape, add_list, copy_list};
pub(crate) use window::{WINDOW, Window};
pub(crate) use word::{compare_swap, fetch_add, load, spin_lock, store, swap};
