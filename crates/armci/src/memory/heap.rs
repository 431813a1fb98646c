//! The heap of this process's arena: its gaps and its allocations.

use std::collections::BTreeMap;

use hydrant_base::Gaps;

/// Allocations begin at a cache line and take whole cache lines.
const LINE: usize = 64;
/// Allocations of a page or more begin at a page, or at an offset behind a page: their colour.
const PAGE: usize = 4096;

/// The offset behind a page at which the next long allocation begins, if the heap uses colours.
/// Without colours, columns of two matrices whose rows are pages long share the same few cache
/// lines. The offsets lie near the middle of the page, far from the start of private memory.
fn colour(number: usize) -> usize {
    LINE * (24 + number % 8 * 5 % 8 * 2)
}
/// The least number of unused bytes behind each allocation. So no allocation begins where another
/// ends, and an address past the end of one is not taken for the next.
const GUARD: usize = 1;

/// The gaps and allocations of an arena.
pub(super) struct ArenaHeap {
    gaps: Gaps,
    /// Allocations: the start of each, and the bytes that it takes.
    taken: BTreeMap<usize, usize>,
    /// The number of long allocations so far, if the heap uses colours.
    coloured: Option<usize>,
}

impl ArenaHeap {
    /// Bytes of an arena that cannot be allocated. Because of them an address just outside an
    /// allocation is still in the arena.
    pub(super) const EDGES: usize = 2 * PAGE;

    /// A heap for an arena of which `len` bytes can be allocated at once. Colours are for memory
    /// that processors copy. Registered memory counts by whole pages, and there an allocation must
    /// not take more pages than it needs.
    pub(super) fn new(len: usize, has_colours: bool) -> Self {
        let len = len / PAGE * PAGE;
        // The first line belongs to no allocation. The last line is the guard of the last
        // allocation.
        let end = if len > 0 { LINE + PAGE + len } else { LINE };
        Self {
            gaps: Gaps::new(LINE..end),
            taken: BTreeMap::new(),
            coloured: has_colours.then_some(0),
        }
    }

    /// Allocates `bytes` bytes in the first gap with room. Returns their offset.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let guarded = bytes.max(1).checked_add(GUARD)?;
        let len = guarded.checked_next_multiple_of(LINE)?;
        let align = if len >= PAGE { PAGE } else { LINE };
        let colour = match &mut self.coloured {
            Some(number) if len >= PAGE => {
                *number += 1;
                colour(*number)
            }
            _ => 0,
        };
        // The first page may also begin with a colour, so that the limit holds with colours too.
        let behind = |colour: usize| {
            move |gap: usize| {
                let page = gap.max(align).saturating_sub(colour);
                Some(page.next_multiple_of(align) + colour)
            }
        };
        let start =
            (self.gaps.take(len, behind(colour))).or_else(|| self.gaps.take(len, behind(0)))?;
        self.taken.insert(start, len);
        Some(start)
    }

    /// Frees the allocation that begins at `start`. Returns false if there is none.
    pub(super) fn free(&mut self, start: usize) -> bool {
        let taken = self.taken.remove(&start);
        if let Some(len) = taken {
            self.gaps.give(start, len);
        }
        taken.is_some()
    }

    /// The end of the last allocation.
    pub(super) fn end(&self) -> usize {
        (self.taken.last_key_value()).map_or(0, |(start, len)| start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some sizes are whole lines or whole pages.
    #[test]
    fn allocations_do_not_even_touch_and_all_memory_comes_back() {
        const LEN: usize = 1 << 20;
        for has_colours in [false, true] {
            let mut heap = ArenaHeap::new(LEN, has_colours);
            let mut held = BTreeMap::new();
            for bytes in (0..10).flat_map(|n| [n * LINE, 0, 999 * n, n % 3 * PAGE]) {
                let start = heap.allocate(bytes).unwrap();
                let is_at_page = bytes > PAGE && !has_colours;
                assert!(start > 0 && start.is_multiple_of(if is_at_page { PAGE } else { LINE }));
                held.insert(start, start + bytes.max(1));
            }
            assert!((held.values().zip(held.keys().skip(1))).all(|(end, next)| end < next));
            (held.keys()).for_each(|start| assert!(heap.free(*start) && !heap.free(*start)));
            assert_eq!((heap.end(), heap.gaps.largest()), (0, LEN + PAGE));
        }
    }

    #[test]
    fn long_allocations_begin_at_different_lines_of_their_pages() {
        let mut heap = ArenaHeap::new(1 << 20, true);
        let starts: Vec<usize> = (0..8).filter_map(|_| heap.allocate(2 * PAGE)).collect();
        let mut lines: Vec<usize> = starts.iter().map(|start| start % PAGE / LINE).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 8, "{starts:?}");
        assert!(lines[0] >= 24 && lines[7] < 40, "{lines:?}");
        // Colours cost no memory: other allocations use the bytes between two pages.
        assert!(heap.end() <= 8 * 3 * PAGE + PAGE, "{}", heap.end());
    }

    #[test]
    fn the_whole_arena_can_be_one_allocation() {
        assert_eq!(
            ArenaHeap::new(2 * PAGE, true).allocate(2 * PAGE),
            Some(PAGE)
        );
        assert_eq!(
            ArenaHeap::new(2 * PAGE, true).allocate(2 * PAGE + LINE),
            None
        );
        assert_eq!(ArenaHeap::new(PAGE - 1, true).allocate(1), None);
        for bytes in [usize::MAX, usize::MAX - 1, usize::MAX - LINE] {
            assert_eq!(ArenaHeap::new(PAGE, true).allocate(bytes), None);
        }
    }
}
