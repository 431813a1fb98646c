//! The large blocks that the program has allocated and not freed.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hydrant_conduit::fork::CreatorProcess;

/// The bytes of the smallest block that is remembered. Smaller buffers are copied as fast as they are registered.
pub(crate) const LEAST: usize = 64 << 10;

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

/// Returns the blocks, unless this is a forked child, where another thread of the parent may have held the lock.
fn blocks() -> Option<MutexGuard<'static, BTreeMap<usize, LiveBlock>>> {
    static ORIGIN: OnceLock<CreatorProcess> = OnceLock::new();
    let is_here = ORIGIN.get_or_init(CreatorProcess::here).is_here();
    is_here.then(|| BLOCKS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Remembers a block.
pub(crate) fn remember(start: usize, bytes: usize) {
    if let Some(mut blocks) = blocks() {
        let block = LiveBlock {
            bytes,
            is_watched: false,
        };
        blocks.insert(start, block);
    }
}

/// Forgets a block. Returns its pages if a rank watches it. Nobody begins to watch it after this.
pub(crate) fn forget(start: usize) -> Option<(u64, u64)> {
    let gone = blocks().and_then(|mut blocks| blocks.remove(&start))?;
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
