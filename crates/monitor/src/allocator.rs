//! An allocator that tells before it gives memory back, around any other.

#![allow(unsafe_code)] // an allocator

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hydrant_conduit::fork::CreatorProcess;

use crate::{MemoryChange, Monitor};

/// The bytes of the smallest block that is remembered. Smaller buffers are copied as fast as they are registered.
const LEAST: usize = 64 << 10;

const PAGE: usize = 4096;

/// The large blocks of the allocator: each by its first address. The map's own nodes are smaller than [`LEAST`], so
/// that they are allocated without a look at it.
static BLOCKS: Mutex<BTreeMap<usize, LiveBlock>> = Mutex::new(BTreeMap::new());

/// True once anything was allocated.
static IN_FORCE: AtomicBool = AtomicBool::new(false);

/// A block that the program has allocated and not freed.
struct LiveBlock {
    bytes: usize,
    /// True if a rank keeps some of it registered.
    is_watched: bool,
}

/// A global allocator that has Hydrant hear of freed memory before it goes back, around the allocator `A`.
///
/// Blocks of 64 KiB and more then stay registered after their use, on hosts whose kernel gives no `userfaultfd`, too.
/// With one, operations on such blocks need not ask the kernel. The other functions of `A` cost what they did. A large
/// block costs one insertion into a map when it is allocated, and one removal when it is freed.
///
/// The memory of a large block must go back by this allocator alone. A program that unmaps, moves or empties parts of it
/// itself needs the kernel's monitor, too. A forked child reports nothing.
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
        IN_FORCE.load(Relaxed)
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

/// Returns the blocks, unless this is a forked child, where another thread of the parent may have held the lock.
fn blocks() -> Option<MutexGuard<'static, BTreeMap<usize, LiveBlock>>> {
    static ORIGIN: OnceLock<CreatorProcess> = OnceLock::new();
    let is_here = ORIGIN.get_or_init(CreatorProcess::here).is_here();
    is_here.then(|| BLOCKS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[inline]
fn note_allocated(block: *mut u8, bytes: usize) {
    if !IN_FORCE.load(Relaxed) {
        IN_FORCE.store(true, Relaxed);
    }
    if bytes >= LEAST && !block.is_null() {
        remember(block.addr(), bytes);
    }
}

#[inline]
fn note_freed(block: *mut u8, bytes: usize) {
    if bytes >= LEAST {
        forget(block.addr());
    }
}

fn remember(start: usize, bytes: usize) {
    if let Some(mut blocks) = blocks() {
        let block = LiveBlock {
            bytes,
            is_watched: false,
        };
        blocks.insert(start, block);
    }
}

fn forget(start: usize) {
    // Nobody begins to watch the block after this, and who has begun hears of the change.
    let gone = blocks().and_then(|mut blocks| blocks.remove(&start));
    if let Some(gone) = gone.filter(|gone| gone.is_watched)
        && let Some(monitor) = Monitor::started()
    {
        let (start, len) = pages_of(start, gone.bytes);
        monitor.tell(MemoryChange::Freed { start, len });
    }
}

/// Returns the pages that hold bytes of a block. All are mapped as long as the block is not freed.
fn pages_of(start: usize, bytes: usize) -> (u64, u64) {
    let first = start & !(PAGE - 1);
    let end = (start + bytes).next_multiple_of(PAGE);
    (first as u64, (end - first) as u64)
}

/// Watches the block whose pages hold a range, if there is one. Returns its pages.
pub(crate) fn watch_block(start: u64, len: u64) -> Option<(u64, u64)> {
    if !ReportingAllocator::is_in_force() {
        return None;
    }
    let last = usize::try_from(start.checked_add(len)?).ok()?;
    let mut blocks = blocks()?;
    // The first page of a block may begin before it.
    let before = blocks.range_mut(..last).next_back();
    let (first, block) = before?;
    let pages = pages_of(*first, block.bytes);
    let holds = pages.0 <= start && start + len <= pages.0 + pages.1;
    holds.then(|| {
        block.is_watched = true;
        pages
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_block_is_found_by_any_of_its_pages() {
        IN_FORCE.store(true, Relaxed);
        let start = 0x10_0010;
        remember(start, 1 << 20);
        let pages = (0x10_0000, (1 << 20) + 4096);
        for (start, len) in [
            (0x10_0000, 4096),
            (0x15_0000, 8192),
            (0x20_0000, 4096),
            pages,
        ] {
            assert_eq!(watch_block(start, len), Some(pages), "{start:x} {len}");
        }
        for (start, len) in [
            (0xf_f000, 4096),
            (0xf_f000, 8192),
            (0x20_0000, 8192),
            (0x20_1000, 4096),
        ] {
            assert_eq!(watch_block(start, len), None, "{start:x} {len}");
        }
        assert_eq!(watch_block(u64::MAX - 4095, 4096), None);
        forget(start);
        assert_eq!(watch_block(0x10_0000, 4096), None);
    }

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
