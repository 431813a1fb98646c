//! Patterns: a receive takes messages of one rank or of any, with one tag or with any.

use crate::Rank;

/// Matches every sender, in [`Job::receive`](crate::Job::receive) and similar calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnySource;

/// Matches every tag, in [`Job::receive`](crate::Job::receive) and similar calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnyTag;

/// The senders that a receive matches: one [`Rank`], or [`AnySource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source(pub(super) Option<u32>);

/// The tags that a receive matches: one number, or [`AnyTag`].
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

/// A source and a tag. `None` matches all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    pub(super) source: Option<u32>,
    pub(super) tag: Option<u64>,
}

impl Pattern {
    /// The number of kinds of patterns.
    pub(super) const KINDS: usize = 4;

    /// The pattern that every message fits.
    pub(super) const ANY: Self = Self {
        source: None,
        tag: None,
    };

    /// Returns the kind of the pattern: bit 1 is set for any source, bit 0 for any tag.
    #[inline]
    pub(super) fn kind(self) -> usize {
        2 * usize::from(self.source.is_none()) + usize::from(self.tag.is_none())
    }

    /// Returns whether a message with this envelope fits.
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

/// The sender and the tag of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) source: u32,
    pub(super) tag: u64,
}

impl Envelope {
    /// Returns the pattern of a kind that the envelope fits.
    #[inline]
    pub(super) fn pattern(self, kind: usize) -> Pattern {
        Pattern {
            source: (kind & 2 == 0).then_some(self.source),
            tag: (kind & 1 == 0).then_some(self.tag),
        }
    }
}
