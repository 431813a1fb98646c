//! Waiting for signals, on the job (OpenSHMEM's point-to-point synchronization).

use std::time::Duration;

use super::Job;
use crate::{Result, Symmetric, progress, rma::signal::SignalWords};

/// It is waited for without a limit of time.
const EVER: Option<Duration> = None;

impl Job {
    /// Waits until word `at` of this rank's part is as `enough` wants, and returns it. Looks
    /// after messages meanwhile; sleeps when it takes long.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds), [`Error::Freed`](crate::Error::Freed),
    /// [`Error::InHandler`](crate::Error::InHandler); [`Error::PeerLost`](crate::Error::PeerLost)
    /// if a rank dies or fails first; [`Error::OthersEnded`](crate::Error::OthersEnded) if the programs of all other ranks
    /// came to the end of the job, and nothing is in flight at any rank that could still change the word. Another
    /// thread of this process may still change it, so there is no such error while one lives. Where ranks are threads
    /// of one process, only threads that have waited in the job or polled it count.
    ///
    /// # Panics
    /// If `enough` does.
    pub fn wait_until(
        &self,
        signals: &Symmetric<u64>,
        at: usize,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        progress::may_wait("wait_until")?;
        let words = SignalWords::one(self.progress(), signals, at)?;
        let found = words.wait(EVER, |_, word| enough(word))?;
        // Without a limit it ends no earlier.
        Ok(found.map_or(0, |(_, word)| word))
    }

    /// As [`wait_until`](Self::wait_until), for so long at most, on the job's clock; none if the
    /// word was never as `enough` wants.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If `enough` does.
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

    /// Waits until one of the words `at` those places of this rank's part is as `enough` wants: its
    /// place in `at`, and the word. Of several, the first in the order of `at`.
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until); [`Error::NothingToWaitFor`](crate::Error::NothingToWaitFor)
    /// if `at` is empty.
    ///
    /// # Panics
    /// If `enough` does.
    pub fn wait_until_any(
        &self,
        signals: &Symmetric<u64>,
        at: &[usize],
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<(usize, u64)> {
        progress::may_wait("wait_until_any")?;
        let words = SignalWords::several(self.progress(), signals, at)?;
        let found = words.wait(EVER, |_, word| enough(word))?;
        // Without a limit it ends no earlier.
        Ok(found.unwrap_or_default())
    }

    /// As [`wait_until_any`](Self::wait_until_any), for so long at most, on the job's clock; none if
    /// no word was as `enough` wants.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If `enough` does.
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

    /// Waits until each of the words `at` those places of this rank's part was as `enough` wants,
    /// and returns what they were then, in the order of `at`. They need not be so at one time.
    ///
    /// # Errors
    /// As [`wait_until_any`](Self::wait_until_any).
    ///
    /// # Panics
    /// If `enough` does.
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

    /// Looks whether word `at` of this rank's part is as `enough` wants: the word if so. Does not
    /// wait, and may be called in a handler.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds), [`Error::Freed`](crate::Error::Freed).
    ///
    /// # Panics
    /// If `enough` does.
    pub fn test_until(
        &self,
        signals: &Symmetric<u64>,
        at: usize,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>> {
        let words = SignalWords::one(self.progress(), signals, at)?;
        let found = words.test(|_, word| enough(word));
        Ok(found.map(|(_, word)| word))
    }

    /// Looks whether one of the words `at` those places of this rank's part is as `enough` wants:
    /// its place in `at`, and the word. Does not wait, and may be called in a handler.
    ///
    /// # Errors
    /// As [`test_until`](Self::test_until); [`Error::NothingToWaitFor`](crate::Error::NothingToWaitFor)
    /// if `at` is empty.
    ///
    /// # Panics
    /// If `enough` does.
    pub fn test_until_any(
        &self,
        signals: &Symmetric<u64>,
        at: &[usize],
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<(usize, u64)>> {
        let words = SignalWords::several(self.progress(), signals, at)?;
        Ok(words.test(|_, word| enough(word)))
    }
}
