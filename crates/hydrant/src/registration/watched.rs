//! The memory of the program whose changes are heard, so that it may stay registered after its use.
//!
//! Whole mappings are watched, not single pages: each watched page in a mapping would split it in three, and the kernel
//! limits the number of mappings of a process.
//!
//! In buckets of several pages, a registration holds neighbours of the pages that an operation names. A registration ahead
//! of use holds pages that no operation names. The kernel tells of removed pages before they go, so such a registration could keep a neighbour's old page. Removed pages are
//! therefore remembered until an operation names them: a correct program does so after they went. Until then nothing is
//! registered that holds them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use hydrant_monitor::{MappedRange, MemoryChange, Monitor, mapped_ranges};
use parking_lot::RwLock;
use smallvec::SmallVec;

use super::persistent::AddressRange;

/// The number of places that remember memory used once.
const SEEN: usize = 256;

/// The most ranges of removed pages that are remembered. Beyond, the nearest ones are joined with what is between them.
const MOST_REMOVED: usize = 4096;

/// The most ranges that are remembered of those that were named while removed pages were among them.
const MOST_NAMED: usize = 4096;

/// The watched memory.
pub(super) struct WatchedMemory {
    /// Hydrant's own memory, which stays as long as the job and is never watched.
    own: AddressRange,
    /// The watched ranges, without overlap: the end of each by its start.
    ranges: RwLock<BTreeMap<u64, u64>>,
    /// The pages of watched blocks of the program's allocator, without overlap, as above.
    reported: RwLock<BTreeMap<u64, u64>>,
    /// Removed pages that no operation has named since, without overlap; empty in buckets of one page.
    removed: RwLock<BTreeMap<u64, u64>>,
    /// True if removed pages are remembered.
    has_removed: AtomicBool,
    /// The number of times that removed pages were named, and so are remembered no more.
    namings: AtomicU64,
    /// The ranges that were named at the last of these times.
    named: RwLock<VecDeque<AddressRange>>,
    /// The number of threads that begin to watch memory of which earlier registrations must end.
    unready: AtomicU32,
    /// True if removed pages are remembered: a bucket has several pages, or memory is registered ahead of its use. Never
    /// changed.
    remembers: bool,
    /// Pages that an operation has used, each in the place of its hash. An entry is overwritten by another page's.
    seen: Box<[AtomicU64]>,
}

/// Returns whether some pages of a range are among others.
fn overlaps(ranges: &BTreeMap<u64, u64>, (start, len): AddressRange) -> bool {
    let before = ranges.range(..start.saturating_add(len)).next_back();
    before.is_some_and(|(_, end)| *end > start)
}

/// Runs of pages that have changed, as addresses and bytes.
pub(super) type ChangedRanges = SmallVec<[AddressRange; 4]>;

