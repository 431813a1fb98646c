//! Loops that a program would write by hand for sections of arrays, for lists of runs, and for `y
//! += a * x`. They are the references of strided, vector and accumulate operations.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::BarePlace;

/// A section of an array of up to three dimensions, in words. It has rows of `run` words,
/// `counts[0]` of them in each of `counts[1]` planes. The rows are contiguous in a local buffer,
/// and `there` has the strides of rows and planes in the array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionShape {
    /// Words of a row.
    pub(crate) run: usize,
    /// Rows of a plane, and number of planes.
    pub(crate) counts: [usize; 2],
    /// Words from a row to the next one in the array, and from a plane to the next.
    pub(crate) there: [usize; 2],
}

impl SectionShape {
    /// A section of `words` words, a power of two, with two or three dimensions of about equal
    /// length. The array is twice as wide, and has one more row in each plane.
    pub(crate) fn new(dimensions: u32, words: usize) -> Self {
        let bits = words.ilog2();
        let along = bits.div_ceil(dimensions);
        let across = match dimensions {
            2 => bits - along,
            _ => (bits - along).div_ceil(2),
        };
        let (run, rows) = (1 << along, 1 << across);
        SectionShape {
            run,
            counts: [rows, 1 << (bits - along - across)],
            there: [2 * run, 2 * run * (rows + 1)],
        }
    }

    /// Words of the array from the first to the last one of the section.
    pub(crate) fn span(&self) -> usize {
        let [rows, planes] = self.counts;
        self.run + (rows - 1) * self.there[0] + (planes - 1) * self.there[1]
    }

    /// Words of the section.
    pub(crate) fn words(&self) -> usize {
        self.run * self.counts[0] * self.counts[1]
    }

    /// Calls `each` with the offset of every row in the buffer and in the array.
    #[inline(always)]
    pub(crate) fn rows(&self, mut each: impl FnMut(usize, usize)) {
        let [rows, planes] = self.counts;
        for plane in 0..planes {
            for row in 0..rows {
                let here = (plane * rows + row) * self.run;
                each(here, plane * self.there[1] + row * self.there[0]);
            }
        }
    }
}

impl BarePlace {
    fn check(&self, shape: &SectionShape, here: usize) {
        assert!(shape.words() <= here && shape.span() * size_of::<u64>() <= self.len);
    }

    /// Copies the rows of a section into the place, `count` times.
    pub(crate) fn copy_section_in(
        &self,
        from: &[u64],
        shape: SectionShape,
        count: u64,
    ) -> Duration {
        self.check(&shape, from.len());
        let start = Instant::now();
        for _ in 0..count {
            let (from, to) = (black_box(from.as_ptr()), self.base.cast::<u64>());
            let shape = black_box(shape);
            shape.rows(|here, there| {
                let (from, to) = (from.wrapping_add(here), to.wrapping_add(there));
                // SAFETY: the rows lie in `from` and in the place (1, both just checked). The place
                // is aligned for words (3) and apart from private memory (2).
                unsafe { std::ptr::copy_nonoverlapping(from, to, shape.run) };
            });
        }
        start.elapsed()
    }

    /// Copies the rows of a section from the place, `count` times.
    pub(crate) fn copy_section_out(
        &self,
        to: &mut [u64],
        shape: SectionShape,
        count: u64,
    ) -> Duration {
        self.check(&shape, to.len());
        let start = Instant::now();
        for _ in 0..count {
            let (from, to) = (self.base.cast::<u64>(), black_box(to.as_mut_ptr()));
            let shape = black_box(shape);
            shape.rows(|here, there| {
                let (from, to) = (from.wrapping_add(there), to.wrapping_add(here));
                // SAFETY: 1. to 3. as in `copy_section_in`, with the two sides exchanged.
                unsafe { std::ptr::copy_nonoverlapping(from, to, shape.run) };
            });
        }
        start.elapsed()
    }

    /// Computes `y += a * x`, row by row of a section, `count` times. The words are doubles.
    pub(crate) fn add_section(
        &self,
        a: f64,
        x: &[u64],
        shape: SectionShape,
        count: u64,
    ) -> Duration {
        self.check(&shape, x.len());
        let add = axpy();
        let start = Instant::now();
        for _ in 0..count {
            let (x, y) = (black_box(x.as_ptr()), self.base.cast::<f64>());
            let (x, shape) = (x.cast::<f64>(), black_box(shape));
            shape.rows(|here, there| {
                let (y, x) = (y.wrapping_add(there), x.wrapping_add(here));
                // SAFETY: 1. and 2. the row lies in the place and in `x` (both just checked). All
                // words are doubles.
                unsafe { add(y, a, x, shape.run) };
            });
        }
        start.elapsed()
    }

