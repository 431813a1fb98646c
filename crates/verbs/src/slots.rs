//! Registered memory for messages: what they are sent from, and received into.

#![allow(unsafe_code)] // lends parts of buffers as slices

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::nic::{Nic, NicBuffer, SharedQueue};

/// Slots that messages are sent from. One is taken, filled, and free again when its message was
/// acknowledged.
pub(crate) struct SendSlots {
    /// The registered memory of all.
    buffer: NicBuffer,
    bytes: usize,
    /// Numbers of those that are free.
    free: Mutex<Vec<u32>>,
    /// How many are free, and how many there are.
    free_count: AtomicU32,
    /// How many there are.
    count: u32,
}

/// A slot that is somebody's.
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

    /// Whether more than half of them are free.
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

    /// The memory of a slot that is not with the NIC.
    pub(crate) fn bytes<'a>(&'a self, slot: &'a mut SendSlot) -> &'a mut [u8] {
        let at = self.address(slot);
        // SAFETY: within the buffer, initialized by the kernel, aligned for bytes; the slot is
        // borrowed mutably, and there is one for each part.
        unsafe { std::slice::from_raw_parts_mut(at, self.bytes) }
    }

    pub(crate) fn address(&self, slot: &SendSlot) -> *mut u8 {
        self.buffer.at(slot.0 as usize * self.bytes, self.bytes)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.buffer.lkey()
    }
}

/// Slots that messages are received into, with the NIC but while one is read.
pub(crate) struct ReceiveSlots {
    /// What they are posted to.
    queue: Arc<SharedQueue>,
    /// Registered memory, a chunk for each peer that has connected.
    chunks: Box<[OnceLock<NicBuffer>]>,
    /// Slots of a chunk.
    in_chunk: u32,
    bytes: usize,
    /// Chunks that are there.
    grown: Mutex<u32>,
    /// What chunks are registered with.
    nic: Arc<Nic>,
}

/// A slot that a message was received into.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceiveSlot(pub(crate) u32);

impl ReceiveSlots {
    /// Room for `chunks` times `in_chunk` slots; none is there yet.
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

    /// A chunk more, given to the NIC. When all are there it does nothing.
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

    /// A slot whose message was read.
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
        // SAFETY: registered as long as the slots live; the slot is moved to the NIC, and comes
        // back with the completion that names it.
        unsafe { (self.queue).post(slot.0.into(), at, self.bytes as u32, buffer.lkey()) }
    }

    /// What a slot holds.
    pub(crate) fn bytes(&self, slot: &ReceiveSlot, len: usize) -> &[u8] {
        let Some((buffer, offset)) = self.part(slot) else {
            return &[];
        };
        let len = len.min(self.bytes);
        // SAFETY: within the buffer, initialized by the kernel; the NIC gave it back, and nobody
        // writes to it as long as the slot, which is borrowed, is not given to the NIC.
        unsafe { std::slice::from_raw_parts(buffer.at(offset, len), len) }
    }

    fn part(&self, slot: &ReceiveSlot) -> Option<(&NicBuffer, usize)> {
        let chunk = self.chunks.get((slot.0 / self.in_chunk) as usize)?.get()?;
        Some((chunk, (slot.0 % self.in_chunk) as usize * self.bytes))
    }
}
