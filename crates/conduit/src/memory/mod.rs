//! Views of memory that other processes may access at the same time.
//!
//! Memory that peers write to is never lent as `&[T]`, because a reference promises that nobody
//! else writes. A [`Window`] copies in and out instead, and stays defined when both sides of a copy
//! race. Its copies happen inside an `asm!` block, invisible to the compiler. On other processors
//! they are relaxed atomic accesses.

#![allow(unsafe_code)] // the one place for shared-memory accesses; every conduit uses it

mod accumulate;
mod cgroup;
mod column;
mod copy;
mod gate;
mod limits;
mod many;
mod place;
mod runs;
mod segment;
mod stores;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vectors;
mod window;

pub use accumulate::{Factor, Number};
pub use cgroup::{group_limit, group_room};
pub use column::Column;
pub use gate::Gate;
pub use limits::{memlock, pinnable, pinned, remedy};
pub use place::{Place, take};
pub use runs::{MOST_LOOPS, Runs, RunsPart};
pub use segment::Segment;
pub use stores::StoreTimes;
pub use window::{Fault, Line, Window, Word32};

/// Bytes of a page on this machine.
pub const PAGE: usize = 4096;
