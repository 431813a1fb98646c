//! Strided and indexed puts and gets: many small runs in one call.

use bytemuck::Pod;

use crate::{
    Error, Rank, Result,
    memory::{Symmetric, overlap},
};

/// Runs of elements at equal distances in a rank's part.
///
/// Run `i` is the `run` elements from `start + i × stride` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// First element of the first run.
    pub start: usize,
    /// Elements in a run.
    pub run: usize,
    /// Elements from the start of one run to the start of the next; at least `run`.
    pub stride: usize,
    /// Runs.
    pub count: usize,
}

impl Stride {
    /// Checks that the runs lie within `len` elements and that a buffer of `buffer` elements
    /// holds them.
    fn check(&self, buffer: usize, len: usize) -> Result<()> {
        let total = self.run.checked_mul(self.count);
        if total != Some(buffer) {
            return Err(Error::LengthMismatch {
                what: "elements in the buffer against elements in the runs",
                left: buffer,
                right: total.unwrap_or(usize::MAX),
            });
        }
        if self.stride < self.run && self.count > 1 {
            return Err(Error::LengthMismatch {
                what: "a stride shorter than the run makes runs overlap",
                left: self.stride,
                right: self.run,
            });
        }
        let last = (self.count.saturating_sub(1))
            .checked_mul(self.stride)
            .and_then(|last| last.checked_add(self.start))
            .unwrap_or(usize::MAX);
        crate::memory::check_range(last, self.run, len)
    }

    fn starts(&self) -> impl Iterator<Item = usize> {
        let Self { start, stride, .. } = *self;
        (0..self.count).map(move |number| start + number * stride)
    }
}

impl<T: Pod> Symmetric<T> {
    /// Puts consecutive runs of `data` where `to` says. Checked as a whole before anything is
    /// put.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::LengthMismatch`].
    pub fn put_strided(&self, rank: Rank, to: Stride, data: &[T]) -> Result<()> {
        to.check(data.len(), self.len())?;
        if to.run == 0 {
            return self.block().part(rank).map(|_| ());
        }
        self.check_apart(rank, to.starts(), to.run, bytemuck::cast_slice(data))?;
        for (start, run) in to.starts().zip(data.chunks_exact(to.run)) {
            self.put(rank, start, run)?;
        }
        Ok(())
    }

    /// Gets the runs that `from` says into consecutive runs of `data`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::LengthMismatch`].
    pub fn get_strided(&self, rank: Rank, from: Stride, data: &mut [T]) -> Result<()> {
        from.check(data.len(), self.len())?;
        if from.run == 0 {
            return self.block().part(rank).map(|_| ());
        }
        self.check_apart(rank, from.starts(), from.run, bytemuck::cast_slice(data))?;
        for (start, run) in from.starts().zip(data.chunks_exact_mut(from.run)) {
            self.get(rank, start, run)?;
        }
        Ok(())
    }

    /// Puts `data[i]` at element `indices[i]`, for each `i` in order. Checked as a whole
    /// before anything is put.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::LengthMismatch`].
    pub fn put_indexed(&self, rank: Rank, indices: &[usize], data: &[T]) -> Result<()> {
        self.check_indices(indices, data.len())?;
        let starts = indices.iter().copied();
        self.check_apart(rank, starts, 1, bytemuck::cast_slice(data))?;
        for (index, value) in indices.iter().zip(data) {
            self.put(rank, *index, std::slice::from_ref(value))?;
        }
        Ok(())
    }

    /// Gets element `indices[i]` into `data[i]`, for each `i`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::LengthMismatch`].
    pub fn get_indexed(&self, rank: Rank, indices: &[usize], data: &mut [T]) -> Result<()> {
        self.check_indices(indices, data.len())?;
        let starts = indices.iter().copied();
        self.check_apart(rank, starts, 1, bytemuck::cast_slice(data))?;
        for (index, value) in indices.iter().zip(data) {
            self.get(rank, *index, std::slice::from_mut(value))?;
        }
        Ok(())
    }

    /// Checks that the whole buffer lies apart from every run, and that there is such a rank.
    fn check_apart(
        &self,
        rank: Rank,
        mut starts: impl Iterator<Item = usize>,
        run: usize,
        buffer: &[u8],
    ) -> Result<()> {
        let Some(mapped) = &self.block().part(rank)?.mapped else {
            return Ok(());
        };
        let size = size_of::<T>();
        if starts.any(|start| mapped.window.overlaps(start * size, run * size, buffer)) {
            return Err(overlap(buffer));
        }
        Ok(())
    }

    fn check_indices(&self, indices: &[usize], buffer: usize) -> Result<()> {
        if indices.len() != buffer {
            return Err(Error::LengthMismatch {
                what: "indices against elements in the buffer",
                left: indices.len(),
                right: buffer,
            });
        }
        (indices.iter()).try_for_each(|index| crate::memory::check_range(*index, 1, self.len()))
    }
}
