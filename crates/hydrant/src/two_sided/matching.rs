//! Matches receives with messages: a state machine that knows no network, no buffer and no thread.
//!
//! Posted receives and unexpected messages are each kept in the order of their arrival. A message
//! goes to the first posted receive that it fits. A receive takes the first message that fits it.
//! So two messages of one rank that fit the same receives are received in the order sent.
//!
//! A posted receive is in the queue of its pattern, and a message checks the first of four queues.
//! An unexpected message is in the queues of all four patterns that it fits. So a step takes
//! constant time, however many wait. Two steps take longer: a message returns to its old position,
//! and somebody uses a kind of patterns for the first time. Most programs use patterns of one kind,
//! so queues of the other kinds are neither kept nor checked until then.

use super::{
    pattern::{Envelope, Pattern},
    pattern_queues::{PatternKeyed, PatternQueues, QueuedId},
};

/// Posted receives `P` and unexpected messages `U`.
pub(super) struct Matching<P, U> {
    posted: PatternQueues<(Pattern, P), 1>,
    unexpected: PatternQueues<(Envelope, U), { Pattern::KINDS }>,
    /// True for each kind of patterns by which a receive was ever posted.
    was_posted: [bool; Pattern::KINDS],
    next: u64,
}

/// Names a posted receive until it is matched or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PostedId(QueuedId);

/// An unexpected message that was taken, and its position among the others.
pub(super) struct UnexpectedMessage<U> {
    pub(super) envelope: Envelope,
    pub(super) message: U,
    sequence: u64,
}

impl<U> UnexpectedMessage<U> {
    /// Returns a message that arrived just now, and has no position.
    pub(super) fn new(envelope: Envelope, message: U) -> Self {
        Self {
            envelope,
            message,
            sequence: 0,
        }
    }
}

/// A posted receive is in the queue of its own pattern.
impl<P> PatternKeyed<1> for (Pattern, P) {
    fn pattern(&self, _: usize) -> Pattern {
        self.0
    }
}

impl<U> PatternKeyed<{ Pattern::KINDS }> for (Envelope, U) {
    fn pattern(&self, kind: usize) -> Pattern {
        self.0.pattern(kind)
    }
}

impl<P, U> Matching<P, U> {
    pub(super) fn new() -> Self {
        let mut posted = PatternQueues::new();
        posted.use_kind(0);
        Self {
            posted,
            unexpected: PatternQueues::new(),
            was_posted: [false; Pattern::KINDS],
            next: 0,
        }
    }

    /// Returns whether no message is kept.
    #[inline]
    pub(super) fn has_kept_none(&self) -> bool {
        self.unexpected.is_empty()
    }

    /// Returns the first unexpected message that fits.
    #[inline]
    pub(super) fn first(&mut self, pattern: Pattern) -> Option<(Envelope, &U)> {
        if self.unexpected.is_empty() {
            return None;
        }
        self.unexpected.use_kind(pattern.kind());
        let (_, (envelope, message)) = self.unexpected.first(pattern)?;
        Some((*envelope, message))
    }

    /// Takes the first unexpected message that fits.
    #[inline]
    pub(super) fn take(&mut self, pattern: Pattern) -> Option<UnexpectedMessage<U>> {
        self.take_if(pattern, |_| true)
    }

    /// Takes the first unexpected message that fits, if it fulfils a condition.
    #[inline]
    pub(super) fn take_if(
        &mut self,
        pattern: Pattern,
        fulfils: impl FnOnce(&U) -> bool,
    ) -> Option<UnexpectedMessage<U>> {
        self.unexpected.use_kind(pattern.kind());
        let (id, _) =
            (self.unexpected.first(pattern)).filter(|(_, (_, message))| fulfils(message))?;
        let (sequence, (envelope, message)) = self.unexpected.remove(id)?;
        Some(UnexpectedMessage {
            envelope,
            message,
            sequence,
        })
    }

    /// Posts a receive. No unexpected message may fit it.
    pub(super) fn post(&mut self, pattern: Pattern, receive: P) -> PostedId {
        let sequence = self.next_number();
        self.was_posted[pattern.kind()] = true;
        PostedId(self.posted.insert(sequence, (pattern, receive)))
    }

    /// Withdraws a posted receive, unless it was matched.
    pub(super) fn withdraw(&mut self, at: PostedId) -> Option<P> {
        (self.posted.remove(at.0)).map(|(_, (_, receive))| receive)
    }

    /// Returns whether no receive is posted.
    #[inline]
    pub(super) fn has_posted_none(&self) -> bool {
        self.posted.is_empty()
    }

    /// Takes the first posted receive that a message fits.
    #[inline]
    pub(super) fn receive_for(&mut self, envelope: Envelope) -> Option<P> {
        let mut first: Option<QueuedId> = None;
        for (kind, was_posted) in self.was_posted.into_iter().enumerate() {
            if was_posted
                && let Some((id, _)) = self.posted.first(envelope.pattern(kind))
                && first.is_none_or(|first| id.order() < first.order())
            {
                first = Some(id);
            }
        }
        (self.posted.remove(first?)).map(|(_, (_, receive))| receive)
    }

    /// Keeps a message that no posted receive fits.
    #[inline]
    pub(super) fn keep(&mut self, envelope: Envelope, message: U) {
        let sequence = self.next_number();
        self.unexpected.insert(sequence, (envelope, message));
    }

    /// Puts a taken message back to its old position. No posted receive may fit it.
    pub(super) fn put_back(&mut self, taken: UnexpectedMessage<U>) {
        let UnexpectedMessage {
            envelope,
            message,
            sequence,
        } = taken;
        self.unexpected.insert(sequence, (envelope, message));
    }

