//! Pointers that mean the same on every rank.

use std::{fmt, marker::PhantomData};

use bytemuck::{Pod, Zeroable};

use super::{Block, fixed};
use crate::Rank;

/// Names an element in the memory of some rank: of symmetric memory, or of an exposed
/// buffer. Plain data: it can be put, sent and stored. Used through
/// [`Job::put_to`](crate::Job::put_to) and [`Job::get_from`](crate::Job::get_from), which
/// check it: a pointer of another job, to memory that is gone, or made up, is an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable, serde::Serialize, serde::Deserialize)]
#[repr(transparent)]
#[serde(transparent, bound = "")]
pub struct GlobalPtr<T> {
    words: Words,
    _element: PhantomData<T>,
}

#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable, serde::Serialize, serde::Deserialize,
)]
#[repr(C)]
pub(super) struct Words {
    #[serde(with = "fixed")]
    job: u64,
    rank: u32,
    kind: u32,
    /// The allocation's number, or the extent's key.
    name: u64,
    /// Bytes from its start.
    #[serde(with = "fixed")]
    offset: u64,
}

const SYMMETRIC: u32 = 1;
const EXTENT: u32 = 2;

/// What a pointer names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// An allocation, by number.
    Symmetric(u64),
    /// An exposed buffer, by key.
    Extent(u64),
}

impl Words {
    /// A place in an allocation.
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
    pub(super) fn of_words(words: Words) -> Self {
        Self {
            words,
            _element: PhantomData,
        }
    }

    pub(super) fn symmetric(block: &Block, rank: Rank, offset: u64) -> Self {
        Self::of_words(Words::symmetric(block.job, rank, block.number, offset))
    }

    pub(crate) fn extent(job: u64, rank: Rank, key: u64, offset: u64) -> Self {
        Self::of_words(Words::extent(job, rank, key, offset))
    }

    /// Whose memory it points into.
    pub fn rank(&self) -> Rank {
        Rank(self.words.rank)
    }

    /// The pointer `elements` further on, or back. It is checked when it is used.
    #[must_use]
    pub fn offset(self, elements: isize) -> Self {
        let mut moved = self;
        moved.words.offset = (elements as i64)
            .checked_mul(size_of::<T>() as i64)
            .and_then(|bytes| (self.words.offset as i64).checked_add(bytes))
            // Nothing is so long: far out of bounds, rather than round the corner and back.
            .unwrap_or(i64::MIN) as u64;
        moved
    }

    pub(crate) fn job(&self) -> u64 {
        self.words.job
    }

    pub(crate) fn bytes_in(&self) -> u64 {
        self.words.offset
    }

    pub(crate) fn target(&self) -> Option<Target> {
        match self.words.kind {
            SYMMETRIC => Some(Target::Symmetric(self.words.name)),
            EXTENT => Some(Target::Extent(self.words.name)),
            _ => None,
        }
    }
}

impl<T> fmt::Debug for GlobalPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words {
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
