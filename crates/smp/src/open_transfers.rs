//! Accesses by message that have not ended.

#![allow(unsafe_code)] // addresses whose validity the conduit's caller guarantees

use std::{
    collections::HashMap,
    sync::{atomic::AtomicU64, atomic::Ordering::Relaxed},
};

use hydrant_conduit::{Error, Rank, Remote};
use parking_lot::{Mutex, MutexGuard};

use crate::foreign::CopyDirection;

/// Accesses by message that have not ended.
#[derive(Default)]
pub(crate) struct Transfers {
    /// The transfers by ticket.
    pub(crate) open: Mutex<HashMap<u64, MessageTransfer>>,
    /// The number of transfers whose end was not reported yet.
    pub(crate) count: AtomicU64,
    /// The next ticket.
    pub(crate) next: AtomicU64,
}

pub(crate) struct MessageTransfer {
    pub(crate) peer: Rank,
    pub(crate) way: CopyDirection,
    pub(crate) local: LocalAddress,
    pub(crate) remote: Remote,
    pub(crate) len: usize,
    /// Bytes requested so far, and answered so far.
    pub(crate) asked: usize,
    pub(crate) answered: usize,
    /// True after every byte has left the local memory and the layer above was told.
    pub(crate) left: bool,
    /// The error of a failed piece. No more pieces are requested then.
    pub(crate) failed: Option<Error>,
}

/// Local memory that the caller guarantees until the transfer is complete.
pub(crate) struct LocalAddress(pub(crate) *mut u8);
// SAFETY: by the conduit's contract the memory is valid until the transfer is complete, on
// whichever thread.
unsafe impl Send for LocalAddress {}

impl Transfers {
    /// Returns true if there are transfers. Costs a load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    pub(crate) fn open(&self) -> MutexGuard<'_, HashMap<u64, MessageTransfer>> {
        self.open.lock()
    }
}
