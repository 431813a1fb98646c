//! The heap of a thread in virtual time: the addresses of its buffers depend only on its own
//! earlier calls.
//!
//! The cost of a registration depends on the pages and buckets that a buffer touches, and on
//! earlier registrations there. The system's heap places a buffer by the calls of all threads in
//! real time, and at other addresses in each run; so no two runs would be equal. Here each rank has
//! a part of its own, with the same distance from the other parts, and from a boundary of 2 MiB, in
//! every run. Buffers share pages with their neighbours and reuse freed memory, as in any heap.
//!
//! Hash tables stay on the system's heap. The time when a table grows depends on its hashes; if its
//! entries are addresses, these differ in each run, and buffers behind the table would move.

#![allow(unsafe_code)] // is an allocator

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

use hydrant::Rank;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The address space of a rank's part, which is also its alignment.
const PART: usize = 256 << 20;
/// The smallest block, and the alignment of every block.
const GRAIN: usize = 16;
/// The alignment of hash tables: that of the groups of entries that are searched together.
const TABLE_ALIGN: usize = 16;
/// Sizes of blocks: four for each doubling.
const CLASSES: usize = 4 * usize::BITS as usize;

/// The allocator of a process: the system's, except for the threads of ranks in virtual time.
pub struct Heap;

/// All parts.
static PARTS: OnceLock<HeapParts> = OnceLock::new();

thread_local! {
    /// The part of the calling thread, from 1 on; 0 for the system's heap.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

struct HeapParts {
    /// The start of the first part.
    base: usize,
    parts: Vec<Mutex<HeapPart>>,
}

struct HeapPart {
    /// The bytes that were ever handed out.
    used: usize,
    /// The last freed block of each size, 0 if there is none. Its first word is the address of the
    /// block freed before it.
    free: [usize; CLASSES],
}

/// Makes the calling thread allocate from the part of a rank, until the thread ends.
///
/// # Panics
/// If the address space is refused, or if an earlier call had another number of ranks.
pub(crate) fn place(rank: Rank, ranks: usize) {
    let parts = PARTS.get_or_init(|| HeapParts::new(ranks));
    assert!(rank.index() < parts.parts.len(), "two jobs in one process");
    OWN.set(rank.index() + 1);
}

impl HeapParts {
    fn new(ranks: usize) -> Self {
        let (read_write, private) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: the kernel chooses an unmapped address.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), (ranks + 1) * PART, read_write, private) };
        let start = mapped.expect("there is address space").expose_provenance();
        let empty = || HeapPart {
            used: 0,
            free: [0; CLASSES],
        };
        Self {
            base: start.next_multiple_of(PART),
            parts: (0..ranks).map(|_| Mutex::new(empty())).collect(),
        }
    }

    /// The part that contains an address.
    fn of(&self, address: usize) -> Option<&Mutex<HeapPart>> {
        self.parts.get(address.checked_sub(self.base)? / PART)
    }
}

