//! The buffers in which messages arrive.

#![allow(unsafe_code)] // shares memory with the library

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use hydrant_conduit::Error;
use parking_lot::Mutex;

use super::memory::BufferChunk;
use crate::{
    context::{OperationContext, PostedKind},
    fabric::{Fabric, PostResult},
};

/// Buffers of a chunk.
const CHUNK: usize = 16;
/// Most chunks.
const CHUNKS: usize = 4096;

/// The least receive buffers of a rank, and those for each connected peer.
const RECEIVES: usize = 64;
pub(crate) const RECEIVES_PER_PEER: usize = 4;

/// Returns the number of receive buffers for this many connected peers.
pub(crate) fn receive_buffers(peers: usize) -> usize {
    RECEIVES + RECEIVES_PER_PEER * peers
}

struct ArrivalChunk {
    contexts: Box<[OperationContext]>,
    buffers: BufferChunk,
}

/// The buffers in which messages arrive. Each is with the library, or held as a [`ReceiveSlot`].
pub(crate) struct ArrivalSlots {
    fabric: Arc<Fabric>,
    chunks: Box<[OnceLock<ArrivalChunk>]>,
    /// The number of chunks in use.
    used: AtomicUsize,
    /// Bytes of a buffer.
    stride: usize,
    /// How many buffers are with the library.
    posted: AtomicU32,
    /// Buffers that the library did not take; the next poll tries again.
    refused: Mutex<Vec<u32>>,
}

/// A buffer with a message, owned by this rank.
#[derive(Debug)]
pub(crate) struct ArrivalSlot(u32);

impl ArrivalSlots {
    pub(crate) fn new(fabric: &Arc<Fabric>, stride: usize) -> Self {
        Self {
            fabric: Arc::clone(fabric),
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            stride,
            posted: AtomicU32::new(0),
            refused: Mutex::default(),
        }
    }

    /// Makes room for `buffers` buffers in all, as far as chunks are left.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn grow_to(&self, buffers: usize) -> Result<(), Error> {
        // The lock keeps two threads from making the same chunk.
        let refused = self.refused.lock();
        let wanted = buffers.div_ceil(CHUNK).min(CHUNKS);
        let mut fresh = Vec::new();
        while self.used.load(SeqCst) < wanted {
            let at = self.used.load(SeqCst);
            let buffers = BufferChunk::new(&self.fabric, CHUNK, self.stride)?;
            let index = |place: usize| (at * CHUNK + place) as u32;
            let contexts = (0..CHUNK)
                .map(|place| OperationContext::new(PostedKind::Receive, index(place)))
                .collect();
            let _ = self.chunks[at].set(ArrivalChunk { contexts, buffers });
            self.used.store(at + 1, SeqCst);
            fresh.extend((0..CHUNK).map(index));
        }
        drop(refused);
        for index in fresh {
            self.give_back(ArrivalSlot(index));
        }
        Ok(())
    }

    /// Ends the registrations of the buffers.
    pub(crate) fn deregister(&mut self) {
        let made = self.chunks.iter_mut().filter_map(OnceLock::get_mut);
        made.for_each(|chunk| chunk.buffers.deregister());
    }

    fn chunk(&self, index: u32) -> (&ArrivalChunk, usize) {
        let chunk = self.chunks[index as usize / CHUNK].get();
        (chunk.expect("the chunk of a slot"), index as usize % CHUNK)
    }

    /// Takes the buffer of a completed receive.
    ///
    /// # Safety
    /// The library completed the receive with this index, and no other slot was made of that completion.
    pub(crate) unsafe fn take(&self, index: u32) -> ArrivalSlot {
        self.posted.fetch_sub(1, Relaxed);
        ArrivalSlot(index)
    }

    /// Returns the message in a buffer.
    pub(crate) fn bytes<'a>(&'a self, slot: &'a ArrivalSlot, len: usize) -> &'a [u8] {
        let (chunk, place) = self.chunk(slot.0);
        // SAFETY: the owner of the slot lends it meanwhile, so the buffer is not posted.
        unsafe { chunk.buffers.bytes(place, len) }
    }

    /// Posts a buffer again.
    pub(crate) fn give_back(&self, slot: ArrivalSlot) {
        let (chunk, place) = self.chunk(slot.0);
        let memory = chunk.buffers.memory(place, self.stride);
        let context = chunk.contexts[place].as_ptr();
        self.posted.fetch_add(1, Relaxed);
        // SAFETY: 1. and 2. The slot owned the buffer and its context, and is gone.
        let result = unsafe { self.fabric.receive(memory, context) };
        if result != PostResult::Taken {
            self.posted.fetch_sub(1, Relaxed);
            if let PostResult::Refused(code) = result {
                let cause = self.fabric.error_text(code);
                tracing::error!(%cause, "the provider refused a receive buffer");
            }
            self.refused.lock().push(slot.0);
        }
    }

    /// Posts the buffers that the library did not take before.
    pub(crate) fn retry(&self) {
        let refused = match self.refused.try_lock() {
            Some(mut refused) if !refused.is_empty() => std::mem::take(&mut *refused),
            _ => return,
        };
        for index in refused {
            self.give_back(ArrivalSlot(index));
        }
    }

    /// Returns true if few buffers are with the library, so that messages should not stay in theirs.
    pub(crate) fn are_short(&self) -> bool {
        let all = self.used.load(Relaxed) * CHUNK;
        (self.posted.load(Relaxed) as usize) < all / 2
    }
}
