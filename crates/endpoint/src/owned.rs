//! Buffers that regions own.

#![allow(unsafe_code)] // makes windows of a leaked buffer

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use hydrant_conduit::Window;

/// A buffer that a region owns. It is freed when the last window of it is gone, unless it was taken back.
pub(crate) struct OwnedBytes {
    buffer: NonNull<[u8]>,
    is_taken: AtomicBool,
}

// SAFETY: this owns the buffer, and gives no access to it but by `take`, which works once.
unsafe impl Send for OwnedBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// Takes a buffer. Returns it, and a window of it.
    pub(crate) fn new(buffer: Vec<u8>) -> (Arc<Self>, Window) {
        let buffer = NonNull::from(Box::leak(buffer.into_boxed_slice()));
        buffer.cast::<u8>().as_ptr().expose_provenance();
        let owned = Arc::new(Self {
            buffer,
            is_taken: AtomicBool::new(false),
        });
        // SAFETY: 1. The window keeps the buffer, which is taken back only after a revocation, and then nobody uses the
        // window. 2. The box was leaked, so that nobody has a reference. 3. It is initialized.
        let window = unsafe { Window::new(buffer.cast(), buffer.len(), Arc::clone(&owned) as _) };
        (owned, window)
    }

    /// Returns the buffer, once.
    ///
    /// # Safety
    /// 1. Nobody uses a window of it from now on.
    pub(crate) unsafe fn take(&self) -> Option<Box<[u8]>> {
        if self.is_taken.swap(true, SeqCst) {
            return None;
        }
        // SAFETY: `new` leaked a box, and it is made a box again only once. Nobody else uses it, by condition 1.
        Some(unsafe { Box::from_raw(self.buffer.as_ptr()) })
    }
}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: 1. all windows hold this, so none is left.
        drop(unsafe { self.take() });
    }
}
