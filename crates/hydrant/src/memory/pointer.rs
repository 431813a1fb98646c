//! Pointers with the same meaning on every rank.

use std::{fmt, marker::PhantomData};

use bytemuck::{Pod, Zeroable};

use super::{Block, fixed};
use crate::Rank;

/// Names an element in the memory of some rank, in symmetric memory or in an exposed buffer. It is
/// plain data: it can be put, sent and stored. [`Job::put_to`](crate::Job::put_to) and
/// [`Job::get_from`](crate::Job::get_from) use it and check it. They refuse a pointer of another
/// job, into memory that is gone, or with made-up bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable, serde::Serialize, serde::Deserialize)]
#[repr(transparent)]
#[serde(transparent, bound = "")]
pub struct GlobalPtr<T> {
    words: PointerWords,
    _element: PhantomData<T>,
}

#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable, serde::Serialize, serde::Deserialize,
)]
#[repr(C)]
pub(super) struct PointerWords {
    #[serde(with = "fixed")]
    job: u64,
    rank: u32,
    kind: u32,
    /// The number of the allocation, or the key of the exposed buffer.
    name: u64,
    /// The bytes from its start.
    #[serde(with = "fixed")]
    offset: u64,
}

const SYMMETRIC: u32 = 1;
const EXTENT: u32 = 2;

/// The memory that a pointer leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PointerTarget {
    /// An allocation, by number.
    Symmetric(u64),
    /// An exposed buffer, by key.
    Extent(u64),
}

impl PointerWords {
    /// Points into an allocation.
    pub(super) fn symmetric(job: u64, rank: Rank, number: u64, offset: u64) -> Self {
        Self {
            job,
            rank: rank.0,
            kind: SYMMETRIC,
            name: number,
            offset,
        }
    }

    fn extent(job: u64, rank: Rank, key: u64, offset: u64) -> Self {
        Self {
            job,
            rank: rank.0,
            kind: EXTENT,
            name: key,
            offset,
        }
    }
}

impl<T: Pod> GlobalPtr<T> {
    pub(super) fn from_words(words: PointerWords) -> Self {
        Self {
            words,
            _element: PhantomData,
        }
    }

    pub(super) fn symmetric(block: &Block, rank: Rank, offset: u64) -> Self {
        Self::from_words(PointerWords::symmetric(
            block.job,
            rank,
            block.number,
            offset,
        ))
    }

    pub(crate) fn extent(job: u64, rank: Rank, key: u64, offset: u64) -> Self {
        Self::from_words(PointerWords::extent(job, rank, key, offset))
    }

    /// Returns the rank whose memory this points into.
    pub fn rank(&self) -> Rank {
        Rank(self.words.rank)
    }

    /// Returns the pointer moved by so many elements, forward or back. It is checked when it is
    /// used.
    #[must_use]
    pub fn offset(self, elements: isize) -> Self {
        let mut moved = self;
        moved.words.offset = (elements as i64)
            .checked_mul(size_of::<T>() as i64)
            .and_then(|bytes| (self.words.offset as i64).checked_add(bytes))
            // No memory is so long. The offset goes far out of bounds and cannot wrap around.
            .unwrap_or(i64::MIN) as u64;
        moved
    }

    pub(crate) fn job(&self) -> u64 {
        self.words.job
    }

    pub(crate) fn bytes_in(&self) -> u64 {
        self.words.offset
    }

    pub(crate) fn target(&self) -> Option<PointerTarget> {
        match self.words.kind {
            SYMMETRIC => Some(PointerTarget::Symmetric(self.words.name)),
            EXTENT => Some(PointerTarget::Extent(self.words.name)),
            _ => None,
        }
    }
}

impl<T> fmt::Debug for GlobalPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PointerWords {
            rank,
            kind,
            name,
            offset,
            ..
        } = self.words;
        let what = if kind == SYMMETRIC {
            "allocation"
        } else {
            "extent"
        };
        write!(
            f,
            "GlobalPtr(rank {rank}, {what} {name:#x} + {offset} bytes)"
        )
    }
}