    /// Computes `y += a * x` on contiguous words, `count` times.
    pub(crate) fn add_in(&self, a: f64, x: &[u64], count: u64) -> Duration {
        assert!(size_of_val(x) <= self.len);
        let add = axpy();
        let start = Instant::now();
        for _ in 0..count {
            let from = black_box(x.as_ptr()).cast();
            // SAFETY: `x` and the place have this many words (1, just checked, 3), and nobody else
            // uses the place (2).
            unsafe { add(self.base.cast(), a, from, black_box(x.len())) }
        }
        start.elapsed()
    }
}

/// Copies runs of `bytes` bytes from one list to the other, `count` times.
///
/// # Safety
/// 1. Each run of the source list is readable, and each run of the other writable.
/// 2. Nobody else uses the runs meanwhile.
pub(crate) unsafe fn copy_list(
    from: &[*mut u8],
    to: &[*mut u8],
    bytes: usize,
    count: u64,
) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        let bytes = black_box(bytes);
        for (from, to) in black_box(from).iter().zip(to) {
            // SAFETY: the caller's conditions 1 and 2.
            unsafe { std::ptr::copy_nonoverlapping(*from, *to, bytes) }
        }
    }
    start.elapsed()
}

/// Computes `y += a * x` on runs of doubles, `count` times.
///
/// # Safety
/// 1. The conditions of [`copy_list`].
/// 2. The runs hold aligned doubles.
pub(crate) unsafe fn add_list(
    a: f64,
    from: &[*mut u8],
    to: &[*mut u8],
    bytes: usize,
    count: u64,
) -> Duration {
    let add = axpy();
    let start = Instant::now();
    for _ in 0..count {
        let words = black_box(bytes / size_of::<f64>());
        for (from, to) in black_box(from).iter().zip(to) {
            // SAFETY: 1. and 2. the caller's conditions 1 and 2.
            unsafe { add(to.cast(), a, from.cast(), words) }
        }
    }
    start.elapsed()
}

type Axpy = unsafe fn(*mut f64, f64, *const f64, usize);

/// The loop that the compiler generates for this processor.
fn axpy() -> Axpy {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return add_avx2;
    }
    add_plain
}

/// # Safety
/// 1. `y` has `len` doubles for reading and writing.
/// 2. `x` has `len` doubles for reading.
#[inline(always)]
unsafe fn add(y: *mut f64, a: f64, x: *const f64, len: usize) {
    // SAFETY: `y` has `len` doubles for reading and writing, by the caller's condition 1.
    let y = unsafe { std::slice::from_raw_parts_mut(y, len) };
    // SAFETY: `x` has `len` doubles for reading, by the caller's condition 2.
    let x = unsafe { std::slice::from_raw_parts(x, len) };
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

unsafe fn add_plain(y: *mut f64, a: f64, x: *const f64, len: usize) {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    unsafe { add(y, a, x, len) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn add_avx2(y: *mut f64, a: f64, x: *const f64, len: usize) {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    unsafe { add(y, a, x, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_the_words_asked_for() {
        for dimensions in [2, 3] {
            for bits in 3..20 {
                let shape = SectionShape::new(dimensions, 1 << bits);
                assert_eq!(shape.words(), 1 << bits, "{shape:?}");
                assert!(shape.span() <= 4 << bits, "{shape:?}");
            }
        }
        assert_eq!(SectionShape::new(3, 64).counts, [4, 4]);
    }

    #[test]
    fn sections_are_copied_both_ways_and_added() {
        let mut memory = vec![0_f64; 64];
        // SAFETY: 1. and 3. a vector of doubles, alive until the end; 2. the vector is used below
        // only after the place's last use.
        let place = unsafe { BarePlace::new(memory.as_mut_ptr().cast(), 64 * 8) };
        let from: Vec<u64> = (0..8).map(|i| f64::from(i).to_bits()).collect();
        let shape = SectionShape::new(3, 8);
        assert_eq!((shape.run, shape.counts, shape.there), (2, [2, 2], [4, 12]));
        place.copy_section_in(&from, shape, 1);
        place.add_section(0.5, &from, shape, 2);
        place.add_in(1.0, &from[1..2], 3);
        let mut back = vec![0; 8];
        place.copy_section_out(&mut back, shape, 1);
        let back: Vec<f64> = back.into_iter().map(f64::from_bits).collect();
        assert_eq!(back, [3.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]);
        assert_eq!(memory[12..14], [8.0, 10.0]);
    }

    #[test]
    fn lists_are_copied_and_added() {
        let (mut x, mut y) = ([1.0_f64, 2.0, 3.0], [10.0_f64; 3]);
        let at = |memory: &mut [f64; 3]| memory.each_mut().map(|it| std::ptr::from_mut(it).cast());
        let lists = (at(&mut x), at(&mut y));
        // SAFETY: 1. and 2. the doubles belong to this test.
        unsafe { add_list(2.0, &lists.0, &lists.1, 8, 1) };
        // SAFETY: 1. and 2. the doubles belong to this test.
        unsafe { copy_list(&lists.1[..1], &lists.0[..1], 8, 1) };
        assert_eq!((x, y), ([12.0, 2.0, 3.0], [12.0, 14.0, 16.0]));
    }
}
