//! Credit: bounds the number and the bytes of messages that wait at a receiver without a receive.
//!
//! Each rank reserves that much room for each peer. A sender counts the messages that the receiver
//! has not reported as taken. A message without room for its bytes stays at the sender and is
//! announced. A message without room for its announcement waits until the receiver returns credit.

/// The limit of messages and announcements of one peer that wait here.
pub(super) const MESSAGES: u64 = 1024;
/// The limit of bytes of one peer's messages that wait here.
pub(super) const BYTES: u64 = 512 << 10;

/// The limit of messages beyond the credit, which a peer may send because it owes them at its end.
/// It bounds the memory even if a peer lies about its end. A peer that owes more waits until some
/// are taken.
pub(super) const LENT: u64 = 1 << 18;

/// The sender's part: the credit left for one peer.
#[derive(Debug)]
pub(super) struct Allowance {
    messages: u64,
    bytes: u64,
}

/// The receiver's part: the messages of one peer.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Messages that the peer counts as waiting here.
    messages: u64,
    bytes: u64,
    /// Messages taken since the last report to the peer.
    free_messages: u64,
    free_bytes: u64,
    /// Messages kept here beyond the returned credit, which [`lend`](Account::lend) allowed the
    /// peer.
    lent: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            messages: MESSAGES,
            bytes: BYTES,
        }
    }
}

impl Allowance {
    /// Returns whether any message may be sent.
    #[inline]
    pub(super) fn has_message(&self) -> bool {
        self.messages > 0
    }

    /// Takes credit for a message, and for its bytes if there is room for them. Returns whether
    /// there was. There must be credit for [a message](Self::has_message).
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        self.messages = self.messages.saturating_sub(1);
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                true
            }
            None => false,
        }
    }

    /// Takes credit for a message and its bytes, if there is room for both. Returns whether there
    /// was.
    #[inline]
    pub(super) fn take_whole(&mut self, bytes: u64) -> bool {
        self.messages > 0 && self.bytes >= bytes && self.take(bytes)
    }

    /// Adds the credit that the peer returned. Returns `false` if it exceeds the credit used.
    #[must_use = "a peer that gives too much breaks a rule"]
    #[inline]
    pub(super) fn refill(&mut self, messages: u64, bytes: u64) -> bool {
        let fits = messages <= MESSAGES - self.messages && bytes <= BYTES - self.bytes;
        if fits {
            self.messages += messages;
            self.bytes += bytes;
        }
        fits
    }
}

impl Account {
    /// Counts a message that arrived. Returns `false` if the peer had no credit for it.
    #[must_use = "a peer that sends too much breaks a rule"]
    #[inline]
    pub(super) fn charge(&mut self, bytes: u64) -> bool {
        let fits = self.messages < MESSAGES && bytes <= BYTES - self.bytes;
        if fits {
            self.messages += 1;
            self.bytes += bytes;
        }
        fits
    }

    /// Lends a peer credit for up to `owed` messages, though none was taken. Returns the credit to
    /// announce. The peer's program has come to its end and [owes](super::come_to_end) these
    /// messages. Their arrival tells this rank whether a receive waits in vain. Bytes are not lent,
    /// so a message with a payload waits at its sender.
    pub(super) fn lend(&mut self, owed: u64) -> Option<u64> {
        let messages = owed
            .min(self.messages - self.free_messages)
            .min(LENT - self.lent);
        self.messages -= messages;
        self.lent += messages;
        (messages > 0).then_some(messages)
    }

