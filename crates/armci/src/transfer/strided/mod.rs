//! Puts and gets of sections of arrays with up to [`MAX_STRIDE_LEVEL`](crate::MAX_STRIDE_LEVEL)
//! stride levels (Nieplocha and Carpenter 1999, §3.1).

#![allow(unsafe_code)] // memory is named by its address

mod accumulate;
mod begin;
mod strides;

use hydrant::{Error as Hydrant, Runs};

use super::PutOrGet;
use crate::{
    Armci, Result,
    error::not_null,
    memory::{Location, Memory},
};

use strides::Sides;
pub use strides::Strides;

impl Armci {
    /// Fills `runs` for memory of this process and an arena that is mapped here. Returns the arena
    /// offset of the first run. Returns `None` if the sides may overlap or an argument is wrong.
    #[inline]
    fn mapped_runs(
        &self,
        runs: &mut Runs,
        (here, there): (*const u8, *mut u8),
        strides: &Strides<'_>,
        direction: PutOrGet,
        proc: i32,
    ) -> Option<usize> {
        let number = self.memory.process(proc).ok()?;
        if here.is_null() || !self.memory.is_mapped(number) {
            return None;
        }
        strides.fill(runs, direction)?;
        let [remote, local] = runs.spans();
        let Ok(Location::Arena(offset)) = self.memory.find(proc, there, remote) else {
            return None;
        };
        let there = self.memory.address(number, offset).addr();
        let ahead = here.addr().wrapping_sub(there);
        let is_apart = ahead >= remote && ahead.wrapping_neg() >= local;
        (is_apart || strides.interleave(ahead)).then_some(offset)
    }

