//! Waiting by hand for something that another thread or process is about to do: spin, then give
//! the core away, then sleep.
//!
//! A spin takes a few nanoseconds and keeps the core. A yield is a system call, about a
//! microsecond where nobody wants the core, and a time slice where somebody does. A sleep takes
//! its time and some fifty microseconds of the timer's. Whoever waits in such a way is not woken,
//! so this is for short waits, and for those where nobody could wake.

use std::{hint, thread, time::Duration};

/// How to rest before the next look at what is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Look again at once.
    Spin,
    /// Give the core away once.
    Yield,
    /// Sleep: the wait is long.
    Sleep,
}

/// What to do between one look in vain and the next: so many spins, so many yields, then sleeps.
#[derive(Clone, Debug)]
pub struct Backoff {
    spins: u32,
    yields: u32,
    /// Looks in vain since it was made or [renewed](Self::renew).
    looks: u32,
}

impl Backoff {
    /// So many spins, then so many yields.
    #[inline]
    pub const fn new(spins: u32, yields: u32) -> Self {
        Self {
            spins,
            yields,
            looks: 0,
        }
    }

    /// Begins anew with spins: something has happened.
    #[inline]
    pub fn renew(&mut self) {
        self.looks = 0;
    }

    /// Looks in vain since it was made or renewed.
    #[inline]
    pub fn looks(&self) -> u32 {
        self.looks
    }

    /// How to rest after one more look in vain.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= self.spins {
            Rest::Spin
        } else if self.looks - self.spins <= self.yields {
            Rest::Yield
        } else {
            Rest::Sleep
        }
    }

    /// Spins or yields; `false`, at once, if it is time to sleep.
    #[inline]
    pub fn pause(&mut self) -> bool {
        match self.rest() {
            Rest::Spin => hint::spin_loop(),
            Rest::Yield => thread::yield_now(),
            Rest::Sleep => return false,
        }
        true
    }

    /// Spins or yields, and begins anew when it would be time to sleep: for what takes moments.
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
    fn who_stays_awake_begins_anew() {
        let mut backoff = Backoff::new(1, 1);
        let looks: [u32; 5] = std::array::from_fn(|_| {
            backoff.pause_awake();
            backoff.looks()
        });
        assert_eq!(looks, [1, 2, 1, 2, 1]);
    }

    #[test]
    fn one_without_spins_yields_and_one_without_either_sleeps() {
        assert_eq!(Backoff::new(0, 1).rest(), Rest::Yield);
        assert_eq!(Backoff::new(0, 0).rest(), Rest::Sleep);
    }
}
