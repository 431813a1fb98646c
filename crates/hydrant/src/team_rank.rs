//! The number of a member in its team.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// A member of a [`Team`](crate::Team), counted from zero.
///
/// Its type differs from a [`Rank`](crate::Rank) of the job, because in most teams a process has
/// another number than in the job. [`Team::job_rank`](crate::Team::job_rank) and
/// [`Team::team_rank`](crate::Team::team_rank) convert between them. In [the team of
/// all](crate::Job::world) the two are equal. [`Symmetric::by_team`](crate::Symmetric::by_team)
/// puts and gets by the ranks of a team.
///
/// ```
/// use hydrant::{Rank, TeamRank};
///
/// # hydrant::Job::builder()?.run_local(4, |job| {
/// // The ranks 1 and 3 of the job are 0 and 1 of their team; 0 and 2 are so, too.
/// let team = job.world().split(Some(job.rank().0 % 2), 0)?;
/// let team = team.expect("every rank gives a color");
/// assert_eq!(team.rank(), TeamRank(job.rank().0 / 2));
/// assert_eq!(team.job_rank(team.rank())?, job.rank());
/// let last = team.team_rank(Rank(3));
/// assert_eq!(last, (job.rank().0 % 2 == 1).then_some(TeamRank(1)));
/// # Ok(()) }).into_iter().collect::<hydrant::Result<()>>()?;
/// # Ok::<(), hydrant::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct TeamRank(pub u32);

impl TeamRank {
    /// Returns the rank as an index into a table with one entry for each member.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TeamRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl From<u32> for TeamRank {
    fn from(rank: u32) -> Self {
        Self(rank)
    }
}
