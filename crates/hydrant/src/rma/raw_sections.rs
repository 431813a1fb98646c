//! Puts, gets and accumulates of sections between symmetric memory and the caller's own memory. The
//! caller names its memory by address and lends only the runs: other threads may use the bytes
//! between them.

#![allow(unsafe_code)] // memory is named by its address

use std::iter::once;

use hydrant_conduit::memory::{Factor, Runs};

use super::{
    accumulate::check_whole,
    nest, packed,
    pieces::{extent, named_twice, runs_of},
    raw_overlap::check_apart,
    raw_vectors::readable,
    section::Section,
    unmapped::{ByteRun, Unmapped},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Mapped, Symmetric, check_range},
    transfer::{RunRoute, RunShape},
};

/// Sections of bytes at any addresses.
impl Symmetric<u8> {
    /// Puts the bytes that `from` names, counted from `source`, to the bytes that `to` names. The
    /// put is remotely complete on return.
    ///
    /// # Errors
    /// As [`put_section`](Self::put_section).
    ///
    /// # Safety
    /// 1. Each run of `from` is readable.
    /// 2. No other code writes to it meanwhile.
    pub unsafe fn put_section_raw(
        &self,
        rank: Rank,
        to: &Section,
        source: *const u8,
        from: &Section,
    ) -> Result<()> {
        if to.overlaps_itself() {
            return Err(named_twice(to));
        }
        if self.check_raw(rank, (to, from), source)?.is_some() {
            let mut runs = Runs::new(0);
            if nest::loops(&mut runs, to, from, 1).is_some() {
                let source = source.wrapping_add(from.start());
                // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `check_raw` checked that.
                return unsafe { self.put_runs_raw(rank, to.start(), source, &runs) };
            }
            return nest::pieces(to, from).try_for_each(|(there, here, len)| {
                let run = once((there, source.wrapping_add(here)));
                // SAFETY: 1. to 3. as above.
                unsafe { self.put_list_raw(rank, len, run) }
            });
        }
        if !to.is_empty() {
            let transfer = self.block().transfer()?;
            // SAFETY: 1. and 2. the caller's conditions 1 and 2; `put_each` returns when it is done.
            let data = |run: &ByteRun| unsafe { readable(source, run) };
            let unmapped = self.unmapped(&transfer, rank);
            unmapped.put_each(data, extent::<u8>(to, from), runs_of::<u8>(to, from))?;
        }
        Ok(())
    }

    /// Gets the bytes that `from` names to the bytes that `to` names, counted from `target`.
    ///
    /// # Errors
    /// As [`put_section`](Self::put_section).
    ///
    /// # Safety
    /// 1. Each run of `to` is writable.
    /// 2. No other code uses it meanwhile.
    pub unsafe fn get_section_raw(
        &self,
        rank: Rank,
        from: &Section,
        target: *mut u8,
        to: &Section,
    ) -> Result<()> {
        if to.overlaps_itself() {
            return Err(named_twice(to));
        }
        if self.check_raw(rank, (from, to), target)?.is_some() {
            let mut runs = Runs::new(0);
            if nest::loops(&mut runs, from, to, 1).is_some() {
                let target = target.wrapping_add(to.start());
                // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `check_raw` checked that.
                return unsafe { self.get_runs_raw(rank, from.start(), target, &runs) };
            }
            return nest::pieces(from, to).try_for_each(|(there, here, len)| {
                let run = once((there, target.wrapping_add(here)));
                // SAFETY: 1. to 3. as above.
                unsafe { self.get_list_raw(rank, len, run) }
            });
        }
        if !to.is_empty() {
            let transfer = self.block().transfer()?;
            let unmapped = self.unmapped(&transfer, rank);
            let runs = runs_of::<u8>(from, to);
            // SAFETY: the caller's conditions 1 and 2.
            unsafe { unmapped.get_each(target, extent::<u8>(from, to), runs)? };
        }
        Ok(())
    }

