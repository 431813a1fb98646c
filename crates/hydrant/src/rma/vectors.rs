//! Puts and gets of listed elements and runs: index lists, and ARMCI's generalized I/O vectors.

use bytemuck::Pod;

use super::unmapped::ByteRun;
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Mapped, Symmetric, check_range},
};

/// Runs of equal length at any offsets. Run `i` is the `run` elements from `remote[i]` on of a
/// rank's part, and those from `local[i]` on of the buffer. This is ARMCI's descriptor of an I/O
/// vector. With runs of one element, it is a list of indices for each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoVector<'a> {
    /// The first element of each run in the rank's part.
    pub remote: &'a [usize],
    /// The first element of each run in the buffer.
    pub local: &'a [usize],
    /// The elements in a run.
    pub run: usize,
}

impl IoVector<'_> {
    /// Checks that both sides have the same number of runs. Those in memory, counted from `start`,
    /// must lie within `len` elements, and those in the buffer within `buffer` elements.
    fn check(&self, start: usize, len: usize, buffer: usize) -> Result<()> {
        if self.remote.len() != self.local.len() {
            return Err(Error::LengthMismatch {
                what: "runs in the rank's part against runs in the buffer",
                left: self.remote.len(),
                right: self.local.len(),
            });
        }
        for at in self.remote {
            check_range(start.saturating_add(*at), self.run, len)?;
        }
        for at in self.local {
            if check_range(*at, self.run, buffer).is_err() {
                return Err(Error::OutsideBuffer {
                    index: *at,
                    count: self.run,
                    len: buffer,
                });
            }
        }
        Ok(())
    }

    /// Returns the start of each run in the rank's part, counted from element `start`, and in the
    /// buffer.
    pub(super) fn pairs(
        &self,
        start: usize,
    ) -> impl ExactSizeIterator<Item = (usize, usize)> + Clone {
        let remote = self.remote.iter().map(move |there| start + there);
        remote.zip(self.local.iter().copied())
    }

    /// Returns the runs: the start on each side, and the length.
    fn runs(&self) -> impl Iterator<Item = (usize, usize, usize)> + Clone {
        let pairs = self.remote.iter().zip(self.local);
        pairs.map(|(there, here)| (*there, *here, self.run))
    }
}

/// Returns the runs of several vectors, in their order.
pub(super) fn all_runs<'a>(
    vectors: &'a [IoVector<'a>],
) -> impl Iterator<Item = (usize, usize, usize)> + Clone + 'a {
    let runs = vectors.iter().flat_map(IoVector::runs);
    runs.filter(|(_, _, run)| *run > 0)
}

/// Converts runs to bytes.
pub(super) fn in_bytes<T>(
    runs: impl Iterator<Item = (usize, usize, usize)>,
) -> impl Iterator<Item = ByteRun> {
    let size = size_of::<T>();
    runs.map(move |(there, here, count)| ByteRun {
        there: there * size,
        here: here * size,
        len: count * size,
    })
}

/// Returns the number of these runs, and their bytes.
pub(super) fn extent<T>(runs: impl Iterator<Item = (usize, usize, usize)>) -> (usize, usize) {
    runs.fold((0, 0), |(count, bytes), (_, _, run)| {
        (count + 1, bytes + run * size_of::<T>())
    })
}

/// Returns whether runs share elements. Then the order of the copies matters. Each run is its start
/// and its length.
pub(super) fn share_elements(runs: impl Iterator<Item = (usize, usize)>) -> bool {
    let mut runs: Vec<_> = runs.collect();
    runs.sort_unstable();
    runs.windows(2).any(|two| two[0].0 + two[0].1 > two[1].0)
}

