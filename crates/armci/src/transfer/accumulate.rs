//! Accumulates of elements that follow each other.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Error as Hydrant, Factor, Number};

use crate::{
    Armci, Error, Result,
    error::{count, not_null},
    memory::{Memory, Place},
};

/// What elements are multiplied by before they are added, and what they are.
pub type Scale = Factor;

impl Armci {
    /// What a scale is that ARMCI names by its code.
    ///
    /// # Errors
    /// [`Error::Code`], [`Error::Null`].
    ///
    /// # Safety
    /// `scale` is readable for an element of what the code means.
    pub unsafe fn scale(code: i32, scale: *const u8) -> Result<Scale> {
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
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(scale, number.size()) };
        Ok(Factor::from_bytes(number, bytes).expect("as many bytes as it has"))
    }

    /// Adds a scale's multiple of each element at `src` to the one at `dst` of a process, atomically for
    /// each element. ARMCI's `Acc`.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Hydrant`] if there are not whole elements.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn accumulate(
        &self,
        scale: &Scale,
        src: *const u8,
        dst: *mut u8,
        bytes: i32,
        proc: i32,
    ) -> Result<()> {
        let bytes = count(bytes.into(), 0, "the number of bytes")?;
        not_null(src, "the source of an accumulate")?;
        // SAFETY: the caller's promise.
        unsafe { self.accumulate_bytes(scale, src, dst, bytes, proc) }
    }

    /// As [`accumulate`](Self::accumulate), of bytes that were counted.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn accumulate_bytes(
        &self,
        scale: &Scale,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        let place = self.memory.find(proc, dst, bytes)?;
        // SAFETY: the caller's promise.
        let data = unsafe { std::slice::from_raw_parts(src, bytes) };
        match place {
            Place::Arena(offset) => {
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
            Place::Own(dst) => {
                check_whole(scale, bytes)?;
                let data = data.to_vec();
                // SAFETY: the caller's promise; the data is in another place.
                let sums = unsafe { std::slice::from_raw_parts_mut(dst, bytes) };
                scale.add_to(sums, &data);
                Ok(())
            }
        }
    }
}

/// Whether so many bytes are whole elements.
///
/// # Errors
/// [`Error::Hydrant`].
pub(super) fn check_whole(scale: &Scale, bytes: usize) -> Result<()> {
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
