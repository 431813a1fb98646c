//! Copies and accumulates of many runs at once between a window and private memory, in loops or listed.

use super::{
    Window,
    accumulate::{self, Factor},
    copy::{self, Direction, Each},
    runs::{Part, Runs},
    window::Fault,
};

impl Window {
    /// Copies runs in: the first from `from` in `data` to `offset`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if they leave the window or `data`; then nothing was copied.
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
        // SAFETY: (1) both spans were checked, and `data` is borrowed; (2) the window's promise;
        // (3) nobody holds a reference into the window.
        unsafe { runs.copy(Direction::IntoWindow, dst.as_ptr(), src) };
        Ok(())
    }

    /// Copies runs out: the first from `offset` to `to` in `data`.
    ///
    /// # Errors
    /// As [`write_runs`](Self::write_runs).
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
        // SAFETY: as in `write_runs`; `data` is borrowed mutably.
        unsafe { runs.copy(Direction::OutOfWindow, dst, src.as_ptr()) };
        Ok(())
    }

    /// As [`write_runs`](Self::write_runs), from anywhere: the first run is at `src`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if they leave the window; then nothing was copied.
    ///
    /// # Safety
    /// 1. Each run on that side is readable.
    /// 2. It lies apart from the runs in the window.
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
        // SAFETY: the span here was checked, and the other side is readable (1., 3.); the accesses to the
        // window are its promise; the two lie apart (2.).
        unsafe { runs.copy(Direction::IntoWindow, dst.as_ptr(), src) };
        Ok(())
    }

    /// As [`read_runs`](Self::read_runs), to anywhere: the first run is at `dst`.
    ///
    /// # Errors
    /// As [`write_runs_from`](Self::write_runs_from).
    ///
    /// # Safety
    /// 1. Each run on that side is writable.
    /// 2. It lies apart from the runs in the window.
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
        // SAFETY: as in `write_runs_from`.
        unsafe { runs.copy(Direction::OutOfWindow, dst, src.as_ptr()) };
        Ok(())
    }

    /// Copies runs of `run` bytes each in: for each where it goes, and where it is in `data`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if one leaves the window or `data`; those before it were copied then.
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
        // SAFETY: both sides were checked just now, and `data` is borrowed; nobody holds a reference
        // into the window.
        unsafe { copy_list(run, Direction::IntoWindow, list) }
    }

    /// Copies runs of `run` bytes each out: for each where it is, and where it goes in `data`.
    ///
    /// # Errors
    /// As [`write_list`](Self::write_list).
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
        // SAFETY: as in `write_list`; `data` is borrowed mutably.
        unsafe { copy_list(run, Direction::OutOfWindow, list) }
    }

    /// As [`write_list`](Self::write_list), from anywhere.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if one leaves the window; those before it were copied then.
    ///
    /// # Safety
    /// 1. Each is readable.
    /// 2. It lies apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn write_list_from(
        &self,
        run: usize,
        list: impl Iterator<Item = (usize, *const u8)>,
    ) -> Result<(), Fault> {
        let list = list.map(|(offset, src)| Some((self.at(offset, run).ok()?.as_ptr(), src)));
        // SAFETY: `at` checked that each lies in the window; of the other side it is 1., 2., 3.
        unsafe { copy_list(run, Direction::IntoWindow, list) }
    }

    /// As [`read_list`](Self::read_list), to anywhere.
    ///
    /// # Errors
    /// As [`write_list_from`](Self::write_list_from).
    ///
    /// # Safety
    /// 1. Each is writable.
    /// 2. It lies apart from the runs in the window.
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
        unsafe { copy_list(run, Direction::OutOfWindow, list) }
    }

    /// As [`accumulate`](Self::accumulate), of runs from anywhere: `src` is where the first of all runs
    /// is, of which these are a part, and `offset` where it goes.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// 1. Each run on that side is readable.
    /// 2. It lies apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[inline]
    pub unsafe fn accumulate_part_from(
        &self,
        offset: usize,
        src: *const u8,
        part: Part<'_>,
        factor: &Factor,
    ) -> Result<(), Fault> {
        let [first, _] = part.start();
        self.at(offset.wrapping_add(first), part.span())?;
        let dst = self.as_ptr().wrapping_add(offset);
        let nest = part.nest(Direction::IntoWindow, dst, src);
        // SAFETY: the span here was checked, and the other side is as 1., 2. and 3. say.
        unsafe { accumulate::each(part.run(), factor, nest) };
        Ok(())
    }

    /// As [`accumulate`](Self::accumulate), of a list of runs of `run` bytes each: for each where it goes
    /// and where it is.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if one leaves the window; those before it were added then.
    ///
    /// # Safety
    /// 1. Each is readable.
    /// 2. It lies apart from the runs in the window.
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
        // SAFETY: `at` checked that each lies in the window; of the other side it is 1., 2., 3.
        unsafe { accumulate::each(run, factor, List(list, &mut outcome)) };
        outcome
    }
}

/// Copies runs of `run` bytes each, up to the first that is none.
///
/// # Safety
/// As [`copy::each`], which may have none to copy here.
#[inline(always)]
unsafe fn copy_list(
    run: usize,
    direction: Direction,
    list: impl Iterator<Item = Option<(*mut u8, *const u8)>>,
) -> Result<(), Fault> {
    let mut outcome = Ok(());
    if run != 0 {
        // SAFETY: handed on.
        unsafe { copy::each(run, direction, List(list, &mut outcome)) }
    }
    outcome
}

/// Runs up to the first that is none, and where to say so.
struct List<'a, I>(I, &'a mut Result<(), Fault>);

impl<I: Iterator<Item = Option<(*mut u8, *const u8)>>> Each for List<'_, I> {
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
