//! The word of an area that tells if a thread of one side has died.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire},
};

/// Bits of a robust futex (`linux/futex.h`).
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const HOLDER: u32 = 0x3fff_ffff;

/// The word of one side, and its place in the list of the thread that holds it.
#[repr(C, align(64))]
pub(crate) struct AliveWord {
    /// The address of the next link of the list.
    pub(crate) next: AtomicU64,
    /// The id of the thread that holds the word; 0 if none does.
    pub(crate) holder: AtomicU32,
}

/// The distance from a link to its word.
pub(crate) const OFFSET: isize = std::mem::offset_of!(AliveWord, holder) as isize;

impl AliveWord {
    /// Returns true once the holder of the word has died.
    pub(crate) fn has_died(&self) -> bool {
        self.holder.load(Acquire) & OWNER_DIED != 0
    }

    /// Prepares to wait for the mark. Returns the value that the word has until then.
    pub(crate) fn prepare(&self) -> u32 {
        let mut value = self.holder.load(Acquire);
        // Without the bit, the kernel wakes nobody.
        while value & HOLDER != 0 && value & WAITERS == 0 {
            match self
                .holder
                .compare_exchange(value, value | WAITERS, AcqRel, Acquire)
            {
                Ok(_) => value |= WAITERS,
                Err(other) => value = other,
            }
        }
        value
    }
}
