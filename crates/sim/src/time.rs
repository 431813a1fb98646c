//! Virtual time: whole picoseconds, so that one seed has one result.

use std::{fmt, time::Duration};

/// A moment in picoseconds since the job's start; 2^64 of them are 213 days.
pub(crate) type VirtualTime = u64;

/// The last moment (106 days) that computing takes a rank to. Half of all time remains for later
/// events.
pub(crate) const LAST: VirtualTime = VirtualTime::MAX / 2;

/// A length of time in whole picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Picos(pub u64);

impl Picos {
    /// In nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// So many times this length, in picoseconds.
    pub fn times(self, count: usize) -> u64 {
        self.0.saturating_mul(count as u64)
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.as_ns())
    }
}

/// A bandwidth, kept as the femtoseconds that a byte takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub(crate) u64);

impl Rate {
    /// In bytes a second.
    pub fn bytes_per_second(self) -> f64 {
        1e15 / self.0 as f64
    }

    /// The picoseconds that so many bytes take.
    pub fn of(self, bytes: usize) -> u64 {
        (bytes as u128 * u128::from(self.0) / 1000) as u64
    }
}

pub(crate) fn duration(time: VirtualTime) -> Duration {
    Duration::from_nanos(time / 1000)
}

pub(crate) fn picos(duration: Duration) -> VirtualTime {
    u64::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX)
}
