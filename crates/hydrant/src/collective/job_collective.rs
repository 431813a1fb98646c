//! The job's own affairs that all ranks see to together: allocations, handlers.

use super::{
    Team,
    header::{CallHeader, CollectiveKind},
    piggyback::PiggybackData,
    team::{IDLE, TeamTurn, poll_once},
};
use crate::{Pod, Result};

/// An affair of the job's, under way. No other collective of the team begins before this is
/// dropped, so that what a rank numbers or places in it is numbered and placed alike everywhere,
/// whatever other threads of the rank try meanwhile.
pub(crate) struct JobCollective<'a> {
    team: &'a Team,
    operation: CollectiveKind,
    _turn: TeamTurn<'a>,
}

impl Team {
    /// Begins an affair.
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
    /// What every member gave, by member.
    pub(crate) fn all_gather<T: Pod>(&self, mine: &T) -> Result<Vec<T>> {
        poll_once(self.team.all_gather_one(self.operation, mine))
    }

    /// Waits until every member has come so far.
    pub(crate) fn barrier(&self) -> Result<()> {
        let header = CallHeader::new(self.operation);
        poll_once(self.team.agree(header, Ok(()), PiggybackData::Nothing))
    }
}
