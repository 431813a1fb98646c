//! Finds out whether anything is in flight in the job. One rank waits for a word of its memory to
//! change, and the programs of all others have come to their ends.
//!
//! Handlers and tasks of the others may still store to the word, for this rank or for each other.
//! So the waiting rank asks each of them whether it rests: nothing is in flight there, and all that
//! it has sent was handled. The rank asks twice. If all rest both times and have sent nothing in
//! between, all rested at the moment between the two rounds. Then nothing will ever happen (the
//! four-counter method, Mattern 1987).

use std::time::Duration;

use hydrant_conduit::{Delivery, Message, ReplyPort, Sent};

use super::{Progress, Route, kind};
use crate::{Error, Rank};

/// The pause before the next round, if not all rested.
const AGAIN: Duration = Duration::from_millis(20);

/// The most rounds without rest in virtual time. Each pause is twice as long as the one before.
/// After these rounds the network can find that nothing ever happens. It cannot while a rank waits
/// for a time to pass.
const VIRTUAL_ROUNDS: u32 = 12;

/// The answers of the others, at the rank that asks.
#[derive(Default)]
pub(super) struct Survey {
    /// The number of the last round.
    round: u64,
    /// The answer of each rank in that round; empty between rounds.
    answers: Vec<RestAnswer>,
    /// The number of requests that each rank had sent by the round before, if all rested.
    before: Option<Vec<u64>>,
    /// The number of questions that this rank has sent.
    asked: u64,
    /// The end of the last round on the conduit's clock, if it failed: not all rested, or some sent
    /// requests since the round before.
    restless: Option<Duration>,
    /// The number of rounds in which not all rested, since all did.
    restless_rounds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RestAnswer {
    /// The rank is still to be asked.
    Due,
    Asked,
    /// The rank rests, and has sent so many requests.
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
        let mut survey = progress.survey.lock();
        if survey.round == round
            && let Some(answer) = survey.answers.get_mut(delivery.from.index())
        {
            *answer = match rests {
                1 => RestAnswer::Rests(sent),
                _ => RestAnswer::Works,
            };
        }
    }
}

impl Progress {
    /// Returns the time that a waiter for memory sleeps before it asks again, or `None` if it does
    /// not ask.
    pub(super) fn pause_before_survey(&self) -> Option<Duration> {
        if !self.any_has_come_to_end() || !self.is_left_alone() {
            return None;
        }
        match (self.virtual_time, self.survey.lock().restless_rounds) {
            (false, _) => Some(AGAIN),
            (true, VIRTUAL_ROUNDS..) => None,
            (true, rounds) => Some(AGAIN * (1 << rounds)),
        }
    }

    /// Returns the reason why no word of this rank's memory changes any more, if that is known by
    /// now. Otherwise asks the others.
    pub(super) fn why_nothing_changes(&self) -> Option<Error> {
        let pause = self.pause_before_survey()?;
        (self.all_rest(pause)).then_some(Error::OthersEnded {
            why: "nothing is in flight that could change the memory that is waited for",
        })
    }

    /// Advances a round of questions, or begins the next after a pause.
    fn all_rest(&self, pause: Duration) -> bool {
        let now = self.conduit.now();
        let mut survey = self.survey.lock();
        if survey.answers.is_empty() {
            let is_fresh = |since: Duration| now.saturating_sub(since) < pause;
            let pauses = survey.restless.is_some_and(is_fresh);
            // The check is skipped within a round, because the questions are themselves unhandled
            // requests. A round that begins late is as good, because it counts what this rank has
            // sent until then.
            if pauses {
                return false;
            }
            if !self.rests() {
                if self.virtual_time {
                    survey.restless = Some(now);
                    survey.restless_rounds = survey.restless_rounds.saturating_add(1);
                }
                return false;
            }
            survey.round += 1;
            survey.answers = vec![RestAnswer::Due; self.size as usize];
            survey.answers[self.rank.index()] =
                RestAnswer::Rests(self.requests_sent() - survey.asked);
        }
        let round = survey.round;
        let question = Message {
            kind: kind::REST,
            tag: 0,
            args: &[round],
            payload: &[],
        };
        for rank in 0..self.size {
            if survey.answers[rank as usize] == RestAnswer::Due
                && let Ok(Sent::Yes) = self.conduit.send(Rank(rank), &question)
            {
                survey.asked += 1;
                survey.answers[rank as usize] = RestAnswer::Asked;
            }
        }
        let answers = survey.answers.iter();
        if answers
            .clone()
            .any(|it| matches!(it, RestAnswer::Due | RestAnswer::Asked))
        {
            return false;
        }
        let sent: Option<Vec<u64>> = answers
            .map(|answer| match answer {
                RestAnswer::Rests(sent) => Some(*sent),
                _ => None,
            })
            .collect();
        survey.answers.clear();
        let all_rest = sent.is_some() && sent == survey.before;
        let is_first = sent.is_some() && survey.before.is_none();
        survey.restless = (!all_rest && !is_first).then_some(now);
        survey.restless_rounds = match sent {
            Some(_) => 0,
            None => survey.restless_rounds.saturating_add(1),
        };
        survey.before = sent;
        all_rest
    }

    /// Returns whether nothing is in flight at this rank and all that it has sent was handled.
    fn rests(&self) -> bool {
        self.has_no_task() && !self.has_errands() && self.is_still()
    }

    /// As [`rests`](Self::rests), but ignores errands and tasks that wait.
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

    /// Returns the number of requests that this rank has sent so far.
    fn requests_sent(&self) -> u64 {
        (0..self.size)
            .map(|rank| self.conduit.handled(Rank(rank)).1)
            .sum()
    }
}
