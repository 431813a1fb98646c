//! The heap of this process's arena: its gaps and its allocations.

use std::collections::BTreeMap;

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
    /// Gaps: the start of each, and its bytes. No gap is empty, and no two touch.
    gaps: BTreeMap<usize, usize>,
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
        let gap = (LINE, PAGE + len);
        Self {
            gaps: (len > 0).then_some(gap).into_iter().collect(),
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
        let (gap, start, size) = self
            .find_gap(len, align, colour)
            .or_else(|| self.find_gap(len, align, 0))?;
        self.gaps.remove(&gap);
        if start > gap {
            self.gaps.insert(gap, start - gap);
        }
        let (end, after) = (start + len, gap + size);
        if after > end {
            self.gaps.insert(end, after - end);
        }
        self.taken.insert(start, len);
        Some(start)
    }

    /// The first gap with room at `behind` bytes past a multiple of `align`. Returns the gap's start, the
    /// start of the room, and the gap's bytes.
    fn find_gap(&self, len: usize, align: usize, behind: usize) -> Option<(usize, usize, usize)> {
        self.gaps.iter().find_map(|(gap, size)| {
            // The first page may also begin with a colour, so that the limit holds with colours
            // too.
            let start = ((*gap).max(align).saturating_sub(behind)).next_multiple_of(align) + behind;
            (start.checked_add(len)? <= gap + size).then_some((*gap, start, *size))
        })
    }

    /// Frees the allocation that begins at `start`. Returns false if there is none.
    pub(super) fn free(&mut self, start: usize) -> bool {
        let Some(mut len) = self.taken.remove(&start) else {
            return false;
        };
        let mut start = start;
        if let Some(after) = self.gaps.remove(&(start + len)) {
            len += after;
        }
        let before = self.gaps.range(..start).next_back();
        if let Some((gap, size)) = before.map(|(gap, size)| (*gap, *size))
            && gap + size == start
        {
            (start, len) = (gap, size + len);
        }
        self.gaps.insert(start, len);
        true
    }

    /// The end of the last allocation.
    pub(super) fn end(&self) -> usize {
        (self.taken.last_key_value()).map_or(0, |(start, len)| start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_never_overlap_and_all_memory_comes_back() {
        for has_colours in [false, true] {
            allocate_and_free(has_colours);
        }
    }

    fn allocate_and_free(has_colours: bool) {
        const LEN: usize = 1 << 20;
        let mut heap = ArenaHeap::new(LEN, has_colours);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut dice = 1_u64;
        for _ in 0..5000 {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let number = (dice >> 33) as usize;
            if !number.is_multiple_of(3) {
                // Some sizes are whole lines or whole pages.
                let bytes = match number % 8 {
                    0..5 => number % 9000,
                    5 | 6 => number % 130 * LINE,
                    _ => number % 3 * PAGE,
                };
                if let Some(start) = heap.allocate(bytes) {
                    let is_at_page = bytes > PAGE && !has_colours;
                    assert!(start.is_multiple_of(if is_at_page { PAGE } else { LINE }));
                    assert!(start > 0 && start + bytes < LEN + ArenaHeap::EDGES);
                    for (other, size) in &held {
                        // Two allocations do not even touch.
                        assert!(start + bytes.max(1) < *other || other + size < start);
                    }
                    held.push((start, bytes.max(1)));
                }
            } else if !held.is_empty() {
                let (start, _) = held.swap_remove(number % held.len());
                assert!(heap.free(start));
                assert!(!heap.free(start));
            }
        }
        held.iter()
            .for_each(|(start, _)| assert!(heap.free(*start)));
        let all = BTreeMap::from([(LINE, LEN + PAGE)]);
        assert_eq!((heap.end(), heap.gaps), (0, all));
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