    /// Counts a message that was taken. Returns the credit to report to the peer, if a report is
    /// due. Few reports are sent, and yet a sender that waits always gets one, because it has used
    /// up its messages or its bytes.
    #[inline]
    pub(super) fn release(&mut self, bytes: u64) -> Option<(u64, u64)> {
        if self.lent == 0 {
            self.free_messages += 1;
        } else {
            self.lent -= 1;
        }
        self.free_bytes += bytes;
        let due = self.free_messages >= MESSAGES / 4 || self.free_bytes >= BYTES / 4;
        due.then(|| {
            let (messages, bytes) = (self.free_messages, self.free_bytes);
            (self.free_messages, self.free_bytes) = (0, 0);
            self.messages -= messages;
            self.bytes -= bytes;
            (messages, bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A peer at its end sends all messages that it owes, even if none is taken before. It may
        /// go on afterwards.
        #[test]
        fn owed_messages_arrive_though_none_is_taken(owed in 0..5 * MESSAGES, taken in 0..MESSAGES) {
            let (mut allowance, mut account) = (Allowance::default(), Account::default());
            let mut there = 0;
            while allowance.has_message() {
                allowance.take(0);
                prop_assert!(account.charge(0));
                there += 1;
            }
            for _ in 0..taken {
                there -= 1;
                if let Some((messages, bytes)) = account.release(0) {
                    prop_assert!(allowance.refill(messages, bytes));
                }
            }
            let mut left = owed;
            if let Some(messages) = account.lend(left) {
                prop_assert!(allowance.refill(messages, 0));
            }
            while left > 0 {
                prop_assert!(allowance.has_message());
                allowance.take(0);
                prop_assert!(account.charge(0));
                (left, there) = (left - 1, there + 1);
                if left > 0 && !allowance.has_message() {
                    let lent = account.lend(left);
                    prop_assert!(lent.is_some_and(|messages| allowance.refill(messages, 0)));
                }
            }
            for _ in 0..there {
                if let Some((messages, bytes)) = account.release(0) {
                    prop_assert!(allowance.refill(messages, bytes));
                }
            }
            prop_assert!(allowance.has_message());
        }

        /// The sender sends whenever it has credit, and the receiver takes at random. The bounds
        /// hold, and the sender has credit again once all messages are taken.
        #[test]
        fn credit_bounds_the_waiting_messages_and_returns(
            steps in prop::collection::vec((0..BYTES / 2, any::<bool>()), 1..4000),
        ) {
            let (mut allowance, mut account) = (Allowance::default(), Account::default());
            let mut there: VecDeque<u64> = VecDeque::new();
            for (bytes, sends) in steps {
                if sends && allowance.has_message() {
                    let held = if allowance.take(bytes) { bytes } else { 0 };
                    prop_assert!(account.charge(held));
                    there.push_back(held);
                    prop_assert!(there.iter().sum::<u64>() <= BYTES);
                    prop_assert!(there.len() as u64 <= MESSAGES);
                } else if let Some(bytes) = there.pop_front()
                    && let Some((messages, bytes)) = account.release(bytes)
                {
                    prop_assert!(allowance.refill(messages, bytes));
                }
            }
            while let Some(bytes) = there.pop_front() {
                if let Some((messages, bytes)) = account.release(bytes) {
                    prop_assert!(allowance.refill(messages, bytes));
                }
            }
            prop_assert!(allowance.has_message());
            prop_assert!(allowance.take(BYTES / 2));
        }
    }

    /// A peer claims again and again that it owes messages, and sends them, while none is taken.
    #[test]
    fn lent_credit_is_bounded() {
        let mut account = Account::default();
        let (mut kept, mut credit) = (0, MESSAGES);
        while credit > 0 {
            (0..credit).for_each(|_| assert!(account.charge(0)));
            kept += credit;
            credit = account.lend(u64::MAX).unwrap_or(0);
        }
        assert_eq!(kept, MESSAGES + LENT);
        // There is credit again once some messages are taken.
        assert!((0..kept).any(|_| account.release(0).is_some()));
    }

    #[test]
    fn a_message_or_a_return_beyond_the_credit_is_found() {
        let mut account = Account::default();
        assert!(account.charge(BYTES));
        assert!(!account.charge(1));
        assert!(!Allowance::default().refill(1, 0));
        assert!(!Allowance::default().refill(0, 1));
    }
}
