//! How many messages, and bytes of them, may lie at a receiver that has not asked for them: what bounds
//! its memory.
//!
//! Each rank keeps that much room for each peer. A sender counts what it has sent and has not heard to be
//! taken out; a message that finds no room for its bytes waits at the sender and is only announced, and
//! one that finds no room for its announcement is not even that, until the receiver gives credit back.

/// Messages and announcements of one peer that may wait here.
pub(super) const MESSAGES: u64 = 1024;
/// Bytes of one peer's messages that may wait here.
pub(super) const BYTES: u64 = 512 << 10;

/// Messages beyond these that a peer is lent credit for, because it owes them at its end. They bound the memory also
/// where a peer only claims to be at its end. A peer that owes more of them waits until some are taken out.
pub(super) const LENT: u64 = 1 << 18;

/// What may be sent to a peer, at its sender.
#[derive(Debug)]
pub(super) struct Allowance {
    messages: u64,
    bytes: u64,
}

/// What a peer has sent, at the receiver.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What the peer believes to lie here.
    messages: u64,
    bytes: u64,
    /// What of that was taken out, and the peer was not told.
    free_messages: u64,
    free_bytes: u64,
    /// Messages kept here beyond the credit that was returned, because [`lend`](Account::lend) let the peer send
    /// more.
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
    /// Whether anything may be sent.
    #[inline]
    pub(super) fn has_message(&self) -> bool {
        self.messages > 0
    }

    /// Takes a message out of the allowance, with its bytes if there is room for them: whether there
    /// was. There [is](Self::has_message) one.
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

    /// Takes a message out of the allowance, with its bytes, if there is room for both: whether there was.
    #[inline]
    pub(super) fn take_whole(&mut self, bytes: u64) -> bool {
        self.messages > 0 && self.bytes >= bytes && self.take(bytes)
    }

    /// The peer gave credit back: `false` if it was more than it had been sent.
    #[must_use = "a peer that gives too much breaks a rule"]
    #[inline]
    pub(super) fn give(&mut self, messages: u64, bytes: u64) -> bool {
        let fits = messages <= MESSAGES - self.messages && bytes <= BYTES - self.bytes;
        if fits {
            self.messages += messages;
            self.bytes += bytes;
        }
        fits
    }
}

impl Account {
    /// A message came: `false` if the peer had no credit for it.
    #[must_use = "a peer that sends too much breaks a rule"]
    #[inline]
    pub(super) fn came(&mut self, bytes: u64) -> bool {
        let fits = self.messages < MESSAGES && bytes <= BYTES - self.bytes;
        if fits {
            self.messages += 1;
            self.bytes += bytes;
        }
        fits
    }

    /// Lends a peer credit for up to `owed` further messages, though none was taken out. Returns the credit to
    /// announce to the peer. The peer's program has come to its end and [owes](super::come_to_end) these messages.
    /// Once they arrive, this rank knows whether a receive waits in vain. Bytes are not lent, so that a message with
    /// a payload waits at its sender.
    pub(super) fn lend(&mut self, owed: u64) -> Option<u64> {
        let messages = owed
            .min(self.messages - self.free_messages)
            .min(LENT - self.lent);
        self.messages -= messages;
        self.lent += messages;
        (messages > 0).then_some(messages)
    }

    /// A message was taken out: what credit the peer is to be told of, if it is time for that. So much
    /// is kept back that there are few such messages, and so little that a sender that waits is always
    /// told: it has used up all of one of them.
    #[inline]
    pub(super) fn took(&mut self, bytes: u64) -> Option<(u64, u64)> {
        match self.lent {
            0 => self.free_messages += 1,
            _ => self.lent -= 1,
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
        /// A peer at its end that owes messages sends them all, even if none is taken out before. It may go on
        /// afterwards.
        #[test]
        fn what_is_owed_comes_though_nothing_is_taken_out(owed in 0..5 * MESSAGES, taken in 0..MESSAGES) {
            let (mut allowance, mut account) = (Allowance::default(), Account::default());
            let mut there = 0;
            while allowance.has_message() {
                allowance.take(0);
                prop_assert!(account.came(0));
                there += 1;
            }
            for _ in 0..taken {
                there -= 1;
                if let Some((messages, bytes)) = account.took(0) {
                    prop_assert!(allowance.give(messages, bytes));
                }
            }
            let mut left = owed;
            if let Some(messages) = account.lend(left) {
                prop_assert!(allowance.give(messages, 0));
            }
            while left > 0 {
                prop_assert!(allowance.has_message());
                allowance.take(0);
                prop_assert!(account.came(0));
                (left, there) = (left - 1, there + 1);
                if left > 0 && !allowance.has_message() {
                    let lent = account.lend(left);
                    prop_assert!(lent.is_some_and(|messages| allowance.give(messages, 0)));
                }
            }
            for _ in 0..there {
                if let Some((messages, bytes)) = account.took(0) {
                    prop_assert!(allowance.give(messages, bytes));
                }
            }
            prop_assert!(allowance.has_message());
        }

        /// A sender that always sends more, and a receiver that takes out at random: it never finds more
        /// than it has room for, and the sender may always send again once all is taken out.
        #[test]
        fn credit_bounds_what_lies_there_and_comes_back(
            steps in prop::collection::vec((0..BYTES / 2, any::<bool>()), 1..4000),
        ) {
            let (mut allowance, mut account) = (Allowance::default(), Account::default());
            let mut there: VecDeque<u64> = VecDeque::new();
            for (bytes, sends) in steps {
                if sends && allowance.has_message() {
                    let held = if allowance.take(bytes) { bytes } else { 0 };
                    prop_assert!(account.came(held));
                    there.push_back(held);
                    prop_assert!(there.iter().sum::<u64>() <= BYTES);
                    prop_assert!(there.len() as u64 <= MESSAGES);
                } else if let Some(bytes) = there.pop_front()
                    && let Some((messages, bytes)) = account.took(bytes)
                {
                    prop_assert!(allowance.give(messages, bytes));
                }
            }
            while let Some(bytes) = there.pop_front() {
                if let Some((messages, bytes)) = account.took(bytes) {
                    prop_assert!(allowance.give(messages, bytes));
                }
            }
            prop_assert!(allowance.has_message());
            prop_assert!(allowance.take(BYTES / 2));
        }
    }

    /// A peer that says again and again that it owes messages, and sends them, while none is taken out.
    #[test]
    fn what_is_lent_is_bounded() {
        let mut account = Account::default();
        let (mut kept, mut credit) = (0, MESSAGES);
        while credit > 0 {
            (0..credit).for_each(|_| assert!(account.came(0)));
            kept += credit;
            credit = account.lend(u64::MAX).unwrap_or(0);
        }
        assert_eq!(kept, MESSAGES + LENT);
        // There is credit again once some were taken out.
        assert!((0..kept).any(|_| account.took(0).is_some()));
    }

    #[test]
    fn who_sends_or_gives_too_much_is_found() {
        let mut account = Account::default();
        assert!(account.came(BYTES));
        assert!(!account.came(1));
        assert!(!Allowance::default().give(1, 0));
        assert!(!Allowance::default().give(0, 1));
    }
}
