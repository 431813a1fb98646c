//! Finds out whether anything is in flight in the job. One rank waits for a word of its memory to change, and the
//! programs of all others have come to their ends.
//!
//! Handlers and tasks of the others may still store to the word, for this rank or for each other. So the waiting rank
//! asks each of them whether it rests: nothing is in flight there, and all that it has sent was handled. The rank
//! asks twice. If all rest both times and have sent nothing in between, all rested at the moment between the two
//! rounds. Then nothing will ever happen (the four-counter method, Mattern 1987).

use std::time::Duration;

use hydrant_conduit::{Delivery, Message, ReplyPort, Sent};

use super::{Progress, Route, kind};
use crate::{Error, Rank};

/// The pause before the next question, where not all rested.
const AGAIN: Duration = Duration::from_millis(20);

/// The most rounds in which not all rested, in virtual time. Each pause is twice as long as the one before. Then the
/// network may find that nothing ever happens, which it does not while a rank waits for a time to pass.
const VIRTUAL_ROUNDS: u32 = 12;

/// The answers of the others, at the rank that asks.
#[derive(Default)]
pub(super) struct Rest {
    /// The number of the round that was begun last.
    round: u64,
    /// The answer of each rank in that round; empty between rounds.
    answers: Vec<Answer>,
    /// The number of requests that each rank had sent in the round before, if all rested.
    before: Option<Vec<u64>>,
    /// The number of questions that this rank sent.
    asked: u64,
    /// The end of the last round on the conduit's clock, if not all rested in it or some sent requests since the round
    /// before.
    restless: Option<Duration>,
    /// The number of such rounds since all rested.
    restless_rounds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The rank is still to be asked.
    Due,
    Asked,
    /// The rank rests, and had sent so many requests.
    Rests(u64),
    Works,
}

/// Handles the questions and the answers.
pub(crate) struct Resting;

impl Route for Resting {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        let &[round] = delivery.args else {
            return progress.malformed(
                delivery.from,
                "an unreadable question whether this rank rests",
            );
        };
        let rests = progress.conduit().has_come_to_end(progress.rank) && progress.rests();
        let answer = Message {
            kind: kind::REST,
            tag: 0,
            args: &[round, u64::from(rests), progress.requests_sent()],
            payload: &[],
        };
        if let Err(cause) = port.reply(&answer) {
            tracing::debug!(%cause, to = %delivery.from, "an answer found no way");
        }
    }

    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        let &[round, rests, sent] = delivery.args else {
            return progress.malformed(delivery.from, "an unreadable answer whether it rests");
        };
        let mut rest = progress.rest.lock();
        if rest.round == round
            && let Some(answer) = rest.answers.get_mut(delivery.from.index())
        {
            *answer = match rests {
                1 => Answer::Rests(sent),
                _ => Answer::Works,
            };
        }
    }
}

impl Progress {
    /// The time that a waiter for memory sleeps before it asks again, if it asks at all.
    pub(super) fn asks_again_in(&self) -> Option<Duration> {
        if !self.any_has_come_to_end() || !self.is_left_alone() {
            return None;
        }
        match (self.virtual_time, self.rest.lock().restless_rounds) {
            (false, _) => Some(AGAIN),
            (true, VIRTUAL_ROUNDS..) => None,
            (true, rounds) => Some(AGAIN * (1 << rounds)),
        }
    }

    /// The reason why no word of this rank's memory changes any more, if that is known by now. Until then this asks
    /// the others.
    pub(super) fn why_nothing_changes(&self) -> Option<Error> {
        let pause = self.asks_again_in()?;
        (self.all_rest(pause)).then_some(Error::OthersEnded {
            why: "nothing is under way that could change the memory that is waited for",
        })
    }

    /// Goes on with a round of questions, or begins the next after a pause.
    fn all_rest(&self, pause: Duration) -> bool {
        let now = self.conduit.now();
        let mut rest = self.rest.lock();
        if rest.answers.is_empty() {
            let is_fresh = |since: Duration| now.saturating_sub(since) < pause;
            let pauses = rest.restless.is_some_and(is_fresh);
            // Not in the midst of a round: the questions themselves are requests that were not handled yet. A round
            // that begins late is as good, because it counts what this rank has sent until then.
            if pauses {
                return false;
            }
            if !self.rests() {
                if self.virtual_time {
                    rest.restless = Some(now);
                    rest.restless_rounds = rest.restless_rounds.saturating_add(1);
                }
                return false;
            }
            rest.round += 1;
            rest.answers = vec![Answer::Due; self.size as usize];
            rest.answers[self.rank.index()] = Answer::Rests(self.requests_sent() - rest.asked);
        }
        let round = rest.round;
        let question = Message {
            kind: kind::REST,
            tag: 0,
            args: &[round],
            payload: &[],
        };
        for rank in 0..self.size {
            if rest.answers[rank as usize] == Answer::Due
                && let Ok(Sent::Yes) = self.conduit.send(Rank(rank), &question)
            {
                rest.asked += 1;
                rest.answers[rank as usize] = Answer::Asked;
            }
        }
        let answers = rest.answers.iter();
        if answers
            .clone()
            .any(|it| matches!(it, Answer::Due | Answer::Asked))
        {
            return false;
        }
        let sent: Option<Vec<u64>> = answers
            .map(|answer| match answer {
                Answer::Rests(sent) => Some(*sent),
                _ => None,
            })
            .collect();
        rest.answers.clear();
        let all_rest = sent.is_some() && sent == rest.before;
        let is_first = sent.is_some() && rest.before.is_none();
        rest.restless = (!all_rest && !is_first).then_some(now);
        rest.restless_rounds = match sent {
            Some(_) => 0,
            None => rest.restless_rounds.saturating_add(1),
        };
        rest.before = sent;
        all_rest
    }

    /// Returns whether nothing is in flight at this rank, and all that it has sent was handled.
    fn rests(&self) -> bool {
        self.has_no_task() && !self.has_errands() && self.is_still()
    }

    /// Returns whether nothing is in flight at this rank but errands and tasks that wait, and all that it has sent was
    /// handled.
    pub(crate) fn is_still(&self) -> bool {
        let is_handled = |rank| {
            let (handled, sent) = self.conduit.handled(Rank(rank));
            handled >= sent
        };
        !self.has_onward()
            && !self.has_busy_task()
            && self.operations().is_none_or(|it| it.is_idle())
            && (0..self.size).all(is_handled)
    }

    /// The number of requests that this rank has sent so far.
    fn requests_sent(&self) -> u64 {
        (0..self.size)
            .map(|rank| self.conduit.handled(Rank(rank)).1)
            .sum()
    }
}
