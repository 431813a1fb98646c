//! Puts, gets and accumulates of listed runs between symmetric memory and the caller's own memory. The
//! caller names its memory by address and lends only the runs: other threads may use the bytes
//! between them.

#![allow(unsafe_code)] // memory is named by its address

use hydrant_conduit::memory::Factor;

use super::{
    accumulate::check_whole,
    raw_overlap::check_apart,
    unmapped::ByteRun,
    vectors::{IoVector, share_elements},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Mapped, Symmetric, check_range},
};

/// Lists of runs of bytes at any addresses.
impl Symmetric<u8> {
    /// Puts the runs that `vector` lists, in order. Those of the caller are counted from `source`.
    /// The put is remotely complete on return.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector); [`Error::Overlap`] if runs of both sides share bytes.
    ///
    /// # Safety
    /// 1. Each run of the caller is readable.
    /// 2. No other code writes to it meanwhile.
    pub unsafe fn put_vector_raw(
        &self,
        rank: Rank,
        vector: &IoVector<'_>,
        source: *const u8,
    ) -> Result<()> {
        if self.check_list(rank, vector, source)?.is_some() {
            let list = vector.pairs(0);
            let list = list.map(|(there, here)| (there, source.wrapping_add(here)));
            // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `check_list` checked that.
            return unsafe { self.put_list_raw(rank, vector.run, list) };
        }
        let transfer = self.block().transfer()?;
        let unmapped = self.unmapped(&transfer, rank);
        // SAFETY: 1. and 2. the caller's conditions 1 and 2; the puts return when they are done.
        let data = |run: &ByteRun| unsafe { readable(source, run) };
        if share_elements(vector.pairs(0).map(|(there, _)| (there, vector.run))) {
            // Some bytes are written twice, so the runs go one by one in order.
            return runs_of(vector).try_for_each(|run| self.put(rank, run.there, data(&run)));
        }
        let extent = (vector.remote.len(), vector.remote.len() * vector.run);
        unmapped.put_each(data, extent, runs_of(vector))
    }

    /// Gets the runs that `vector` lists, in order. Those of the caller are counted from `target`.
    ///
    /// # Errors
    /// As [`put_vector_raw`](Self::put_vector_raw).
    ///
    /// # Safety
    /// 1. Each run of the caller is writable.
    /// 2. No other code uses it meanwhile.
    pub unsafe fn get_vector_raw(
        &self,
        rank: Rank,
        vector: &IoVector<'_>,
        target: *mut u8,
    ) -> Result<()> {
        if self.check_list(rank, vector, target)?.is_some() {
            let list = vector.pairs(0);
            let list = list.map(|(there, here)| (there, target.wrapping_add(here)));
            // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `check_list` checked that.
            return unsafe { self.get_list_raw(rank, vector.run, list) };
        }
        if share_elements(vector.pairs(0).map(|(_, here)| (here, vector.run))) {
            // Some bytes are written twice, so the runs go one by one in order.
            return runs_of(vector).try_for_each(|run| {
                let here = target.wrapping_add(run.here);
                // SAFETY: the caller's conditions 1 and 2.
                let data = unsafe { std::slice::from_raw_parts_mut(here, run.len) };
                self.get(rank, run.there, data)
            });
        }
        let transfer = self.block().transfer()?;
        let unmapped = self.unmapped(&transfer, rank);
        let extent = (vector.remote.len(), vector.remote.len() * vector.run);
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        unsafe { unmapped.get_each(target, extent, runs_of(vector)) }
    }

    /// Adds multiples of the elements of the runs that `vector` lists, as
    /// [`accumulate_bytes_vector`](Self::accumulate_bytes_vector) does. Those of the caller are
    /// counted from `source`.
    ///
    /// # Errors
    /// As [`accumulate_bytes_vector`](Self::accumulate_bytes_vector).
    ///
    /// # Safety
    /// 1. and 2. as [`put_vector_raw`](Self::put_vector_raw).
    pub unsafe fn accumulate_vector_raw(
        &self,
        rank: Rank,
        vector: &IoVector<'_>,
        factor: &Factor,
        source: *const u8,
    ) -> Result<()> {
        check_whole(factor, vector.run)?;
        if self.check_list(rank, vector, source)?.is_some() {
            let list = vector.pairs(0);
            let list = list.map(|(there, here)| (there, source.wrapping_add(here)));
            // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `check_list` checked that.
            return unsafe { self.accumulate_list_raw(rank, factor, vector.run, list) };
        }
        let transfer = self.block().transfer()?;
        // SAFETY: 1. and 2. the caller's conditions 1 and 2; `add` returns when it is done.
        let data = |run: &ByteRun| unsafe { readable(source, run) };
        let added = (self.unmapped(&transfer, rank)).add(data, runs_of(vector), factor);
        let count = vector.remote.len();
        (self.block().tally).add_each([
            (Count::Accumulates, count as u64),
            (Count::AccumulatedBytes, (count * vector.run) as u64),
        ]);
        added
    }

    /// Checks a list. Returns the part if it is mapped here.
    fn check_list(
        &self,
        rank: Rank,
        vector: &IoVector<'_>,
        here: *const u8,
    ) -> Result<Option<&Mapped>> {
        let (remote, local, run) = (vector.remote, vector.local, vector.run);
        if remote.len() != local.len() {
            return Err(Error::LengthMismatch {
                what: "runs in the rank's part against runs in the buffer",
                left: remote.len(),
                right: local.len(),
            });
        }
        (remote.iter()).try_for_each(|at| check_range(*at, run, self.len()))?;
        let mapped = self.block().part(rank)?.mapped.as_ref();
        if let Some(mapped) = mapped {
            let [there, own] = [remote, local].map(|starts| {
                let first = starts.iter().copied().min().unwrap_or(0);
                let last = starts.iter().copied().max().unwrap_or(0);
                (first, (last - first).saturating_add(run))
            });
            let spans = (there.0, there.1, own.0, own.1);
            check_apart(mapped, here, spans, || runs_of(vector))?;
        }
        Ok(mapped)
    }
}

/// Returns the runs of a list that are not empty.
fn runs_of(vector: &IoVector<'_>) -> impl Iterator<Item = ByteRun> {
    let len = vector.run;
    let runs = vector.pairs(0).filter(move |_| len > 0);
    runs.map(move |(there, here)| ByteRun { there, here, len })
}

/// Returns the bytes of a run counted from `source`.
///
/// # Safety
/// For as long as the result is used:
/// 1. The run is readable.
/// 2. No code writes to it.
pub(super) unsafe fn readable<'a>(source: *const u8, run: &ByteRun) -> &'a [u8] {
    // SAFETY: the caller's conditions 1 and 2.
    unsafe { std::slice::from_raw_parts(source.wrapping_add(run.here), run.len) }
}
