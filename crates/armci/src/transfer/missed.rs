//! What befell operations that another thread than theirs waited for: it is kept until one comes that it is
//! for.
//!
//! A fence, and an operation on the same bytes, wait for whatever is outstanding, whoever began it. Who
//! waits so is told of an error; that alone would leave who began the operation without it.

use std::thread::{self, ThreadId};

use hydrant::Error as Hydrant;

use super::outstanding::IMPLICIT;
use crate::Error;

/// So many are kept for a process, whoever never asks; then the oldest is forgotten.
const MAX_MISSED: usize = 256;

/// Whose an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Whose {
    /// Its handle's number: who waits for the handle is told, whichever thread that is.
    handle: i32,
    /// Who began it: told by a fence, and where the handle is implicit.
    thread: ThreadId,
}

impl Whose {
    /// An operation's that this thread begins.
    pub(super) fn begun(handle: i32) -> Self {
        Self {
            handle,
            thread: thread::current().id(),
        }
    }

    pub(super) fn handle(self) -> i32 {
        self.handle
    }

    /// Whether who asks, in this thread, is told instead of somebody later.
    pub(super) fn is(self, asker: Asker) -> bool {
        match asker {
            Asker::OfHandle(number) if number != IMPLICIT => self.handle == number,
            Asker::OfHandle(_) => self.handle == IMPLICIT && self.is_here(),
            Asker::OfAll => self.is_here(),
        }
    }

    fn is_here(self) -> bool {
        self.thread == thread::current().id()
    }
}

/// Who waits for operations, or asks whether they are over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// For those of a handle.
    OfHandle(i32),
    /// For those of all handles.
    OfAll,
}

/// What was not told yet to those whom it is for, the oldest first.
#[derive(Default)]
pub(super) struct Missed(Vec<(Whose, Error)>);

impl Missed {
    /// Keeps what befell an operation: whether there is one more now.
    pub(super) fn keep(&mut self, whose: Whose, cause: &Error) -> bool {
        let is_full = self.0.len() == MAX_MISSED;
        if is_full {
            self.0.remove(0);
        }
        self.0.push((whose, copy(cause)));
        !is_full
    }

    /// Takes out what is for who asks: how many there were, and the first.
    pub(super) fn take(&mut self, asker: Asker) -> (usize, Option<Error>) {
        let before = self.0.len();
        let (told, rest) = (self.0.drain(..)).partition(|(whose, _)| whose.is(asker));
        self.0 = rest;
        let told: Vec<(Whose, Error)> = told;
        let first = told.into_iter().next().map(|(_, cause)| cause);
        (before - self.0.len(), first)
    }
}

/// The same error once more: of the causes that programs ask for by name, that; of others the sentence.
fn copy(cause: &Error) -> Error {
    Error::Hydrant(match cause {
        Error::Hydrant(Hydrant::PeerLost(rank)) => Hydrant::PeerLost(*rank),
        Error::Hydrant(Hydrant::ResultLost { rank }) => Hydrant::ResultLost { rank: *rank },
        Error::Hydrant(Hydrant::Revoked { rank }) => Hydrant::Revoked { rank: *rank },
        Error::Hydrant(Hydrant::JobOver) => Hydrant::JobOver,
        other => Hydrant::other(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use hydrant::Rank;

    use super::*;

    fn lost(rank: u32) -> Error {
        Error::Hydrant(Hydrant::PeerLost(Rank(rank)))
    }

    fn is_lost(told: (usize, Option<Error>), count: usize, rank: u32) -> bool {
        let (many, first) = told;
        many == count
            && matches!(first, Some(Error::Hydrant(Hydrant::PeerLost(lost))) if lost.0 == rank)
    }

    #[test]
    fn each_is_told_of_its_own_once() {
        let mut missed = Missed::default();
        let elsewhere = |handle| thread::spawn(move || Whose::begun(handle)).join().unwrap();
        assert!(missed.keep(Whose::begun(IMPLICIT), &lost(1)));
        assert!(missed.keep(elsewhere(IMPLICIT), &lost(2)));
        assert!(missed.keep(elsewhere(7), &lost(3)));
        assert!(missed.keep(Whose::begun(8), &lost(4)));
        assert!(missed.keep(Whose::begun(9), &Error::NotInitialized));
        assert!(is_lost(missed.take(Asker::OfHandle(IMPLICIT)), 1, 1));
        assert!(is_lost(missed.take(Asker::OfHandle(7)), 1, 3));
        assert!(is_lost(missed.take(Asker::OfAll), 2, 4));
        for asker in [Asker::OfAll, Asker::OfHandle(7), Asker::OfHandle(IMPLICIT)] {
            assert!(matches!(missed.take(asker), (0, None)));
        }
        assert_eq!(missed.0.len(), 1);
    }

    #[test]
    fn what_nobody_asks_for_is_bounded() {
        let mut missed = Missed::default();
        for rank in 0..MAX_MISSED as u32 {
            assert!(missed.keep(Whose::begun(1), &lost(rank)));
        }
        assert!(!missed.keep(Whose::begun(1), &lost(MAX_MISSED as u32)));
        assert!(is_lost(missed.take(Asker::OfHandle(1)), MAX_MISSED, 1));
    }
}
