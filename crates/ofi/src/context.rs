//! The contexts of operations: memory that libfabric uses while an operation is in flight, and the operation's name.
//!
//! Every operation in flight has one. It stands in a pool, whose memory is never freed while the endpoint is open.

#![allow(unsafe_code)] // reads what the library returns

use std::{cell::UnsafeCell, ffi::c_void};

use crate::ffi;

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PostedKind {
    /// A receive buffer.
    Receive,
    /// A message sent.
    Send,
    /// A write or a read.
    Access,
}

/// The name of an operation: its kind, and its index in the pool of that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationName {
    pub(crate) kind: PostedKind,
    pub(crate) index: u32,
}

/// The memory that libfabric uses while an operation is in flight (`FI_CONTEXT2`), followed by the operation's name.
#[repr(C)]
pub(crate) struct OperationContext {
    scratch: UnsafeCell<ffi::fi_context2>,
    /// Set once.
    name: OperationName,
}

// SAFETY: only the library uses the scratch memory, and the name never changes.
unsafe impl Send for OperationContext {}
// SAFETY: as above.
unsafe impl Sync for OperationContext {}

impl OperationContext {
    pub(crate) fn new(kind: PostedKind, index: u32) -> Self {
        let internal = [std::ptr::null_mut(); 8];
        Self {
            scratch: UnsafeCell::new(ffi::fi_context2 { internal }),
            name: OperationName { kind, index },
        }
    }

    /// Returns the pointer for the library.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

impl OperationName {
    /// Returns the name behind a pointer that the library returned, or `None` for null.
    ///
    /// # Safety
    /// The pointer is null, or one of [`ContextMemory::as_ptr`] whose memory still exists.
    #[inline]
    pub(crate) unsafe fn of(pointer: *mut c_void) -> Option<Self> {
        // SAFETY: the caller's condition.
        let memory = unsafe { pointer.cast::<OperationContext>().as_ref() }?;
        Some(memory.name)
    }
}
