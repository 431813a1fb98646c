//! Symmetric memory that nobody else can reach for a while.

#![allow(unsafe_code)] // gives out slices of what no peer can reach

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    slice,
    sync::Arc,
};

use super::{Block, Symmetric};
use crate::Pod;

/// This rank's part of symmetric memory, as a slice, in a phase in which no rank reaches another's
/// part. Made by [`Job::exclusive`](crate::Job::exclusive), ended by
/// [`Job::share`](crate::Job::share).
///
/// If it is dropped instead, the memory cannot be used any more, nor freed before the job ends.
pub struct Exclusive<T> {
    block: Arc<Block>,
    /// The own part: `len` elements, aligned.
    start: *mut T,
    len: usize,
    _elements: PhantomData<T>,
}

// SAFETY: it is the only way to the elements, like a vector.
unsafe impl<T: Send> Send for Exclusive<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Exclusive<T> {}

impl<T: Pod> Exclusive<T> {
    /// # Safety
    /// 1. `start` is the own part of `block`, of `len` elements, and is aligned.
    /// 2. Until this is [shared](Self::into_shared), or for good, nobody else reads or writes it.
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

    /// The handle that others have, too.
    pub(crate) fn into_shared(self) -> Symmetric<T> {
        Symmetric::new(self.block, self.len)
    }
}

impl<T> Deref for Exclusive<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: it is mapped as long as `block`, aligned and of `len` elements, any bytes of
        // which are a `Pod`; nobody writes to it, by the promise made to `new`.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Exclusive<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; nobody reads it, either, and this is borrowed mutably.
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
