//! Waits for signals, on the job (OpenSHMEM's point-to-point synchronization).

use std::time::Duration;

use super::Job;
use crate::{Result, Symmetric, progress, rma::signal::SignalWords};

/// No time limit.
const EVER: Option<Duration> = None;

impl Job {
    /// Waits until `enough` accepts word `at` of this rank's part, and returns the word. Handles
    /// messages meanwhile, and sleeps if it takes long.
    ///
    /// # Errors
    /// - [`Error::OutOfBounds`](crate::Error::OutOfBounds), [`Error::Freed`](crate::Error::Freed),
    ///   [`Error::InHandler`](crate::Error::InHandler).
    /// - [`Error::PeerLost`](crate::Error::PeerLost) if a rank dies or fails first.
    /// - [`Error::OthersEnded`](crate::Error::OthersEnded) if the programs of all other ranks came
    ///   to the end of the job, and nothing is in flight at any rank that could still change the
    ///   word. Another thread of this process may still change it, so there is no such error while
    ///   one lives. If ranks are threads of one process, only threads that have waited in the job
    ///   or polled it count.
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn wait_until(
        &self,
        signals: &Symmetric<u64>,
        at: usize,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        progress::may_wait("wait_until")?;
        let words = SignalWords::one(self.progress(), signals, at)?;
        let found = words.wait(EVER, |_, word| enough(word))?;
        // Without a limit the wait ends only with a word.
        Ok(found.map_or(0, |(_, word)| word))
    }

    /// As [`wait_until`](Self::wait_until), for at most `time` on the job's clock. Returns `None`
    /// if `enough` never accepted the word.
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until).
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn wait_until_within(
        &self,
        signals: &Symmetric<u64>,
        at: usize,
        time: Duration,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>> {
        progress::may_wait("wait_until_within")?;
        let words = SignalWords::one(self.progress(), signals, at)?;
        let found = words.wait(Some(time), |_, word| enough(word))?;
        Ok(found.map(|(_, word)| word))
    }

    /// Waits until `enough` accepts one of the words of this rank's part that `at` lists. Returns
    /// its index in `at` and the word. Of several words, it takes the first in the order of `at`.
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until); [`Error::NothingToWaitFor`](crate::Error::NothingToWaitFor)
    /// if `at` is empty.
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn wait_until_any(
        &self,
        signals: &Symmetric<u64>,
        at: &[usize],
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<(usize, u64)> {
        progress::may_wait("wait_until_any")?;
        let words = SignalWords::several(self.progress(), signals, at)?;
        let found = words.wait(EVER, |_, word| enough(word))?;
        // Without a limit the wait ends only with a word.
        Ok(found.unwrap_or_default())
    }

    /// As [`wait_until_any`](Self::wait_until_any), for at most `time` on the job's clock. Returns
    /// `None` if `enough` accepted no word.
    ///
    /// # Errors
    /// As [`wait_until_any`](Self::wait_until_any).
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn wait_until_any_within(
        &self,
        signals: &Symmetric<u64>,
        at: &[usize],
        time: Duration,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<(usize, u64)>> {
        progress::may_wait("wait_until_any_within")?;
        let words = SignalWords::several(self.progress(), signals, at)?;
        words.wait(Some(time), |_, word| enough(word))
    }

    /// Waits until `enough` has accepted each of the words of this rank's part that `at` lists.
    /// Returns the accepted words in the order of `at`. The words need not be accepted at the same
    /// time.
    ///
    /// # Errors
    /// As [`wait_until_any`](Self::wait_until_any).
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn wait_until_all(
        &self,
        signals: &Symmetric<u64>,
        at: &[usize],
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Vec<u64>> {
        progress::may_wait("wait_until_all")?;
        let words = SignalWords::several(self.progress(), signals, at)?;
        let mut found: Vec<Option<u64>> = vec![None; at.len()];
        let mut left = at.len();
        while left > 0 {
            let next = words.wait(EVER, |place, word| found[place].is_none() && enough(word))?;
            if let Some((place, word)) = next {
                found[place] = Some(word);
                left -= 1;
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns word `at` of this rank's part if `enough` accepts it. Does not wait, and may be
    /// called in a handler.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds), [`Error::Freed`](crate::Error::Freed). Outside handlers,
    /// [`Error::PeerLost`](crate::Error::PeerLost) and [`Error::OthersEnded`](crate::Error::OthersEnded) as
    /// [`wait_until`](Self::wait_until), if the word is not as `enough` wants.
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn test_until(
        &self,
        signals: &Symmetric<u64>,
        at: usize,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>> {
        let words = SignalWords::one(self.progress(), signals, at)?;
        let found = words.test(|_, word| enough(word))?;
        Ok(found.map(|(_, word)| word))
    }

    /// Checks whether `enough` accepts one of the words of this rank's part that `at` lists.
    /// Returns its index in `at` and the word. Does not wait, and may be called in a handler.
    ///
    /// # Errors
    /// As [`test_until`](Self::test_until); [`Error::NothingToWaitFor`](crate::Error::NothingToWaitFor)
    /// if `at` is empty.
    ///
    /// # Panics
    /// If `enough` panics.
    pub fn test_until_any(
        &self,
        signals: &Symmetric<u64>,
        at: &[usize],
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<(usize, u64)>> {
        let words = SignalWords::several(self.progress(), signals, at)?;
        words.test(|_, word| enough(word))
    }
}
