//! Puts, gets and accumulates of many runs between memory that is mapped here and memory that the
//! caller names by address. For the runtimes of other languages.

#![allow(unsafe_code)] // memory is named by its address

use hydrant_conduit::memory::{Column, Factor, Runs};

use super::accumulate::check_whole;
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Mapped, Symmetric},
};

/// Runs of bytes at any addresses, if a rank's part is mapped here. Otherwise [`Error::Other`].
impl Symmetric<u8> {
    /// Puts bytes from `source` to offset `at`. Returns whether it did. It does nothing if any
    /// check fails, and for this thread's first operation. [`put`](Self::put) then does it, or
    /// reports the error.
    ///
    /// # Safety
    /// 1. `bytes` bytes are readable at `source`.
    /// 2. No other code writes to them meanwhile.
    #[inline(always)]
    pub unsafe fn put_raw_at_once(
        &self,
        rank: Rank,
        at: usize,
        source: *const u8,
        bytes: usize,
    ) -> bool {
        // SAFETY: the caller's conditions 1 and 2.
        let data = unsafe { std::slice::from_raw_parts(source, bytes) };
        self.put_at_once(rank, at, data)
    }

    /// Gets bytes from offset `at` to `target`, as [`put_raw_at_once`](Self::put_raw_at_once) puts
    /// them.
    ///
    /// # Safety
    /// 1. `bytes` bytes are writable at `target`.
    /// 2. No other code uses them meanwhile.
    #[inline(always)]
    pub unsafe fn get_raw_at_once(
        &self,
        rank: Rank,
        at: usize,
        target: *mut u8,
        bytes: usize,
    ) -> bool {
        // SAFETY: the caller's conditions 1 and 2.
        let data = unsafe { std::slice::from_raw_parts_mut(target, bytes) };
        self.get_at_once(rank, at, data)
    }

    /// Puts a column, its first element from `source` to offset `at`. Returns whether it did. It
    /// does nothing if any check fails, and for this thread's first operation.
    /// [`put_runs_raw`](Self::put_runs_raw) then does it as runs, or reports the error.
    ///
    /// # Safety
    /// 1. Each element of the column at `source` is readable.
    /// 2. No other code writes to it meanwhile.
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
        // SAFETY: the caller's conditions 1 and 2.
        let put = unsafe { mapped.window.put_column(at, source, column, count) };
        if !put {
            return false;
        }
        if mapped.is_watched() {
            self.block().wake(rank);
        }
        true
    }

    /// Gets a column, its first element from offset `at` to `target`, as
    /// [`put_column_raw`](Self::put_column_raw) puts it.
    ///
    /// # Safety
    /// 1. Each element of the column at `target` is writable.
    /// 2. No other code uses it meanwhile.
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
        // SAFETY: the caller's conditions 1 and 2.
        unsafe { mapped.window.get_column(at, target, column, count) }
    }

    /// Puts runs in order, the first from `source` to offset `at`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. Each run at `source` is readable.
    /// 2. It overlaps no run of `rank`.
    /// 3. No other code writes to it meanwhile.
    #[inline]
    pub unsafe fn put_runs_raw(
        &self,
        rank: Rank,
        at: usize,
        source: *const u8,
        runs: &Runs,
    ) -> Result<()> {
        let mapped = self.mapped(rank)?;
        // SAFETY: the caller's conditions 1, 2 and 3.
        unsafe { mapped.window.write_runs_from(at, source, runs) }
            .map_err(|_| self.outside(at, runs.spans()[0]))?;
        self.count_runs([Count::Puts, Count::PutBytes], runs.count(), runs.bytes());
        self.after_store(mapped, rank)
    }

    /// Gets runs in order, the first from offset `at` to `target`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// 1. Each run at `target` is writable.
    /// 2. It overlaps no run of `rank`.
    /// 3. No other code uses it meanwhile.
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
        // SAFETY: the caller's conditions 1, 2 and 3.
        unsafe { mapped.window.read_runs_to(at, target, runs) }
            .map_err(|_| self.outside(at, runs.spans()[0]))?;
        self.count_runs([Count::Gets, Count::GetBytes], runs.count(), runs.bytes());
        Ok(())
    }

    /// Adds multiples of the elements of runs, the first from `source` to offset `at`, as
    /// [`accumulate_bytes`](Self::accumulate_bytes) does.
    ///
    /// # Errors
    /// As [`accumulate_bytes`](Self::accumulate_bytes). If it fails, part may have been added.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`put_runs_raw`](Self::put_runs_raw).
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
            // SAFETY: the caller's conditions 1, 2 and 3.
            unsafe { adder.add_runs(at, source, runs, factor) }
        })
    }

    /// Puts runs of `run` bytes each, in order. The list has for each run its offset and its
    /// address.
    ///
    /// # Errors
    /// As [`put`](Self::put). If it fails, part may have been put.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`put_runs_raw`](Self::put_runs_raw).
    #[inline]
    pub unsafe fn put_list_raw(
        &self,
        rank: Rank,
        run: usize,
        list: impl ExactSizeIterator<Item = (usize, *const u8)>,
    ) -> Result<()> {
        let (mapped, count) = (self.mapped(rank)?, list.len());
        // SAFETY: the caller's conditions 1, 2 and 3.
        unsafe { mapped.window.write_list_from(run, list) }.map_err(|_| self.outside(0, run))?;
        self.count_runs([Count::Puts, Count::PutBytes], count, count * run);
        self.after_store(mapped, rank)
    }

    /// Gets runs of `run` bytes each, in order. The list has for each run its offset and its
    /// address.
    ///
    /// # Errors
    /// As [`get`](Self::get). If it fails, part may have been got.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`get_runs_raw`](Self::get_runs_raw).
    #[inline]
    pub unsafe fn get_list_raw(
        &self,
        rank: Rank,
        run: usize,
        list: impl ExactSizeIterator<Item = (usize, *mut u8)>,
    ) -> Result<()> {
        let (mapped, count) = (self.mapped(rank)?, list.len());
        self.block().poll_memory();
        // SAFETY: the caller's conditions 1, 2 and 3.
        unsafe { mapped.window.read_list_to(run, list) }.map_err(|_| self.outside(0, run))?;
        self.count_runs([Count::Gets, Count::GetBytes], count, count * run);
        Ok(())
    }

    /// Adds multiples of the elements of runs of `run` bytes each, as
    /// [`accumulate_bytes`](Self::accumulate_bytes) does. The list has for each run its offset and
    /// its address.
    ///
    /// # Errors
    /// As [`accumulate_bytes`](Self::accumulate_bytes). If it fails, part may have been added.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`put_runs_raw`](Self::put_runs_raw).
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
            // SAFETY: the caller's conditions 1, 2 and 3.
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
