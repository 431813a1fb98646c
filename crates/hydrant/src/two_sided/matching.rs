//! Which receive gets which message: a state machine that knows no network, no buffer and no thread.
//!
//! Receives that were posted and messages that came unexpected are each kept in the order in which that
//! happened. A message goes to the first posted receive that it fits, a receive takes the first message
//! that fits it; so two messages of one rank that fit the same receives are received in the order sent.
//! A posted receive is in the queue of its pattern, and a message looks at the first of four queues; an
//! unexpected message is in the queues of all four patterns that it fits. So each step takes constant
//! time, however many wait, but for two, which take time for those that wait: a message goes back to its place, and
//! somebody receives by the first pattern of a kind. Most programs use patterns of one kind: queues of the others are
//! neither kept nor looked at before somebody receives by such a pattern.

use super::{
    chains::{Chains, Place, Queued},
    pattern::{Envelope, Pattern},
};

/// Posted receives `P` and unexpected messages `U`.
pub(super) struct Matching<P, U> {
    posted: Chains<(Pattern, P), 1>,
    unexpected: Chains<(Envelope, U), { Pattern::KINDS }>,
    /// By kind, whether a receive by such a pattern was ever posted.
    was_posted: [bool; Pattern::KINDS],
    next: u64,
}

/// A posted receive, as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PostedAt(Place);

/// An unexpected message that was taken, and its place among the others.
pub(super) struct Taken<U> {
    pub(super) envelope: Envelope,
    pub(super) message: U,
    sequence: u64,
}

impl<U> Taken<U> {
    /// A message that came just now, and was not among others.
    pub(super) fn new(envelope: Envelope, message: U) -> Self {
        Self {
            envelope,
            message,
            sequence: 0,
        }
    }
}

/// It is in the queue of its pattern alone.
impl<P> Queued<1> for (Pattern, P) {
    fn pattern(&self, _: usize) -> Pattern {
        self.0
    }
}

impl<U> Queued<{ Pattern::KINDS }> for (Envelope, U) {
    fn pattern(&self, kind: usize) -> Pattern {
        self.0.pattern(kind)
    }
}

impl<P, U> Matching<P, U> {
    pub(super) fn new() -> Self {
        let mut posted = Chains::new();
        posted.use_kind(0);
        Self {
            posted,
            unexpected: Chains::new(),
            was_posted: [false; Pattern::KINDS],
            next: 0,
        }
    }

    /// Whether no message is kept.
    #[inline]
    pub(super) fn has_kept_none(&self) -> bool {
        self.unexpected.is_empty()
    }

    /// The first unexpected message that fits.
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
    pub(super) fn take(&mut self, pattern: Pattern) -> Option<Taken<U>> {
        self.take_if(pattern, |_| true)
    }

    /// Takes the first unexpected message that fits, if this is so of it.
    #[inline]
    pub(super) fn take_if(
        &mut self,
        pattern: Pattern,
        is_so: impl FnOnce(&U) -> bool,
    ) -> Option<Taken<U>> {
        self.unexpected.use_kind(pattern.kind());
        let (place, _) =
            (self.unexpected.first(pattern)).filter(|(_, (_, message))| is_so(message))?;
        let (sequence, (envelope, message)) = self.unexpected.remove(place)?;
        Some(Taken {
            envelope,
            message,
            sequence,
        })
    }

    /// Posts a receive, for which no unexpected message is there.
    pub(super) fn post(&mut self, pattern: Pattern, receive: P) -> PostedAt {
        let sequence = self.number();
        self.was_posted[pattern.kind()] = true;
        PostedAt(self.posted.insert(sequence, (pattern, receive)))
    }

    /// Takes a posted receive back, if it waits still.
    pub(super) fn withdraw(&mut self, at: PostedAt) -> Option<P> {
        (self.posted.remove(at.0)).map(|(_, (_, receive))| receive)
    }

    /// Whether no receive is posted.
    #[inline]
    pub(super) fn has_posted_none(&self) -> bool {
        self.posted.is_empty()
    }

    /// Takes the first posted receive that a message fits.
    #[inline]
    pub(super) fn receive_for(&mut self, envelope: Envelope) -> Option<P> {
        let mut first: Option<Place> = None;
        for (kind, was_posted) in self.was_posted.into_iter().enumerate() {
            if was_posted
                && let Some((place, _)) = self.posted.first(envelope.pattern(kind))
                && first.is_none_or(|first| place.order() < first.order())
            {
                first = Some(place);
            }
        }
        (self.posted.remove(first?)).map(|(_, (_, receive))| receive)
    }

