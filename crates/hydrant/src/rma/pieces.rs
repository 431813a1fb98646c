//! Puts and gets of many runs in one call: sections and strided. They are checked as a whole before
//! anything is copied. Mapped runs are then copied in one loop, others as in [`Unmapped`].

use bytemuck::Pod;
use hydrant_conduit::memory::Runs;

use super::{
    contiguous::place,
    nest,
    section::Section,
    unmapped::{ByteRun, MemoryName, Unmapped},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{BlockPart, Mapped, Symmetric, check_range, overlap},
    transfer::Transfer,
};

/// Runs of elements at equal distances in a rank's part. Run `i` is the `run` elements from `start
/// + i × stride` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// The first element of the first run.
    pub start: usize,
    /// The elements in a run.
    pub run: usize,
    /// The elements from the start of one run to the start of the next; at least `run`.
    pub stride: usize,
    /// The number of runs.
    pub count: usize,
}

impl Stride {
    /// Checks that the runs lie within `len` elements and that they have `buffer` elements. Returns
    /// the number of elements of memory from the first to the last.
    fn check(&self, buffer: usize, len: usize) -> Result<usize> {
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
        check_range(last, self.run, len)?;
        Ok(last - self.start + self.run)
    }

    /// Sets `runs` to these runs, and to consecutive runs of a buffer. `size`: the bytes of an
    /// element.
    #[inline]
    fn fill(&self, runs: &mut Runs, size: usize) -> Option<()> {
        runs.reset(self.run * size);
        // The stride of a single run does not matter.
        if self.count > 1 {
            let (there, here) = (self.stride * size, self.run * size);
            runs.repeat(self.count, there, here).ok()?;
        }
        Some(())
    }

    /// Returns the runs, paired with consecutive runs of a buffer.
    fn packed<T>(&self) -> impl Iterator<Item = ByteRun> {
        let len = self.run * size_of::<T>();
        self.starts()
            .enumerate()
            .map(move |(number, start)| ByteRun {
                there: start * size_of::<T>(),
                here: number * len,
                len,
            })
    }

    fn starts(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { start, stride, .. } = *self;
        (0..self.count).map(move |number| start + number * stride)
    }
}

impl<T: Pod> Symmetric<T> {
    /// Puts the elements of `data` that `from` names to the elements that `to` names, in order:
    /// ARMCI's `PutS`. The shapes may differ. The put is remotely complete on return.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// use hydrant::Section;
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// // Each rank has 8 rows of 8; the left column of mine becomes the right one of my neighbour.
    /// let grid = job.alloc::<f64>(64)?;
    /// let mine = [f64::from(job.rank().0); 64];
    /// let (left, right) = (Section::of(&[8, 8], &[0..8, 0..1])?, Section::of(&[8, 8], &[0..8, 7..8])?);
    /// grid.put_section(job.right(), &right, &mine, &left)?;
    /// job.barrier()?;
    /// assert_eq!(grid.local()?.load(15)?, f64::from(job.left().0));
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// - As [`put`](Self::put).
    /// - [`Error::OutsideBuffer`] if `from` leaves `data`.
    /// - [`Error::LengthMismatch`] if the sections differ in the number of elements.
    /// - [`Error::SectionOverlap`] if `to` names an element twice.
    pub fn put_section(&self, rank: Rank, to: &Section, data: &[T], from: &Section) -> Result<()> {
        self.check_sections(to, data.len(), from)?;
        if to.overlaps_itself() {
            return Err(named_twice(to));
        }
        let part = self.block().part(rank)?;
        if to.is_empty() {
            return Ok(());
        }
        let runs = (|| to.starts(), to.run_len());
        self.check_apart(part, (to.start(), to.span()), runs, data)?;
        let mut runs = Runs::new(0);
        if let Some(mapped) = self.block().reach(rank)
            && let Some(()) = nest::loops(&mut runs, to, from, size_of::<T>())
        {
            return self.store_runs(rank, mapped, &runs, to.start(), data, from.start());
        }
        if part.mapped.is_none() {
            let (transfer, bytes) = (self.block().transfer()?, bytemuck::cast_slice(data));
            return self.unmapped(&transfer, rank).put(
                bytes,
                extent::<T>(to, from),
                runs_of::<T>(to, from),
            );
        }
        for (there, here, count) in nest::pieces(to, from) {
            self.put(rank, there, &data[here..here + count])?;
        }
        Ok(())
    }