impl WatchedMemory {
    pub(super) fn new(own: AddressRange, remembers: bool) -> Self {
        Self {
            own,
            ranges: RwLock::default(),
            reported: RwLock::default(),
            removed: RwLock::default(),
            has_removed: AtomicBool::new(false),
            namings: AtomicU64::new(0),
            named: RwLock::default(),
            unready: AtomicU32::new(0),
            remembers,
            seen: (0..SEEN).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns whether removed pages are remembered.
    pub(super) fn remembers_removed(&self) -> bool {
        self.remembers
    }

    /// Makes other threads wait with watched memory, until the earlier registrations of what the caller begins to watch
    /// have ended.
    pub(super) fn prepare(&self) -> PreparationGuard<'_> {
        self.unready.fetch_add(1, SeqCst);
        PreparationGuard(&self.unready)
    }

    /// Returns whether no thread prepares memory that it has begun to watch. Asked after [`has`](Self::has).
    pub(super) fn is_ready(&self) -> bool {
        self.unready.load(SeqCst) == 0
    }

    /// Returns whether all pages of a range are watched.
    pub(super) fn has(&self, range: AddressRange) -> bool {
        covers(&self.ranges.read(), range)
    }

    /// Returns whether changes of some pages of a range are heard.
    pub(super) fn has_some(&self, range: AddressRange) -> bool {
        overlaps(&self.ranges.read(), range) || overlaps(&self.reported.read(), range)
    }

    /// Returns whether all pages of a range belong to watched blocks of the program's allocator, which tells before it
    /// frees them. No question to the kernel is needed.
    pub(super) fn is_reported(&self, range: AddressRange) -> bool {
        covers(&self.reported.read(), range)
    }

    /// Watches the allocator's block that holds a range. Returns false if there is none. Adds the memory that is watched
    /// from now on to `fresh`: earlier registrations of it must end.
    #[cold]
    pub(super) fn watch_block(
        &self,
        monitor: &Monitor,
        range: AddressRange,
        fresh: &mut ChangedRanges,
    ) -> bool {
        // The lock is held, so that a change of this memory is applied after the block was added.
        let mut reported = self.reported.write();
        let block = monitor.watch_block(range.0, range.1);
        if let Some((start, len)) = block {
            fresh.extend(gaps(&reported, start, start + len));
            add(&mut reported, start, start + len);
        }
        block.is_some()
    }

    /// Watches all mappings with bytes of a range. Returns false if some of the memory cannot be watched. Adds to `fresh` as
    /// [`watch_block`](Self::watch_block).
    #[cold]
    pub(super) fn watch(
        &self,
        monitor: &Monitor,
        range: AddressRange,
        fresh: &mut ChangedRanges,
    ) -> bool {
        let (start, end) = (range.0, range.0.saturating_add(range.1));
        // The lock is held, so that a change of this memory is applied to the ranges after they were added.
        let mut ranges = self.ranges.write();
        for mapped in mapped_ranges(start, end) {
            let (from, to) = self.without_own((mapped.start, mapped.end), start);
            if from >= to {
                return false;
            }
            if mapped.is_system_v {
                return false;
            }
            if covers(&ranges, (from, to - from)) {
                continue;
            }
            if let Err(cause) = monitor.watch(from, to - from) {
                tracing::debug!(%cause, "memory is registered for one operation at a time");
                return false;
            }
            // A part may have been unmapped before it was watched, and mapped again since. Such a part is a mapping of
            // its own, because it is not watched.
            let is_whole =
                |found: MappedRange| found.start <= from && to <= found.end && !found.is_system_v;
            if !mapped_ranges(from, to).next().is_some_and(is_whole) {
                return false;
            }
            fresh.extend(gaps(&ranges, from, to));
            add(&mut ranges, from, to);
        }
        covers(&ranges, range)
    }

    /// Returns the part of a mapping on one side of Hydrant's own memory, where `at` lies. The kernel joins neighbouring
    /// mappings of the same kind.
    fn without_own(&self, (from, to): (u64, u64), at: u64) -> (u64, u64) {
        let own = (self.own.0, self.own.0.saturating_add(self.own.1));
        match at < own.0 {
            true => (from, to.min(own.0)),
            false => (from.max(own.1), to),
        }
    }

    /// Applies a change. Returns the memory that is no longer what it was.
    pub(super) fn apply(&self, change: &MemoryChange) -> ChangedRanges {
        let mut changed = ChangedRanges::new();
        match *change {
            MemoryChange::Removed { start, len } => {
                self.note_removed((start, len));
                changed.push((start, len));
            }
            MemoryChange::Freed { start, len } => {
                remove(&mut self.reported.write(), (start, len));
                changed.push((start, len));
            }
            MemoryChange::Unmapped { start, len } => {
                self.forget((start, len));
                changed.push((start, len));
            }
            MemoryChange::Moved { from, to, len } => {
                for start in [from, to] {
                    self.forget((start, len));
                    changed.push((start, len));
                }
            }
            MemoryChange::Anything => {
                for all in [&self.ranges, &self.reported] {
                    let ranges = std::mem::take(&mut *all.write());
                    changed.extend(ranges.into_iter().map(|(start, end)| (start, end - start)));
                }
                // Pages that were removed unheard are not held by what is watched anew.
                changed.iter().for_each(|range| self.note_removed(*range));
            }
        }
        changed
    }

    fn forget(&self, range: AddressRange) {
        remove(&mut self.ranges.write(), range);
        remove(&mut self.reported.write(), range);
        self.name(range);
    }

    fn note_removed(&self, (start, len): AddressRange) {
        if !self.remembers {
            return;
        }
        let mut removed = self.removed.write();
        add(&mut removed, start, start.saturating_add(len));
        if removed.len() > MOST_REMOVED {
            join_nearest(&mut removed, MOST_REMOVED / 4);
        }
        self.has_removed.store(true, SeqCst);
    }

    /// Notes that an operation names memory, which is as it will be.
    pub(super) fn name(&self, range: AddressRange) {
        if self.has_removed.load(SeqCst) {
            let mut removed = self.removed.write();
            if overlaps(&removed, range) {
                self.note_named(range);
                remove(&mut removed, range);
            }
            self.has_removed.store(!removed.is_empty(), SeqCst);
        }
    }

    fn note_named(&self, range: AddressRange) {
        let mut named = self.named.write();
        if named.len() == MOST_NAMED {
            named.pop_front();
        }
        named.push_back(range);
        self.namings.fetch_add(1, SeqCst);
    }

    /// Returns the number of times that removed pages were named. A registration that began before such a time may hold
    /// the pages of before, though they are not remembered any more.
    pub(super) fn namings(&self) -> u64 {
        self.namings.load(SeqCst)
    }

    /// Returns whether removed pages of a range may have been named since there were so many namings. If too many others
    /// were named, that is not known.
    pub(super) fn has_named_since(&self, namings: u64, range: AddressRange) -> bool {
        if self.namings() == namings {
            return false;
        }
        let named = self.named.read();
        let since = (self.namings() - namings) as usize;
        let end = range.0.saturating_add(range.1);
        since > named.len()
            || (named.iter().rev().take(since))
                .any(|(start, len)| *start < end && range.0 < start.saturating_add(*len))
    }

    /// Returns whether a range holds removed pages that no operation has named since.
    pub(super) fn holds_removed(&self, range: AddressRange) -> bool {
        self.has_removed.load(SeqCst) && overlaps(&self.removed.read(), range)
    }

    /// Notes a use of memory. Returns whether an earlier use of it is remembered. Memory that is used once is not worth
    /// a registration.
    pub(super) fn note_use(&self, addr: u64) -> bool {
        let page = addr >> 12;
        let place = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let entry = &self.seen[place as usize % SEEN];
        let was_there = entry.load(Relaxed) == page;
        if !was_there {
            entry.store(page, Relaxed);
        }
        was_there
    }
}

/// Ends the preparation of memory when it is dropped.
pub(super) struct PreparationGuard<'a>(&'a AtomicU32);

