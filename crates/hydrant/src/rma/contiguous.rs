//! Blocking puts and gets of a run of elements.

use bytemuck::Pod;
use hydrant_conduit::{Key, Remote};

use crate::{
    Error, Rank, Result,
    counters::{Count, Own},
    memory::{Block, Mapped, Symmetric, fill, overlap},
    progress,
};

/// The most bytes of the pattern that is sent to fill memory that is not mapped here.
const PATTERN: usize = 1 << 20;

impl<T: Pod> Symmetric<T> {
    /// Puts `data` into the part of `rank`, from element `index` on. The put is remotely complete
    /// on return.
    ///
    /// # Errors
    /// - [`Error::RankOutOfRange`], [`Error::OutOfBounds`].
    /// - [`Error::Overlap`] if `data` overlaps the destination.
    /// - [`Error::Freed`], [`Error::JobOver`], [`Error::PeerLost`].
    #[inline(always)] // a store and its checks; all else is out of line
    #[track_caller]
    pub fn put(&self, rank: Rank, index: usize, data: &[T]) -> Result<()> {
        if self.put_at_once(rank, index, data) {
            return Ok(());
        }
        self.put_slow(rank, index, data)
    }

    /// Gets elements of `rank`, from element `index` on, into `data`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, rank: Rank, index: usize, data: &mut [T]) -> Result<()> {
        if self.get_at_once(rank, index, data) {
            return Ok(());
        }
        self.get_slow(rank, index, data)
    }

    /// Puts one element.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline(always)]
    #[track_caller]
    pub fn put_value(&self, rank: Rank, index: usize, value: T) -> Result<()> {
        if let Some((mapped, own)) = self.near(rank)
            && mapped.window.store(index, value)
        {
            own.put(size_of::<T>());
            return self.after_store(mapped, rank);
        }
        self.put_slow(rank, index, std::slice::from_ref(&value))
    }

    /// Gets one element.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline(always)]
    #[track_caller]
    pub fn get_value(&self, rank: Rank, index: usize) -> Result<T> {
        if let Some((mapped, own)) = self.near(rank)
            && let Some(value) = mapped.window.load(index)
        {
            own.get(size_of::<T>());
            return Ok(value);
        }
        self.get_value_slow(rank, index)
    }

    /// The fast path of a put. Returns whether it did the put. It does nothing if any check fails,
    /// if the part is not mapped here, or for this thread's first operation.
    #[inline(always)]
    pub(super) fn put_at_once(&self, rank: Rank, index: usize, data: &[T]) -> bool {
        let Some((mapped, own)) = self.near(rank) else {
            return false;
        };
        if !mapped.window.put(index, data, |bytes| own.put(bytes)) {
            return false;
        }
        if mapped.is_watched() {
            self.block().wake(rank);
        }
        true
    }

    /// As [`put_at_once`](Self::put_at_once), for a get.
    #[inline(always)]
    pub(super) fn get_at_once(&self, rank: Rank, index: usize, data: &mut [T]) -> bool {
        let Some((mapped, own)) = self.near(rank) else {
            return false;
        };
        mapped.window.get(index, data, |bytes| own.get(bytes))
    }

    /// Returns the part of `rank`, if it is mapped here and this thread has its own counters. The
    /// comparison in the gate covers all other checks.
    #[inline(always)]
    pub(super) fn near(&self, rank: Rank) -> Option<(&Mapped, Own<'_>)> {
        let block = self.block();
        Some((block.near(rank)?, block.tally.own()?))
    }

    #[inline(always)]
    pub(super) fn after_store(&self, mapped: &Mapped, rank: Rank) -> Result<()> {
        if mapped.is_watched() {
            self.block().wake(rank);
        }
        Ok(())
    }

    /// The slow path of a put: repeats the checks, for their errors, and takes any route.
    #[cold] // keeps the fast path short: any other access takes far longer than this call
    #[inline(never)]
    #[track_caller]
    fn put_slow(&self, rank: Rank, index: usize, data: &[T]) -> Result<()> {
        let block = self.block();
        let part = block.part(rank)?;
        let offset = self.offset(index, data.len())?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        if let Some(mapped) = &part.mapped
            && mapped.window.overlaps(offset, bytes.len(), bytes)
        {
            return Err(overlap(bytes));
        }
        (block.tally).add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
        let Some(mapped) = &part.mapped else {
            return block.transfer()?.write(rank, place(block, offset), bytes);
        };
        if mapped.window.write(offset, bytes).is_err() {
            return Err(self.outside(index, data.len()));
        }
        self.after_store(mapped, rank)
    }

    #[cold] // keeps the fast path short: any other access takes far longer than this call
    #[inline(never)]
    #[track_caller]
    fn get_slow(&self, rank: Rank, index: usize, data: &mut [T]) -> Result<()> {
        let block = self.block();
        let part = block.part(rank)?;
        let count = data.len();
        let offset = self.offset(index, count)?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
        if let Some(mapped) = &part.mapped
            && mapped.window.overlaps(offset, bytes.len(), bytes)
        {
            return Err(overlap(bytes));
        }
        (block.tally).add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
        let Some(mapped) = &part.mapped else {
            return block.transfer()?.read(rank, place(block, offset), bytes);
        };
        block.poll_memory();
        (mapped.window.read(offset, bytes)).map_err(|_| self.outside(index, count))
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn get_value_slow(&self, rank: Rank, index: usize) -> Result<T> {
        let mut value = T::zeroed();
        self.get_slow(rank, index, std::slice::from_mut(&mut value))?;
        Ok(value)
    }

    /// Sets elements of `rank` to `value`, as `memset` does, for any type of element.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[track_caller]
    pub fn fill(&self, rank: Rank, range: std::ops::Range<usize>, value: T) -> Result<()> {
        let block = self.block();
        let part = block.part(rank)?;
        let count = range.end.checked_sub(range.start).unwrap_or(usize::MAX);
        let offset = self.offset(range.start, count)?;
        (block.tally).add_each([
            (Count::Puts, 1),
            (Count::PutBytes, (count * size_of::<T>()) as u64),
        ]);
        let Some(mapped) = &part.mapped else {
            return self.fill_unmapped(rank, (offset, count), value);
        };
        if fill(&mapped.window, range.start, count, &value).is_err() {
            return Err(self.outside(range.start, count));
        }
        block.wake_watchers(rank);
        Ok(())
    }

    /// Fills elements that are not mapped here. It sends the same pattern repeatedly, so that its
    /// memory does not grow with the number of elements.
    fn fill_unmapped(&self, rank: Rank, (offset, count): (usize, usize), value: T) -> Result<()> {
        progress::may_wait("a fill that goes through the network")?;
        let (block, bytes) = (self.block(), count * size_of::<T>());
        let pattern = vec![value; count.min((PATTERN / size_of::<T>().max(1)).max(1))];
        let pattern: &[u8] = bytemuck::cast_slice(&pattern);
        let starts = (0..bytes).step_by(pattern.len().max(1));
        let pieces = starts.map(|at| {
            let piece = &pattern[..pattern.len().min(bytes - at)];
            (place(block, offset + at), piece)
        });
        block.transfer()?.write_all(rank, pieces)
    }

    #[cold]
    pub(super) fn outside(&self, index: usize, count: usize) -> Error {
        Error::OutOfBounds {
            index,
            count,
            len: self.len(),
        }
    }
}

/// Returns the conduit's name for a byte of an allocation.
pub(super) fn place(block: &Block, offset: usize) -> Remote {
    Remote {
        key: Key::SEGMENT,
        offset: (block.offset + offset) as u64,
    }
}
