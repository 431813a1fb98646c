//! Notifications of peers that the program has not taken.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// The most notifications that are kept.
const MOST: usize = 1 << 16;
/// The most bytes of them.
const MOST_BYTES: usize = 64 << 20;

/// A message of a peer: the sender's name, and the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Notification {
    pub(crate) name: Box<[u8]>,
    pub(crate) text: Box<[u8]>,
}

/// Notifications until the program takes them.
#[derive(Default)]
pub(crate) struct Notifications {
    state: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    all: VecDeque<Notification>,
    bytes: usize,
    refused: u64,
}

impl Notifications {
    /// Keeps a notification. Returns `false` if there is no room.
    pub(crate) fn push(&self, name: &[u8], text: &[u8]) -> bool {
        let mut kept = self.state.lock();
        let bytes = kept.bytes + name.len() + text.len();
        if kept.all.len() >= MOST || bytes > MOST_BYTES {
            kept.refused += 1;
            return false;
        }
        kept.bytes = bytes;
        kept.all.push_back(Notification {
            name: name.into(),
            text: text.into(),
        });
        true
    }

    /// Takes all.
    pub(crate) fn take(&self) -> VecDeque<Notification> {
        let mut kept = self.state.lock();
        kept.bytes = 0;
        std::mem::take(&mut kept.all)
    }

    /// Returns how many there are, and how many were refused.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let kept = self.state.lock();
        (kept.all.len(), kept.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_kept_in_order_up_to_a_limit() {
        let notifications = Notifications::default();
        assert!((0..MOST).all(|number: usize| notifications.push(b"", &number.to_le_bytes())));
        assert!(!notifications.push(b"", b""));
        assert_eq!(notifications.counts(), (MOST, 1));
        let all = notifications.take();
        assert_eq!(*all[7].text, 7_usize.to_le_bytes());
        let large = vec![0; MOST_BYTES - 1];
        assert!(notifications.push(b"", &large));
        assert!(!notifications.push(b"n", b"m"));
        assert!(notifications.push(b"n", b""));
        assert_eq!(notifications.take().len(), 2);
        assert!(notifications.take().is_empty());
    }
}
