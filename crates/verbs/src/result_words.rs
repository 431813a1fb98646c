//! Registered words into which the NIC puts what atomic operations found.

#![allow(unsafe_code)] // reads what the NIC wrote

use std::{io, num::NonZeroU16, sync::Arc};

use crate::nic::{Nic, NicBuffer};
use parking_lot::{Mutex, MutexGuard};

/// ResultWords for as many atomic operations as may be with the NIC at once.
pub(crate) struct ResultWords {
    /// The registered memory of all.
    buffer: NicBuffer,
    /// Numbers of those that are free.
    free: Mutex<Vec<NonZeroU16>>,
}

/// A word that is one operation's: its number, from one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResultWord(NonZeroU16);

const BYTES: usize = size_of::<u64>();

impl ResultWords {
    const COUNT: u16 = 512;
    /// What they take of memory.
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

    /// What the NIC put there, for an operation that it said was done.
    pub(crate) fn value(&self, word: &ResultWord) -> u64 {
        let at = self.address(word).cast::<u64>();
        // SAFETY: within the buffer, initialized by the kernel, and aligned as the buffer begins
        // with a page; the NIC is done with it, and it is nobody else's.
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
