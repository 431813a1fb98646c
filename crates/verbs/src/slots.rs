//! Registered memory that messages are sent from and received into.

#![allow(unsafe_code)] // makes slices of parts of buffers

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::nic::{Nic, NicBuffer, SharedQueue};

/// Slots that messages are sent from. A slot is taken, filled, and given back once its message is
/// acknowledged.
pub(crate) struct SendSlots {
    /// The registered memory of all slots.
    buffer: NicBuffer,
    bytes: usize,
    /// Numbers of the free slots.
    free: Mutex<Vec<u32>>,
    /// The length of `free`, to be read without the lock.
    free_count: AtomicU32,
    /// The number of slots.
    count: u32,
}

/// A slot that was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SendSlot(pub(crate) u32);

impl SendSlots {
    pub(crate) fn new(nic: &Arc<Nic>, count: u32, bytes: usize) -> io::Result<Self> {
        Ok(Self {
            buffer: NicBuffer::new(nic, count as usize * bytes)?,
            bytes,
            free: Mutex::new((0..count).rev().collect()),
            free_count: AtomicU32::new(count),
            count,
        })
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<SendSlot> {
        let mut free = self.free.lock();
        let slot = free.pop()?;
        self.free_count.store(free.len() as u32, Relaxed);
        Some(SendSlot(slot))
    }

    pub(crate) fn any_free(&self) -> bool {
        !self.free.lock().is_empty()
    }

    /// Returns whether more than half of the slots are free.
    #[inline]
    pub(crate) fn is_mostly_free(&self) -> bool {
        self.free_count.load(Relaxed) > self.count / 2
    }

    #[inline]
    pub(crate) fn give_back(&self, slot: SendSlot) {
        let mut free = self.free.lock();
        free.push(slot.0);
        self.free_count.store(free.len() as u32, Relaxed);
    }

    /// The memory of a slot that the NIC does not hold.
    pub(crate) fn bytes<'a>(&'a self, slot: &'a mut SendSlot) -> &'a mut [u8] {
        let at = self.address(slot);
        // SAFETY: the range is within the buffer, initialized by the kernel, and aligned for bytes.
        // The slot is borrowed mutably, and no other `SendSlot` names it.
        unsafe { std::slice::from_raw_parts_mut(at, self.bytes) }
    }

    pub(crate) fn address(&self, slot: &SendSlot) -> *mut u8 {
        self.buffer.at(slot.0 as usize * self.bytes, self.bytes)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.buffer.lkey()
    }
}

/// Slots that messages are received into. The NIC holds each one except while its message is read.
pub(crate) struct ReceiveSlots {
    /// The queue that the slots are posted to.
    queue: Arc<SharedQueue>,
    /// Registered memory: one chunk for each peer that has connected.
    chunks: Box<[OnceLock<NicBuffer>]>,
    /// The number of slots in a chunk.
    in_chunk: u32,
    bytes: usize,
    /// The number of chunks made so far.
    grown: Mutex<u32>,
    /// The NIC that registers the chunks.
    nic: Arc<Nic>,
}

/// A slot that holds a received message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceiveSlot(pub(crate) u32);

impl ReceiveSlots {
    /// Prepares room for `chunks` times `in_chunk` slots. No chunk is made yet.
    pub(crate) fn new(
        nic: &Arc<Nic>,
        queue: Arc<SharedQueue>,
        chunks: u32,
        in_chunk: u32,
        bytes: usize,
    ) -> Self {
        Self {
            queue,
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            in_chunk,
            bytes,
            grown: Mutex::new(0),
            nic: Arc::clone(nic),
        }
    }

    /// Makes one more chunk and gives its slots to the NIC. Does nothing once all chunks are made.
    pub(crate) fn grow(&self) -> io::Result<()> {
        let mut grown = self.grown.lock();
        let Some(chunk) = self.chunks.get(*grown as usize) else {
            return Ok(());
        };
        let buffer = NicBuffer::new(&self.nic, self.in_chunk as usize * self.bytes)?;
        let _ = chunk.set(buffer);
        let first = *grown * self.in_chunk;
        *grown += 1;
        for slot in first..first + self.in_chunk {
            self.give_to_nic(ReceiveSlot(slot))?;
        }
        Ok(())
    }

    /// Gives a slot back to the NIC after its message was read.
    pub(crate) fn give_back(&self, slot: ReceiveSlot) {
        if let Err(cause) = self.give_to_nic(slot) {
            tracing::error!(%cause, "a receive slot was lost");
        }
    }

    fn give_to_nic(&self, slot: ReceiveSlot) -> io::Result<()> {
        let Some((buffer, offset)) = self.part(&slot) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let at = buffer.at(offset, self.bytes);
        // SAFETY: 1. The chunk is registered as long as the slots live. 2. The slot is moved to the
        // NIC, and comes back with the completion that names it.
        unsafe { (self.queue).post(slot.0.into(), at, self.bytes as u32, buffer.lkey()) }
    }

    /// The first `len` bytes of a slot.
    pub(crate) fn bytes(&self, slot: &ReceiveSlot, len: usize) -> &[u8] {
        let Some((buffer, offset)) = self.part(slot) else {
            return &[];
        };
        let len = len.min(self.bytes);
        // SAFETY: the range is within the buffer and initialized by the kernel. The NIC gave the
        // slot back, and nobody writes to it while it is borrowed.
        unsafe { std::slice::from_raw_parts(buffer.at(offset, len), len) }
    }

    fn part(&self, slot: &ReceiveSlot) -> Option<(&NicBuffer, usize)> {
        let chunk = self.chunks.get((slot.0 / self.in_chunk) as usize)?.get()?;
        Some((chunk, (slot.0 % self.in_chunk) as usize * self.bytes))
    }
}