/// Checks vectors as a whole, for memory of `len` elements, counted from `start`.
pub(super) fn check(
    vectors: &[IoVector<'_>],
    (start, len): (usize, usize),
    buffer: usize,
) -> Result<()> {
    (vectors.iter()).try_for_each(|vector| vector.check(start, len, buffer))
}

impl<T: Pod> Symmetric<T> {
    /// Puts `data[i]` at element `indices[i]`, for each `i` in order.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::LengthMismatch`].
    pub fn put_indexed(&self, rank: Rank, indices: &[usize], data: &[T]) -> Result<()> {
        self.check_indices(rank, indices, data)?;
        let pairs = indices.iter().copied().zip(0..indices.len());
        if let Some(mapped) = self.block().reach(rank) {
            self.store_list(mapped, data, 1, pairs)?;
            return self.after_store(mapped, rank);
        }
        self.put_runs(rank, data, pairs.map(|(there, here)| (there, here, 1)))
    }

    /// Gets element `indices[i]` into `data[i]`, for each `i`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::LengthMismatch`].
    pub fn get_indexed(&self, rank: Rank, indices: &[usize], data: &mut [T]) -> Result<()> {
        self.check_indices(rank, indices, data)?;
        let pairs = indices.iter().copied().zip(0..indices.len());
        if let Some(mapped) = self.block().reach(rank) {
            return self.load_list(mapped, data, 1, pairs);
        }
        self.get_runs(rank, data, pairs.map(|(there, here)| (there, here, 1)))
    }

    /// Puts the runs of `data` that `vectors` list, in order: ARMCI's `PutV`. The put is remotely
    /// complete on return.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// use hydrant::IoVector;
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let table = job.alloc::<u64>(100)?;
    /// let rows = IoVector { remote: &[10, 70], local: &[0, 2], run: 2 };
    /// let cells = IoVector { remote: &[99], local: &[0], run: 1 };
    /// table.put_vector(job.right(), &[rows, cells], &[1, 2, 3, 4])?;
    /// job.barrier()?;
    /// let mine = table.local()?;
    /// assert_eq!([mine.load(11)?, mine.load(70)?, mine.load(99)?], [2, 3, 1]);
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::LengthMismatch`] if the sides of a vector differ in length,
    /// [`Error::OutsideBuffer`] if a run leaves `data`. In these two cases nothing is put.
    pub fn put_vector(&self, rank: Rank, vectors: &[IoVector<'_>], data: &[T]) -> Result<()> {
        self.put_vector_from(rank, 0, vectors, data)
    }

    /// Gets the runs that `vectors` list into `data`, in order: ARMCI's `GetV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector).
    pub fn get_vector(&self, rank: Rank, vectors: &[IoVector<'_>], data: &mut [T]) -> Result<()> {
        self.get_vector_from(rank, 0, vectors, data)
    }

    /// As [`put_vector`](Self::put_vector), with runs counted from element `start`.
    pub(super) fn put_vector_from(
        &self,
        rank: Rank,
        start: usize,
        vectors: &[IoVector<'_>],
        data: &[T],
    ) -> Result<()> {
        check(vectors, (start, self.len()), data.len())?;
        let runs = all_runs(vectors).map(|(there, here, run)| (start + there, here, run));
        self.check_runs(rank, runs.clone(), data)?;
        if let Some(mapped) = self.block().reach(rank) {
            for vector in vectors {
                self.store_list(mapped, data, vector.run, vector.pairs(start))?;
            }
            return self.after_store(mapped, rank);
        }
        self.put_runs(rank, data, runs)
    }

    /// As [`get_vector`](Self::get_vector), with runs counted from element `start`.
    pub(super) fn get_vector_from(
        &self,
        rank: Rank,
        start: usize,
        vectors: &[IoVector<'_>],
        data: &mut [T],
    ) -> Result<()> {
        check(vectors, (start, self.len()), data.len())?;
        let runs = all_runs(vectors).map(|(there, here, run)| (start + there, here, run));
        self.check_runs(rank, runs.clone(), data)?;
        if let Some(mapped) = self.block().reach(rank) {
            return (vectors.iter()).try_for_each(|vector| {
                self.load_list(mapped, data, vector.run, vector.pairs(start))
            });
        }
        self.get_runs(rank, data, runs)
    }

    /// Puts checked runs of `run` elements each, in order. Each pair is the start in the part and
    /// in `data`.
    fn store_list(
        &self,
        mapped: &Mapped,
        data: &[T],
        run: usize,
        pairs: impl ExactSizeIterator<Item = (usize, usize)>,
    ) -> Result<()> {
        let (size, count) = (size_of::<T>(), pairs.len());
        let (puts, bytes) = (count as u64, (count * run * size) as u64);
        (self.block().tally).add_each([(Count::Puts, puts), (Count::PutBytes, bytes)]);
        let pairs = pairs.map(|(there, here)| (there * size, here * size));
        (mapped.window)
            .write_list(bytemuck::cast_slice(data), run * size, pairs)
            .map_err(|_| self.outside(0, run))
    }

    /// As [`store_list`](Self::store_list), for a get.
    fn load_list(
        &self,
        mapped: &Mapped,
        data: &mut [T],
        run: usize,
        pairs: impl ExactSizeIterator<Item = (usize, usize)>,
    ) -> Result<()> {
        let (size, count) = (size_of::<T>(), pairs.len());
        let (gets, bytes) = (count as u64, (count * run * size) as u64);
        (self.block().tally).add_each([(Count::Gets, gets), (Count::GetBytes, bytes)]);
        let pairs = pairs.map(|(there, here)| (there * size, here * size));
        (mapped.window)
            .read_list(bytemuck::cast_slice_mut(data), run * size, pairs)
            .map_err(|_| self.outside(0, run))
    }

    /// Puts checked runs in order, one by one.
    fn put_runs(
        &self,
        rank: Rank,
        data: &[T],
        mut runs: impl Iterator<Item = (usize, usize, usize)> + Clone,
    ) -> Result<()> {
        let is_unmapped = self.block().part(rank)?.mapped.is_none();
        if is_unmapped && !share_elements(runs.clone().map(|(there, _, run)| (there, run))) {
            let (transfer, bytes) = (self.block().transfer()?, bytemuck::cast_slice(data));
            let extent = extent::<T>(runs.clone());
            return self
                .unmapped(&transfer, rank)
                .put(bytes, extent, in_bytes::<T>(runs));
        }
        runs.try_for_each(|(there, here, run)| match run {
            1 => self.put_value(rank, there, data[here]),
            _ => self.put(rank, there, &data[here..here + run]),
        })
    }

    /// Gets checked runs in order, one by one.
    fn get_runs(
        &self,
        rank: Rank,
        data: &mut [T],
        mut runs: impl Iterator<Item = (usize, usize, usize)> + Clone,
    ) -> Result<()> {
        let is_unmapped = self.block().part(rank)?.mapped.is_none();
        if is_unmapped && !share_elements(runs.clone().map(|(_, here, run)| (here, run))) {
            let (transfer, bytes) = (self.block().transfer()?, bytemuck::cast_slice_mut(data));
            let extent = extent::<T>(runs.clone());
            return self
                .unmapped(&transfer, rank)
                .get(bytes, extent, in_bytes::<T>(runs));
        }
        runs.try_for_each(|(there, here, run)| match run {
            1 => {
                data[here] = self.get_value(rank, there)?;
                Ok(())
            }
            _ => self.get(rank, there, &mut data[here..here + run]),
        })
    }

    /// Checks the rank and the indices, and that the whole buffer lies apart from each element.
    fn check_indices(&self, rank: Rank, indices: &[usize], data: &[T]) -> Result<()> {
        if indices.len() != data.len() {
            return Err(Error::LengthMismatch {
                what: "indices against elements in the buffer",
                left: indices.len(),
                right: data.len(),
            });
        }
        (indices.iter()).try_for_each(|index| check_range(*index, 1, self.len()))?;
        let part = self.block().part(rank)?;
        self.check_apart(part, (0, self.len()), (|| indices.iter().copied(), 1), data)
    }

    /// Checks the rank, and that the whole buffer lies apart from each run.
    pub(super) fn check_runs(
        &self,
        rank: Rank,
        runs: impl Iterator<Item = (usize, usize, usize)>,
        data: &[T],
    ) -> Result<()> {
        let part = self.block().part(rank)?;
        let all = || std::iter::once(0);
        // The buffer nearly always lies elsewhere.
        if self
            .check_apart(part, (0, self.len()), (all, self.len()), data)
            .is_ok()
        {
            return Ok(());
        }
        for (there, _, run) in runs {
            let start = || std::iter::once(there);
            self.check_apart(part, (there, run), (start, run), data)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_share_elements_are_found() {
        for (runs, shared) in [
            (&[(3, 2), (0, 3), (5, 1)][..], false),
            (&[(3, 2), (0, 4)], true),
            (&[(7, 1), (1, 1), (7, 1)], true),
            (&[(7, 1)], false),
            (&[], false),
        ] {
            assert_eq!(share_elements(runs.iter().copied()), shared, "{runs:?}");
        }
    }
}
