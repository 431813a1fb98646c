//! The errors of operations that another thread waited for. Each error is kept until its owner
//! asks.
//!
//! A fence, and an operation on the same bytes, wait for all outstanding operations, whichever
//! thread began them. The waiting thread gets the error. Without this list the thread that began
//! the operation would never learn of it.

use std::thread::{self, ThreadId};

use hydrant::Error as Hydrant;

use crate::Error;

/// The most errors kept for a process. Beyond that the oldest is dropped.
const MAX_MISSED: usize = 256;

/// The number that implicit handles have.
pub(super) const IMPLICIT: i32 = 0;

/// The owner of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationOwner {
    /// The number of the operation's handle. Any thread that waits for the handle gets the error.
    handle: i32,
    /// The thread that began the operation. It gets the error at a fence, or if the handle is
    /// implicit.
    thread: ThreadId,
}

impl OperationOwner {
    /// The owner of an operation that this thread begins with a handle.
    pub(super) fn of_handle(handle: i32) -> Self {
        Self {
            handle,
            thread: thread::current().id(),
        }
    }

    pub(super) fn handle(self) -> i32 {
        self.handle
    }

    /// Returns true if the asker, in this thread, gets the errors of this owner's operations.
    pub(super) fn is_reported_to(self, asker: Asker) -> bool {
        match asker {
            Asker::OfHandle(number) if number != IMPLICIT => self.handle == number,
            Asker::OfHandle(_) => self.handle == IMPLICIT && self.is_this_thread(),
            Asker::OfAll => self.is_this_thread(),
        }
    }

    fn is_this_thread(self) -> bool {
        self.thread == thread::current().id()
    }
}

/// A caller that waits for operations, or tests them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// The caller asks for the operations of a handle.
    OfHandle(i32),
    /// The caller asks for the operations of all handles.
    OfAll,
}

/// The errors that their owners have not seen yet, the oldest first.
#[derive(Default)]
pub(super) struct MissedErrors(Vec<(OperationOwner, Error)>);

impl MissedErrors {
    /// Keeps the error of an operation. Returns true if the list is longer now.
    pub(super) fn keep(&mut self, whose: OperationOwner, cause: &Error) -> bool {
        let is_full = self.0.len() == MAX_MISSED;
        if is_full {
            self.0.remove(0);
        }
        self.0.push((whose, copy(cause)));
        !is_full
    }

    /// Takes out the errors for an asker. Returns their number, and the first.
    pub(super) fn take(&mut self, asker: Asker) -> (usize, Option<Error>) {
        let before = self.0.len();
        let (taken, rest) = (self.0.drain(..)).partition(|(whose, _)| whose.is_reported_to(asker));
        self.0 = rest;
        let taken: Vec<(OperationOwner, Error)> = taken;
        let first = taken.into_iter().next().map(|(_, cause)| cause);
        (before - self.0.len(), first)
    }
}

/// A copy of an error. Causes that programs match by name stay the same. Other causes become their
/// sentence.
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

    fn is_lost(taken: (usize, Option<Error>), count: usize, rank: u32) -> bool {
        let (many, first) = taken;
        many == count
            && matches!(first, Some(Error::Hydrant(Hydrant::PeerLost(lost))) if lost.0 == rank)
    }

    #[test]
    fn each_owner_gets_its_own_errors_once() {
        let mut missed = MissedErrors::default();
        let elsewhere = |handle| {
            let begin = move || OperationOwner::of_handle(handle);
            thread::spawn(begin).join().unwrap()
        };
        assert!(missed.keep(OperationOwner::of_handle(IMPLICIT), &lost(1)));
        assert!(missed.keep(elsewhere(IMPLICIT), &lost(2)));
        assert!(missed.keep(elsewhere(7), &lost(3)));
        assert!(missed.keep(OperationOwner::of_handle(8), &lost(4)));
        assert!(missed.keep(OperationOwner::of_handle(9), &Error::NotInitialized));
        assert!(is_lost(missed.take(Asker::OfHandle(IMPLICIT)), 1, 1));
        assert!(is_lost(missed.take(Asker::OfHandle(7)), 1, 3));
        assert!(is_lost(missed.take(Asker::OfAll), 2, 4));
        for asker in [Asker::OfAll, Asker::OfHandle(7), Asker::OfHandle(IMPLICIT)] {
            assert!(matches!(missed.take(asker), (0, None)));
        }
        assert_eq!(missed.0.len(), 1);
    }

    #[test]
    fn errors_that_nobody_asks_for_are_bounded() {
        let mut missed = MissedErrors::default();
        for rank in 0..MAX_MISSED as u32 {
            assert!(missed.keep(OperationOwner::of_handle(1), &lost(rank)));
        }
        assert!(!missed.keep(OperationOwner::of_handle(1), &lost(MAX_MISSED as u32)));
        assert!(is_lost(missed.take(Asker::OfHandle(1)), MAX_MISSED, 1));
    }
}
