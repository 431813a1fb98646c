//! Accumulates of contiguous elements.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Error as Hydrant, Factor, Number};

use crate::{
    Armci, Error, Result,
    error::{count, not_null},
    memory::{Location, Memory},
};

impl Armci {
    /// The scale for an accumulate's code in ARMCI.
    ///
    /// # Errors
    /// [`Error::Code`], [`Error::Null`].
    ///
    /// # Safety
    /// 1. `scale` is readable for one element of the type that the code names.
    pub unsafe fn scale(code: i32, scale: *const u8) -> Result<Factor> {
        let number = match code {
            crate::ACC_INT => Number::I32,
            crate::ACC_LNG => Number::I64,
            crate::ACC_FLT => Number::F32,
            crate::ACC_DBL => Number::F64,
            crate::ACC_CPL => Number::C32,
            crate::ACC_DCP => Number::C64,
            code => {
                return Err(Error::Code {
                    what: "an accumulate",
                    code,
                });
            }
        };
        not_null(scale, "the scale of an accumulate")?;
        // SAFETY: `scale` is readable for one element, by the caller's condition 1.
        let bytes = unsafe { std::slice::from_raw_parts(scale, number.size()) };
        Ok(Factor::from_bytes(number, bytes).expect("a scale has the size of one element"))
    }

    /// Multiplies each element at `src` by a scale and adds it to the element at `dst` of a
    /// process. Each addition is atomic. ARMCI's `Acc`.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Hydrant`] if the bytes are not whole elements.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put).
    #[inline]
    pub unsafe fn accumulate(
        &self,
        scale: &Factor,
        src: *const u8,
        dst: *mut u8,
        bytes: i32,
        proc: i32,
    ) -> Result<()> {
        let bytes = count(bytes.into(), 0, "the number of bytes")?;
        not_null(src, "the source of an accumulate")?;
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.accumulate_bytes(scale, src, dst, bytes, proc) }
    }

    /// As [`accumulate`](Self::accumulate), with a checked number of bytes and source.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put).
    #[inline]
    pub(crate) unsafe fn accumulate_bytes(
        &self,
        scale: &Factor,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        let location = self.memory.find(proc, dst, bytes)?;
        // SAFETY: the source is readable and nobody writes to it, by the caller's condition 1.
        let data = unsafe { std::slice::from_raw_parts(src, bytes) };
        match location {
            Location::Arena(offset) => {
                let proc = proc as usize;
                self.settle(proc, &(offset..offset + bytes))?;
                let (arena, rank) = (&self.memory.arena, Memory::rank(proc));
                match arena.accumulate_bytes(rank, offset, scale, data) {
                    Err(Hydrant::Overlap { .. }) => {
                        let copy = data.to_vec();
                        Ok(arena.accumulate_bytes(rank, offset, scale, &copy)?)
                    }
                    done => Ok(done?),
                }
            }
            Location::Own(dst) => {
                check_whole(scale, bytes)?;
                let data = data.to_vec();
                // SAFETY: `dst` is writable and nobody else uses it, by the caller's condition 2.
                // The data was copied, so the slices do not overlap.
                let sums = unsafe { std::slice::from_raw_parts_mut(dst, bytes) };
                scale.add_to(sums, &data);
                Ok(())
            }
        }
    }
}

/// Checks that a number of bytes is a whole number of elements.
///
/// # Errors
/// [`Error::Hydrant`].
pub(super) fn check_whole(scale: &Factor, bytes: usize) -> Result<()> {
    let size = scale.number().size();
    if bytes.is_multiple_of(size) {
        return Ok(());
    }
    Err(Error::Hydrant(Hydrant::LengthMismatch {
        what: "bytes in a run against bytes of an element, of which a run has whole ones",
        left: bytes,
        right: size,
    }))
}
