//! Buffers whose owner is gone while an operation uses them.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::{
    alloc::{Layout, dealloc},
    mem::ManuallyDrop,
    ptr::NonNull,
};

use bytemuck::Pod;

/// The memory of a vector, which an operation under way uses. If it is dropped it is leaked: the
/// network may still use it.
pub(crate) struct Orphan {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is memory that nobody else knows of, and nothing is read from it or written to it here.
unsafe impl Send for Orphan {}

impl Orphan {
    /// The memory of `buffer`, whose elements are plain data and need not be dropped.
    pub(super) fn of<T: Pod>(buffer: Vec<T>) -> Self {
        let mut buffer = ManuallyDrop::new(buffer);
        let at = NonNull::from(buffer.as_mut_slice()).cast();
        let layout = Layout::array::<T>(buffer.capacity());
        // There is such a vector.
        let layout = layout.unwrap_or(Layout::new::<()>());
        Self { at, layout }
    }

    /// Frees it.
    ///
    /// # Safety
    /// The network uses it no more.
    pub(super) unsafe fn free(self) {
        if self.layout.size() > 0 {
            // SAFETY: 1. A vector allocated it by the global allocator, with this layout: that of an
            // array of its capacity. 2. The vector was forgotten, and this is consumed, so that it
            // is freed once. 3. The caller's promise.
            unsafe { dealloc(self.at.as_ptr(), self.layout) }
        }
    }
}
