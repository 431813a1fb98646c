//! Symmetric memory that no other rank can reach for a while.

#![allow(unsafe_code)] // gives out slices of memory that no peer can reach

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    slice,
    sync::Arc,
};

use super::{Block, Symmetric};
use crate::Pod;

/// This rank's part of symmetric memory as a slice, in a phase in which no rank reaches the part of
/// another. [`Job::exclusive`](crate::Job::exclusive) begins the phase and
/// [`Job::share`](crate::Job::share) ends it.
///
/// If it is dropped instead, the memory cannot be used any more, nor freed before the job ends.
pub struct Exclusive<T> {
    block: Arc<Block>,
    /// The own part: `len` elements, aligned.
    start: *mut T,
    len: usize,
    _elements: PhantomData<T>,
}

// SAFETY: this is the only access to the elements, as with a vector.
unsafe impl<T: Send> Send for Exclusive<T> {}
// SAFETY: as for `Send`: only this refers to the elements.
unsafe impl<T: Sync> Sync for Exclusive<T> {}

impl<T: Pod> Exclusive<T> {
    /// # Safety
    /// 1. `start` is the own part of `block`, of `len` elements, and is aligned.
    /// 2. Until this is [shared](Self::into_shared), or forever, no other code reads or writes it.
    pub(crate) unsafe fn new(block: Arc<Block>, start: *mut T, len: usize) -> Self {
        Self {
            block,
            start,
            len,
            _elements: PhantomData,
        }
    }

    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Returns the handle as all ranks have it.
    pub(crate) fn into_shared(self) -> Symmetric<T> {
        Symmetric::new(self.block, self.len)
    }
}

impl<T> Deref for Exclusive<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the part is mapped as long as `block` lives. By condition 1 of `new` it is aligned
        // and has `len` elements, for which any bytes are valid. By condition 2 no other code
        // writes to it.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Exclusive<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`. By condition 2 of `new` no other code reads it either, and `self` is
        // borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T> fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Exclusive(allocation {}, {} elements)",
            self.block.number, self.len
        )
    }
}
