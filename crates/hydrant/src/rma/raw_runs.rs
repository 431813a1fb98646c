//! Puts, gets and accumulates of many runs between memory that is mapped here and memory of which only
//! the caller knows where it is: for the runtimes of other languages, which name memory by addresses.

#![allow(unsafe_code)] // memory is named by its address

use hydrant_conduit::memory::{Column, Factor, Runs};

use super::accumulate::check_whole;
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Mapped, Symmetric},
};

/// Runs of bytes at any addresses, where a rank's part is mapped here. Else [`Error::Other`].
impl Symmetric<u8> {
    /// Puts bytes from `source` on to byte `at`, and says whether it did: not if anything is wrong or in the way, nor with
    /// this thread's first operation. [`put`](Self::put) does it then, or says why not.
    ///
    /// # Safety
    /// 1. So many bytes are readable at `source`.
    /// 2. Nobody writes to them meanwhile.
    #[inline(always)]
    pub unsafe fn put_raw_at_once(
        &self,
        rank: Rank,
        at: usize,
        source: *const u8,
        bytes: usize,
    ) -> bool {
        // SAFETY: 1., 2.
        let data = unsafe { std::slice::from_raw_parts(source, bytes) };
        self.put_at_once(rank, at, data)
    }

    /// Gets bytes from byte `at` on to `target`, as [`put_raw_at_once`](Self::put_raw_at_once).
    ///
    /// # Safety
    /// 1. So many bytes are writable at `target`.
    /// 2. Nobody else uses them meanwhile.
    #[inline(always)]
    pub unsafe fn get_raw_at_once(
        &self,
        rank: Rank,
        at: usize,
        target: *mut u8,
        bytes: usize,
    ) -> bool {
        // SAFETY: 1., 2.
        let data = unsafe { std::slice::from_raw_parts_mut(target, bytes) };
        self.get_at_once(rank, at, data)
    }

    /// Puts a column of which the first element is at `source`, and goes to byte `at`, and says whether it did: not if
    /// anything is wrong or in the way, nor with this thread's first operation. As runs,
    /// [`put_runs_raw`](Self::put_runs_raw) does it then, or says why not.
    ///
    /// # Safety
    /// 1. Each element here is readable.
    /// 2. Nobody writes to it meanwhile.
    #[inline(always)]
    pub unsafe fn put_column_raw(
        &self,
        rank: Rank,
        at: usize,
        source: *const u8,
        column: &Column,
    ) -> bool {
        let Some((mapped, own)) = self.near(rank) else {
            return false;
        };
        let count = || own.puts(column.count(), column.bytes());
        // SAFETY: 1., 2.
        let put = unsafe { mapped.window.put_column(at, source, column, count) };
        if !put {
            return false;
        }
        if mapped.is_watched() {
            self.block().wake(rank);
        }
        true
    }

    /// Gets a column of which the first element is at byte `at`, and goes to `target`, as
    /// [`put_column_raw`](Self::put_column_raw).
    ///
    /// # Safety
    /// 1. Each element here is writable.
    /// 2. Nobody else uses it meanwhile.
    #[inline(always)]
    pub unsafe fn get_column_raw(
        &self,
        rank: Rank,
        at: usize,
        target: *mut u8,
        column: &Column,
    ) -> bool {
        let Some((mapped, own)) = self.near(rank) else {
            return false;
        };
        let count = || own.gets(column.count(), column.bytes());
        // SAFETY: 1., 2.
        unsafe { mapped.window.get_column(at, target, column, count) }
    }

