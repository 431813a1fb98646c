//! Memory that can only be read, as it was when it was registered.
//!
//! The kernel's interface pins pages for writing and refuses a mapping that forbids it, where a
//! NIC would take it for reading. A copy of it is pinned in its place, of as many pages. It does
//! not follow what is written to the same pages through another mapping.

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
    /// Where in the first page the memory begins.
    lead: usize,
}

// SAFETY: plain memory that nothing but this owns.
unsafe impl Send for Snapshot {}

impl Snapshot {
    /// Copies memory, which need not be mapped: that is an error.
    pub(crate) fn take(addr: usize, len: usize) -> Result<Self, Unpinnable> {
        let lead = addr % PAGE;
        let mapped = (lead.checked_add(len))
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .ok_or(Unpinnable::Address)?;
        // SAFETY: a mapping where the kernel likes touches no other memory.
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
        // SAFETY: lead + len are within the mapping just made, which is zeroed and not shared.
        let copy = unsafe { std::slice::from_raw_parts_mut(base.as_ptr().add(lead), len) };
        copy_checked(addr as u64, copy)?;
        Ok(snapshot)
    }

    /// Where the copy is.
    pub(crate) fn addr(&self) -> usize {
        self.base.as_ptr().addr() + self.lead
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: mapped by `take`; the pages that are still pinned stay with who pinned them.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Copies what is at an address, or says that nothing is.
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
    fn constants_are_copied_and_holes_refused() {
        static CONSTANT: [u8; 9001] = [0x3b; 9001];
        let snapshot = Snapshot::take(CONSTANT.as_ptr().addr(), CONSTANT.len()).unwrap();
        assert_eq!(snapshot.addr() % PAGE, CONSTANT.as_ptr().addr() % PAGE);
        // SAFETY: `addr` and the length lie in the snapshot's mapping.
        let copy = unsafe {
            let at = snapshot.base.as_ptr().add(snapshot.lead);
            std::slice::from_raw_parts(at, CONSTANT.len())
        };
        assert_eq!(copy, CONSTANT);
        for nowhere in [8, 1 << 62, usize::MAX - 4] {
            assert!(Snapshot::take(nowhere, 64).is_err());
        }
    }
}
