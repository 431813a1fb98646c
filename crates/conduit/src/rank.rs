//! The number of a process in its job.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// A process of the job, counted from zero.
///
/// Another rank as seen from this one is a *peer*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// Returns the rank as an index into a table with one entry a rank.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl From<u32> for Rank {
    fn from(rank: u32) -> Self {
        Self(rank)
    }
}
