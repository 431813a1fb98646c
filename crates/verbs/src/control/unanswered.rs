//! Datagrams that are resent until they are answered.

use std::{
    hash::Hash,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

/// The time between two sends of an unanswered datagram.
const RETRY: Duration = Duration::from_millis(50);

/// Unanswered datagrams: for each key, the value that was sent, and when it was sent last.
#[derive(Debug)]
pub(super) struct Unanswered<K, V>(FxHashMap<K, (V, Instant)>);

impl<K, V> Default for Unanswered<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Unanswered<K, V> {
    /// Notes a value as sent now.
    pub(super) fn note_sent(&mut self, key: K, what: V) {
        self.0.insert(key, (what, Instant::now()));
    }

    /// Forgets a value that was answered, or that needs no answer any more.
    pub(super) fn note_answered(&mut self, key: K) {
        self.0.remove(&key);
    }

    /// Returns the unanswered value of a key.
    pub(super) fn pending(&self, key: K) -> Option<V> {
        self.0.get(&key).map(|(what, _)| *what)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entries to resend now, and notes them as sent. Drops the keys that are not to be
    /// `kept`.
    pub(super) fn due(&mut self, now: Instant, kept: impl Fn(K) -> bool) -> Vec<(K, V)> {
        self.0.retain(|key, _| kept(*key));
        let mut due = Vec::new();
        for (key, (what, last)) in &mut self.0 {
            if now.saturating_duration_since(*last) >= RETRY {
                *last = now;
                due.push((*key, *what));
            }
        }
        due
    }

    /// Returns when the next entry is to be resent.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|(_, last)| *last + RETRY).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_resent_until_they_are_answered() {
        let mut unanswered = Unanswered::default();
        assert!(unanswered.is_empty() && unanswered.next().is_none());
        unanswered.note_sent(1, 'a');
        unanswered.note_sent(2, 'b');
        unanswered.note_sent(3, 'c');
        let now = Instant::now();
        assert!(unanswered.due(now, |_| true).is_empty());
        let later = now + RETRY;
        unanswered.note_answered(1);
        assert_eq!(unanswered.due(later, |key| key != 3), [(2, 'b')]);
        assert_eq!(
            (unanswered.pending(2), unanswered.pending(3)),
            (Some('b'), None)
        );
        assert!(unanswered.due(later, |_| true).is_empty());
        assert_eq!(unanswered.next(), Some(later + RETRY));
        assert_eq!(unanswered.due(later + RETRY, |_| true), [(2, 'b')]);
    }
}
