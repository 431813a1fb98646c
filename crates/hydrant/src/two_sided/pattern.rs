//! Which messages a receive takes: of one rank or of any, with one tag or with any.

use crate::Rank;

/// Any rank may be the sender: for [`Job::receive`](crate::Job::receive) and the calls beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnySource;

/// Any tag will do: for [`Job::receive`](crate::Job::receive) and the calls beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnyTag;

/// Whose messages a receive takes: those of one [`Rank`], or of [`AnySource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source(pub(super) Option<u32>);

/// Messages of which tag a receive takes: of one number, or of [`AnyTag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub(super) Option<u64>);

impl From<Rank> for Source {
    fn from(rank: Rank) -> Self {
        Self(Some(rank.0))
    }
}

impl From<AnySource> for Source {
    fn from(_: AnySource) -> Self {
        Self(None)
    }
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Self {
        Self(Some(tag))
    }
}

impl From<AnyTag> for Tag {
    fn from(_: AnyTag) -> Self {
        Self(None)
    }
}

/// Both together. None stands for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    pub(super) source: Option<u32>,
    pub(super) tag: Option<u64>,
}

impl Pattern {
    /// Patterns of this many kinds there are.
    pub(super) const KINDS: usize = 4;

    /// That which every message fits.
    pub(super) const ANY: Self = Self {
        source: None,
        tag: None,
    };

    /// Which of source and tag it says: the number of its kind.
    #[inline]
    pub(super) fn kind(self) -> usize {
        2 * usize::from(self.source.is_none()) + usize::from(self.tag.is_none())
    }

    /// Whether it is the [pattern](Envelope::pattern) of its kind of an envelope.
    #[inline]
    pub(super) fn fits(self, envelope: Envelope) -> bool {
        self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }

    pub(super) fn new(source: Source, tag: Tag) -> Self {
        Self {
            source: source.0,
            tag: tag.0,
        }
    }
}

/// Who sent a message, and its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) source: u32,
    pub(super) tag: u64,
}

impl Envelope {
    /// The pattern of a kind that it fits.
    #[inline]
    pub(super) fn pattern(self, kind: usize) -> Pattern {
        Pattern {
            source: (kind & 2 == 0).then_some(self.source),
            tag: (kind & 1 == 0).then_some(self.tag),
        }
    }
}
