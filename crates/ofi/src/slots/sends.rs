//! The buffers that messages are sent from.
//!
//! A buffer is free again when the library is done with it and the peer has the message. Until then the message may
//! have to be sent again.

#![allow(unsafe_code)] // shares memory with the library

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicU8,
        Ordering::{AcqRel, Release},
    },
};

use hydrant_conduit::FreePlaces;
use parking_lot::Mutex;

use super::memory::BufferChunk;
use crate::{
    context::{OperationContext, PostedKind},
    fabric::{Fabric, PeerAddress, PostResult},
};

/// Buffers of a chunk.
const CHUNK: usize = 32;

/// Added to the number of a peer for messages that are counted apart.
pub(crate) const OUTSIDE: u32 = 1 << 31;

/// The library uses the buffer.
const IN_FLIGHT: u8 = 1;
/// A rank may have to send the message again.
const KEPT: u8 = 2;

struct StreamChunk {
    contexts: Box<[OperationContext]>,
    /// The bits above, of each buffer.
    states: Box<[AtomicU8]>,
    /// The peer to which each buffer is sent. Stored by its owner before the library gets the buffer.
    peers: Box<[std::sync::atomic::AtomicU32]>,
    buffers: BufferChunk,
}

/// The buffers that messages are sent from.
pub(crate) struct SendBuffers {
    fabric: Arc<Fabric>,
    /// The chunks, each made on first use.
    chunks: Box<[OnceLock<Option<StreamChunk>>]>,
    free: Mutex<FreePlaces>,
    stride: usize,
}

/// A buffer with a message that this rank keeps.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    index: u32,
    /// Bytes of the message.
    pub(crate) len: usize,
}

impl SendBuffers {
    pub(crate) fn new(fabric: &Arc<Fabric>, limit: usize, stride: usize) -> Self {
        let chunks = limit.div_ceil(CHUNK).max(1);
        Self {
            fabric: Arc::clone(fabric),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(FreePlaces::new((chunks * CHUNK) as u32)),
            stride,
        }
    }

    /// Ends the registrations of the buffers.
    pub(crate) fn deregister(&mut self) {
        let made = self.chunks.iter_mut().filter_map(OnceLock::get_mut);
        made.flatten().for_each(|chunk| chunk.buffers.deregister());
    }

    /// Takes a free buffer.
    pub(crate) fn take(&self) -> Option<SendBuffer> {
        let index = self.free.lock().take()?;
        let made = self.chunks[index as usize / CHUNK].get_or_init(|| self.make(index));
        if made.is_none() {
            self.free.lock().give_back(index);
            return None;
        }
        let (chunk, place) = self.chunk(index);
        chunk.states[place].store(KEPT, Release);
        Some(SendBuffer { index, len: 0 })
    }

    fn make(&self, index: u32) -> Option<StreamChunk> {
        let first = index / CHUNK as u32 * CHUNK as u32;
        let buffers = BufferChunk::new(&self.fabric, CHUNK, self.stride)
            .inspect_err(|cause| tracing::error!(%cause, "no buffers for messages"))
            .ok()?;
        Some(StreamChunk {
            contexts: (first..first + CHUNK as u32)
                .map(|index| OperationContext::new(PostedKind::Send, index))
                .collect(),
            states: (0..CHUNK).map(|_| AtomicU8::new(0)).collect(),
            peers: (0..CHUNK)
                .map(|_| std::sync::atomic::AtomicU32::new(0))
                .collect(),
            buffers,
        })
    }

    #[inline]
    fn chunk(&self, index: u32) -> (&StreamChunk, usize) {
        let chunk = self.chunks[index as usize / CHUNK].get();
        let chunk = chunk.and_then(Option::as_ref).expect("the chunk of a slot");
        (chunk, index as usize % CHUNK)
    }

    /// Returns the bytes of a buffer, to write a message. The library does not have it.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, slot: &'a mut SendBuffer) -> &'a mut [u8] {
        let (chunk, place) = self.chunk(slot.index);
        // SAFETY: the owner of the slot lends it, and the callers write only while the buffer is not in flight.
        unsafe { chunk.buffers.bytes_mut(place) }
    }

    /// Sends the message in a buffer to the peer with this rank and address. Returns true in the second place if a
    /// completion will come.
    #[inline]
    pub(crate) fn post(
        &self,
        slot: &SendBuffer,
        peer: u32,
        address: PeerAddress,
        inject: usize,
    ) -> (PostResult, bool) {
        let (chunk, place) = self.chunk(slot.index);
        if slot.len <= inject {
            // SAFETY: the slot is kept, and only its owner writes to it.
            let bytes = unsafe { chunk.buffers.bytes(place, slot.len) };
            return (self.fabric.inject(address, bytes), false);
        }
        chunk.peers[place].store(peer, Release);
        let memory = chunk.buffers.memory(place, slot.len);
        chunk.states[place].fetch_or(IN_FLIGHT, AcqRel);
        let context = chunk.contexts[place].as_ptr();
        // SAFETY: 1. The buffer does not change while it is in flight. 2. The context is the slot's own, and a slot is
        // posted again only after its completion.
        let result = unsafe { self.fabric.send(address, memory, context) };
        if result != PostResult::Taken {
            chunk.states[place].fetch_and(!IN_FLIGHT, AcqRel);
        }
        (result, result == PostResult::Taken)
    }

    /// Notes that the library is done with a buffer. Returns the rank that it was sent to.
    #[inline]
    pub(crate) fn complete(&self, index: u32) -> u32 {
        let (chunk, place) = self.chunk(index);
        let peer = chunk.peers[place].load(std::sync::atomic::Ordering::Acquire);
        if chunk.states[place].fetch_and(!IN_FLIGHT, AcqRel) == IN_FLIGHT {
            self.free.lock().give_back(index);
        }
        peer
    }

    /// Gives up a message: the peer has it, or is gone.
    #[inline]
    pub(crate) fn release(&self, slot: SendBuffer) {
        let (chunk, place) = self.chunk(slot.index);
        if chunk.states[place].fetch_and(!KEPT, AcqRel) == KEPT {
            self.free.lock().give_back(slot.index);
        }
    }
}