    /// Takes all posted receives that fulfil a condition.
    pub(super) fn withdraw_all(&mut self, mut fulfils: impl FnMut(&P) -> bool) -> Vec<P> {
        let ids = self.posted.ids(|(_, receive)| fulfils(receive));
        let taken = ids.into_iter().filter_map(|at| self.posted.remove(at));
        taken.map(|(_, (_, receive))| receive).collect()
    }

    /// Takes all unexpected messages that fulfil a condition.
    pub(super) fn take_all(&mut self, mut fulfils: impl FnMut(Envelope, &U) -> bool) -> Vec<U> {
        let ids = (self.unexpected).ids(|(envelope, message)| fulfils(*envelope, message));
        let taken = ids.into_iter().filter_map(|at| self.unexpected.remove(at));
        taken.map(|(_, (_, message))| message).collect()
    }

    /// Takes all unexpected messages.
    pub(super) fn take_all_kept(&mut self) -> Vec<(Envelope, U)> {
        let ids = self.unexpected.ids(|_| true);
        let taken = ids.into_iter().filter_map(|at| self.unexpected.remove(at));
        taken.map(|(_, kept)| kept).collect()
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive model: two lists in order, of which the first fitting entry is taken.
    #[derive(Default)]
    struct Naive {
        posted: Vec<(Pattern, u32)>,
        unexpected: Vec<(Envelope, u32)>,
    }

    impl Naive {
        fn arrive(&mut self, envelope: Envelope, message: u32) -> Option<u32> {
            let at = (self.posted.iter()).position(|(pattern, _)| pattern.fits(envelope));
            match at {
                Some(at) => Some(self.posted.remove(at).1),
                None => {
                    self.unexpected.push((envelope, message));
                    None
                }
            }
        }

        fn receive(&mut self, pattern: Pattern, receive: u32) -> Option<u32> {
            let at = (self.unexpected.iter()).position(|(envelope, _)| pattern.fits(*envelope));
            match at {
                Some(at) => Some(self.unexpected.remove(at).1),
                None => {
                    self.posted.push((pattern, receive));
                    None
                }
            }
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum MatchingStep {
        Arrive(u32, u64),
        Receive(Option<u32>, Option<u64>),
        /// Takes the first message that fits, and puts it back.
        Peek(Option<u32>, Option<u64>),
        /// Withdraws one of the receives posted so far.
        Withdraw(prop::sample::Index),
        /// Loses a rank.
        Lose(u32),
    }

    fn step() -> impl Strategy<Value = MatchingStep> {
        let source = || prop::option::weighted(0.7, 0..3_u32);
        let tag = || prop::option::weighted(0.7, 0..3_u64);
        prop_oneof![
            8 => (0..3_u32, 0..3_u64).prop_map(|(source, tag)| MatchingStep::Arrive(source, tag)),
            8 => (source(), tag()).prop_map(|(source, tag)| MatchingStep::Receive(source, tag)),
            3 => (source(), tag()).prop_map(|(source, tag)| MatchingStep::Peek(source, tag)),
            2 => any::<prop::sample::Index>().prop_map(MatchingStep::Withdraw),
            1 => (0..3_u32).prop_map(MatchingStep::Lose),
        ]
    }

    proptest! {
        #[test]
        fn every_match_is_that_of_two_lists(steps in prop::collection::vec(step(), 1..200)) {
            let mut matching = Matching::<u32, u32>::new();
            let mut naive = Naive::default();
            let mut ids = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let number = number as u32;
                match step {
                    MatchingStep::Arrive(source, tag) => {
                        let envelope = Envelope { source, tag };
                        let found = matching.receive_for(envelope);
                        if found.is_none() {
                            matching.keep(envelope, number);
                        }
                        prop_assert_eq!(found, naive.arrive(envelope, number));
                    }
                    MatchingStep::Receive(source, tag) => {
                        let pattern = Pattern { source, tag };
                        let found = matching.take(pattern).map(|taken| taken.message);
                        if found.is_none() {
                            ids.push((number, matching.post(pattern, number)));
                        }
                        prop_assert_eq!(found, naive.receive(pattern, number));
                    }
                    MatchingStep::Peek(source, tag) => {
                        let pattern = Pattern { source, tag };
                        let seen = matching.first(pattern).map(|(_, message)| *message);
                        let first = naive.unexpected.iter().find(|(it, _)| pattern.fits(*it));
                        prop_assert_eq!(seen, first.map(|(_, message)| *message));
                        if let Some(taken) = matching.take(pattern) {
                            prop_assert_eq!(Some(taken.message), seen);
                            matching.put_back(taken);
                        }
                    }
                    MatchingStep::Withdraw(which) => {
                        if ids.is_empty() {
                            continue;
                        }
                        let (receive, id) = *which.get(&ids);
                        let waits = naive.posted.iter().position(|(_, it)| *it == receive);
                        prop_assert_eq!(matching.withdraw(id), waits.map(|_| receive));
                        waits.map(|at| naive.posted.remove(at));
                    }
                    MatchingStep::Lose(rank) => {
                        let mut gone = matching.take_all(|envelope, _| envelope.source == rank);
                        gone.sort_unstable();
                        let all = naive.unexpected.iter();
                        let theirs = all.filter(|(envelope, _)| envelope.source == rank);
                        let right: Vec<u32> = theirs.map(|(_, message)| *message).collect();
                        prop_assert_eq!(gone, right);
                        naive.unexpected.retain(|(envelope, _)| envelope.source != rank);
                    }
                }
            }
            let mut rest = matching.withdraw_all(|_| true);
            rest.sort_unstable();
            let right: Vec<u32> = naive.posted.iter().map(|(_, receive)| *receive).collect();
            prop_assert_eq!(rest, right);
        }
    }
}
