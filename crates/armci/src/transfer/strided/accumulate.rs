//! Accumulates of sections.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Factor, Runs};

use super::{
    super::{Handle, PutOrGet},
    strides::{Sides, Strides},
};
use crate::{
    Armci, Result,
    error::not_null,
    memory::{Location, Memory},
};

impl Armci {
    /// Multiplies a section of an array at `src` by a factor, and adds it to a section at `dst` of
    /// a process. ARMCI's `AccS`.
    ///
    /// # Errors
    /// As [`put_strided`](Self::put_strided) and [`accumulate`](Self::accumulate).
    ///
    /// # Safety
    /// 1. and 2. as [`put_strided`](Self::put_strided).
    pub unsafe fn accumulate_strided(
        &self,
        scale: &Factor,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        if let [bytes] = strides.count {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2, for the only run.
            return unsafe { self.accumulate(scale, src, dst, *bytes, proc) };
        }
        let mut runs = Runs::new(0);
        if let Some(offset) = self.mapped_runs(&mut runs, (src, dst), &strides, PutOrGet::Put, proc)
        {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            // SAFETY: 1 and 3. The caller's condition 1, for each run.
            // 2. `mapped_runs` found the sides apart.
            let done = unsafe { arena.accumulate_runs_raw(rank, scale, (offset, src), &runs) };
            return Ok(done?);
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.accumulate_sides(scale, src, dst, strides, proc) }
    }

    /// As [`put_sides`](Self::put_sides), for an accumulate.
    ///
    /// # Safety
    /// 1. and 2. as [`accumulate_strided`](Self::accumulate_strided).
    #[cold]
    unsafe fn accumulate_sides(
        &self,
        scale: &Factor,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        let Sides { remote, local } = strides.sides(PutOrGet::Put)?;
        not_null(src, "the source of an accumulate")?;
        if let Location::Arena(offset) = self.memory.find(proc, dst, remote.span())? {
            let proc = proc as usize;
            if !self.memory.is_mapped(proc) {
                self.settle(proc, &(offset..offset + remote.span()))?;
                let (remote, rank) = (remote.offset(offset)?, Memory::rank(proc));
                let arena = &self.memory.arena;
                // SAFETY: 1 and 2. The caller's condition 1, for each run.
                let added =
                    unsafe { arena.accumulate_section_raw(rank, &remote, scale, src, &local) };
                return Ok(added?);
            }
        }
        for (from, to) in strides.runs() {
            let (src, dst) = (src.wrapping_add(from), dst.wrapping_add(to));
            // SAFETY: 1 and 2. The caller's conditions 1 and 2, for this run.
            unsafe { self.accumulate(scale, src, dst, strides.count[0], proc)? };
        }
        Ok(())
    }

    /// Begins [`accumulate_strided`](Self::accumulate_strided). On return `src` is free. ARMCI's
    /// `NbAccS`.
    ///
    /// # Errors
    /// As [`accumulate_strided`](Self::accumulate_strided).
    ///
    /// # Safety
    /// 1. and 2. as [`accumulate_strided`](Self::accumulate_strided).
    pub unsafe fn accumulate_strided_nb(
        &self,
        scale: &Factor,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let number = self.memory.process(proc)?;
        if !self.memory.is_mapped(number) {
            let Sides { remote, .. } = strides.sides(PutOrGet::Put)?;
            not_null(src, "the source of an accumulate")?;
            if let Location::Arena(offset) = self.memory.find(proc, dst, remote.span())? {
                let (here, bytes) = (src.cast_mut(), strides.count[0] as usize);
                let run = |(from, to)| (here.wrapping_add(from), offset + to, bytes);
                // SAFETY: 1. The caller's condition 1, for each run.
                return unsafe {
                    self.begin_adding(scale, number, strides.runs().map(run), handle)
                };
            }
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.accumulate_strided(scale, src, dst, strides, proc) }
    }
}