    /// Puts runs of which the first is at `source`, and goes to byte `at`, in order.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. Each run here is readable.
    /// 2. It lies apart from `rank`'s runs.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn put_runs_raw(
        &self,
        rank: Rank,
        at: usize,
        source: *const u8,
        runs: &Runs,
    ) -> Result<()> {
        let mapped = self.mapped(rank)?;
        // SAFETY: 1., 2., 3.
        unsafe { mapped.window.write_runs_from(at, source, runs) }
            .map_err(|_| self.outside(at, runs.spans()[0]))?;
        self.count_runs([Count::Puts, Count::PutBytes], runs.count(), runs.bytes());
        self.after_store(mapped, rank)
    }

    /// Gets runs of which the first is at byte `at`, and goes to `target`, in order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// 1. Each run here is writable.
    /// 2. It lies apart from `rank`'s runs.
    /// 3. Nobody else uses it meanwhile.
    #[inline]
    pub unsafe fn get_runs_raw(
        &self,
        rank: Rank,
        at: usize,
        target: *mut u8,
        runs: &Runs,
    ) -> Result<()> {
        let mapped = self.mapped(rank)?;
        self.block().poll_memory();
        // SAFETY: 1., 2., 3.
        unsafe { mapped.window.read_runs_to(at, target, runs) }
            .map_err(|_| self.outside(at, runs.spans()[0]))?;
        self.count_runs([Count::Gets, Count::GetBytes], runs.count(), runs.bytes());
        Ok(())
    }

    /// Adds multiples of the elements of runs of which the first is at `source` to those from byte `at`
    /// on, as [`accumulate_bytes`](Self::accumulate_bytes) does.
    ///
    /// # Errors
    /// As there. Of an error part may have been added.
    ///
    /// # Safety
    /// As [`put_runs_raw`](Self::put_runs_raw).
    #[inline]
    pub unsafe fn accumulate_runs_raw(
        &self,
        rank: Rank,
        factor: &Factor,
        (at, source): (usize, *const u8),
        runs: &Runs,
    ) -> Result<()> {
        check_whole(factor, runs.run())?;
        let mapped = self.mapped(rank)?;
        self.add_mapped(rank, mapped, [runs.count(), runs.bytes()], |adder| {
            // SAFETY: 1., 2., 3.
            unsafe { adder.add_runs(at, source, runs, factor) }
        })
    }

    /// Puts runs of `run` bytes each, in order: for each the byte where it goes, and where it is.
    ///
    /// # Errors
    /// As [`put`](Self::put). Of an error part may have been put.
    ///
    /// # Safety
    /// As [`put_runs_raw`](Self::put_runs_raw).
    #[inline]
    pub unsafe fn put_list_raw(
        &self,
        rank: Rank,
        run: usize,
        list: impl ExactSizeIterator<Item = (usize, *const u8)>,
    ) -> Result<()> {
        let (mapped, count) = (self.mapped(rank)?, list.len());
        // SAFETY: 1., 2., 3.
        unsafe { mapped.window.write_list_from(run, list) }.map_err(|_| self.outside(0, run))?;
        self.count_runs([Count::Puts, Count::PutBytes], count, count * run);
        self.after_store(mapped, rank)
    }

    /// Gets runs of `run` bytes each, in order: for each the byte where it is, and where it goes.
    ///
    /// # Errors
    /// As [`get`](Self::get). Of an error part may have been got.
    ///
    /// # Safety
    /// As [`get_runs_raw`](Self::get_runs_raw).
    #[inline]
    pub unsafe fn get_list_raw(
        &self,
        rank: Rank,
        run: usize,
        list: impl ExactSizeIterator<Item = (usize, *mut u8)>,
    ) -> Result<()> {
        let (mapped, count) = (self.mapped(rank)?, list.len());
        self.block().poll_memory();
        // SAFETY: 1., 2., 3.
        unsafe { mapped.window.read_list_to(run, list) }.map_err(|_| self.outside(0, run))?;
        self.count_runs([Count::Gets, Count::GetBytes], count, count * run);
        Ok(())
    }

    /// Adds multiples of the elements of runs of `run` bytes each, as
    /// [`accumulate_bytes`](Self::accumulate_bytes) does: for each the byte where it goes, and where
    /// it is.
    ///
    /// # Errors
    /// As there. Of an error part may have been added.
    ///
    /// # Safety
    /// As [`put_runs_raw`](Self::put_runs_raw).
    #[inline]
    pub unsafe fn accumulate_list_raw(
        &self,
        rank: Rank,
        factor: &Factor,
        run: usize,
        list: impl ExactSizeIterator<Item = (usize, *const u8)>,
    ) -> Result<()> {
        check_whole(factor, run)?;
        let (mapped, count) = (self.mapped(rank)?, list.len());
        self.add_mapped(rank, mapped, [count, count * run], |adder| {
            // SAFETY: 1., 2., 3.
            unsafe { adder.add_list(run, list, factor) }
        })
    }

    #[inline]
    fn mapped(&self, rank: Rank) -> Result<&Mapped> {
        let mapped = self.block().part(rank)?.mapped.as_ref();
        mapped.ok_or_else(unmapped)
    }

    #[inline]
    fn count_runs(&self, counts: [Count; 2], runs: usize, bytes: usize) {
        let [each, all] = counts;
        (self.block().tally).add_each([(each, runs as u64), (all, bytes as u64)]);
    }
}

#[cold]
fn unmapped() -> Error {
    Error::other("runs at any addresses, of memory that is not mapped here")
}
