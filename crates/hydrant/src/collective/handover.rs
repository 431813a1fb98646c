//! Handovers of symmetric memory: all ranks agree in one round that each has given up its handle, or its slice.
//!
//! A rank that was lost meanwhile may have been heard by some members and not by others. So one round alone could leave
//! a member with its old handle while another has its slice. A member that the round fails therefore gives the
//! handover up, and asks all others whether they have completed it. Who has not completes it never after that
//! question. If nobody has, each member keeps what it had. Otherwise this member has nothing.
//!
//! A rank that was lost does not answer. No operation of the network reaches its memory, and its handles fail. But
//! memory that is mapped is reached without the network, and the rank's program may still have a slice of it. So the
//! scratch of such a rank tells whether its agreement ended. A rank that counts as lost itself completes no handover.
//!
//! ```text
//! request  args number of the question, handover, rank that was lost
//! reply    tag GIVEN_UP or DONE   args number of the question
//! ```

use std::sync::{
    Arc,
    atomic::{Ordering::SeqCst, fence},
};

use hydrant_conduit::{Delivery, Message, ReplyPort};
use parking_lot::Mutex;

use super::schedules::JobCollective;
use crate::{
    Error, Pod, Rank, Result,
    message::Calls,
    progress::{Progress, Route, kind},
};

/// The handover was not completed at this rank, and never will be.
const GIVEN_UP: u16 = 0;
/// The handover was completed at this rank.
const DONE: u16 = 1;

/// The handovers of a job, as one rank knows them. Their numbers are those of agreements of the team of all ranks.
pub(crate) struct Handovers {
    state: Mutex<HandoverState>,
    /// Holds the waiters for answers.
    calls: Arc<Calls>,
}

#[derive(Default)]
struct HandoverState {
    /// The last handover that was completed here.
    done: u64,
    /// The last that was given up, and the rank that was lost.
    given_up: u64,
    lost: Option<Rank>,
}

impl HandoverState {
    /// Completes a handover, unless it was given up.
    fn complete(&mut self, number: u64) -> bool {
        let completes = number > self.given_up;
        if completes {
            self.done = number;
        }
        completes
    }

    /// Gives a handover up, unless it was completed.
    fn give_up(&mut self, number: u64, lost: Option<Rank>) -> bool {
        let gives_up = number > self.done;
        if gives_up && number > self.given_up {
            (self.given_up, self.lost) = (number, lost);
        }
        gives_up
    }
}

/// Why a handover failed.
pub(crate) struct HandoverFailure {
    pub(crate) cause: Error,
    /// True if some rank may have completed it.
    pub(crate) may_be_done: bool,
}

impl From<Error> for HandoverFailure {
    /// The failure of a handover that no rank completes.
    fn from(cause: Error) -> Self {
        Self {
            cause,
            may_be_done: false,
        }
    }
}

impl Handovers {
    pub(crate) fn new(calls: &Arc<Calls>) -> Self {
        Self {
            state: Mutex::default(),
            calls: Arc::clone(calls),
        }
    }

    /// Gathers the request of each rank, and completes the handover if `check` allows it. `check` gets the requests in
    /// the order of ranks, and decides the same at every rank. This rank has given up its handle or slice.
    pub(crate) fn complete<T: Pod>(
        &self,
        progress: &Progress,
        collective: &JobCollective<'_>,
        request: &T,
        check: impl FnOnce(&[T]) -> Result<()>,
    ) -> Result<(), HandoverFailure> {
        // Nothing was sent yet, so no rank completes it.
        progress.check_all_present()?;
        let number = collective.next_agreement();
        let cause = match collective.all_gather(request) {
            Ok(requests) => {
                check(&requests)?;
                // The end of the agreement is visible to a rank that does not yet count this one as lost here.
                fence(SeqCst);
                let mut state = self.state.lock();
                if progress.is_lost_itself() {
                    Error::Expelled(progress.rank)
                } else if state.complete(number) {
                    return Ok(());
                } else {
                    let lost = state.lost.map(Error::PeerLost);
                    lost.unwrap_or_else(|| Error::other("another rank gave the handover up"))
                }
            }
            // Every rank learns of a mismatch.
            Err(cause @ Error::CollectiveMismatch { .. }) => return Err(cause.into()),
            Err(cause) => cause,
        };
        let may_be_done = self.may_be_done(progress, collective, number, &cause);
        Err(HandoverFailure { cause, may_be_done })
    }

    /// Gives a handover up. Returns whether some rank may have completed it.
    #[cold]
    fn may_be_done(
        &self,
        progress: &Progress,
        collective: &JobCollective<'_>,
        number: u64,
        cause: &Error,
    ) -> bool {
        let lost = match cause {
            Error::PeerLost(rank) => Some(*rank),
            _ => None,
        };
        if !self.state.lock().give_up(number, lost) {
            return true;
        }
        let asked = |rank: Rank| {
            let ask = |id| {
                let lost = lost.map_or(u64::MAX, |rank| rank.0.into());
                let question = Message {
                    kind: kind::HANDOVER,
                    tag: 0,
                    args: &[id, number, lost],
                    payload: &[],
                };
                progress.send(rank, &question)
            };
            match self.calls.ask(progress, rank, ask) {
                Ok(answer) => !answer.is_empty(),
                Err(Error::PeerLost(gone)) if gone == rank => {
                    fence(SeqCst);
                    collective.may_have_agreed(rank, number)
                }
                Err(_) => true,
            }
        };
        let mut others = (0..progress.size)
            .map(Rank)
            .filter(|rank| *rank != progress.rank);
        others.any(asked)
    }
}

impl Route for Handovers {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        let &[id, number, lost] = delivery.args else {
            return progress.malformed(delivery.from, "an unreadable question about a handover");
        };
        let lost = u32::try_from(lost).ok().map(Rank);
        let lost = lost.filter(|rank| rank.0 < progress.size);
        let gives_up = self.state.lock().give_up(number, lost);
        let answer = Message {
            kind: kind::HANDOVER,
            tag: if gives_up { GIVEN_UP } else { DONE },
            args: &[id],
            payload: &[],
        };
        if let Err(cause) = port.reply(&answer) {
            tracing::debug!(%cause, to = %delivery.from, "an answer found no way");
        }
    }

    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        let answer = match delivery.tag {
            GIVEN_UP => Vec::new(),
            _ => vec![1],
        };
        let asked = match delivery.args {
            &[id] => self.calls.end(progress, delivery.from, id, Ok(answer)),
            _ => false,
        };
        if !asked {
            let what = "an answer about a handover that nobody asked for";
            progress.malformed(delivery.from, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handover_is_completed_or_given_up_whichever_is_first() {
        let mut state = HandoverState::default();
        assert!(state.complete(3));
        assert!(!state.give_up(3, None));
        assert!(!state.give_up(2, None));
        assert!(state.give_up(5, Some(Rank(1))));
        // The first rank that was named stays.
        assert!(state.give_up(5, Some(Rank(2))));
        assert_eq!(state.lost, Some(Rank(1)));
        assert!(!state.complete(5));
        assert!(!state.complete(4));
        assert!(state.complete(6));
    }
}
