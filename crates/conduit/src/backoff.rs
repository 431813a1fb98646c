//! Backoff while a thread polls for another thread or process: spin, then yield, then sleep.
//!
//! A spin takes a few nanoseconds and keeps the core. A yield is a system call. It takes about a
//! microsecond if no thread wants the core, and a time slice otherwise. A sleep takes its time and
//! some fifty microseconds of the timer's. Nobody wakes a thread that waits like this. It suits
//! short waits, and waits in which nobody could wake the thread.

use std::{hint, thread, time::Duration};

/// The rest before the next check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Check again at once.
    Spin,
    /// Yield the core once.
    Yield,
    /// Sleep: the wait is long.
    Sleep,
}

/// The rests between failed checks: a number of spins, then a number of yields, then sleeps.
#[derive(Clone, Debug)]
pub struct Backoff {
    spins: u32,
    yields: u32,
    /// Failed checks since the start or the last [renewal](Self::renew).
    failed_checks: u32,
}

impl Backoff {
    /// Makes a backoff of `spins` spins, then `yields` yields.
    #[inline]
    pub const fn new(spins: u32, yields: u32) -> Self {
        Self {
            spins,
            yields,
            failed_checks: 0,
        }
    }

    /// Begins again with spins, because something has happened.
    #[inline]
    pub fn renew(&mut self) {
        self.failed_checks = 0;
    }

    /// Returns the failed checks since the start or the last renewal.
    #[inline]
    pub fn failed_checks(&self) -> u32 {
        self.failed_checks
    }

    /// Counts a failed check and returns the rest after it.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        self.failed_checks = self.failed_checks.saturating_add(1);
        if self.failed_checks <= self.spins {
            Rest::Spin
        } else if self.failed_checks - self.spins <= self.yields {
            Rest::Yield
        } else {
            Rest::Sleep
        }
    }

    /// Spins or yields. Returns `false` at once if it is time to sleep.
    #[inline]
    pub fn pause(&mut self) -> bool {
        match self.rest() {
            Rest::Spin => hint::spin_loop(),
            Rest::Yield => thread::yield_now(),
            Rest::Sleep => return false,
        }
        true
    }

    /// Spins or yields, and begins again when it would be time to sleep. For waits of moments.
    #[inline]
    pub fn pause_awake(&mut self) {
        if !self.pause() {
            self.renew();
            self.pause();
        }
    }

    /// Spins, yields or sleeps for `time`.
    #[inline]
    pub fn pause_or_sleep(&mut self, time: Duration) {
        if !self.pause() {
            thread::sleep(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_come_before_yields_and_these_before_sleep() {
        let mut backoff = Backoff::new(2, 1);
        let mut rests = || std::array::from_fn(|_| backoff.rest());
        assert_eq!(
            rests(),
            [
                Rest::Spin,
                Rest::Spin,
                Rest::Yield,
                Rest::Sleep,
                Rest::Sleep
            ]
        );
        backoff.renew();
        assert_eq!(backoff.rest(), Rest::Spin);
    }

    #[test]
    fn a_pause_without_sleeps_begins_again() {
        let mut backoff = Backoff::new(1, 1);
        let counts: [u32; 5] = std::array::from_fn(|_| {
            backoff.pause_awake();
            backoff.failed_checks()
        });
        assert_eq!(counts, [1, 2, 1, 2, 1]);
    }

    #[test]
    fn without_spins_it_yields_and_without_yields_it_sleeps() {
        assert_eq!(Backoff::new(0, 1).rest(), Rest::Yield);
        assert_eq!(Backoff::new(0, 0).rest(), Rest::Sleep);
    }
}
