//! The message of a round, in a line: the header that a member sends, and how it compares with another.

use std::sync::atomic::Ordering::{Relaxed, Release};

use hydrant_conduit::Line;

use super::header::CallHeader;
use crate::{Error, Rank, Result};

/// Word of a line at which the header that does not fit begins. If all fit, short piggybacked data takes
/// its place.
pub(super) const MISFIT: usize = 5;
/// Bytes of piggybacked data that fit in these words.
pub(super) const BESIDE: usize = 3 * size_of::<u64>();

/// The header that this member sends, and the first header found that does not fit.
pub(super) struct HeaderComparison {
    said: CallHeader,
    /// The header to compare with and to send; an unnamed barrier takes on the name of another one.
    known: CallHeader,
    misfit: Option<(Rank, CallHeader)>,
}

impl HeaderComparison {
    #[inline]
    pub(super) fn new(said: CallHeader) -> Self {
        Self {
            said,
            known: said,
            misfit: None,
        }
    }

    /// Returns whether a header was found that does not fit.
    #[inline]
    pub(super) fn found_misfit(&self) -> bool {
        self.misfit.is_some()
    }

    /// Writes a message into a line. `beside` is at most [`BESIDE`] bytes of piggybacked data; it is sent
    /// if all fit.
    #[inline]
    pub(super) fn write_line(&self, line: &Line, sequence: u64, beside: &[u8]) {
        let [a, b, c] = self.known.0;
        line[1].store(a, Relaxed);
        line[2].store(b, Relaxed);
        line[3].store(c, Relaxed);
        match self.misfit {
            None => {
                line[4].store(0, Relaxed);
                for (word, bytes) in line[MISFIT..].iter().zip(beside.chunks(size_of::<u64>())) {
                    let mut said = [0; size_of::<u64>()];
                    said[..bytes.len()].copy_from_slice(bytes);
                    word.store(u64::from_ne_bytes(said), Relaxed);
                }
            }
            Some((rank, header)) => {
                line[4].store(u64::from(rank.0) + 1, Relaxed);
                for (word, said) in line[MISFIT..].iter().zip(header.0) {
                    word.store(said, Relaxed);
                }
            }
        }
        line[0].store(sequence, Release);
    }

    /// The words that follow the sequence number in a line, and how many of them are used.
    pub(super) fn message_words(&self) -> ([u64; 7], usize) {
        let [a, b, c] = self.known.0;
        match self.misfit {
            None => ([a, b, c, 0, 0, 0, 0], 4),
            Some((rank, CallHeader([x, y, z]))) => ([a, b, c, u64::from(rank.0) + 1, x, y, z], 7),
        }
    }

    /// Compares with the message of `from`. Returns whether all headers fit so far.
    #[inline]
    pub(super) fn compare(&mut self, line: &Line, from: Rank) -> bool {
        let words = |at: usize| CallHeader([at, at + 1, at + 2].map(|at| line[at].load(Relaxed)));
        let theirs = words(1);
        let misfit = line[4].load(Relaxed);
        if misfit == 0 && self.misfit.is_none() && self.known.agrees(theirs) {
            return true;
        }
        if self.misfit.is_none() {
            // Of two headers that differ, at least one differs from this member's.
            self.misfit = Some(if misfit == 0 || !self.known.agrees(theirs) {
                (theirs.origin().unwrap_or(from), theirs)
            } else {
                (Rank((misfit - 1) as u32), words(MISFIT))
            });
        }
        false
    }

    #[inline]
    pub(super) fn result(&self, own: Rank) -> Result<()> {
        match self.misfit {
            None => Ok(()),
            Some((rank, theirs)) => Err(self.mismatch(rank, theirs, own)),
        }
    }

    #[cold]
    fn mismatch(&self, rank: Rank, theirs: CallHeader, own: Rank) -> Error {
        // A name that was taken on belongs to the rank that gave it.
        let (own, ours) = match self.known.origin() {
            Some(origin) if self.said.origin().is_none() => (origin, self.known),
            _ => (own, self.said),
        };
        Error::CollectiveMismatch {
            operation: self.said.name(),
            rank,
            theirs: theirs.describe(),
            own,
            ours: ours.describe(),
        }
    }
}
