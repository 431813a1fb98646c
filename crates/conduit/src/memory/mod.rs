//! Views of memory that other processes may touch at the same time.
//!
//! Memory that peers write to is never lent out as `&[T]`: a reference would promise that
//! nobody else writes. A [`Window`] copies in and out instead, in a way that stays defined
//! when both sides of the copy race: small aligned copies are relaxed atomic accesses, longer
//! ones happen inside an `asm!` block, out of the compiler's sight.

#![allow(unsafe_code)] // the one place for shared-memory accesses; every conduit uses it

mod accumulate;
mod cgroup;
mod column;
mod copy;
mod gate;
mod limits;
mod many;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod moves;
mod place;
mod runs;
mod segment;
mod stores;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sums;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vectors;
mod window;

pub use accumulate::{Factor, Number};
pub use cgroup::{group_limit, group_room};
pub use column::Column;
pub use gate::Gate;
pub use limits::{memlock, pinnable, remedy};
pub use place::{Place, take};
pub use runs::{MOST_LOOPS, Part, Runs};
pub use segment::Segment;
pub use stores::Stores;
pub use window::{Fault, Line, Window, Word32};

/// Bytes of a page of the machine that this runs on.
pub const PAGE: usize = 4096;