    /// Puts a section of an array from `src` to `dst` of a process. ARMCI's `PutS`.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::StrideLevels`](crate::Error::StrideLevels), [`Error::Number`](crate::Error::Number) for negative strides and counts.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put), for each run that is read and each run that is written.
    ///    Other threads may use the bytes between runs.
    #[inline]
    pub unsafe fn put_strided(
        &self,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        if unsafe { self.put_column(src, dst, &strides, proc) } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.put_runs(src, dst, strides, proc) }
    }

    /// As [`put_strided`](Self::put_strided), for any number of levels.
    ///
    /// # Safety
    /// 1. and 2. as [`put_strided`](Self::put_strided).
    #[inline(never)]
    unsafe fn put_runs(
        &self,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        if let [bytes] = strides.count {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2, for the only run.
            return unsafe { self.put(src, dst, *bytes, proc) };
        }
        let mut runs = Runs::new(0);
        if let Some(offset) = self.mapped_runs(&mut runs, (src, dst), &strides, PutOrGet::Put, proc)
        {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            // SAFETY: 1 and 3. The caller's condition 1, for each run.
            // 2. `mapped_runs` found the sides apart.
            let done = unsafe { arena.put_runs_raw(rank, offset, src, &runs) };
            return Ok(done?);
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.put_sides(src, dst, strides, proc) }
    }

    /// The slow path of [`put_strided`](Self::put_strided): memory that is not mapped here,
    /// overlapping sides, and wrong arguments.
    ///
    /// # Safety
    /// 1. and 2. as [`put_strided`](Self::put_strided).
    #[cold]
    unsafe fn put_sides(
        &self,
        src: *const u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        let Sides { remote, local } = strides.sides(PutOrGet::Put)?;
        not_null(src, "the source of a put")?;
        if let Location::Arena(offset) = self.memory.find(proc, dst, remote.span())? {
            let proc = proc as usize;
            if !self.memory.is_mapped(proc) {
                self.settle(proc, &(offset..offset + remote.span()))?;
                let (remote, rank) = (remote.offset(offset)?, Memory::rank(proc));
                let arena = &self.memory.arena;
                // SAFETY: 1 and 2. The caller's condition 1, for each run.
                match unsafe { arena.put_section_raw(rank, &remote, src, &local) } {
                    // Some bytes are written twice, so the runs go one by one in order.
                    Err(Hydrant::SectionOverlap { .. }) => {}
                    done => return Ok(done?),
                }
            }
        }
        let bytes = strides.count[0] as usize;
        for (from, to) in strides.runs() {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2, for this run.
            unsafe { self.put_bytes(src.wrapping_add(from), dst.wrapping_add(to), bytes, proc)? };
        }
        Ok(())
    }

    /// Gets a section of an array from `src` of a process to `dst`. ARMCI's `GetS`.
    ///
    /// # Errors
    /// As [`put_strided`](Self::put_strided).
    ///
    /// # Safety
    /// 1. and 2. as [`get`](Self::get), for each run that is written and each run that is read.
    #[inline]
    pub unsafe fn get_strided(
        &self,
        src: *mut u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        if unsafe { self.get_column(src, dst, &strides, proc) } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.get_runs(src, dst, strides, proc) }
    }

    /// As [`get_strided`](Self::get_strided), for any number of levels.
    ///
    /// # Safety
    /// 1. and 2. as [`get_strided`](Self::get_strided).
    #[inline(never)]
    unsafe fn get_runs(
        &self,
        src: *mut u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        if let [bytes] = strides.count {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2, for the only run.
            return unsafe { self.get(src, dst, *bytes, proc) };
        }
        let mut runs = Runs::new(0);
        if let Some(offset) = self.mapped_runs(&mut runs, (dst, src), &strides, PutOrGet::Get, proc)
        {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            // SAFETY: 1 and 3. The caller's condition 1, for each run.
            // 2. `mapped_runs` found the sides apart.
            let done = unsafe { arena.get_runs_raw(rank, offset, dst, &runs) };
            return Ok(done?);
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.get_sides(src, dst, strides, proc) }
    }

    /// As [`put_sides`](Self::put_sides), for a get.
    ///
    /// # Safety
    /// 1. and 2. as [`get_strided`](Self::get_strided).
    #[cold]
    unsafe fn get_sides(
        &self,
        src: *mut u8,
        dst: *mut u8,
        strides: Strides<'_>,
        proc: i32,
    ) -> Result<()> {
        let Sides { remote, local } = strides.sides(PutOrGet::Get)?;
        not_null(dst, "the destination of a get")?;
        if let Location::Arena(offset) = self.memory.find(proc, src, remote.span())? {
            let proc = proc as usize;
            if !self.memory.is_mapped(proc) {
                self.settle(proc, &(offset..offset + remote.span()))?;
                let (remote, rank) = (remote.offset(offset)?, Memory::rank(proc));
                let arena = &self.memory.arena;
                // SAFETY: 1 and 2. The caller's condition 1, for each run.
                match unsafe { arena.get_section_raw(rank, &remote, dst, &local) } {
                    Err(Hydrant::SectionOverlap { .. }) => {}
                    done => return Ok(done?),
                }
            }
        }
        let bytes = strides.count[0] as usize;
        for (from, to) in strides.runs() {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2, for this run.
            unsafe { self.get_bytes(src.wrapping_add(from), dst.wrapping_add(to), bytes, proc)? };
        }
        Ok(())
    }

    /// Puts a section, then an `int` at a flag of the same process. ARMCI's `PutS_flag`.
    ///
    /// # Errors
    /// As [`put_strided`](Self::put_strided).
    ///
    /// # Safety
    /// 1. and 2. as [`put_strided`](Self::put_strided), for the section and for the flag.
    pub unsafe fn put_strided_flag(
        &self,
        (src, dst): (*const u8, *mut u8),
        strides: Strides<'_>,
        flag: (*mut i32, i32),
        proc: i32,
    ) -> Result<()> {
        self.memory.find(proc, flag.0.cast(), size_of::<i32>())?;
        // SAFETY: 1 and 2. The caller's conditions 1 and 2, for the section.
        unsafe { self.put_strided(src, dst, strides, proc)? };
        // SAFETY: 1. The caller's condition 2, for the flag.
        unsafe { self.set_flag(flag, proc) }
    }
}
