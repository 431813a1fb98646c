//! The records of writes and reads, from the call to their end.

#![allow(unsafe_code)] // shares memory with the library

use std::{cell::UnsafeCell, ffi::c_void, ptr, sync::OnceLock};

use hydrant_conduit::{FreePlaces, Key, Ticket};
use parking_lot::{Mutex, MutexGuard};

use crate::context::{OperationContext, PostedKind};

/// Most bytes of a write whose data is copied when it is posted.
pub(crate) const INLINE: usize = 256;

/// Most bytes of an access that are with the provider at once. A connection is ordered, so nothing else arrives
/// meanwhile. A slow network still carries a piece in less time than ranks may be silent.
const PIECE: usize = 16 << 20;

/// Records of a chunk.
const CHUNK: usize = 64;
/// Most chunks.
const CHUNKS: usize = 1 << 14;

/// The direction of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessDirection {
    /// Writes to the peer's memory.
    Write,
    /// Reads from it.
    Read,
}

/// An access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRecord {
    pub(crate) peer: u32,
    pub(crate) ticket: Ticket,
    pub(crate) direction: AccessDirection,
    /// The local memory. For a write whose data was copied, the copy.
    pub(crate) local: usize,
    /// The bytes that are not accessed yet.
    pub(crate) len: usize,
    /// The descriptor of the local memory's registration, as an address.
    pub(crate) descriptor: usize,
    /// The remote memory, as the layer above names it.
    pub(crate) key: Key,
    pub(crate) addr: u64,
    /// The number of a write among those posted to the peer; 0 for a read, or before it is posted.
    pub(crate) number: u64,
    /// How often it was posted again after a connection broke.
    pub(crate) retries: u32,
}

impl AccessRecord {
    const NONE: Self = Self {
        peer: u32::MAX,
        ticket: Ticket(0),
        direction: AccessDirection::Read,
        local: 0,
        len: 0,
        descriptor: 0,
        key: Key(0),
        addr: 0,
        number: 0,
        retries: 0,
    };

    /// Returns the bytes that are posted at once.
    #[inline]
    pub(crate) fn piece(&self) -> usize {
        self.len.min(PIECE)
    }

    /// Returns the descriptor for the library.
    pub(crate) fn descriptor(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.descriptor)
    }
}

struct AccessEntry {
    context: OperationContext,
    record: Mutex<AccessRecord>,
    copy: UnsafeCell<[u8; INLINE]>,
}

// SAFETY: the copy is written by the thread that took the entry, before the library reads it.
unsafe impl Sync for AccessEntry {}
// SAFETY: as above.
unsafe impl Send for AccessEntry {}

/// The records of accesses, by index.
pub(crate) struct AccessPool {
    chunks: Box<[OnceLock<Box<[AccessEntry]>>]>,
    free: Mutex<FreePlaces>,
}

impl AccessPool {
    pub(crate) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(FreePlaces::new((CHUNK * CHUNKS) as u32)),
        }
    }

    /// Takes a free entry for an access.
    pub(crate) fn take(&self, record: AccessRecord) -> Option<u32> {
        let index = self.free.lock().take()?;
        let first = index / CHUNK as u32 * CHUNK as u32;
        self.chunks[index as usize / CHUNK].get_or_init(|| {
            let entry = |place: u32| AccessEntry {
                context: OperationContext::new(PostedKind::Access, first + place),
                record: Mutex::new(AccessRecord::NONE),
                copy: UnsafeCell::new([0; INLINE]),
            };
            (0..CHUNK as u32).map(entry).collect()
        });
        *self.record(index) = record;
        Some(index)
    }

    /// Copies the data of a short write into its entry, whose record then names the copy.
    ///
    /// # Safety
    /// 1. `len` bytes at `from` are readable, and at most [`INLINE`].
    /// 2. The caller just took the entry, and did not post it.
    pub(crate) unsafe fn copy_in(&self, index: u32, from: *const u8, len: usize) {
        let copy: *mut u8 = self.entry(index).copy.get().cast();
        // SAFETY: the caller's conditions 1 and 2: nobody else uses the copy.
        unsafe { ptr::copy_nonoverlapping(from, copy, len.min(INLINE)) };
        self.record(index).local = copy.expose_provenance();
    }

    fn entry(&self, index: u32) -> &AccessEntry {
        let chunk = self.chunks[index as usize / CHUNK].get();
        &chunk.expect("the chunk of an access")[index as usize % CHUNK]
    }

    /// Returns the record of an access.
    pub(crate) fn record(&self, index: u32) -> MutexGuard<'_, AccessRecord> {
        self.entry(index).record.lock()
    }

    /// Notes that a piece of an access has ended well. Returns true if that was the last.
    pub(crate) fn end_piece(&self, index: u32) -> bool {
        let mut record = self.record(index);
        let piece = record.piece();
        record.local += piece;
        record.addr += piece as u64;
        record.len -= piece;
        record.retries = 0;
        record.len == 0
    }

    /// Returns the context for the library.
    pub(crate) fn context(&self, index: u32) -> *mut c_void {
        self.entry(index).context.as_ptr()
    }

    /// Frees an entry whose access ended.
    pub(crate) fn give_back(&self, index: u32) {
        self.free.lock().give_back(index);
    }
}
