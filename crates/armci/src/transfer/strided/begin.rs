//! Puts and gets of sections that do not block.

#![allow(unsafe_code)] // memory is named by its address

use super::{
    super::{FEW, Handle, LONG, PutOrGet, gathered::GatherBuffer},
    strides::{Sides, Strides},
};
use crate::{Armci, Result, error::not_null, memory::Location};

impl Armci {
    /// Begins to put a section. ARMCI's `NbPutS`.
    ///
    /// # Errors
    /// As [`put_strided`](Self::put_strided).
    ///
    /// # Safety
    /// 1. and 2. as [`put_strided`](Self::put_strided), until the handle was waited for.
    pub unsafe fn put_strided_nb(
        &self,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let here = src.cast_mut();
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        if unsafe { self.begin_strided(PutOrGet::Put, here, dst, strides, proc, handle)? } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.put_strided(src, dst, strides, proc) }
    }

    /// Begins to get a section. ARMCI's `NbGetS`.
    ///
    /// # Errors
    /// As [`get_strided`](Self::get_strided).
    ///
    /// # Safety
    /// 1. and 2. as [`get_strided`](Self::get_strided), until the handle was waited for.
    pub unsafe fn get_strided_nb(
        &self,
        src: *mut u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        if unsafe { self.begin_strided(PutOrGet::Get, dst, src, strides, proc, handle)? } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.get_strided(src, dst, strides, proc) }
    }

    /// Begins an operation on a section that is not mapped here. Few long runs, and gathered runs,
    /// go one by one. Other runs are packed. Returns false, and does nothing, if the memory is
    /// mapped.
    ///
    /// # Safety
    /// 1. and 2. as [`put_strided_nb`](Self::put_strided_nb) or
    ///    [`get_strided_nb`](Self::get_strided_nb).
    unsafe fn begin_strided(
        &self,
        direction: PutOrGet,
        here: *mut u8,
        there: *mut u8,
        strides: Strides<'_>,
        proc: i32,
        mut handle: Option<&mut Handle>,
    ) -> Result<bool> {
        let number = self.memory.process(proc)?;
        if self.memory.is_mapped(number) {
            return Ok(false);
        }
        let Sides { remote, .. } = strides.sides(direction)?;
        not_null(here, "the own side of an operation")?;
        let Location::Arena(offset) = self.memory.find(proc, there, remote.span())? else {
            return Ok(false);
        };
        let bytes = strides.count[0] as usize;
        let gathers = handle
            .as_ref()
            .is_some_and(|handle| handle.is_aggregate != 0);
        let runs = strides.runs().map(|(from, to)| {
            let (local, remote) = match direction {
                PutOrGet::Put => (from, to),
                PutOrGet::Get => (to, from),
            };
            (here.wrapping_add(local), offset + remote, bytes)
        });
        // A single run goes by itself, however short, because there is nothing to pack it with.
        let is_many = remote.len() > bytes;
        if !gathers && is_many && (bytes < LONG || remote.len() / bytes > FEW) {
            // SAFETY: 1 and 2. The caller's condition 1, for each run.
            unsafe { self.begin_packed(direction, number, runs, handle)? };
            return Ok(true);
        }
        for (local, remote, bytes) in runs {
            let there = (number, remote);
            let local = (GatherBuffer::Memory(local), bytes);
            // SAFETY: 1 and 2. The caller's condition 1, for this run.
            unsafe { self.begin_far(direction, there, local, handle.as_deref_mut())? };
        }
        Ok(true)
    }
}
