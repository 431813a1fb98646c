//! Puts and gets whose target is a member of a team.

use super::team::Team;
use crate::{
    Error, GetHandle, Pod, PutHandle, Refused, Result, Section, Signal, Symmetric, TeamRank,
};

/// Symmetric memory whose parts are named by the ranks of a team: see [`Symmetric::by_team`].
///
/// What is not here is done by the rank in the job, which [`Team::job_rank`] says.
pub struct ByTeam<'a, T> {
    memory: &'a Symmetric<T>,
    team: &'a Team,
}

impl<T: Pod> Symmetric<T> {
    /// The same memory, whose parts are named by the ranks of `team`.
    ///
    /// ```
    /// use hydrant::TeamRank;
    ///
    /// # hydrant::Job::builder()?.run_local(4, |job| {
    /// // Two by two: every rank tells the first of its row how far to the right it is.
    /// let row = job.world().split(Some(job.rank().0 / 2), 0)?;
    /// let row = row.expect("every rank gives a color");
    /// let table = job.alloc::<u32>(2)?;
    /// let own = row.rank();
    /// table.by_team(&row)?.put_value(TeamRank(0), own.index(), own.0)?;
    /// row.barrier()?;
    /// if own == TeamRank(0) {
    ///     assert_eq!(table.local()?.load(1)?, 1);
    /// }
    /// # job.barrier() }).into_iter().collect::<hydrant::Result<()>>()?;
    /// # Ok::<(), hydrant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] for a team of another job.
    pub fn by_team<'a>(&'a self, team: &'a Team) -> Result<ByTeam<'a, T>> {
        if self.block().job != team.progress.id {
            return Err(Error::ForeignHandle { what: "team" });
        }
        Ok(ByTeam { memory: self, team })
    }
}

impl<T: Pod> ByTeam<'_, T> {
    /// Puts `data` into the part of a member: [`Symmetric::put`].
    ///
    /// # Errors
    /// As there; and [`Error::TeamRankOutOfRange`], in [the team of all](crate::Job::world)
    /// [`Error::RankOutOfRange`].
    #[inline]
    pub fn put(&self, rank: TeamRank, index: usize, data: &[T]) -> Result<()> {
        (self.memory).put(self.team.job_rank(rank)?, index, data)
    }

    /// Gets elements of a member into `data`: [`Symmetric::get`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn get(&self, rank: TeamRank, index: usize, data: &mut [T]) -> Result<()> {
        (self.memory).get(self.team.job_rank(rank)?, index, data)
    }

    /// Puts one element: [`Symmetric::put_value`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn put_value(&self, rank: TeamRank, index: usize, value: T) -> Result<()> {
        (self.memory).put_value(self.team.job_rank(rank)?, index, value)
    }

    /// Gets one element: [`Symmetric::get_value`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn get_value(&self, rank: TeamRank, index: usize) -> Result<T> {
        (self.memory).get_value(self.team.job_rank(rank)?, index)
    }

    /// Begins to put `data` into the part of a member: [`Symmetric::put_nb`].
    ///
    /// # Errors
    /// As [`put`](Self::put). The error gives the buffer back.
    pub fn put_nb(
        &self,
        rank: TeamRank,
        index: usize,
        data: Vec<T>,
    ) -> Result<PutHandle<T>, Refused<Vec<T>>> {
        match self.team.job_rank(rank) {
            Ok(rank) => (self.memory).put_nb(rank, index, data),
            Err(cause) => Err(Refused::buffer(data, cause)),
        }
    }

    /// Begins to get `count` elements of a member: [`Symmetric::get_nb`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get_nb(&self, rank: TeamRank, index: usize, count: usize) -> Result<GetHandle<T>> {
        (self.memory).get_nb(self.team.job_rank(rank)?, index, count)
    }

    /// Puts the elements of `data` that `from` names to those of a member that `to` names:
    /// [`Symmetric::put_section`].
    ///
    /// # Errors
    /// As there, and as [`put`](Self::put).
    pub fn put_section(
        &self,
        rank: TeamRank,
        to: &Section,
        data: &[T],
        from: &Section,
    ) -> Result<()> {
        (self.memory).put_section(self.team.job_rank(rank)?, to, data, from)
    }

    /// Gets the elements of a member that `from` names into those of `data` that `to` names:
    /// [`Symmetric::get_section`].
    ///
    /// # Errors
    /// As there, and as [`put`](Self::put).
    pub fn get_section(
        &self,
        rank: TeamRank,
        from: &Section,
        data: &mut [T],
        to: &Section,
    ) -> Result<()> {
        (self.memory).get_section(self.team.job_rank(rank)?, from, data, to)
    }

    /// Puts `data`, then changes a word of `signals` on the same member: [`Symmetric::put_signal`].
    ///
    /// # Errors
    /// As there, and as [`put`](Self::put).
    pub fn put_signal(
        &self,
        rank: TeamRank,
        index: usize,
        data: &[T],
        signals: &Symmetric<u64>,
        at: usize,
        signal: Signal,
    ) -> Result<()> {
        let rank = self.team.job_rank(rank)?;
        (self.memory).put_signal(rank, index, data, signals, at, signal)
    }
}

impl<T: Pod> std::fmt::Debug for ByTeam<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} by {:?}", self.memory, self.team)
    }
}
