//! Reads and writes of sections of memory in view: ghost cells, tiles and columns of own memory.

use bytemuck::Pod;
use hydrant_conduit::memory::Runs;

use super::{nest, pieces::named_twice, section::Section};
use crate::{
    Error, Result, View,
    memory::{check_range, overlap},
};

impl<T: Pod> View<'_, T> {
    /// Copies the elements of a section into `into`, in the section's order.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// use hydrant::Section;
    /// # hydrant::Job::builder()?.run_local(1, |job| {
    /// // The right column of four rows of three becomes the left one.
    /// let grid = job.alloc::<u32>(12)?;
    /// let own = grid.local()?;
    /// own.write(0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])?;
    /// let mut column = [0; 4];
    /// own.read_section(&Section::of(&[4, 3], &[0..4, 2..3])?, &mut column)?;
    /// own.write_section(&Section::of(&[4, 3], &[0..4, 0..1])?, &column)?;
    /// assert_eq!(own.to_vec(), [2, 1, 2, 5, 4, 5, 8, 7, 8, 11, 10, 11]);
    /// # Ok(())
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the section leaves the view, [`Error::LengthMismatch`] if `into`
    /// has another number of elements, [`Error::Overlap`].
    pub fn read_section(&self, from: &Section, into: &mut [T]) -> Result<()> {
        let mut runs = Runs::new(0);
        let Some(offset) = self.fill_runs(&mut runs, from, into)? else {
            return Ok(());
        };
        self.poll_memory();
        let (window, _) = self.place();
        (window.read_runs(offset, bytemuck::cast_slice_mut(into), 0, &runs))
            .map_err(|_| self.outside(from.start(), from.span()))
    }

    /// Copies the elements of `from` into a section, in the section's order.
    ///
    /// # Errors
    /// As [`read_section`](Self::read_section); [`Error::SectionOverlap`] if the section names an
    /// element twice.
    pub fn write_section(&self, to: &Section, from: &[T]) -> Result<()> {
        let mut runs = Runs::new(0);
        let Some(offset) = self.fill_runs(&mut runs, to, from)? else {
            return Ok(());
        };
        if to.overlaps_itself() {
            return Err(named_twice(to));
        }
        let (window, _) = self.place();
        (window.write_runs(offset, bytemuck::cast_slice(from), 0, &runs))
            .map_err(|_| self.outside(to.start(), to.span()))?;
        self.wake_watchers();
        Ok(())
    }

    /// Checks a section against a buffer, and sets `runs` to their common runs. Returns the
    /// section's first byte in the window, or `None` if there are no elements.
    fn fill_runs(&self, runs: &mut Runs, section: &Section, buffer: &[T]) -> Result<Option<usize>> {
        check_range(section.start(), section.span(), self.len())?;
        if section.len() != buffer.len() {
            return Err(Error::LengthMismatch {
                what: "elements in the section against elements in the buffer",
                left: section.len(),
                right: buffer.len(),
            });
        }
        if section.is_empty() {
            return Ok(None);
        }
        let (window, start) = self.place();
        let (size, bytes) = (size_of::<T>(), bytemuck::cast_slice(buffer));
        let first = start + section.start();
        if window.overlaps(first * size, section.span() * size, bytes) {
            return Err(overlap(bytes));
        }
        // The loops of a section always divide consecutive elements.
        let buffer = Section::run(0, section.len())?;
        match nest::loops(runs, section, &buffer, size) {
            Some(()) => Ok(Some(first * size)),
            None => Err(Error::SectionOverflow {
                count: section.len(),
                stride: 1,
            }),
        }
    }
}