impl HeapPart {
    /// A block of that class in the part that begins at `begin`; `None` if the part is full.
    fn take(&mut self, begin: usize, class: usize) -> Option<usize> {
        let freed = self.free[class];
        if freed != 0 {
            // SAFETY: 1. the block belongs to this part and is free. 2. `give` wrote its first
            // word.
            self.free[class] = unsafe { *ptr::with_exposed_provenance::<usize>(freed) };
            return Some(freed);
        }
        let block = begin + self.used;
        let end = self.used.checked_add(size(class))?;
        (end <= PART).then(|| {
            self.used = end;
            block
        })
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// 1. `take` returned the block, for that class.
    /// 2. Nobody uses it any more.
    unsafe fn give(&mut self, block: usize, class: usize) {
        // SAFETY: the block is free (the caller's conditions 1 and 2), and every block has room for
        // a word.
        unsafe { *ptr::with_exposed_provenance_mut::<usize>(block) = self.free[class] };
        self.free[class] = block;
    }
}

/// The class of the smallest blocks of at least `bytes` bytes.
fn class(bytes: usize) -> usize {
    let grains = bytes.div_ceil(GRAIN).max(1);
    if grains <= 4 {
        return grains - 1;
    }
    // The two bits after the leading one, rounded up.
    let shift = (grains - 1).ilog2() - 2;
    4 * shift as usize + ((grains - 1) >> shift)
}

/// Bytes of a block of that class.
fn size(class: usize) -> usize {
    match class {
        0..4 => (class + 1) * GRAIN,
        _ => ((class % 4 + 5) << (class / 4 - 1)) * GRAIN,
    }
}

// SAFETY: 1. A block is handed out once until it is freed. It is either the next unused bytes of a
// part, or comes off the list of free ones, under the part's lock. 2. Blocks have the size of their
// class, which is at least the requested size, and the alignment of a grain; requests with larger
// alignment go to the system. 3. A block returns to its part, which its address names, and to its
// class, which the layout names. 4. Nothing here allocates or unwinds: the locks are futexes, and
// no panic within poisons them.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let own = OWN.get();
        if own != 0
            && layout.align() < TABLE_ALIGN
            && layout.size() < PART
            && let Some(parts) = PARTS.get()
        {
            let begin = parts.base + (own - 1) * PART;
            let part = parts.parts[own - 1].lock();
            let block = part
                .unwrap_or_else(PoisonError::into_inner)
                .take(begin, class(layout.size()));
            if let Some(block) = block {
                return ptr::with_exposed_provenance_mut(block);
            }
        }
        // SAFETY: the layout is not empty: the caller's condition of `alloc` is the system's, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let part = PARTS.get().and_then(|parts| parts.of(block.addr()));
        let Some(part) = part else {
            // SAFETY: the block has this layout, by the caller's condition of `dealloc`. It is in no
            // part, so the system allocated it.
            return unsafe { System.dealloc(block, layout) };
        };
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: 1. `alloc` took the block from this part with the same layout. 2. Nobody uses
        // the block any more, by the caller's condition of `dealloc`.
        unsafe { part.give(block.expose_provenance(), class(layout.size())) };
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn classes_have_room_and_waste_little() {
        assert_eq!(size(class(0)), GRAIN);
        for bytes in (1..5000).chain([20_000, 65_535, 65_536, 65_537, PART - 1]) {
            let room = size(class(bytes));
            assert!(room >= bytes, "{bytes} bytes in {room}");
            assert!(room <= bytes + bytes / 4 + GRAIN, "{bytes} bytes in {room}");
            assert!(room.is_multiple_of(GRAIN), "{room}");
        }
        for it in 1..class(PART) {
            assert!(size(it - 1) < size(it), "{it}");
            assert_eq!(class(size(it)), it);
        }
    }

    #[test]
    fn blocks_are_taken_again_and_overlap_no_other() {
        let parts = HeapParts::new(1);
        let mut part = parts.parts[0].lock().unwrap();
        let take = |part: &mut HeapPart, bytes| part.take(parts.base, class(bytes)).unwrap();
        let (first, second) = (take(&mut part, 100), take(&mut part, 100));
        assert!(first.abs_diff(second) >= 100);
        for block in [first, second] {
            // SAFETY: the block was just allocated with this layout, and is not used any more.
            unsafe { part.give(block, class(100)) };
        }
        assert_eq!(take(&mut part, 100), second);
        assert_eq!(take(&mut part, 97), first, "of the same class");
        assert!(take(&mut part, 100) > second);
        assert_eq!(part.take(parts.base, class(PART)), None, "it is full");
    }

    #[test]
    fn buffers_lie_in_the_part_and_hash_tables_do_not() {
        let lies_within = |layout| {
            // SAFETY: the layout is not empty.
            let block = unsafe { Heap.alloc(layout) };
            // SAFETY: the block was just allocated with the same layout.
            unsafe { Heap.dealloc(block, layout) };
            let parts = PARTS.get();
            parts.is_some_and(|parts| parts.of(block.addr()).is_some())
        };
        let buffer = Layout::array::<u64>(100).unwrap();
        let placed = thread::spawn(move || {
            place(Rank(0), 1);
            assert!(lies_within(buffer));
            // The layout of a table of hashbrown with 56 entries.
            assert!(!lies_within(
                Layout::from_size_align(64 * 8 + 80, TABLE_ALIGN).unwrap()
            ));
        });
        placed.join().unwrap();
        assert!(!lies_within(buffer), "on a thread that is no rank");
    }
}
