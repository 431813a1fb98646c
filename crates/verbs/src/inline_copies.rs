//! InlineCopies of what the NIC takes along with a work request. Their source is the caller's again as soon as
//! the call that posts it returns; but a request may wait for its turn, and is posted again when its
//! connection breaks.

#![allow(unsafe_code)] // reads the caller's memory

use std::ptr;

use parking_lot::Mutex;

/// A copy that is one write's.
#[derive(Debug)]
pub(crate) struct InlineCopy(Box<[u8; InlineCopies::BYTES]>);

/// InlineCopies that are nobody's now, so that a write need not allocate one.
pub(crate) struct InlineCopies {
    spare: Mutex<Vec<InlineCopy>>,
    /// Most that are kept.
    most: usize,
}

impl InlineCopies {
    /// Most bytes of one, and so most that a NIC is asked to take along.
    pub(crate) const BYTES: usize = 220;

    /// Of which as many are kept as work requests may be with the NIC.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            spare: Mutex::default(),
            most: most as usize,
        }
    }

    /// A copy of what is at an address: at most [`BYTES`](Self::BYTES) of it.
    ///
    /// # Safety
    /// 1. `addr` is readable for `len` bytes.
    /// 2. Nobody writes to them meanwhile.
    pub(crate) unsafe fn of(&self, addr: u64, len: u32) -> InlineCopy {
        let spare = self.spare.lock().pop();
        let mut copied = spare.unwrap_or_else(|| InlineCopy(Box::new([0; Self::BYTES])));
        let from = ptr::with_exposed_provenance::<u8>(addr as usize);
        let len = (len as usize).min(Self::BYTES);
        // SAFETY: 1., 2.; the copy has room for as many, and is memory of its own.
        unsafe { ptr::copy_nonoverlapping(from, copied.0.as_mut_ptr(), len) };
        copied
    }

    /// The write is over.
    pub(crate) fn give_back(&self, copied: InlineCopy) {
        let mut spare = self.spare.lock();
        if spare.len() < self.most {
            spare.push(copied);
        }
    }
}

impl InlineCopy {
    /// Where it is, as long as it is not given back.
    pub(crate) fn address(&self) -> *const u8 {
        self.0.as_ptr()
    }
}
