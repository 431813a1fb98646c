//! Copies and accumulates of many runs at once between a window and private memory, in loops or
//! from a list.

use super::{
    Window,
    accumulate::{self, Factor},
    copy::{self, Each, WindowDirection},
    runs::{Runs, RunsPart},
    window::Fault,
};

impl Window {
    /// Copies runs in. The first goes from `from` in `data` to `offset`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if the runs leave the window or `data`. Nothing was copied then.
    pub fn write_runs(
        &self,
        offset: usize,
        data: &[u8],
        from: usize,
        runs: &Runs,
    ) -> Result<(), Fault> {
        let [here, there] = runs.spans();
        let dst = self.at(offset, here)?;
        let data = data.get(from..).filter(|rest| there <= rest.len());
        let src = data.ok_or(Fault::OutOfBounds)?.as_ptr();
        // SAFETY: 1. both spans were checked, and `data` is borrowed. 2. The window's conditions.
        // 3. Nobody holds a reference into the window.
        unsafe { runs.copy(WindowDirection::IntoWindow, dst.as_ptr(), src) };
        Ok(())
    }

    /// Copies runs out. The first goes from `offset` to `to` in `data`.
    ///
    /// # Errors
    /// Those of [`write_runs`](Self::write_runs).
    pub fn read_runs(
        &self,
        offset: usize,
        data: &mut [u8],
        to: usize,
        runs: &Runs,
    ) -> Result<(), Fault> {
        let [here, there] = runs.spans();
        let src = self.at(offset, here)?;
        let data = data.get_mut(to..).filter(|rest| there <= rest.len());
        let dst = data.ok_or(Fault::OutOfBounds)?.as_mut_ptr();
        // SAFETY: 1., 2. and 3. as in `write_runs`; `data` is borrowed mutably.
        unsafe { runs.copy(WindowDirection::OutOfWindow, dst, src.as_ptr()) };
        Ok(())
    }

