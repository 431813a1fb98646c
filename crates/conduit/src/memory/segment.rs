//! The segment of a rank: address space that becomes memory when it is touched.

#![allow(unsafe_code)] // maps memory and gives it back

use std::{ffi::c_void, ptr::NonNull, sync::Arc};

use crate::{Error, Permission, Rank, WakeWord, Window};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::{PAGE, Place};

/// The alignment of segments: the huge page of x86-64 and AArch64. Allocations in a segment may ask
/// for as much.
const ALIGN: usize = 2 << 20;

/// A rank's segment. Its wake word is in a page of its own behind it.
pub struct Segment {
    /// The segment.
    pub window: Window,
    /// The word that shows the rank's sleepers.
    pub wake_word: WakeWord,
}

struct SegmentMapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the value is an address and a length. The memory is accessed through windows only.
unsafe impl Send for SegmentMapping {}
// SAFETY: as above.
unsafe impl Sync for SegmentMapping {}

impl Drop for SegmentMapping {
    fn drop(&mut self) {
        // SAFETY: `Segment::new` mapped this length, and no window that kept the mapping is left.
        if let Err(cause) = unsafe { mm::munmap(self.base.as_ptr(), self.len) } {
            tracing::error!(%cause, "a segment was not unmapped");
        }
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Segment({} bytes at {:#x})",
            self.window.len(),
            self.window.addr()
        )
    }
}

impl Segment {
    /// Makes a segment of `len` bytes.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no such address space.
    pub fn new(len: usize) -> Result<Self, Error> {
        let failed = |cause: rustix::io::Errno| Error::system("mapping a segment", cause);
        let behind = len
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        let total = behind
            .checked_add(PAGE + ALIGN)
            .ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        // SAFETY: the call makes a new mapping and affects no other.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                total,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(failed)?;
        let base = NonNull::new(base).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        let mapping = Arc::new(SegmentMapping { base, len: total });
        // SAFETY: 1. the memory is mapped readable and writable until `mapping` is dropped, which
        // the window keeps. 2. Only this window and its parts access it. 3. It is zero.
        let whole = unsafe { Window::new(base.cast(), total, mapping) };
        let out_of_bounds = |_| Error::OutOfMemory {
            wanted: total as u64,
            available: len as u64,
        };
        let skip = whole.addr().next_multiple_of(ALIGN) - whole.addr();
        let behind = skip + behind;
        let bits = whole.word32(behind).map_err(out_of_bounds)?;
        let window = whole
            .part(skip, len)
            .ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        // SAFETY: 1. the page is that of the wake word, and nothing stores to it through this
        // place.
        let page = unsafe { Place::new((whole.addr() + behind) as u64, PAGE as u64) };
        if !page.pin(Permission::ReadWrite) {
            return Err(Error::System {
                what: "asking for the pages of memory (madvise, MADV_POPULATE_WRITE)",
                cause: "the kernel does not know it: segments want Linux 5.14".to_owned(),
            });
        }
        Ok(Self {
            window,
            wake_word: WakeWord { bits },
        })
    }

    /// Checks that a part is within the segment, which is `owner`'s.
    ///
    /// # Errors
    /// [`Error::OutOfExtent`].
    pub fn check(&self, owner: Rank, offset: usize, len: usize) -> Result<(), Error> {
        let extent = self.window.len();
        if len > extent || offset > extent - len {
            return Err(Error::OutOfExtent {
                peer: owner,
                offset: offset as u64,
                len: len as u64,
                extent: extent as u64,
            });
        }
        Ok(())
    }

    /// Gives the memory of a part back. The part reads as zeros afterwards.
    pub fn discard(&self, offset: usize, len: usize) {
        let end = offset + len;
        let first = offset.next_multiple_of(PAGE).min(end);
        let last = (end / PAGE * PAGE).max(first);
        for (from, to) in [(offset, first), (last, end)] {
            // Pages that the part shares with its neighbours stay.
            if self.window.fill(from, to - from, 0).is_err() {
                return;
            }
        }
        if last == first {
            return;
        }
        let at = self.window.as_ptr().wrapping_add(first).cast();
        // SAFETY: the range is whole pages of the segment. Windows tolerate that their memory
        // changes, and the kernel supplies zeroed pages at the next access.
        let given = unsafe { mm::madvise(at, last - first, Advice::LinuxDontNeed) };
        if given.is_err() {
            let _ = self.window.fill(first, last - first, 0);
        }
    }
}
