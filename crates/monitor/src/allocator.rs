//! An allocator that tells before it gives memory back, around any other.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};

use crate::{MemoryChange, Monitor, blocks};

/// A global allocator that has Hydrant hear of freed memory before it goes back, around the allocator `A`.
///
/// Blocks of 64 KiB and more then stay registered after their use, on hosts whose kernel gives no `userfaultfd`, too.
/// With one, operations on such blocks need not ask the kernel. The other functions of `A` cost what they did. A large
/// block costs one insertion into a map when it is allocated, and one removal when it is freed.
///
/// The memory of a large block must go back by this allocator alone. A program that unmaps, moves or empties parts of it
/// itself needs the kernel's monitor, too. A forked child reports to a monitor of its own, if it starts one.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: hydrant_monitor::ReportingAllocator = hydrant_monitor::ReportingAllocator::system();
///
/// let buffer = vec![0_u8; 1 << 20];
/// assert_eq!(buffer.len(), 1 << 20);
/// assert!(hydrant_monitor::ReportingAllocator::is_in_force());
/// ```
#[derive(Debug, Default)]
pub struct ReportingAllocator<A = System>(A);

impl ReportingAllocator {
    /// Returns a wrapper of the system's allocator.
    pub const fn system() -> Self {
        Self(System)
    }

    /// Returns true if the program's memory comes from such an allocator.
    pub fn is_in_force() -> bool {
        blocks::is_in_force()
    }
}

impl<A> ReportingAllocator<A> {
    /// Returns a wrapper of another allocator.
    pub const fn new(inner: A) -> Self {
        Self(inner)
    }
}

// SAFETY: each call is one of the inner allocator's, with the caller's arguments. What happens beside it neither panics
// nor touches the memory.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ReportingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's conditions.
        let block = unsafe { self.0.alloc(layout) };
        note_allocated(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's conditions.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        note_allocated(block, layout.size());
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note_freed(block, layout.size());
        // SAFETY: the caller's conditions.
        unsafe { self.0.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note_freed(block, layout.size());
        // SAFETY: the caller's conditions.
        let moved = unsafe { self.0.realloc(block, layout, bytes) };
        match moved.is_null() {
            true => note_allocated(block, layout.size()),
            false => note_allocated(moved, bytes),
        }
        moved
    }
}

#[inline]
fn note_allocated(block: *mut u8, bytes: usize) {
    blocks::begin();
    if bytes >= blocks::LEAST && !block.is_null() {
        blocks::remember(block.addr(), bytes);
    }
}

#[inline]
fn note_freed(block: *mut u8, bytes: usize) {
    if bytes >= blocks::LEAST {
        tell_freed(block.addr());
    }
}

fn tell_freed(start: usize) {
    if let Some((start, len)) = blocks::forget(start)
        && let Some(monitor) = Monitor::started()
    {
        monitor.tell(MemoryChange::Freed { start, len });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{LEAST, watch_block};

    #[test]
    fn blocks_are_remembered_from_their_allocation_until_they_move_or_go() {
        let allocator = ReportingAllocator::system();
        let layout = Layout::from_size_align(LEAST, 16).unwrap();
        // SAFETY: the layout is not empty.
        let block = unsafe { allocator.alloc(layout) };
        assert!(watch_block(block.addr() as u64, LEAST as u64).is_some());
        // SAFETY: the block was allocated above with this layout.
        let larger = unsafe { allocator.realloc(block, layout, 8 * LEAST) };
        let (start, len) = (larger.addr() as u64, 8 * LEAST as u64);
        assert!(watch_block(start, len).is_some());
        let layout = Layout::from_size_align(8 * LEAST, 16).unwrap();
        // SAFETY: as above, and nobody uses it any more.
        unsafe { allocator.dealloc(larger, layout) };
        assert_eq!(watch_block(start, len), None);
    }
}