    /// Like [`write_runs`](Self::write_runs), from any memory: the first run is at `src`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if the runs leave the window. Nothing was copied then.
    ///
    /// # Safety
    /// 1. Each run at `src` is readable.
    /// 2. It is apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn write_runs_from(
        &self,
        offset: usize,
        src: *const u8,
        runs: &Runs,
    ) -> Result<(), Fault> {
        let [here, _] = runs.spans();
        let dst = self.at(offset, here)?;
        // SAFETY: 1. the window's span was checked; conditions 1 and 3 of this function. 2. The
        // window's conditions. 3. Condition 2 of this function.
        unsafe { runs.copy(WindowDirection::IntoWindow, dst.as_ptr(), src) };
        Ok(())
    }

    /// Like [`read_runs`](Self::read_runs), to any memory: the first run is at `dst`.
    ///
    /// # Errors
    /// Those of [`write_runs_from`](Self::write_runs_from).
    ///
    /// # Safety
    /// 1. Each run at `dst` is writable.
    /// 2. It is apart from the runs in the window.
    /// 3. Nobody else uses it meanwhile.
    #[inline]
    pub unsafe fn read_runs_to(
        &self,
        offset: usize,
        dst: *mut u8,
        runs: &Runs,
    ) -> Result<(), Fault> {
        let [here, _] = runs.spans();
        let src = self.at(offset, here)?;
        // SAFETY: 1., 2. and 3. as in `write_runs_from`.
        unsafe { runs.copy(WindowDirection::OutOfWindow, dst, src.as_ptr()) };
        Ok(())
    }

    /// Copies runs of `run` bytes each in. The list has the offset of each in the window and in
    /// `data`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if a run leaves the window or `data`. The runs before it were copied
    /// then.
    #[inline]
    pub fn write_list(
        &self,
        data: &[u8],
        run: usize,
        list: impl Iterator<Item = (usize, usize)>,
    ) -> Result<(), Fault> {
        let list = list.map(|(offset, from)| {
            let src = data.get(from..)?.get(..run)?.as_ptr();
            Some((self.at(offset, run).ok()?.as_ptr(), src))
        });
        // SAFETY: 1. and 2. both sides of each run are checked, and `data` is borrowed. 3. Nobody
        // holds a reference into the window.
        unsafe { copy_list(run, WindowDirection::IntoWindow, list) }
    }

    /// Copies runs of `run` bytes each out. The list has the offset of each in the window and in
    /// `data`.
    ///
    /// # Errors
    /// Those of [`write_list`](Self::write_list).
    #[inline]
    pub fn read_list(
        &self,
        data: &mut [u8],
        run: usize,
        list: impl Iterator<Item = (usize, usize)>,
    ) -> Result<(), Fault> {
        let (base, most) = (data.as_mut_ptr(), data.len().checked_sub(run));
        let list = list.map(|(offset, to)| {
            let dst = base.wrapping_add(most.filter(|most| to <= *most).map(|_| to)?);
            Some((dst, self.at(offset, run).ok()?.as_ptr().cast_const()))
        });
        // SAFETY: 1., 2. and 3. as in `write_list`; `data` is borrowed mutably.
        unsafe { copy_list(run, WindowDirection::OutOfWindow, list) }
    }

    /// Like [`write_list`](Self::write_list), from any memory.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if a run leaves the window. The runs before it were copied then.
    ///
    /// # Safety
    /// 1. Each run in private memory is readable.
    /// 2. It is apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn write_list_from(
        &self,
        run: usize,
        list: impl Iterator<Item = (usize, *const u8)>,
    ) -> Result<(), Fault> {
        let list = list.map(|(offset, src)| Some((self.at(offset, run).ok()?.as_ptr(), src)));
        // SAFETY: `at` checks that each run is in the window. The other side is as conditions 1, 2
        // and 3 of this function demand.
        unsafe { copy_list(run, WindowDirection::IntoWindow, list) }
    }

    /// Like [`read_list`](Self::read_list), to any memory.
    ///
    /// # Errors
    /// Those of [`write_list_from`](Self::write_list_from).
    ///
    /// # Safety
    /// 1. Each run in private memory is writable.
    /// 2. It is apart from the runs in the window.
    /// 3. Nobody else uses it meanwhile.
    #[inline]
    pub unsafe fn read_list_to(
        &self,
        run: usize,
        list: impl Iterator<Item = (usize, *mut u8)>,
    ) -> Result<(), Fault> {
        let list =
            list.map(|(offset, dst)| Some((dst, self.at(offset, run).ok()?.as_ptr().cast_const())));
        // SAFETY: as in `write_list_from`.
        unsafe { copy_list(run, WindowDirection::OutOfWindow, list) }
    }

    /// Like [`accumulate`](Self::accumulate), for a part of some runs in any memory. `src` is the
    /// address of the first of all runs, and `offset` its target.
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate).
    ///
    /// # Safety
    /// 1. Each run at `src` is readable.
    /// 2. It is apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn accumulate_part_from(
        &self,
        offset: usize,
        src: *const u8,
        part: RunsPart<'_>,
        factor: &Factor,
    ) -> Result<(), Fault> {
        let [first, _] = part.start();
        self.at(offset.wrapping_add(first), part.span())?;
        let dst = self.as_ptr().wrapping_add(offset);
        let nest = part.nest(WindowDirection::IntoWindow, dst, src);
        // SAFETY: the window's span was checked. The other side is as conditions 1, 2 and 3 of this
        // function demand.
        unsafe { accumulate::each(part.run(), factor, nest) };
        Ok(())
    }

    /// Like [`accumulate`](Self::accumulate), for runs of `run` bytes each. The list has the offset
    /// of each in the window, and its address.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if a run leaves the window. The runs before it were added then.
    ///
    /// # Safety
    /// 1. Each run in private memory is readable.
    /// 2. It is apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn accumulate_list_from(
        &self,
        run: usize,
        list: impl Iterator<Item = (usize, *const u8)>,
        factor: &Factor,
    ) -> Result<(), Fault> {
        let mut outcome = Ok(());
        let list = list.map(|(offset, src)| Some((self.at(offset, run).ok()?.as_ptr(), src)));
        // SAFETY: `at` checks that each run is in the window. The other side is as conditions 1, 2
        // and 3 of this function demand.
        unsafe { accumulate::each(run, factor, RunList(list, &mut outcome)) };
        outcome
    }
}

/// Copies runs of `run` bytes each, up to the first `None`.
///
/// # Safety
/// 1. The conditions of [`copy::each`], for each run. There may be none.
#[inline(always)]
unsafe fn copy_list(
    run: usize,
    direction: WindowDirection,
    list: impl Iterator<Item = Option<(*mut u8, *const u8)>>,
) -> Result<(), Fault> {
    let mut outcome = Ok(());
    if run != 0 {
        // SAFETY: 1. condition 1 of this function. A run has bytes.
        unsafe { copy::each(run, direction, RunList(list, &mut outcome)) }
    }
    outcome
}

/// Runs up to the first `None`, and the result.
struct RunList<'a, I>(I, &'a mut Result<(), Fault>);

impl<I: Iterator<Item = Option<(*mut u8, *const u8)>>> Each for RunList<'_, I> {
    #[inline(always)]
    fn each(self, act: impl Fn(*mut u8, *const u8)) {
        for place in self.0 {
            let Some((dst, src)) = place else {
                *self.1 = Err(Fault::OutOfBounds);
                return;
            };
            act(dst, src);
        }
    }
}
