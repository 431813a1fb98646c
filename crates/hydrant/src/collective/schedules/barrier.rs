//! Barriers: blocking and split-phase, with and without a name (GASNet, "Barriers").

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    Error, Result,
    collective::{
        agreement::{Agreement, CallHeader, CollectiveKind},
        team::{IDLE, NOTIFIED, NOTIFIED_BY_NAME, Team, TeamTurn, poll_once},
    },
};

impl Team {
    /// Waits for every member.
    ///
    /// After the barrier, every member sees the data of each blocking put that a member made before it.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], [`Error::OutOfTurn`], [`Error::InHandler`], [`Error::PeerLost`].
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        self.run_blocking("barrier", || self.barrier_async(None))
    }

    /// As [`barrier`](Self::barrier), and checks that every member gave the same name. A barrier without a
    /// name fits any name.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn barrier_named(&self, name: u64) -> Result<()> {
        self.run_blocking("barrier_named", || self.barrier_async(Some(name)))
    }

    /// Begins the end of the job at this rank. The rank does nothing else with the team until the returned
    /// value is dropped.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`], [`Error::InHandler`], [`Error::JobOver`].
    pub(crate) fn come_to_end(&self) -> Result<AtEnd<'_>> {
        let turn = self.enter(CallHeader::new(CollectiveKind::End).name(), IDLE)?;
        Ok(AtEnd {
            team: self,
            _turn: turn,
        })
    }

    #[inline]
    pub(super) fn barrier_async(&self, name: Option<u64>) -> Agreement<'_, 'static, ()> {
        let header = CallHeader::barrier(name, self.progress.rank);
        self.agree(header, Ok(()))
    }

    /// Notifies the other members that this one has reached a barrier, and returns. [`wait`](Self::wait)
    /// must follow, with no other collective of this team in between.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`] if the last barrier was not waited for; [`Error::InHandler`].
    pub fn notify(&self, name: Option<u64>) -> Result<()> {
        let mut turn = self.enter("notify", IDLE)?;
        self.start_agreement(CallHeader::barrier(name, self.progress.rank))?;
        self.notified.store(name.unwrap_or(0), Relaxed);
        turn.after = match name {
            Some(_) => NOTIFIED_BY_NAME,
            None => NOTIFIED,
        };
        Ok(())
    }

    /// Waits until every member has [notified](Self::notify) the barrier.
    ///
    /// # Errors
    /// - [`Error::CollectiveMismatch`] on every member if they notified by different names.
    /// - [`Error::CollectiveMismatch`] on this member alone if it notified by another name than it waits
    ///   by. The barrier is over then, too.
    /// - [`Error::OutOfTurn`] if this member did not notify; [`Error::InHandler`], [`Error::PeerLost`].
    pub fn wait(&self, name: Option<u64>) -> Result<()> {
        let state = match self.state() {
            NOTIFIED_BY_NAME => NOTIFIED_BY_NAME,
            _ => NOTIFIED,
        };
        let _turn = self.enter("wait", state)?;
        let notified = (state == NOTIFIED_BY_NAME).then(|| self.notified.load(Relaxed));
        let own = self.progress.rank;
        poll_once(|| self.complete_agreement(CallHeader::barrier(notified, own)))?;
        match (notified, name) {
            (Some(notified), Some(name)) if notified != name => Err(Error::CollectiveMismatch {
                operation: "barrier",
                rank: own,
                theirs: format!("notified by the name {notified}"),
                own,
                ours: format!("waits by the name {name}"),
            }),
            _ => Ok(()),
        }
    }
}

/// The end of the job, at one rank.
pub(crate) struct AtEnd<'a> {
    team: &'a Team,
    _turn: TeamTurn<'a>,
}

impl AtEnd<'_> {
    /// Waits until every rank is here. This matches no other barrier.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], [`Error::PeerLost`].
    pub(crate) fn meet(&self) -> Result<()> {
        self.agree(CallHeader::new(CollectiveKind::End))
    }

    /// As [`meet`](Self::meet), and returns whether `so` is true at every rank.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn is_so_everywhere(&self, so: bool) -> Result<bool> {
        let header = CallHeader::new(CollectiveKind::End).of::<u8>(usize::from(so));
        match self.agree(header) {
            Ok(()) => Ok(so),
            // All ranks are here, and their headers differ in this alone.
            Err(Error::CollectiveMismatch { .. }) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    fn agree(&self, header: CallHeader) -> Result<()> {
        poll_once(|| self.team.agree(header, Ok(())))
    }
}
