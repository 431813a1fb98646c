//! The bare references: what the processor itself does, with nothing of Hydrant in between.
//!
//! Everything here works on a [`Window`], memory of the bench's own that two ranks map, or on a
//! [`Place`] in a peer's part of symmetric memory. Bounds are checked once, before the clock
//! starts; the loops are as bare as they can be. A loop that has two ends comes as a pair of
//! functions, one for each of the two processes.

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
