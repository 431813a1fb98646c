//! The job's own affairs that all ranks see to together: allocations, handlers.

use super::{
    Team,
    header::{Header, Operation},
    piggyback::Piggyback,
    team::{IDLE, Turn, at_once},
};
use crate::{Pod, Result};

/// An affair of the job's, under way. No other collective of the team begins before this is
/// dropped, so that what a rank numbers or places in it is numbered and placed alike everywhere,
/// whatever other threads of the rank try meanwhile.
pub(crate) struct Affair<'a> {
    team: &'a Team,
    operation: Operation,
    _turn: Turn<'a>,
}

impl Team {
    /// Begins an affair.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`](crate::Error::OutOfTurn), [`Error::InHandler`](crate::Error::InHandler),
    /// [`Error::JobOver`](crate::Error::JobOver).
    pub(crate) fn affair(&self, operation: Operation) -> Result<Affair<'_>> {
        Ok(Affair {
            team: self,
            operation,
            _turn: self.enter(operation.name(), IDLE)?,
        })
    }
}

impl Affair<'_> {
    /// What every member gave, by member.
    pub(crate) fn all_gather<T: Pod>(&self, mine: &T) -> Result<Vec<T>> {
        at_once(self.team.records(self.operation, mine))
    }

    /// Waits until every member has come so far.
    pub(crate) fn barrier(&self) -> Result<()> {
        let header = Header::new(self.operation);
        at_once(self.team.agree(header, Ok(()), Piggyback::Nothing))
    }
}