    /// Gets the elements that `from` names into the elements of `data` that `to` names: ARMCI's
    /// `GetS`.
    ///
    /// # Errors
    /// As [`put_section`](Self::put_section).
    pub fn get_section(
        &self,
        rank: Rank,
        from: &Section,
        data: &mut [T],
        to: &Section,
    ) -> Result<()> {
        self.check_sections(from, data.len(), to)?;
        if to.overlaps_itself() {
            return Err(named_twice(to));
        }
        let part = self.block().part(rank)?;
        if to.is_empty() {
            return Ok(());
        }
        let runs = (|| from.starts(), from.run_len());
        self.check_apart(part, (from.start(), from.span()), runs, data)?;
        let mut runs = Runs::new(0);
        if let Some(mapped) = self.block().reach(rank)
            && let Some(()) = nest::loops(&mut runs, from, to, size_of::<T>())
        {
            return self.load_runs(mapped, &runs, from.start(), data, to.start());
        }
        if part.mapped.is_none() {
            let (transfer, bytes) = (self.block().transfer()?, bytemuck::cast_slice_mut(data));
            return self.unmapped(&transfer, rank).get(
                bytes,
                extent::<T>(from, to),
                runs_of::<T>(from, to),
            );
        }
        for (there, here, count) in nest::pieces(from, to) {
            self.get(rank, there, &mut data[here..here + count])?;
        }
        Ok(())
    }

    /// Puts consecutive runs of `data` to the runs of `to`.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::LengthMismatch`].
    pub fn put_strided(&self, rank: Rank, to: Stride, data: &[T]) -> Result<()> {
        let span = to.check(data.len(), self.len())?;
        let part = self.block().part(rank)?;
        if data.is_empty() {
            return Ok(());
        }
        self.check_apart(part, (to.start, span), (|| to.starts(), to.run), data)?;
        let mut runs = Runs::new(0);
        if let Some(mapped) = self.block().reach(rank)
            && let Some(()) = to.fill(&mut runs, size_of::<T>())
        {
            return self.store_runs(rank, mapped, &runs, to.start, data, 0);
        }
        if part.mapped.is_none() {
            let (transfer, bytes) = (self.block().transfer()?, bytemuck::cast_slice(data));
            return self.unmapped(&transfer, rank).put(
                bytes,
                (to.count, bytes.len()),
                to.packed::<T>(),
            );
        }
        for (start, run) in to.starts().zip(data.chunks_exact(to.run)) {
            self.put(rank, start, run)?;
        }
        Ok(())
    }

    /// Gets the runs of `from` into consecutive runs of `data`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::LengthMismatch`].
    pub fn get_strided(&self, rank: Rank, from: Stride, data: &mut [T]) -> Result<()> {
        let span = from.check(data.len(), self.len())?;
        let part = self.block().part(rank)?;
        if data.is_empty() {
            return Ok(());
        }
        self.check_apart(part, (from.start, span), (|| from.starts(), from.run), data)?;
        let mut runs = Runs::new(0);
        if let Some(mapped) = self.block().reach(rank)
            && let Some(()) = from.fill(&mut runs, size_of::<T>())
        {
            return self.load_runs(mapped, &runs, from.start, data, 0);
        }
        if part.mapped.is_none() {
            let transfer = self.block().transfer()?;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
            let extent = (from.count, bytes.len());
            return self
                .unmapped(&transfer, rank)
                .get(bytes, extent, from.packed::<T>());
        }
        for (start, run) in from.starts().zip(data.chunks_exact_mut(from.run)) {
            self.get(rank, start, run)?;
        }
        Ok(())
    }

