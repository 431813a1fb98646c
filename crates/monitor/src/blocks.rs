//! The large blocks that the program has allocated and not freed.

#![allow(unsafe_code)] // references to what is never freed

use std::{
    collections::BTreeMap,
    mem, ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use hydrant_conduit::fork::CreatorProcess;

/// The bytes of the smallest block that is remembered. Smaller buffers are copied as fast as they are registered.
pub(crate) const LEAST: usize = 64 << 10;

const PAGE: usize = 4096;

/// The large blocks of a process, each by its first address. The map's own nodes are smaller than [`LEAST`], so that
/// they are allocated without a look at it.
struct ReportedBlocks {
    blocks: Mutex<BTreeMap<usize, LiveBlock>>,
    origin: CreatorProcess,
}

/// The blocks of this process, never freed. A forked child makes its own, because a thread that it lacks may hold the
/// lock of its parent's.
static CURRENT: AtomicPtr<ReportedBlocks> = AtomicPtr::new(ptr::null_mut());

/// True once anything was allocated.
static IN_FORCE: AtomicBool = AtomicBool::new(false);

/// A block that the program has allocated and not freed.
struct LiveBlock {
    bytes: usize,
    /// True if a rank keeps some of it registered.
    is_watched: bool,
}

/// Returns true once anything was allocated.
pub(crate) fn is_in_force() -> bool {
    IN_FORCE.load(Relaxed)
}

/// Notes that the allocator is in force.
#[inline]
pub(crate) fn begin() {
    if !is_in_force() {
        IN_FORCE.store(true, Relaxed);
    }
}

/// Returns the blocks of this process.
fn blocks() -> MutexGuard<'static, BTreeMap<usize, LiveBlock>> {
    let current = CURRENT.load(Acquire);
    // SAFETY: the pointer is null or was leaked by `begin_table`.
    let table = unsafe { current.as_ref() }.filter(|table| table.origin.is_here());
    let table = table.unwrap_or_else(|| begin_table(current));
    table.blocks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins the blocks of this process. A child takes those of its parent over, unless a thread of the parent was about
/// to change them, or two threads of the child come here at once. Then it knows only what it allocates itself.
#[cold]
fn begin_table(before: *mut ReportedBlocks) -> &'static ReportedBlocks {
    // SAFETY: null, or leaked by this function in the parent.
    let parents = unsafe { before.as_ref() };
    let inherited = parents.and_then(|table| table.blocks.try_lock().ok());
    let blocks = inherited.map(|mut theirs| mem::take(&mut *theirs));
    let fresh = Box::into_raw(Box::new(ReportedBlocks {
        blocks: Mutex::new(blocks.unwrap_or_default()),
        origin: CreatorProcess::here(),
    }));
    match CURRENT.compare_exchange(before, fresh, AcqRel, Acquire) {
        // SAFETY: the box was leaked above.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: the pointer comes from the box above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: another thread of this process has leaked it.
            unsafe { &*other }
        }
    }
}

/// Remembers a block.
pub(crate) fn remember(start: usize, bytes: usize) {
    let block = LiveBlock {
        bytes,
        is_watched: false,
    };
    blocks().insert(start, block);
}

/// Forgets a block. Returns its pages if a rank watches it. Nobody begins to watch it after this.
pub(crate) fn forget(start: usize) -> Option<(u64, u64)> {
    let gone = blocks().remove(&start)?;
    gone.is_watched.then(|| pages_of(start, gone.bytes))
}

/// Returns the pages that hold bytes of a block. All are mapped as long as the block is not freed.
fn pages_of(start: usize, bytes: usize) -> (u64, u64) {
    let first = start & !(PAGE - 1);
    let end = (start + bytes).next_multiple_of(PAGE);
    (first as u64, (end - first) as u64)
}

/// Watches the block whose pages hold a range, if there is one. Returns its pages.
pub(crate) fn watch_block(start: u64, len: u64) -> Option<(u64, u64)> {
    if !is_in_force() {
        return None;
    }
    let last = usize::try_from(start.checked_add(len)?).ok()?;
    let mut blocks = blocks();
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
        begin();
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
}
