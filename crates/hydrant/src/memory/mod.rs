//! Memory that peers can name.
//!
//! - [`Symmetric`]: allocated by all ranks together; the fast path.
//! - [`Exposed`]: a buffer of this rank, lent to peers until its guard is dropped.
//! - [`GlobalPtr`]: names an element of either, and can be sent to any rank.
//! - The whole address space, `unsafe`: [`Job::put_anywhere`](crate::Job::put_anywhere).
//!
//! # Why this is sound
//!
//! Peers write at any time, so safe code never gives out a reference into memory that they can
//! reach. Elements are copied in and out ([`View`]), by accesses that may race (see
//! [`hydrant_conduit::memory`]). Elements are plain old data ([`Pod`](crate::Pod)), so any bytes
//! that a race leaves are a value.
//!
//! A lent buffer is owned by the guard, so that a leaked guard leaks the buffer. Or it is lent for
//! a [scope](crate::Scope), which ends the loan even if the guard was leaked. Symmetric memory is
//! given out as a slice ([`Exclusive`]) while no rank can reach it. By then each rank has given up
//! its only handle, has completed its operations, and resolves no pointer into the memory.
//!
//! A handle that outlives its memory or its job is an error at its next use. The mapping lives as
//! long as any handle.
//!
//! A handle holds a reference to the mapping and none to the job. So a handler may keep a handle, and the job
//! still ends. Using the handle after the end is an error.
//!
//! # Exclusive memory
//!
//! [`Job::exclusive`](crate::Job::exclusive) gives each rank its part as a slice. From then on, no
//! pointer of this rank leads to the memory. Slower peers may still ask by message for work in the
//! part: packed runs and atomic operations. The rank does this work until all ranks have agreed
//! that none asks any more. So [`Registry`] keeps pointers and own parts apart, and holds a lock
//! while a part is used. A request that comes too late changes nothing.
//!
//! # Accumulates
//!
//! An accumulate holds the lock of each stretch of memory that it adds to ([`Locks`]), one lock at
//! a time for all runs within the stretch. The locks lie in the segment's system area, so ranks of
//! one host share them. For ranks of other hosts the owner adds (`rma::packed`), under the same
//! locks. A lock names its holder. If the holder is lost, accumulates to that stretch fail.

mod block;
mod exclusive;
mod expose;
mod fixed;
mod heap;
mod locks;
mod options;
mod packed;
mod pointer;
mod registry;
mod symmetric;
mod view;

pub(crate) use block::{Block, BlockPart, Mapped, Reach};
pub use exclusive::Exclusive;
pub use expose::Exposed;
pub(crate) use heap::SymmetricHeap;
pub(crate) use locks::{Adder, Locks};
pub use options::{AllocOptions, HugePages};
pub use packed::PackedPtr;
pub use pointer::GlobalPtr;
pub(crate) use pointer::PointerTarget;
pub(crate) use registry::Registry;
pub use symmetric::Symmetric;
pub use view::View;
pub(crate) use view::{fill, overlap};

use crate::{Error, Result};

/// Checks that `count` elements at `index` lie within `len`.
///
/// # Errors
/// [`Error::OutOfBounds`], also where the sum would overflow.
#[inline]
pub(crate) fn check_range(index: usize, count: usize, len: usize) -> Result<()> {
    if count > len || index > len - count {
        return Err(Error::OutOfBounds { index, count, len });
    }
    Ok(())
}
