//! The allocations of a job, by number.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{Ordering::Acquire, fence},
    },
};

use hydrant_conduit::Window;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;

use super::{Block, Locks, Mapped, heap::SymmetricHeap};
use crate::{Error, Result};

/// The memory of the job that this rank knows.
pub(crate) struct Registry {
    heap: Mutex<SymmetricHeap>,
    blocks: RwLock<BlockTable>,
    /// This rank's parts of allocations by number, for work that peers ask for. A part is listed
    /// until all ranks have agreed that none asks any more. The lock is held while a part is used,
    /// so that the part stays.
    own_parts: RwLock<FxHashMap<u64, Mapped>>,
    /// Allocations that were freed while a thread of this rank had a handle. A put by such a handle
    /// may still be running, to memory that the next allocation would use.
    stale: Mutex<FreedBlocks>,
    /// Exposed buffers of this rank by key, until their loans begin to end. The lock is held while
    /// a word of one is changed, so that the buffer stays.
    exposed: Mutex<FxHashMap<u64, Window>>,
    /// The locks for accumulates.
    locks: Arc<Locks>,
}

#[derive(Default)]
struct BlockTable {
    live: HashMap<u64, Arc<Block>>,
    /// The number of the last allocation, the same at every rank.
    last: u64,
    closed: bool,
}

/// Freed allocations by their range in every segment.
#[derive(Default)]
struct FreedBlocks {
    blocks: Vec<(Range<usize>, Weak<Block>)>,
    /// The number of entries above which those without a handle are removed.
    most: usize,
}

impl Registry {
    pub(crate) fn new(heap: usize, locks: Locks) -> Self {
        Self {
            heap: Mutex::new(SymmetricHeap::new(heap)),
            blocks: RwLock::default(),
            own_parts: RwLock::default(),
            stale: Mutex::default(),
            exposed: Mutex::default(),
            locks: Arc::new(locks),
        }
    }

    pub(crate) fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// Adds an exposed buffer. It is [withdrawn](Self::withdraw) before its loan ends.
    pub(crate) fn expose(&self, key: u64, window: Window) {
        self.exposed.lock().insert(key, window);
    }

    /// Removes a buffer whose loan is about to end.
    pub(crate) fn withdraw(&self, key: u64) {
        self.exposed.lock().remove(&key);
    }

    /// Runs `act` on an exposed buffer of this rank, if there is one with this key.
    pub(crate) fn on_exposed<R>(&self, key: u64, act: impl FnOnce(&Window) -> R) -> Option<R> {
        self.exposed.lock().get(&key).map(act)
    }

    pub(crate) fn heap(&self) -> MutexGuard<'_, SymmetricHeap> {
        self.heap.lock()
    }

    /// Returns the number of the next allocation. Only an allocation that all ranks made uses it
    /// up, because some ranks alone may refuse one.
    pub(crate) fn next_number(&self) -> u64 {
        let blocks = self.blocks.read();
        blocks.last + 1
    }

    pub(crate) fn insert(&self, block: &Arc<Block>) {
        let mut blocks = self.blocks.write();
        self.add_own_part(block);
        blocks.live.insert(block.number, Arc::clone(block));
        blocks.last = block.number;
    }

    /// Removes an allocation from the table, so that no pointer leads to it. Handles keep it. Peers
    /// may still ask for work in this rank's part.
    pub(crate) fn hide(&self, number: u64) {
        self.blocks.write().live.remove(&number);
    }

    /// Removes this rank's part, once all ranks have agreed that no peer asks for work in it.
    pub(crate) fn close_part(&self, number: u64) {
        self.own_parts.write().remove(&number);
    }

    /// Adds this rank's part again that was [closed](Self::close_part), unless the job is over.
    pub(crate) fn open_part(&self, block: &Block) {
        let blocks = self.blocks.read();
        if !blocks.closed {
            self.add_own_part(block);
        }
    }

    /// Adds an allocation again that was [hidden](Self::hide). If the job is over, the allocation
    /// is closed.
    pub(crate) fn restore(&self, block: &Arc<Block>) {
        let mut blocks = self.blocks.write();
        if blocks.closed {
            block.close();
        } else {
            blocks.live.insert(block.number, Arc::clone(block));
        }
    }

    /// Removes an allocation that is freed. The caller has one handle of it.
    pub(crate) fn remove(&self, block: &Arc<Block>) {
        self.hide(block.number);
        self.close_part(block.number);
        // A thread without a handle cannot get one from here on.
        if Arc::strong_count(block) == 1 {
            // Accesses by handles that are gone happened before.
            fence(Acquire);
            return;
        }
        let mut stale = self.stale.lock();
        if stale.blocks.len() >= stale.most {
            stale.blocks.retain(|(_, block)| block.strong_count() > 0);
            stale.most = 16 + 2 * stale.blocks.len();
        }
        let range = block.offset..block.offset + block.footprint;
        stale.blocks.push((range, Arc::downgrade(block)));
    }

    /// Returns whether a thread of this rank has a handle to a freed allocation that overlaps this
    /// one.
    pub(crate) fn has_stale(&self, block: &Block) -> bool {
        let range = block.offset..block.offset + block.footprint;
        let has_handle = (self.stale.lock().blocks.iter()).any(|(other, block)| {
            other.start < range.end && range.start < other.end && block.strong_count() > 0
        });
        // As in `remove`.
        fence(Acquire);
        has_handle
    }

    fn add_own_part(&self, block: &Block) {
        if let Some(own) = block.own_part() {
            self.own_parts.write().insert(block.number, own.clone());
        }
    }

    /// Runs `act` on this rank's part of an allocation, if peers may reach the part.
    pub(crate) fn on_own_part<R>(&self, number: u64, act: impl FnOnce(&Mapped) -> R) -> Option<R> {
        self.own_parts.read().get(&number).map(act)
    }

    /// Returns the allocation with this number.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::ForgedPointer`], [`Error::JobOver`].
    pub(crate) fn find(&self, number: u64) -> Result<Arc<Block>> {
        let blocks = self.blocks.read();
        match blocks.live.get(&number) {
            Some(block) => Ok(Arc::clone(block)),
            None if blocks.closed => Err(Error::JobOver),
            None if number != 0 && number <= blocks.last => Err(Error::Freed),
            None => Err(Error::ForgedPointer {
                why: "no allocation has its number",
            }),
        }
    }

    /// Closes all allocations, because the job is over. All handles fail from now on.
    pub(crate) fn close(&self) {
        let mut blocks = self.blocks.write();
        for block in blocks.live.values() {
            block.close();
        }
        blocks.live.clear();
        blocks.closed = true;
        self.own_parts.write().clear();
    }
}
