//! Buffers of abandoned operations.

#![allow(unsafe_code)] // frees the memory of forgotten vectors

use std::{
    alloc::{Layout, dealloc},
    mem::ManuallyDrop,
    ptr::NonNull,
};

use bytemuck::Pod;

/// The memory of a vector that an operation in flight uses. Its drop leaks the memory, which the
/// network may still use.
pub(crate) struct Orphan {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: Nobody else knows the memory, and this neither reads nor writes it.
unsafe impl Send for Orphan {}

impl Orphan {
    /// Returns the memory of `buffer`. Its elements are plain data and need no drop.
    pub(super) fn of<T: Pod>(buffer: Vec<T>) -> Self {
        let mut buffer = ManuallyDrop::new(buffer);
        let at = NonNull::from(buffer.as_mut_slice()).cast();
        let layout = Layout::array::<T>(buffer.capacity());
        // Such a vector exists, so its layout is valid.
        let layout = layout.unwrap_or(Layout::new::<()>());
        Self { at, layout }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// 1. The network uses it no more.
    pub(super) unsafe fn free(self) {
        if self.layout.size() > 0 {
            // SAFETY: 1. The global allocator allocated the vector with this layout, that of an
            // array of its capacity. 2. The vector was forgotten, and `self` is consumed, so the
            // memory is freed once.
            // 3. Nobody uses the memory: the caller's condition 1.
            unsafe { dealloc(self.at.as_ptr(), self.layout) }
        }
    }
}
