//! Puts and gets of a run of elements, blocking.

use bytemuck::Pod;
use hydrant_conduit::{Key, Remote};

use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Block, Symmetric, fill, overlap},
};

impl<T: Pod> Symmetric<T> {
    /// Puts `data` into the part of `rank`, from element `index` on. Remotely complete on
    /// return.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::OutOfBounds`], [`Error::Overlap`] if `data` is
    /// where it is to be put, [`Error::Freed`], [`Error::JobOver`], [`Error::PeerLost`].
    #[inline]
    pub fn put(&self, rank: Rank, index: usize, data: &[T]) -> Result<()> {
        let block = self.block();
        let part = block.part(rank)?;
        let offset = self.offset(index, data.len())?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        block.tally.one(Count::Puts);
        block.tally.add(Count::PutBytes, bytes.len() as u64);
        let Some(mapped) = &part.mapped else {
            return self.put_indirect(rank, offset, bytes);
        };
        if mapped.window.overlaps(offset, bytes.len(), bytes) {
            return Err(overlap(bytes));
        }
        if mapped.window.write(offset, bytes).is_err() {
            return Err(self.outside(index, data.len()));
        }
        if mapped.is_watched() {
            block.wake(rank);
        }
        Ok(())
    }

    /// Gets elements of `rank`, from element `index` on, into `data`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn get(&self, rank: Rank, index: usize, data: &mut [T]) -> Result<()> {
        let block = self.block();
        let part = block.part(rank)?;
        let offset = self.offset(index, data.len())?;
        let count = data.len();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
        block.tally.one(Count::Gets);
        block.tally.add(Count::GetBytes, bytes.len() as u64);
        let Some(mapped) = &part.mapped else {
            return self.get_indirect(rank, offset, bytes);
        };
        if mapped.window.overlaps(offset, bytes.len(), bytes) {
            return Err(overlap(bytes));
        }
        if mapped.window.read(offset, bytes).is_err() {
            return Err(self.outside(index, count));
        }
        Ok(())
    }

    /// Puts one element.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn put_value(&self, rank: Rank, index: usize, value: T) -> Result<()> {
        self.put(rank, index, std::slice::from_ref(&value))
    }

    /// Gets one element.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn get_value(&self, rank: Rank, index: usize) -> Result<T> {
        let mut value = T::zeroed();
        self.get(rank, index, std::slice::from_mut(&mut value))?;
        Ok(value)
    }

    /// Sets elements of `rank` to one value: memset, for any element.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn fill(&self, rank: Rank, range: std::ops::Range<usize>, value: T) -> Result<()> {
        let block = self.block();
        let part = block.part(rank)?;
        let count = range.end.checked_sub(range.start).unwrap_or(usize::MAX);
        let offset = self.offset(range.start, count)?;
        block.tally.one(Count::Puts);
        block
            .tally
            .add(Count::PutBytes, (count * size_of::<T>()) as u64);
        let Some(mapped) = &part.mapped else {
            let pattern = vec![value; count];
            return self.put_indirect(rank, offset, bytemuck::cast_slice(&pattern));
        };
        if fill(&mapped.window, range.start, count, &value).is_err() {
            return Err(self.outside(range.start, count));
        }
        block.touched(rank);
        Ok(())
    }

    #[cold]
    fn put_indirect(&self, rank: Rank, offset: usize, bytes: &[u8]) -> Result<()> {
        let core = self.block().core()?;
        core.write(rank, place(self.block(), offset), bytes)
    }

    #[cold]
    fn get_indirect(&self, rank: Rank, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let core = self.block().core()?;
        core.read(rank, place(self.block(), offset), bytes)
    }

    #[cold]
    fn outside(&self, index: usize, count: usize) -> Error {
        Error::OutOfBounds {
            index,
            count,
            len: self.len(),
        }
    }
}

/// Where a byte of an allocation lies in its owner's segment.
pub(super) fn place(block: &Block, offset: usize) -> Remote {
    Remote {
        key: Key::SEGMENT,
        offset: (block.offset + offset) as u64,
    }
}
