//! Collectives that the job itself needs: allocations, frees, handler registration, exclusive phases.

use crate::{
    Pod, Result,
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