    /// Puts checked runs, from element `from` of `data` to element `to`.
    fn store_runs(
        &self,
        rank: Rank,
        mapped: &Mapped,
        runs: &Runs,
        to: usize,
        data: &[T],
        from: usize,
    ) -> Result<()> {
        let size = size_of::<T>();
        let (puts, bytes) = (runs.count() as u64, runs.bytes() as u64);
        (self.block().tally).add_each([(Count::Puts, puts), (Count::PutBytes, bytes)]);
        (mapped.window)
            .write_runs(to * size, bytemuck::cast_slice(data), from * size, runs)
            .map_err(|_| self.outside(to, 0))?;
        self.after_store(mapped, rank)
    }

    /// As [`store_runs`](Self::store_runs), for a get.
    fn load_runs(
        &self,
        mapped: &Mapped,
        runs: &Runs,
        from: usize,
        data: &mut [T],
        to: usize,
    ) -> Result<()> {
        let size = size_of::<T>();
        let (gets, bytes) = (runs.count() as u64, runs.bytes() as u64);
        (self.block().tally).add_each([(Count::Gets, gets), (Count::GetBytes, bytes)]);
        (mapped.window)
            .read_runs(from * size, bytemuck::cast_slice_mut(data), to * size, runs)
            .map_err(|_| self.outside(from, 0))
    }

    /// Checks that both sections lie within their memory and have the same number of elements.
    fn check_sections(&self, remote: &Section, buffer: usize, local: &Section) -> Result<()> {
        check_range(remote.start(), remote.span(), self.len())?;
        check_fit(remote, buffer, local)
    }

    /// Returns a part that is not mapped here.
    pub(super) fn unmapped<'a>(&'a self, transfer: &'a Transfer, rank: Rank) -> Unmapped<'a> {
        let block = self.block();
        Unmapped {
            transfer,
            calls: &block.calls,
            rank,
            at: place(block, 0),
            name: MemoryName::Allocation(block),
        }
    }

    /// Checks that the whole buffer lies apart from every run of a mapped part. The runs are given
    /// by their starts and their number of elements, and lie within `span`.
    pub(super) fn check_apart<I: Iterator<Item = usize>>(
        &self,
        part: &BlockPart,
        span: (usize, usize),
        (starts, run): (impl Fn() -> I, usize),
        buffer: &[T],
    ) -> Result<()> {
        let Some(mapped) = &part.mapped else {
            return Ok(());
        };
        let (size, bytes) = (size_of::<T>(), bytemuck::cast_slice(buffer));
        let hits = |start, count| (mapped.window).overlaps(start * size, count * size, bytes);
        // The buffer nearly always lies elsewhere.
        if hits(span.0, span.1) && starts().any(|start| hits(start, run)) {
            return Err(overlap(bytes));
        }
        Ok(())
    }
}

/// Returns the pieces that are runs of both sections, in bytes.
pub(super) fn runs_of<T>(
    remote: &Section,
    local: &Section,
) -> impl Iterator<Item = ByteRun> + use<T> {
    let size = size_of::<T>();
    nest::pieces(remote, local).map(move |(there, here, count)| ByteRun {
        there: there * size,
        here: here * size,
        len: count * size,
    })
}

/// Returns the approximate number of these pieces, and their bytes.
pub(super) fn extent<T>(remote: &Section, local: &Section) -> (usize, usize) {
    let run = remote.run_len().min(local.run_len()).max(1);
    (remote.len() / run, remote.len() * size_of::<T>())
}

/// Checks that the local section lies within a buffer of `buffer` elements, and has as many
/// elements as the remote one.
#[inline]
pub(super) fn check_fit(remote: &Section, buffer: usize, local: &Section) -> Result<()> {
    if check_range(local.start(), local.span(), buffer).is_err() {
        return Err(Error::OutsideBuffer {
            index: local.start(),
            count: local.span(),
            len: buffer,
        });
    }
    if remote.len() != local.len() {
        return Err(Error::LengthMismatch {
            what: "elements in the remote section against elements in the local one",
            left: remote.len(),
            right: local.len(),
        });
    }
    Ok(())
}

#[cold]
pub(super) fn named_twice(section: &Section) -> Error {
    Error::SectionOverlap {
        elements: section.len(),
        span: section.span(),
    }
}
