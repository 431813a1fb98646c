//! Puts and gets of sections of arrays with up to [`MAX_STRIDE_LEVEL`]
//! stride levels (Nieplocha and Carpenter 1999, §3.1).

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Error as Hydrant, Factor, Level, Runs, Section};

use super::{FEW, Handle, LONG, PutOrGet, gathered::GatherBuffer};
use crate::{
    Armci, Error, MAX_STRIDE_LEVEL, Result,
    error::{count, not_null},
    memory::{Location, Memory},
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
struct Sides {
    remote: Section,
    local: Section,
}

impl Strides<'_> {
    /// The sections of both sides, relative to their pointers.
    fn sides(&self, direction: PutOrGet) -> Result<Sides> {
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
    fn fill(&self, runs: &mut Runs, direction: PutOrGet) -> Option<()> {
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
    fn interleave(&self, ahead: usize) -> bool {
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
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
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
    /// As [`put`](Self::put); [`Error::StrideLevels`], [`Error::Number`] for negative strides and counts.
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
            unsafe { self.put_bytes(src.add(from), dst.wrapping_add(to), bytes, proc)? };
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
            unsafe { self.get_bytes(src.wrapping_add(from), dst.add(to), bytes, proc)? };
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
}

impl Armci {
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
