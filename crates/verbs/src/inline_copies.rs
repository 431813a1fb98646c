//! Copies of inline data. The caller may reuse the source as soon as the call that posts the
//! request returns. But a request may wait in the queue, or be posted again after its connection
//! broke.

#![allow(unsafe_code)] // reads memory of the caller

use std::ptr;

use parking_lot::Mutex;

/// The copy of the data of one write.
#[derive(Debug)]
pub(crate) struct InlineCopy(Box<[u8; InlineCopies::BYTES]>);

/// Spare copies, so that a write need not allocate one.
pub(crate) struct InlineCopies {
    spare: Mutex<Vec<InlineCopy>>,
    /// Most spare copies that are kept.
    most: usize,
}

impl InlineCopies {
    /// Most bytes of a copy, and so of inline data.
    pub(crate) const BYTES: usize = 220;

    /// Keeps at most `most` spare copies.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            spare: Mutex::default(),
            most: most as usize,
        }
    }

    /// Copies `len` bytes at an address, at most [`BYTES`](Self::BYTES).
    ///
    /// # Safety
    /// 1. `addr` is readable for `len` bytes.
    /// 2. Nobody writes to them meanwhile.
    pub(crate) unsafe fn copy(&self, addr: u64, len: u32) -> InlineCopy {
        let spare = self.spare.lock().pop();
        let mut copied = spare.unwrap_or_else(|| InlineCopy(Box::new([0; Self::BYTES])));
        let from = ptr::with_exposed_provenance::<u8>(addr as usize);
        let len = (len as usize).min(Self::BYTES);
        // SAFETY: the source is readable and unchanged by the caller's conditions 1 and 2. The copy
        // has room for `len` bytes and does not overlap the source.
        unsafe { ptr::copy_nonoverlapping(from, copied.0.as_mut_ptr(), len) };
        copied
    }

    /// Keeps the copy of a completed write as a spare.
    pub(crate) fn give_back(&self, copied: InlineCopy) {
        let mut spare = self.spare.lock();
        if spare.len() < self.most {
            spare.push(copied);
        }
    }
}

impl InlineCopy {
    /// The address of the data, valid until the copy is given back.
    pub(crate) fn address(&self) -> *const u8 {
        self.0.as_ptr()
    }
}
