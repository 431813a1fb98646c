//! Registered words into which the NIC writes the old values of atomic operations.

#![allow(unsafe_code)] // reads memory that the NIC writes

use std::{io, num::NonZeroU16, sync::Arc};

use crate::nic::{Nic, NicBuffer};
use parking_lot::{Mutex, MutexGuard};

/// A word for each atomic operation that may be with the NIC.
pub(crate) struct ResultWords {
    /// The registered memory of all words.
    buffer: NicBuffer,
    /// Numbers of the free words.
    free: Mutex<Vec<NonZeroU16>>,
}

/// A word that one operation owns. Its number counts from one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResultWord(NonZeroU16);

const BYTES: usize = size_of::<u64>();

impl ResultWords {
    const COUNT: u16 = 512;
    /// Bytes of all words.
    pub(crate) const MEMORY: usize = Self::COUNT as usize * BYTES;

    pub(crate) fn new(nic: &Arc<Nic>) -> io::Result<Self> {
        Ok(Self {
            buffer: NicBuffer::new(nic, Self::MEMORY)?,
            free: Mutex::new(
                (1..=Self::COUNT)
                    .rev()
                    .filter_map(NonZeroU16::new)
                    .collect(),
            ),
        })
    }

    pub(crate) fn take(&self) -> Option<ResultWord> {
        self.free().pop().map(ResultWord)
    }

    pub(crate) fn give_back(&self, word: ResultWord) {
        self.free().push(word.0);
    }

    /// Returns the value that the NIC wrote for a completed operation.
    pub(crate) fn value(&self, word: &ResultWord) -> u64 {
        let at = self.address(word).cast::<u64>();
        // SAFETY: the word is within the buffer, which the kernel initialized, and aligned because
        // the buffer begins at a page. The NIC is done with it, and nobody else owns it.
        unsafe { at.read_volatile() }
    }

    pub(crate) fn address(&self, word: &ResultWord) -> *mut u8 {
        self.buffer.at(usize::from(word.0.get() - 1) * BYTES, BYTES)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.buffer.lkey()
    }

    fn free(&self) -> MutexGuard<'_, Vec<NonZeroU16>> {
        self.free.lock()
    }
}
