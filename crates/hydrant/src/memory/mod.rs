//! Memory that peers can name.
//!
//! - [`Symmetric`]: allocated by all ranks together; the fast path.
//! - [`Exposed`]: a buffer of the user's own, lent to peers until its guard goes.
//! - [`GlobalPtr`]: names an element of either, and can be sent to any rank.
//! - the whole address space, `unsafe`: [`Job::put_anywhere`](crate::Job::put_anywhere).
//!
//! # Why this is sound
//!
//! Peers write at any time, so no reference into memory that they can reach is ever given
//! out by safe code: elements are copied in and out ([`View`]), by accesses that may race
//! (see [`hydrant_conduit::memory`]). Elements are plain old data ([`Pod`](crate::Pod)), so
//! whatever bytes a race leaves are a value. A buffer that is lent is either owned by the
//! guard, so that leaking the guard leaks the buffer, or lent for a [scope](crate::Scope) that
//! revokes it at its end whatever became of the guard. Symmetric memory is given out as a slice
//! ([`Exclusive`]) while every rank has given up its only handle, has completed what it began with
//! it, and resolves no pointer into it. A handle that outlives its memory or
//! its job is an error at its next use; the mapping itself lives as long as any handle.
//!
//! A handle holds a reference to the mapping and none to the job. So a handler may keep a handle, and the job
//! still ends. Using the handle after the end is an error.
//!
//! # Exclusive memory
//!
//! [`Job::exclusive`](crate::Job::exclusive) gives each rank its part as a slice. From its start, no pointer of
//! this rank leads there. Slower peers may still ask for work in the part by message: packed runs and atomic
//! operations. The rank does this work until all ranks have agreed. So [`Registry`] keeps pointers and own parts
//! apart, and holds a lock while a part is used. A request that comes too late changes nothing.
//!
//! # Accumulates
//!
//! An accumulate holds the lock of each stretch of memory that it adds to ([`Locks`]), one lock at a time for all
//! runs within the stretch. The locks lie in the segment's system area, so ranks of one host share them. For ranks
//! of other hosts the owner adds (`rma::packed`), under the same lock. A lock names its holder. If the holder is
//! lost, so is the accumulate.

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

pub(crate) use block::{Block, Mapped, Part, Reach};
pub use exclusive::Exclusive;
pub use expose::Exposed;
pub(crate) use heap::Heap;
pub(crate) use locks::{Adder, Locks};
pub use options::{AllocOptions, HugePages};
pub use packed::PackedPtr;
pub use pointer::GlobalPtr;
pub(crate) use pointer::Target;
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
