//! Keeps track of programs that came to their ends in good order, and announces the end of this rank's own.
//!
//! A rank whose program has come to its end still takes part: it answers, and its messages are
//! delivered. So a waiter for an answer goes on waiting, but a waiter for something that only a
//! program does waits in vain. The conduit carries the news
//! ([`Membership::come_to_end`](hydrant_conduit::Membership::come_to_end)), which may overtake
//! messages. A rank therefore announces its end only when all that it has sent was handled.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use hydrant_conduit::Standing;

use super::{For, On, Progress};
use crate::{Error, Rank, Result};

/// The age at which the last news of an end counts. Programs often come to their ends at about the
/// same time. Threads that still wait then learn that the job is over, and get no error about a
/// single rank.
const GRACE: Duration = Duration::from_millis(200);

/// The last news of programs' ends.
#[derive(Default)]
pub(super) struct EndNews {
    /// The number of ends announced so far.
    endings: u64,
    /// The time of the last change of `endings`, on the conduit's clock.
    since: Duration,
}

impl Progress {
    /// Waits until all requests that this rank has sent so far were handled, those of its handlers included.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn wait_all_handled(&self) -> Result<()> {
        // Requests that handlers have queued are sent first.
        self.wait(On::Anyone, For::Room, || !self.has_onward())?;
        (0..self.size).try_for_each(|rank| self.wait_handled(Rank(rank)))
    }

    /// Returns the error for an operation on a rank that has ended. A rank leaves in good order
    /// only when all ranks, this one included, have come to the end of the job.
    #[cold]
    pub(crate) fn why_gone(&self, rank: Rank) -> Error {
        match self.conduit.standing(rank) {
            Standing::Left => Error::JobOver,
            Standing::Present | Standing::Lost => Error::PeerLost(rank),
        }
    }

    /// Returns whether the program of any rank has come to its end and all such news
    /// [counts](GRACE).
    #[inline]
    pub(crate) fn any_has_come_to_end(&self) -> bool {
        match self.conduit.endings() {
            0 => false,
            endings => endings == self.settled.load(Relaxed),
        }
    }

    /// Checks that the program of a rank has not come to its end. News of an end is ignored until
    /// it [counts](GRACE). Once it counts, all that the rank sent has arrived.
    ///
    /// # Errors
    /// [`Error::PeerEnded`] with the event that cannot happen any more, [`Error::PeerLost`],
    /// [`Error::JobOver`].
    pub(crate) fn check_present(&self, rank: Rank, why: &'static str) -> Result<()> {
        match self.conduit.standing(rank) {
            _ if rank == self.rank => Ok(()),
            Standing::Left | Standing::Lost => Err(self.why_gone(rank)),
            Standing::Present
                if self.any_has_come_to_end() && self.conduit.has_come_to_end(rank) =>
            {
                Err(Error::PeerEnded { rank, why })
            }
            Standing::Present => Ok(()),
        }
    }

    /// Returns whether there is news of ends that does not count yet.
    #[inline]
    pub(super) fn has_fresh_news(&self) -> bool {
        self.conduit.endings() != self.settled.load(Relaxed)
    }

    /// Returns the time until news of ends counts, or `None` if all news counts already.
    pub(super) fn news_counts_in(&self) -> Option<Duration> {
        if !self.has_fresh_news() {
            return None;
        }
        let now = self.conduit.now();
        let mut news = self.news.lock();
        let endings = self.conduit.endings();
        if news.endings != endings {
            *news = EndNews {
                endings,
                since: now,
            };
        }
        Some(GRACE.saturating_sub(now.saturating_sub(news.since)))
    }

    /// Counts the latest news if it is old enough. Returns whether that changed anything.
    pub(super) fn settle_news(&self) -> bool {
        if self.news_counts_in() != Some(Duration::ZERO) {
            return false;
        }
        let endings = self.news.lock().endings;
        self.settled.swap(endings, Relaxed) != endings
    }

    /// Returns whether the programs of all other ranks have come to their ends and this rank has no
    /// other thread. Another thread could still do what the caller waits for.
    pub(crate) fn is_left_alone(&self) -> bool {
        let others = (0..self.size).map(Rank).filter(|rank| *rank != self.rank);
        self.size > 1
            && self.any_has_come_to_end()
            && others
                .into_iter()
                .all(|rank| self.conduit.has_come_to_end(rank))
            && !self.has_many_threads()
    }
}
