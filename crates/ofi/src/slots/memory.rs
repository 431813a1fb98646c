//! A chunk of buffers of one size.

#![allow(unsafe_code)] // shares memory with the library

use std::{cell::UnsafeCell, ffi::c_void, ptr};

use hydrant_conduit::{Error, Permission};

use crate::fabric::{Fabric, FabricRegion, LocalBuffer, RegionRequest};

/// A chunk of buffers. Each buffer belongs to one thread, or to the library.
pub(super) struct BufferChunk {
    words: Box<[UnsafeCell<u64>]>,
    /// Bytes of a buffer, a multiple of 8.
    stride: usize,
    /// The registration, where the provider wants one.
    region: Option<FabricRegion>,
}

// SAFETY: a buffer is accessed only by the thread that owns its slot, or by the library.
unsafe impl Send for BufferChunk {}
// SAFETY: as above.
unsafe impl Sync for BufferChunk {}

impl BufferChunk {
    /// Makes `count` buffers of `stride` bytes.
    ///
    /// # Errors
    /// [`Error::System`] if the provider cannot register them.
    pub(super) fn new(fabric: &Fabric, count: usize, stride: usize) -> Result<Self, Error> {
        let stride = stride.next_multiple_of(8);
        let words: Box<[UnsafeCell<u64>]> = (0..count * stride / 8)
            .map(|_| UnsafeCell::new(0))
            .collect();
        let mut chunk = Self {
            words,
            stride,
            region: None,
        };
        if fabric.registers_locally() {
            let request = RegionRequest {
                addr: chunk.at(0),
                len: count * stride,
                permission: Permission::ReadWrite,
                key: crate::session::fresh(),
            };
            // SAFETY: nobody is told the key, and the memory lives as long as the region.
            let region = unsafe { fabric.register(request) };
            let region = region.map_err(|code| {
                fabric.refusal("registering the buffers of messages", code as isize)
            })?;
            chunk.region = Some(region);
        }
        Ok(chunk)
    }

    /// Ends the registration.
    pub(super) fn deregister(&mut self) {
        self.region = None;
    }

    fn at(&self, index: usize) -> *mut u8 {
        let word = index * self.stride / 8;
        self.words[word].get().cast()
    }

    /// Returns the buffer's memory, for the library.
    pub(super) fn memory(&self, index: usize, len: usize) -> LocalBuffer {
        let descriptor = self.region.as_ref().map(FabricRegion::descriptor);
        LocalBuffer {
            addr: self.at(index),
            len: len.min(self.stride),
            descriptor: descriptor.unwrap_or(ptr::null_mut::<c_void>()),
        }
    }

    /// Returns the bytes of a buffer.
    ///
    /// # Safety
    /// Until the bytes are not used any more, nobody else writes to the buffer.
    pub(super) unsafe fn bytes(&self, index: usize, len: usize) -> &[u8] {
        let len = len.min(self.stride);
        // SAFETY: the chunk has that many bytes at this index. The caller's condition.
        unsafe { std::slice::from_raw_parts(self.at(index), len) }
    }

    /// Returns the bytes of a buffer, to be changed.
    ///
    /// # Safety
    /// Until the bytes are not used any more, nobody else uses the buffer.
    #[allow(clippy::mut_from_ref)] // the buffers of a chunk have different owners
    pub(super) unsafe fn bytes_mut(&self, index: usize) -> &mut [u8] {
        // SAFETY: the chunk has that many bytes at this index. The caller's condition.
        unsafe { std::slice::from_raw_parts_mut(self.at(index), self.stride) }
    }
}
