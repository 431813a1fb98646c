//! Collectives that the job itself needs: allocations, frees, handler registration, exclusive phases.

use crate::{
    Pod, Rank, Result,
    collective::{
        Team,
        agreement::{CallHeader, CollectiveKind},
        team::{IDLE, TeamTurn, poll_once},
    },
};

/// A collective of the job in progress. It keeps the team's turn until it is dropped, so that no other
/// thread of a rank begins a collective of the team meanwhile. So offsets and numbers that a rank assigns
/// in between are the same at every rank.
pub(crate) struct JobCollective<'a> {
    team: &'a Team,
    operation: CollectiveKind,
    _turn: TeamTurn<'a>,
}

impl Team {
    /// Begins a collective of the job.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`](crate::Error::OutOfTurn), [`Error::InHandler`](crate::Error::InHandler),
    /// [`Error::JobOver`](crate::Error::JobOver).
    pub(crate) fn begin_collective(&self, operation: CollectiveKind) -> Result<JobCollective<'_>> {
        Ok(JobCollective {
            team: self,
            operation,
            _turn: self.enter(operation.name(), IDLE)?,
        })
    }
}

impl JobCollective<'_> {
    /// Returns the number of the next agreement, the same at every member.
    pub(crate) fn next_agreement(&self) -> u64 {
        self.team.last_agreement() + 1
    }

    /// Returns whether an agreement may have ended at a rank that was lost and whose memory is mapped here. Only such a
    /// rank's memory is reached after its end.
    pub(crate) fn may_have_agreed(&self, rank: Rank, number: u64) -> bool {
        let agreed = self.team.agreed(rank.index());
        agreed.is_none_or(|agreed| agreed >= number)
    }

    /// Gathers one value from each member, in the order of members, on all.
    pub(crate) fn all_gather<T: Pod>(&self, mine: &T) -> Result<Vec<T>> {
        poll_once(|| self.team.all_gather_one(self.operation, mine))
    }

    /// Waits until every member has reached this point.
    pub(crate) fn barrier(&self) -> Result<()> {
        let header = CallHeader::new(self.operation);
        poll_once(|| self.team.agree(header, Ok(())))
    }
}
