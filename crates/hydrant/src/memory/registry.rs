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

use super::{Block, Locks, Mapped, heap::Heap};
use crate::{Error, Result};

/// What a rank knows of the job's memory.
pub(crate) struct Registry {
    heap: Mutex<Heap>,
    blocks: RwLock<Blocks>,
    /// This rank's parts of allocations, by number, for what peers ask it to do there: from when the
    /// rank knows of an allocation until all ranks have agreed that none asks any more. Locked while
    /// one is used, so that nobody gets hold of it meanwhile.
    own_parts: RwLock<FxHashMap<u64, Mapped>>,
    /// What was freed while somebody at this rank had a handle, and perhaps was using it: a put goes on
    /// where the next allocation may lie.
    stale: Mutex<Stale>,
    /// Exposed buffers of this rank, by key: those whose loan has not begun to end. Locked while a
    /// word of one is changed, so that its owner does not let go of it meanwhile.
    exposed: Mutex<FxHashMap<u64, Window>>,
    /// What whoever accumulates takes.
    locks: Arc<Locks>,
}

#[derive(Default)]
struct Blocks {
    live: HashMap<u64, Arc<Block>>,
    /// The last allocation's number: the same at every rank.
    last: u64,
    closed: bool,
}

/// Freed allocations, by where they lay in every segment.
#[derive(Default)]
struct Stale {
    blocks: Vec<(Range<usize>, Weak<Block>)>,
    /// How many there may be before it is looked which have a handle still.
    most: usize,
}

impl Registry {
    pub(crate) fn new(heap: usize, locks: Locks) -> Self {
        Self {
            heap: Mutex::new(Heap::new(heap)),
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

    /// A buffer was exposed, which is [withdrawn](Self::withdraw) before it goes.
    pub(crate) fn expose(&self, key: u64, window: Window) {
        self.exposed.lock().insert(key, window);
    }

    /// A buffer is about to go.
    pub(crate) fn withdraw(&self, key: u64) {
        self.exposed.lock().remove(&key);
    }

    /// Does something to an exposed buffer of this rank, if there is such a one.
    pub(crate) fn on_exposed<R>(&self, key: u64, act: impl FnOnce(&Window) -> R) -> Option<R> {
        self.exposed.lock().get(&key).map(act)
    }

    pub(crate) fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock()
    }

    /// The number of the next allocation. It is used up by one that all ranks made: one that is
    /// refused may be refused on some of them alone.
    pub(crate) fn next_number(&self) -> u64 {
        let blocks = self.blocks.read();
        blocks.last + 1
    }

    pub(crate) fn insert(&self, block: &Arc<Block>) {
        let mut blocks = self.blocks.write();
        self.serve(block);
        blocks.live.insert(block.number, Arc::clone(block));
        blocks.last = block.number;
    }

    /// Leaves an allocation that is to change hands to those who have its handle: no pointer leads
    /// there. Peers that have not got so far still reach this rank's part.
    pub(crate) fn hide(&self, number: u64) {
        self.blocks.write().live.remove(&number);
    }

    /// No peer reaches this rank's part any more, by agreement.
    pub(crate) fn close_part(&self, number: u64) {
        self.own_parts.write().remove(&number);
    }

    /// Takes in again what was [hidden](Self::hide). If the job is over, so is the block.
    pub(crate) fn restore(&self, block: &Arc<Block>) {
        let mut blocks = self.blocks.write();
        if blocks.closed {
            block.close();
        } else {
            self.serve(block);
            blocks.live.insert(block.number, Arc::clone(block));
        }
    }

    /// An allocation is freed, of which the caller has one handle.
    pub(crate) fn remove(&self, block: &Arc<Block>) {
        self.hide(block.number);
        self.close_part(block.number);
        // Who has no handle gets none from here on.
        if Arc::strong_count(block) == 1 {
            // What was done by a handle that is gone was done before.
            fence(Acquire);
            return;
        }
        let mut stale = self.stale.lock();
        if stale.blocks.len() >= stale.most {
            stale.blocks.retain(|(_, block)| block.strong_count() > 0);
            stale.most = 16 + 2 * stale.blocks.len();
        }
        let place = block.offset..block.offset + block.footprint;
        stale.blocks.push((place, Arc::downgrade(block)));
    }

    /// Whether somebody at this rank has a handle to what was freed and lay where this lies.
    pub(crate) fn has_stale(&self, block: &Block) -> bool {
        let place = block.offset..block.offset + block.footprint;
        let has_handle = (self.stale.lock().blocks.iter()).any(|(there, block)| {
            there.start < place.end && place.start < there.end && block.strong_count() > 0
        });
        // As in `remove`.
        fence(Acquire);
        has_handle
    }

    fn serve(&self, block: &Block) {
        if let Some(own) = block.own_part() {
            self.own_parts.write().insert(block.number, own.clone());
        }
    }

    /// Does something to this rank's part of an allocation, if peers may reach it.
    pub(crate) fn on_own_part<R>(&self, number: u64, act: impl FnOnce(&Mapped) -> R) -> Option<R> {
        self.own_parts.read().get(&number).map(act)
    }

    /// The allocation of this number.
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

    /// The job is over: every handle is useless from now on.
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
