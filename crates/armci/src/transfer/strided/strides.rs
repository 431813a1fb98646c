//! The description of a section's two sides.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Level, Runs, Section};

use super::super::PutOrGet;
use crate::{
    Error, MAX_STRIDE_LEVEL, Result,
    error::{count, not_null},
};

/// The bytes of a section on both sides. A run has `count[0]` contiguous bytes. The run is repeated
/// `count[1]` times, all of that `count[2]` times, and so on. A stride is the distance in bytes
/// from the start of one repetition to the next.
#[derive(Clone, Copy, Debug)]
pub struct Strides<'a> {
    /// Strides of the memory that is read, one for each level.
    pub src: &'a [i32],
    /// Strides of the memory that is written.
    pub dst: &'a [i32],
    /// The bytes of a run, then the repetitions at each level: one number more than levels.
    pub count: &'a [i32],
}

/// The two sides of an operation.
pub(super) struct Sides {
    pub(super) remote: Section,
    pub(super) local: Section,
}

impl Strides<'_> {
    /// The sections of both sides, relative to their pointers.
    pub(super) fn sides(&self, direction: PutOrGet) -> Result<Sides> {
        let [here, there] = match direction {
            PutOrGet::Put => [self.src, self.dst],
            PutOrGet::Get => [self.dst, self.src],
        };
        Ok(Sides {
            remote: self.section(there)?,
            local: self.section(here)?,
        })
    }

    fn section(&self, strides: &[i32]) -> Result<Section> {
        let levels = self.count.len().wrapping_sub(1);
        if levels > MAX_STRIDE_LEVEL || strides.len() < levels {
            return Err(Error::StrideLevels {
                levels: levels as i32,
            });
        }
        let mut all = [Level {
            count: 1,
            stride: 0,
        }; MAX_STRIDE_LEVEL];
        for (level, (times, stride)) in all.iter_mut().zip(self.count[1..].iter().zip(strides)) {
            level.count = count((*times).into(), 0, "a count of a stride level")?;
            level.stride = count((*stride).into(), 0, "a stride")?;
        }
        let bytes = count(self.count[0].into(), 0, "the number of bytes")?;
        Ok(Section::new(0, bytes, &all[..levels])?)
    }

    /// Fills `runs` with these strides, for memory that is mapped here. Returns `None` if an
    /// argument is wrong.
    #[inline]
    pub(super) fn fill(&self, runs: &mut Runs, direction: PutOrGet) -> Option<()> {
        let (bytes, counts) = self.count.split_first()?;
        let levels = counts.len();
        if levels > MAX_STRIDE_LEVEL || self.src.len() < levels || self.dst.len() < levels {
            return None;
        }
        let [there, here] = match direction {
            PutOrGet::Put => [self.dst, self.src],
            PutOrGet::Get => [self.src, self.dst],
        };
        runs.reset(usize::try_from(*bytes).ok()?);
        for (count, (there, here)) in counts.iter().zip(there.iter().zip(here)) {
            if (*count | *there | *here) < 0 {
                return None;
            }
            (runs.repeat(*count as usize, *there as usize, *here as usize)).ok()?;
        }
        Some(())
    }

    /// Returns true if, on one level, the runs of each side lie in the gaps of the other. One side
    /// begins `ahead` bytes behind the other, modulo the size of the address space.
    #[cold]
    pub(super) fn interleave(&self, ahead: usize) -> bool {
        let (&[bytes, _], &[stride], &[other]) = (self.count, self.src, self.dst) else {
            return false;
        };
        if stride != other || stride <= 0 {
            return false;
        }
        let between = (ahead as isize).rem_euclid(stride as isize);
        between >= bytes as isize && stride as isize - between >= bytes as isize
    }

    /// Copies the runs of `src` from `section` on into a buffer, one after the other.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::StrideLevels`], [`Error::Number`] for negative strides and counts.
    ///
    /// # Safety
    /// 1. Each run is readable, and the buffer is writable for all of their bytes.
    /// 2. The runs and the buffer do not overlap. No other code writes to the runs or uses the buffer
    ///    meanwhile.
    pub(crate) unsafe fn pack(&self, section: *const u8, mut buffer: *mut u8) -> Result<()> {
        let bytes = self.check_buffer(section, buffer)?;
        for (from, _) in self.runs() {
            // SAFETY: the run is readable and the buffer writable, by the caller's condition 1.
            // They do not overlap, by condition 2.
            unsafe { std::ptr::copy_nonoverlapping(section.wrapping_add(from), buffer, bytes) };
            buffer = buffer.wrapping_add(bytes);
        }
        Ok(())
    }

    /// As [`pack`](Self::pack), in the other direction.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    ///
    /// # Safety
    /// 1. Each run is writable, and the buffer is readable for all of their bytes.
    /// 2. The runs and the buffer do not overlap. No other code uses the runs or writes to the buffer
    ///    meanwhile.
    pub(crate) unsafe fn unpack(&self, section: *mut u8, mut buffer: *const u8) -> Result<()> {
        let bytes = self.check_buffer(section, buffer)?;
        for (from, _) in self.runs() {
            // SAFETY: the run is writable and the buffer readable, by the caller's condition 1.
            // They do not overlap, by condition 2.
            unsafe { std::ptr::copy_nonoverlapping(buffer, section.wrapping_add(from), bytes) };
            buffer = buffer.wrapping_add(bytes);
        }
        Ok(())
    }

    /// Checks a section and a buffer. Returns the bytes of a run.
    fn check_buffer(&self, section: *const u8, buffer: *const u8) -> Result<usize> {
        not_null(section, "the first run of a section")?;
        not_null(buffer, "the buffer of a section")?;
        self.section(self.src)?;
        count(self.count[0].into(), 0, "the number of bytes")
    }

    /// The runs of both sides: the offset of each in the memory read, and in the memory written.
    pub(super) fn runs(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let levels = self.count.len() - 1;
        let mut turns = [0; MAX_STRIDE_LEVEL];
        let mut next = (self.count.iter().all(|count| *count > 0)).then_some([0_usize; 2]);
        std::iter::from_fn(move || {
            let now = next?;
            let mut after = now;
            next = None;
            for (level, turn) in turns[..levels].iter_mut().enumerate() {
                let strides = [self.src[level], self.dst[level]].map(|stride| stride as usize);
                *turn += 1;
                if *turn < self.count[level + 1] {
                    after = [after[0] + strides[0], after[1] + strides[1]];
                    next = Some(after);
                    break;
                }
                let back = self.count[level + 1] as usize - 1;
                *turn = 0;
                after = [after[0] - back * strides[0], after[1] - back * strides[1]];
            }
            Some((now[0], now[1]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_in_the_order_of_the_levels() {
        let strides = Strides {
            src: &[10, 100],
            dst: &[4, 8],
            count: &[4, 2, 3],
        };
        let all: Vec<_> = strides.runs().collect();
        let right = [(0, 0), (10, 4), (100, 8), (110, 12), (200, 16), (210, 20)];
        assert_eq!(all, right);
        let none = Strides {
            count: &[4, 0, 3],
            ..strides
        };
        assert_eq!(none.runs().count(), 0);
        let one = Strides {
            src: &[],
            dst: &[],
            count: &[4],
        };
        assert_eq!(one.runs().collect::<Vec<_>>(), [(0, 0)]);
    }
}