    /// Adds multiples of the elements that `from` names, counted from `source`, to those that `to`
    /// names, as [`accumulate_bytes_section`](Self::accumulate_bytes_section) does.
    ///
    /// # Errors
    /// As [`accumulate_bytes_section`](Self::accumulate_bytes_section).
    ///
    /// # Safety
    /// 1. and 2. as [`put_section_raw`](Self::put_section_raw).
    pub unsafe fn accumulate_section_raw(
        &self,
        rank: Rank,
        to: &Section,
        factor: &Factor,
        source: *const u8,
        from: &Section,
    ) -> Result<()> {
        for section in [to, from].into_iter().filter(|it| !it.is_empty()) {
            check_whole(factor, section.run_len())?;
        }
        if self.check_raw(rank, (to, from), source)?.is_some() {
            let mut runs = Runs::new(0);
            if nest::loops(&mut runs, to, from, 1).is_some() {
                let sides = (to.start(), source.wrapping_add(from.start()));
                // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `check_raw` checked that.
                return unsafe { self.accumulate_runs_raw(rank, factor, sides, &runs) };
            }
            return nest::pieces(to, from).try_for_each(|(there, here, len)| {
                let run = once((there, source.wrapping_add(here)));
                // SAFETY: 1. to 3. as above.
                unsafe { self.accumulate_list_raw(rank, factor, len, run) }
            });
        }
        if !to.is_empty() {
            let transfer = self.block().transfer()?;
            // SAFETY: 1. and 2. the caller's conditions 1 and 2; `add` returns when it is done.
            let data = |run: &ByteRun| unsafe { readable(source, run) };
            let runs = runs_of::<u8>(to, from);
            let (count, bytes) = extent::<u8>(to, from);
            self.unmapped(&transfer, rank).add(data, runs, factor)?;
            (self.block().tally).add_each([
                (Count::Accumulates, count as u64),
                (Count::AccumulatedBytes, bytes as u64),
            ]);
        }
        Ok(())
    }

    /// Checks the sections of a part and of other memory, which `here` is the start of. Returns the part if it is
    /// mapped here and they have any bytes.
    fn check_raw(
        &self,
        rank: Rank,
        (remote, local): (&Section, &Section),
        here: *const u8,
    ) -> Result<Option<&Mapped>> {
        check_range(remote.start(), remote.span(), self.len())?;
        if remote.len() != local.len() {
            return Err(Error::LengthMismatch {
                what: "elements in the remote section against elements in the local one",
                left: remote.len(),
                right: local.len(),
            });
        }
        let mapped = self.block().part(rank)?.mapped.as_ref();
        let mapped = mapped.filter(|_| !remote.is_empty());
        if let Some(mapped) = mapped {
            let spans = (remote.start(), remote.span(), local.start(), local.span());
            check_apart(mapped, here, spans, || runs_of::<u8>(remote, local))?;
        }
        Ok(mapped)
    }
}

impl Unmapped<'_> {
    /// As [`get`](Self::get), into runs counted from `into`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// 1. Each run is writable here.
    /// 2. No other code uses it meanwhile.
    pub(super) unsafe fn get_each(
        &self,
        into: *mut u8,
        (count, bytes): (usize, usize),
        runs: impl Iterator<Item = ByteRun>,
    ) -> Result<()> {
        let shape = RunShape {
            gets: true,
            count,
            bytes,
        };
        self.run_measured(shape, |route| match route {
            RunRoute::Packed => packed::get(self, runs, |run, bytes| {
                let here = into.wrapping_add(run.here);
                // SAFETY: by the caller's conditions 1 and 2 only this writes to the run. The message
                // lies apart from it and has as many bytes.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), here, run.len) };
            }),
            RunRoute::Pieces => {
                let here = |run: ByteRun| (self.remote(run), into.wrapping_add(run.here), run.len);
                // SAFETY: 1. and 2. the caller's conditions 1 and 2.
                unsafe { self.transfer.read_each(self.rank, runs.map(here)) }
            }
        })
    }
}