    /// Keeps a message that no posted receive fits.
    #[inline]
    pub(super) fn keep(&mut self, envelope: Envelope, message: U) {
        let sequence = self.number();
        self.unexpected.insert(sequence, (envelope, message));
    }

    /// Puts a message back that was taken, to its place among the others. No posted receive fits it.
    pub(super) fn put_back(&mut self, taken: Taken<U>) {
        let Taken {
            envelope,
            message,
            sequence,
        } = taken;
        self.unexpected.insert(sequence, (envelope, message));
    }

    /// Takes all posted receives of which this is so.
    pub(super) fn withdraw_all(&mut self, mut is_so: impl FnMut(&P) -> bool) -> Vec<P> {
        let places = self.posted.places(|(_, receive)| is_so(receive));
        let taken = places.into_iter().filter_map(|at| self.posted.remove(at));
        taken.map(|(_, (_, receive))| receive).collect()
    }

    /// Takes all unexpected messages of which this is so.
    pub(super) fn take_all(&mut self, mut is_so: impl FnMut(Envelope, &U) -> bool) -> Vec<U> {
        let places = (self.unexpected).places(|(envelope, message)| is_so(*envelope, message));
        let taken = places
            .into_iter()
            .filter_map(|at| self.unexpected.remove(at));
        taken.map(|(_, (_, message))| message).collect()
    }

    /// Takes all unexpected messages.
    pub(super) fn take_all_kept(&mut self) -> Vec<(Envelope, U)> {
        let places = self.unexpected.places(|_| true);
        let taken = places
            .into_iter()
            .filter_map(|at| self.unexpected.remove(at));
        taken.map(|(_, kept)| kept).collect()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two lists, each in order, of which the first that fits is taken.
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
    enum Step {
        Arrive(u32, u64),
        Receive(Option<u32>, Option<u64>),
        /// Takes the first that fits and puts it back.
        Peek(Option<u32>, Option<u64>),
        /// Withdraws one of the receives posted so far.
        Withdraw(prop::sample::Index),
        /// A rank is lost.
        Lose(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let source = || prop::option::weighted(0.7, 0..3_u32);
        let tag = || prop::option::weighted(0.7, 0..3_u64);
        prop_oneof![
            8 => (0..3_u32, 0..3_u64).prop_map(|(source, tag)| Step::Arrive(source, tag)),
            8 => (source(), tag()).prop_map(|(source, tag)| Step::Receive(source, tag)),
            3 => (source(), tag()).prop_map(|(source, tag)| Step::Peek(source, tag)),
            2 => any::<prop::sample::Index>().prop_map(Step::Withdraw),
            1 => (0..3_u32).prop_map(Step::Lose),
        ]
    }

    proptest! {
        #[test]
        fn everything_is_matched_as_lists_match_it(steps in prop::collection::vec(step(), 1..200)) {
            let mut matching = Matching::<u32, u32>::new();
            let mut naive = Naive::default();
            let mut places = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let number = number as u32;
                match step {
                    Step::Arrive(source, tag) => {
                        let envelope = Envelope { source, tag };
                        let found = matching.receive_for(envelope);
                        if found.is_none() {
                            matching.keep(envelope, number);
                        }
                        prop_assert_eq!(found, naive.arrive(envelope, number));
                    }
                    Step::Receive(source, tag) => {
                        let pattern = Pattern { source, tag };
                        let found = matching.take(pattern).map(|taken| taken.message);
                        if found.is_none() {
                            places.push((number, matching.post(pattern, number)));
                        }
                        prop_assert_eq!(found, naive.receive(pattern, number));
                    }
                    Step::Peek(source, tag) => {
                        let pattern = Pattern { source, tag };
                        let seen = matching.first(pattern).map(|(_, message)| *message);
                        let first = naive.unexpected.iter().find(|(it, _)| pattern.fits(*it));
                        prop_assert_eq!(seen, first.map(|(_, message)| *message));
                        if let Some(taken) = matching.take(pattern) {
                            prop_assert_eq!(Some(taken.message), seen);
                            matching.put_back(taken);
                        }
                    }
                    Step::Withdraw(which) => {
                        if places.is_empty() {
                            continue;
                        }
                        let (receive, place) = *which.get(&places);
                        let waits = naive.posted.iter().position(|(_, it)| *it == receive);
                        prop_assert_eq!(matching.withdraw(place), waits.map(|_| receive));
                        waits.map(|at| naive.posted.remove(at));
                    }
                    Step::Lose(rank) => {
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
