//! A copy of read-only memory, made at registration.
//!
//! The kernel pins pages for writing only, and refuses a read-only mapping. A NIC would register
//! such memory for reading. So a copy of the same number of pages is pinned instead. The copy does
//! not follow later writes to the same pages through another mapping.

#![allow(unsafe_code)] // maps memory, and copies from addresses that may not be mapped

use std::{ptr, ptr::NonNull, sync::OnceLock};

use hydrant_conduit::memory::PAGE;
use hydrant_smp::upon::SelfCopy;
use parking_lot::Mutex;
use rustix::mm::{self, MapFlags, ProtFlags};

use super::ring::Unpinnable;
/// A private copy of some pages.
pub(crate) struct Snapshot {
    base: NonNull<u8>,
    len: usize,
    /// The offset of the memory in its first page.
    lead: usize,
}

// SAFETY: plain memory that only the snapshot owns.
unsafe impl Send for Snapshot {}

impl Snapshot {
    /// Copies memory. Returns an error if the memory is not mapped.
    pub(crate) fn take(addr: usize, len: usize) -> Result<Self, Unpinnable> {
        let lead = addr % PAGE;
        let mapped = (lead.checked_add(len))
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .ok_or(Unpinnable::Address)?;
        // SAFETY: a mapping at an address that the kernel chooses touches no other memory.
        let base = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = base
            .ok()
            .and_then(|base| NonNull::new(base.cast::<u8>()))
            .ok_or(Unpinnable::Memory)?;
        let snapshot = Self {
            base,
            len: mapped,
            lead,
        };
        // SAFETY: `lead` is within the mapping just made.
        let start = unsafe { base.as_ptr().add(lead) };
        // SAFETY: `lead + len` is within the mapping, which is zeroed and not shared.
        let copy = unsafe { std::slice::from_raw_parts_mut(start, len) };
        copy_checked(addr as u64, copy)?;
        Ok(snapshot)
    }

    /// Returns the address of the copy.
    pub(crate) fn addr(&self) -> usize {
        self.base.as_ptr().addr() + self.lead
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: `take` mapped this memory. The kernel holds pages that are still pinned.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Copies memory at an address. Returns an error if the memory is not mapped.
fn copy_checked(addr: u64, copy: &mut [u8]) -> Result<(), Unpinnable> {
    static PIPE: OnceLock<Option<Mutex<SelfCopy>>> = OnceLock::new();
    let pipe = PIPE.get_or_init(|| SelfCopy::new().ok().map(Mutex::new));
    let Some(pipe) = pipe else {
        return Err(Unpinnable::Other(libc::EMFILE));
    };
    let pipe = pipe.lock();
    pipe.get(addr, copy).map_err(|_| Unpinnable::Address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_copied_and_unmapped_memory_is_refused() {
        static CONSTANT: [u8; 9001] = [0x3b; 9001];
        let snapshot = Snapshot::take(CONSTANT.as_ptr().addr(), CONSTANT.len()).unwrap();
        assert_eq!(snapshot.addr() % PAGE, CONSTANT.as_ptr().addr() % PAGE);
        // SAFETY: `lead` is within the snapshot's mapping.
        let start = unsafe { snapshot.base.as_ptr().add(snapshot.lead) };
        // SAFETY: the length of the constant lies in the snapshot's mapping.
        let copy = unsafe { std::slice::from_raw_parts(start, CONSTANT.len()) };
        assert_eq!(copy, CONSTANT);
        for nowhere in [8, 1 << 62, usize::MAX - 4] {
            assert!(Snapshot::take(nowhere, 64).is_err());
        }
    }
}
