//! Bare copies to and from one place in memory.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Mapped memory for bare copies, which nobody else touches during a measurement. Its first word
/// may be shared, as an atomic.
#[derive(Debug)]
pub(crate) struct BarePlace {
    pub(super) base: *mut u8,
    pub(super) len: usize,
}

impl BarePlace {
    /// # Safety
    /// As long as the place is used:
    /// 1. `len` bytes at `base` stay mapped for reading and writing;
    /// 2. while a method runs, nobody else accesses them, except the first word atomically;
    /// 3. `base` is a multiple of 8.
    pub(crate) unsafe fn new(base: *mut u8, len: usize) -> Self {
        BarePlace { base, len }
    }

    /// Copies `from` to the start of the place `count` times.
    pub(crate) fn copy_in(&self, from: &[u64], count: u64) -> Duration {
        let bytes = size_of_val(from);
        assert!(bytes <= self.len);
        let start = Instant::now();
        for _ in 0..count {
            let from = black_box(from.as_ptr()).cast::<u8>();
            // SAFETY: `from` is a slice of this length and the place is as long (1, checked above).
            // A slice of private memory is no part of a place (2).
            unsafe { std::ptr::copy_nonoverlapping(from, self.base, black_box(bytes)) }
        }
        start.elapsed()
    }

    /// Copies the start of the place into `to`, `count` times.
    pub(crate) fn copy_out(&self, to: &mut [u64], count: u64) -> Duration {
        let bytes = size_of_val(to);
        assert!(bytes <= self.len);
        let start = Instant::now();
        for _ in 0..count {
            let to = black_box(to.as_mut_ptr()).cast::<u8>();
            // SAFETY: as in `copy_in`, in the other direction; all bit patterns are valid for u64.
            unsafe { std::ptr::copy_nonoverlapping(self.base, to, black_box(bytes)) }
        }
        start.elapsed()
    }

    /// Copies rows of `row` words to the place, `count` times. The rows follow each other in
    /// `from`, and begin `stride` words apart in the place.
    pub(crate) fn copy_rows_in(
        &self,
        from: &[u64],
        row: usize,
        stride: usize,
        count: u64,
    ) -> Duration {
        let rows = from.len() / row;
        assert!(row <= stride && rows * stride * size_of::<u64>() <= self.len);
        let start = Instant::now();
        for _ in 0..count {
            let (from, to) = (black_box(from.as_ptr()), self.base.cast::<u64>());
            for at in 0..rows {
                let (from, to) = (from.wrapping_add(at * row), to.wrapping_add(at * stride));
                // SAFETY: 1. at * row + row <= rows * row <= the length of `from`; at * stride + row <=
                // rows * stride <= the length of the place (checked above). 2. The place is apart
                // from private memory. 3. It is aligned for words.
                unsafe { std::ptr::copy_nonoverlapping(from, to, black_box(row)) };
            }
        }
        start.elapsed()
    }

    /// Copies rows from the place, `count` times.
    pub(crate) fn copy_rows_out(
        &self,
        to: &mut [u64],
        row: usize,
        stride: usize,
        count: u64,
    ) -> Duration {
        let rows = to.len() / row;
        assert!(row <= stride && rows * stride * size_of::<u64>() <= self.len);
        let start = Instant::now();
        for _ in 0..count {
            let (from, to) = (self.base.cast::<u64>(), black_box(to.as_mut_ptr()));
            for at in 0..rows {
                let (from, to) = (from.wrapping_add(at * stride), to.wrapping_add(at * row));
                // SAFETY: 1. to 3. as in `copy_rows_in`, with the two sides exchanged.
                unsafe { std::ptr::copy_nonoverlapping(from, to, black_box(row)) };
            }
        }
        start.elapsed()
    }

    /// Sets `bytes` bytes at the start of the place, `count` times.
    pub(crate) fn fill(&self, bytes: usize, count: u64) -> Duration {
        assert!(bytes <= self.len);
        let start = Instant::now();
        for i in 0..count {
            // SAFETY: the place has these bytes (1), and nobody else uses them (2).
            unsafe { self.base.write_bytes(black_box(i as u8), black_box(bytes)) }
        }
        start.elapsed()
    }

    /// The first word, as an atomic.
    pub(crate) fn word(&self) -> &AtomicU64 {
        assert!(size_of::<u64>() <= self.len);
        // SAFETY: the place has an aligned word (1, 3), which all access atomically (2). No other
        // method runs meanwhile, because it would need this thread.
        unsafe { AtomicU64::from_ptr(self.base.cast()) }
    }

    /// Stores a word at the start of the place, `count` times.
    pub(crate) fn store(&self, count: u64) -> Duration {
        assert!(size_of::<u64>() <= self.len);
        let start = Instant::now();
        for i in 0..count {
            // SAFETY: the place has an aligned word (1, 3), which nobody else uses (2).
            unsafe { self.base.cast::<u64>().write_volatile(black_box(i)) }
        }
        start.elapsed()
    }

    /// Loads the word at the start of the place, `count` times.
    pub(crate) fn load(&self, count: u64) -> Duration {
        assert!(size_of::<u64>() <= self.len);
        let start = Instant::now();
        for _ in 0..count {
            // SAFETY: the place has an aligned word (1, 3), which nobody else uses (2).
            black_box(unsafe { self.base.cast::<u64>().read_volatile() });
        }
        start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_copies_reach_the_place_and_come_back() {
        let mut memory = vec![0u64; 64];
        // SAFETY: 1. and 3. a vector of words, alive until the end; 2. the vector is used below
        // only after the place's last use.
        let place = unsafe { BarePlace::new(memory.as_mut_ptr().cast(), 64 * 8) };
        let from: Vec<u64> = (0..64).collect();
        place.copy_rows_in(&from[..8], 2, 16, 1);
        let mut back = vec![9u64; 20];
        place.copy_out(&mut back, 2);
        assert_eq!(back[..3], [0, 1, 0]);
        assert_eq!(back[15..19], [0, 2, 3, 0]);
        place.copy_rows_out(&mut back[..4], 2, 16, 1);
        assert_eq!(back[..4], [0, 1, 2, 3]);
        place.copy_in(&from[..4], 1);
        place.fill(8, 2);
        assert_eq!(memory[..4], [0x0101_0101_0101_0101, 1, 2, 3]);
    }
}
