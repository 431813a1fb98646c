//! Accumulate: adds multiples of elements to those of a rank, `y += a·x`, element by element
//! (Nieplocha and others 2002, §2).
//!
//! Each addition holds the [lock](crate::memory::Locks) of the stretch of memory, so that
//! concurrent additions to an element are not lost. If the memory is mapped here the caller adds.
//! Otherwise a message asks its owner to add.

use bytemuck::Pod;
use hydrant_conduit::memory::{Factor, Number, Runs};

use super::{
    nest,
    pieces::{check_fit, runs_of},
    section::Section,
    unmapped::ByteRun,
    vectors::{self, IoVector, all_runs, in_bytes},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Adder, BlockPart, Mapped, Symmetric, check_range},
};

mod sealed {
    pub trait Sealed {
        const NUMBER: hydrant_conduit::memory::Number;
    }
}

/// Elements that can be added to: `i32`, `u32`, `i64`, `u64`, which wrap around, `f32`, `f64`, and
/// complex numbers of the last two.
pub trait Accumulate: Pod + sealed::Sealed {}

macro_rules! accumulate {
    ($($type:ty => $number:ident),+) => {$(
        impl sealed::Sealed for $type {
            const NUMBER: Number = Number::$number;
        }
        impl Accumulate for $type {}
    )+};
}

accumulate!(i32 => I32, u32 => I32, i64 => I64, u64 => I64, f32 => F32, f64 => F64);
#[cfg(feature = "num-complex")]
accumulate!(num_complex::Complex<f32> => C32, num_complex::Complex<f64> => C64);

