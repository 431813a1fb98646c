//! Loops that a program would write by hand for a column of a matrix: short rows, a stride apart on
//! both sides. The original ARMCI loops over the words of each row; the other loop calls `memcpy`
//! for each row.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::BarePlace;

/// A column of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnShape {
    /// Words of a row.
    pub(crate) run: usize,
    /// The number of rows, at least one.
    pub(crate) rows: usize,
    /// Words from the start of a row to that of the next, on both sides.
    pub(crate) stride: usize,
}

/// The copy of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// By a loop over its words, which the compiler does not turn into a call.
    Words,
    /// By the C library's `memcpy`, with a length known only at run time.
    Memcpy,
}

impl ColumnShape {
    /// Words from the first to the last one.
    pub(crate) fn span(&self) -> usize {
        self.run + (self.rows - 1) * self.stride
    }

    /// # Safety
    /// 1. The column's words from `from` on are readable.
    /// 2. The column's words from `to` on are writable.
    /// 3. The two columns do not overlap.
    #[inline(always)]
    unsafe fn copy(self, by: By, from: *const u64, to: *mut u64) {
        for row in 0..self.rows {
            let at = row * self.stride;
            match by {
                By::Words => {
                    for word in at..at + self.run {
                        // SAFETY: the word belongs to a row of the column, so it is readable (1).
                        let value = unsafe { from.wrapping_add(word).read_volatile() };
                        // SAFETY: the word belongs to a row of the column, so it is writable (2).
                        unsafe { to.wrapping_add(word).write_volatile(value) };
                    }
                }
                By::Memcpy => {
                    let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                    // SAFETY: the words belong to a row of the column (1, 2), and the columns do
                    // not overlap (3).
                    unsafe { std::ptr::copy_nonoverlapping(from, to, black_box(self.run)) };
                }
            }
        }
    }

    /// # Safety
    /// The conditions of [`copy`](Self::copy).
    unsafe fn copy_often(self, by: By, from: *const u64, to: *mut u64, count: u64) -> Duration {
        let start = Instant::now();
        // The branch is outside of the timed loop.
        match by {
            By::Words => {
                for _ in 0..count {
                    // SAFETY: 1. to 3. the caller's conditions 1 to 3.
                    unsafe { black_box(self).copy(By::Words, black_box(from), black_box(to)) }
                }
            }
            By::Memcpy => {
                for _ in 0..count {
                    // SAFETY: 1. to 3. the caller's conditions 1 to 3.
                    unsafe { black_box(self).copy(By::Memcpy, black_box(from), black_box(to)) }
                }
            }
        }
        start.elapsed()
    }
}

impl BarePlace {
    fn check_column(&self, column: &ColumnShape, here: usize) {
        let span = column.span();
        assert!(span <= here && span * size_of::<u64>() <= self.len);
    }

    /// Copies a column to the start of the place `count` times.
    pub(crate) fn copy_column_in(
        &self,
        by: By,
        from: &[u64],
        column: ColumnShape,
        count: u64,
    ) -> Duration {
        self.check_column(&column, from.len());
        // SAFETY: 1. and 2. the span was just checked on both sides, and the place is aligned for
        // words; 3. private memory is no part of a place.
        unsafe { column.copy_often(by, from.as_ptr(), self.base.cast(), count) }
    }

    /// Copies a column from the start of the place `count` times.
    pub(crate) fn copy_column_out(
        &self,
        by: By,
        to: &mut [u64],
        column: ColumnShape,
        count: u64,
    ) -> Duration {
        self.check_column(&column, to.len());
        // SAFETY: as in `copy_column_in`.
        unsafe { column.copy_often(by, self.base.cast(), to.as_mut_ptr(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_copied_both_ways_and_leave_the_gaps() {
        let column = ColumnShape {
            run: 2,
            rows: 3,
            stride: 4,
        };
        assert_eq!(column.span(), 10);
        let from: Vec<u64> = (1..=10).collect();
        for by in [By::Words, By::Memcpy] {
            let mut memory = vec![0_u64; 10];
            // SAFETY: 1. and 3. a vector of words, alive until the end; 2. the vector is used below
            // only after the place's last use.
            let place = unsafe { BarePlace::new(memory.as_mut_ptr().cast(), 10 * 8) };
            place.copy_column_in(by, &from, column, 1);
            let mut back = vec![7; 10];
            place.copy_column_out(by, &mut back, column, 1);
            assert_eq!(memory, [1, 2, 0, 0, 5, 6, 0, 0, 9, 10], "{by:?}");
            assert_eq!(back, [1, 2, 7, 7, 5, 6, 7, 7, 9, 10], "{by:?}");
        }
    }
}