impl Drop for PreparationGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn covers(ranges: &BTreeMap<u64, u64>, (start, len): AddressRange) -> bool {
    let end = start.saturating_add(len);
    let before = ranges.range(..=start).next_back();
    before.is_some_and(|(_, there)| *there >= end)
}

/// Returns the parts of a range that no other covers.
fn gaps(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> ChangedRanges {
    let (mut found, mut at) = (ChangedRanges::new(), start);
    let first = ranges.range(..=start).next_back();
    for (from, to) in first.into_iter().chain(ranges.range(start + 1..end)) {
        if *from > at {
            found.push((at, from - at));
        }
        at = at.max(*to);
    }
    if at < end {
        found.push((at, end - at));
    }
    found
}

/// Adds a range, and joins it with its neighbours.
fn add(ranges: &mut BTreeMap<u64, u64>, mut start: u64, mut end: u64) {
    while let Some((from, to)) = ranges
        .range(..=end)
        .next_back()
        .map(|(from, to)| (*from, *to))
    {
        if to < start {
            break;
        }
        ranges.remove(&from);
        (start, end) = (start.min(from), end.max(to));
    }
    ranges.insert(start, end);
}

/// Joins neighbours across about the `count` smallest gaps. What is far apart stays apart.
fn join_nearest(ranges: &mut BTreeMap<u64, u64>, count: usize) {
    let of_gap = |((_, end), (start, _)): ((&u64, &u64), (&u64, &u64))| start - end;
    let mut gaps: Vec<u64> = ranges
        .iter()
        .zip(ranges.iter().skip(1))
        .map(of_gap)
        .collect();
    let Some(last) = gaps.len().checked_sub(1) else {
        return;
    };
    let (_, widest, _) = gaps.select_nth_unstable(count.min(last));
    let widest = *widest;
    let mut joined: Vec<(u64, u64)> = Vec::new();
    let mut joins = 0;
    for (start, end) in std::mem::take(ranges) {
        match joined.last_mut() {
            Some((_, before))
                if start - *before < widest || start - *before == widest && joins < count =>
            {
                *before = end;
                joins += 1;
            }
            _ => joined.push((start, end)),
        }
    }
    ranges.extend(joined);
}

/// Removes a range, and keeps what reaches beyond it.
fn remove(ranges: &mut BTreeMap<u64, u64>, (start, len): AddressRange) {
    let end = start.saturating_add(len);
    while let Some((from, to)) = ranges
        .range(..end)
        .next_back()
        .map(|(from, to)| (*from, *to))
    {
        if to <= start {
            break;
        }
        ranges.remove(&from);
        if to > end {
            ranges.insert(end, to);
        }
        if from < start {
            ranges.insert(from, start);
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_added_and_removed_as_sets_of_pages(
            steps in prop::collection::vec((0_u64..40, 1_u64..12, any::<bool>()), 1..60),
        ) {
            let mut ranges = BTreeMap::new();
            let mut pages = [false; 64];
            for (start, len, adds) in steps {
                let end = start + len;
                match adds {
                    true => add(&mut ranges, start, end),
                    false => remove(&mut ranges, (start, len)),
                }
                pages[start as usize..end as usize].fill(adds);
                for first in 0..50 {
                    for len in 1..6 {
                        let all = pages[first..first + len].iter().all(|is_there| *is_there);
                        prop_assert_eq!(covers(&ranges, (first as u64, len as u64)), all);
                        let mut shown = pages;
                        for (start, len) in gaps(&ranges, first as u64, (first + len) as u64) {
                            prop_assert!(shown[start as usize..(start + len) as usize].iter().all(|is_there| !is_there));
                            shown[start as usize..(start + len) as usize].fill(true);
                        }
                        prop_assert!(shown[first..first + len].iter().all(|is_shown| *is_shown));
                    }
                }
            }
        }
    }

    #[test]
    fn removed_pages_are_remembered_until_they_are_named() {
        let watched = WatchedMemory::new((0, 0), true);
        let page = |number: u64| (number << 12, 4096);
        let removed = |number: u64| MemoryChange::Removed {
            start: page(number).0,
            len: page(number).1,
        };
        assert_eq!(watched.apply(&removed(3)).as_slice(), [page(3)]);
        assert!(watched.holds_removed((0, 16 << 12)) && !watched.holds_removed(page(2)));
        watched.name(page(2));
        assert!(watched.holds_removed(page(3)));
        assert_eq!(watched.namings(), 0);
        watched.name(page(3));
        assert!(!watched.holds_removed((0, 16 << 12)));
        // A registration that is being made may hold the page of before.
        assert_eq!(watched.namings(), 1);
        assert!(watched.has_named_since(0, (0, 16 << 12)) && watched.has_named_since(0, page(3)));
        assert!(!watched.has_named_since(0, page(2)) && !watched.has_named_since(0, page(4)));
        assert!(!watched.has_named_since(1, page(3)));
        // Many ranges are joined, and none is lost.
        let numbers = (0..3 * MOST_REMOVED as u64).map(|number| 2 * number);
        numbers
            .clone()
            .for_each(|number| _ = watched.apply(&removed(number)));
        assert!(watched.removed.read().len() <= MOST_REMOVED);
        assert!(
            numbers
                .clone()
                .all(|number| watched.holds_removed(page(number)))
        );
        // Memory far away stays as it is.
        let far = 1 << 20;
        (0..3 * MOST_REMOVED as u64)
            .for_each(|number| _ = watched.apply(&removed(far + 2 * number)));
        assert!(watched.removed.read().len() <= MOST_REMOVED);
        assert!(watched.holds_removed(page(far)) && !watched.holds_removed(page(far - 1)));
        // Namings of long ago are not remembered.
        numbers.for_each(|number| watched.name(page(number)));
        assert!(watched.has_named_since(1, page(3)));
        let namings = watched.namings();
        watched.apply(&removed(3));
        watched.name(page(3));
        assert!(
            !watched.has_named_since(namings, page(4)) && watched.has_named_since(namings, page(3))
        );
        // In buckets of one page there are no neighbours.
        let alone = WatchedMemory::new((0, 0), false);
        alone.apply(&removed(3));
        assert!(!alone.holds_removed(page(3)));
    }

    #[test]
    fn mappings_end_at_the_own_memory() {
        let watched = WatchedMemory::new((0x5000, 0x2000), true);
        assert_eq!(
            watched.without_own((0x1000, 0x3000), 0x1000),
            (0x1000, 0x3000)
        );
        assert_eq!(
            watched.without_own((0x1000, 0x9000), 0x4000),
            (0x1000, 0x5000)
        );
        assert_eq!(
            watched.without_own((0x1000, 0x9000), 0x8000),
            (0x7000, 0x9000)
        );
        assert_eq!(
            watched.without_own((0x8000, 0x9000), 0x8000),
            (0x8000, 0x9000)
        );
        // Nothing is left of the own memory.
        for at in [0x5000, 0x6fff] {
            let (from, to) = watched.without_own((0x5000, 0x7000), at);
            assert!(from >= to);
        }
    }

    #[test]
    fn a_page_is_remembered_until_another_takes_its_place() {
        let watched = WatchedMemory::new((0, 0), false);
        assert!(!watched.note_use(0x5000));
        assert!(watched.note_use(0x5fff));
        assert!(!watched.note_use(0x6000));
    }
}