impl<T: Accumulate> Symmetric<T> {
    /// Adds `factor × data[i]` to element `index + i` of `rank`, for each `i`: ARMCI's `Acc`. The
    /// addition is done when this returns. It is atomic for each element with respect to other
    /// accumulates, but they may see some elements before others. It is not atomic with respect to
    /// puts and [atomic operations](Self::fetch_add): if both change an element, one of the changes
    /// may be lost.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(3, |job| {
    /// let sums = job.alloc::<f64>(2)?;
    /// for rank in job.ranks() {
    ///     sums.accumulate(rank, 0, 0.5, &[1.0, 2.0])?;
    /// }
    /// job.barrier()?;
    /// assert_eq!((sums.local()?.load(0)?, sums.local()?.load(1)?), (1.5, 3.0));
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::PeerLost`] also for a rank that ended while it added to the
    /// same memory. In that case, part of the data may have been added.
    #[inline]
    pub fn accumulate(&self, rank: Rank, index: usize, factor: T, data: &[T]) -> Result<()> {
        let at = self.offset(index, data.len())?;
        self.add_run(rank, at, &factor_of(factor), bytemuck::cast_slice(data))
    }

    /// Adds multiples of the elements of `data` that `from` names to the elements that `to` names,
    /// as [`accumulate`](Self::accumulate) does: ARMCI's `AccS`. An element that `to` names twice
    /// is added to twice.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate) and [`put_section`](Self::put_section).
    pub fn accumulate_section(
        &self,
        rank: Rank,
        to: &Section,
        factor: T,
        data: &[T],
        from: &Section,
    ) -> Result<()> {
        self.add_section(rank, to, &factor_of(factor), data, from)
    }

    /// Adds multiples of the runs of `data` to the runs that `vectors` list, in order, as
    /// [`accumulate`](Self::accumulate) does: ARMCI's `AccV`.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate) and [`put_vector`](Self::put_vector).
    pub fn accumulate_vector(
        &self,
        rank: Rank,
        vectors: &[IoVector<'_>],
        factor: T,
        data: &[T],
    ) -> Result<()> {
        self.add_vector(rank, vectors, &factor_of(factor), data)
    }
}

/// Accumulates on memory that holds elements of several types. The factor tells the type. Offsets
/// and lengths are in bytes; an element may begin at any byte.
impl Symmetric<u8> {
    /// As [`accumulate`](Symmetric::accumulate).
    ///
    /// # Errors
    /// As [`accumulate`](Symmetric::accumulate); [`Error::LengthMismatch`] if `data` has no whole
    /// elements.
    #[inline]
    pub fn accumulate_bytes(
        &self,
        rank: Rank,
        at: usize,
        factor: &Factor,
        data: &[u8],
    ) -> Result<()> {
        check_range(at, data.len(), self.len())?;
        check_whole(factor, data.len())?;
        self.add_run(rank, at, factor, data)
    }

    /// As [`accumulate_section`](Symmetric::accumulate_section).
    ///
    /// # Errors
    /// As [`accumulate_section`](Symmetric::accumulate_section); [`Error::LengthMismatch`] if a run
    /// has no whole elements.
    pub fn accumulate_bytes_section(
        &self,
        rank: Rank,
        to: &Section,
        factor: &Factor,
        data: &[u8],
        from: &Section,
    ) -> Result<()> {
        // An empty section has no runs to check.
        for section in [to, from].into_iter().filter(|it| !it.is_empty()) {
            check_whole(factor, section.run_len())?;
        }
        self.add_section(rank, to, factor, data, from)
    }

    /// As [`accumulate_vector`](Symmetric::accumulate_vector).
    ///
    /// # Errors
    /// As [`accumulate_vector`](Symmetric::accumulate_vector); [`Error::LengthMismatch`] if a run
    /// has no whole elements.
    pub fn accumulate_bytes_vector(
        &self,
        rank: Rank,
        vectors: &[IoVector<'_>],
        factor: &Factor,
        data: &[u8],
    ) -> Result<()> {
        (vectors.iter()).try_for_each(|vector| check_whole(factor, vector.run))?;
        self.add_vector(rank, vectors, factor, data)
    }
}

impl<T: Pod> Symmetric<T> {
    #[inline]
    fn add_run(&self, rank: Rank, at: usize, factor: &Factor, data: &[u8]) -> Result<()> {
        let part = self.block().part(rank)?;
        if let Some(mapped) = &part.mapped
            && mapped.window.overlaps(at, data.len(), data)
        {
            return Err(crate::memory::overlap(data));
        }
        let run = ByteRun {
            there: at,
            here: 0,
            len: data.len(),
        };
        self.add_all(rank, part, std::iter::once(run), factor, data)
    }

    fn add_section(
        &self,
        rank: Rank,
        to: &Section,
        factor: &Factor,
        data: &[T],
        from: &Section,
    ) -> Result<()> {
        check_range(to.start(), to.span(), self.len())?;
        check_fit(to, data.len(), from)?;
        let part = self.block().part(rank)?;
        if to.is_empty() {
            return Ok(());
        }
        let runs = (|| to.starts(), to.run_len());
        self.check_apart(part, (to.start(), to.span()), runs, data)?;
        let bytes = bytemuck::cast_slice(data);
        let mut runs = Runs::new(0);
        if let Some(mapped) = &part.mapped
            && let Some(()) = nest::loops(&mut runs, to, from, size_of::<T>())
        {
            let [there, here] = [to, from].map(|section| section.start() * size_of::<T>());
            return self.add_mapped(rank, mapped, [runs.count(), runs.bytes()], |adder| {
                adder.add_runs_of(there, (bytes, here), &runs, factor)
            });
        }
        let runs = runs_of::<T>(to, from);
        self.add_all(rank, part, runs, factor, bytes)
    }

    /// Adds to memory that is mapped here. `runs` and `bytes` are counted.
    #[inline]
    pub(super) fn add_mapped(
        &self,
        rank: Rank,
        mapped: &Mapped,
        [runs, bytes]: [usize; 2],
        add: impl FnOnce(&mut Adder<'_>) -> Result<()>,
    ) -> Result<()> {
        let block = self.block();
        block.poll_memory();
        let mut adder = block.locks.adder(rank, &mapped.window)?;
        add(&mut adder)?;
        drop(adder);
        (block.tally).add_each([
            (Count::Accumulates, runs as u64),
            (Count::AccumulatedBytes, bytes as u64),
        ]);
        self.after_store(mapped, rank)
    }

    fn add_vector(
        &self,
        rank: Rank,
        vectors: &[IoVector<'_>],
        factor: &Factor,
        data: &[T],
    ) -> Result<()> {
        vectors::check(vectors, (0, self.len()), data.len())?;
        self.check_runs(rank, all_runs(vectors), data)?;
        let part = self.block().part(rank)?;
        if let Some(mapped) = &part.mapped {
            let (bytes, size): (&[u8], _) = (bytemuck::cast_slice(data), size_of::<T>());
            let (count, sum) = vectors::extent::<T>(all_runs(vectors));
            return self.add_mapped(rank, mapped, [count, sum], |adder| {
                vectors.iter().try_for_each(|vector| {
                    let pairs = vector.pairs(0);
                    let pairs = pairs.map(|(there, here)| (there * size, here * size));
                    adder.add_list_of(vector.run * size, bytes, pairs, factor)
                })
            });
        }
        let runs = in_bytes::<T>(all_runs(vectors));
        self.add_all(rank, part, runs, factor, bytemuck::cast_slice(data))
    }

    /// Adds multiples of checked runs.
    #[inline]
    fn add_all(
        &self,
        rank: Rank,
        part: &BlockPart,
        runs: impl Iterator<Item = ByteRun>,
        factor: &Factor,
        data: &[u8],
    ) -> Result<()> {
        let block = self.block();
        let (mut count, mut bytes) = (0, 0);
        let runs = runs.inspect(|run| {
            count += 1;
            bytes += run.len as u64;
        });
        let Some(mapped) = &part.mapped else {
            let transfer = block.transfer()?;
            let data = |run: &ByteRun| &data[run.here..][..run.len];
            let added = self.unmapped(&transfer, rank).add(data, runs, factor);
            (block.tally).add_each([
                (Count::Accumulates, count),
                (Count::AccumulatedBytes, bytes),
            ]);
            return added;
        };
        block.poll_memory();
        let mut adder = block.locks.adder(rank, &mapped.window)?;
        for run in runs {
            adder.add(run.there, &data[run.here..][..run.len], factor)?;
        }
        drop(adder);
        (block.tally).add_each([
            (Count::Accumulates, count),
            (Count::AccumulatedBytes, bytes),
        ]);
        self.after_store(mapped, rank)
    }
}

#[inline]
fn factor_of<T: Accumulate>(factor: T) -> Factor {
    Factor::from_bytes(T::NUMBER, bytemuck::bytes_of(&factor)).expect("as many bytes as it has")
}

/// Checks that so many bytes are whole elements.
#[inline]
pub(super) fn check_whole(factor: &Factor, bytes: usize) -> Result<()> {
    let size = factor.number().size();
    // Sizes are powers of two.
    if bytes & (size - 1) == 0 {
        return Ok(());
    }
    Err(Error::LengthMismatch {
        what: "bytes in a run against bytes of an element, of which a run has whole ones",
        left: bytes,
        right: size,
    })
}
