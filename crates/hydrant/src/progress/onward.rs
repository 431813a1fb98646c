//! Keeps messages that handlers and tasks send while the peer has no room, or before it was told of
//! changed memory. Handlers and tasks must not wait, so polls send the kept messages later.
//!
//! Ranks cannot wait for each other in a circle, because a rank handles what arrives however much
//! it keeps here. So a peer's messages leave its rings, there is room again, and the kept messages
//! are sent. The cost is memory, which [`MAX_KEPT_BYTES`] limits.

use std::collections::VecDeque;

use hydrant_conduit::{Message, OwnedMessage, Sent};
use rustc_hash::FxHashMap;

use super::{Progress, backlog::Backlog};
use crate::{Error, Rank, Result, counters::Count};

/// The most bytes that a rank keeps for peers without room.
pub(crate) const MAX_KEPT_BYTES: usize = 64 << 20;

/// The kept messages by peer. The lock is not held while a message is sent.
#[derive(Default)]
pub(super) struct Onward {
    queues: FxHashMap<u32, VecDeque<OwnedMessage>>,
    /// The bytes of all kept messages.
    bytes: usize,
    /// True while a thread sends. No other thread sends meanwhile, so that messages stay in order.
    sending: bool,
}

/// Returns the approximate memory that a message takes here.
fn len(of: &OwnedMessage) -> usize {
    size_of::<OwnedMessage>() + 8 * of.args.len() + of.payload.len()
}

impl Progress {
    /// Sends a message to a rank of the job, or keeps it until there is room. For handlers too.
    /// Messages of one thread to one peer stay in order.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::OnwardFull`], and the conduit's error for a message that is
    /// too long.
    pub(crate) fn send_onward(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.send_or_keep(rank, message, MAX_KEPT_BYTES)
    }

    /// As [`send_onward`](Self::send_onward), without a limit. For results of calls, of which there
    /// is one for each call of the peer.
    ///
    /// # Errors
    /// As [`send_onward`](Self::send_onward).
    pub(crate) fn send_result(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.send_or_keep(rank, message, usize::MAX)
    }

    fn send_or_keep(&self, rank: Rank, message: &Message<'_>, most: usize) -> Result<()> {
        self.settle_if_needed();
        // Messages kept for the peer go first, and news of changed memory, which another thread may be about to send.
        if !self.has_onward_for(rank) && !self.follows_news(rank) {
            let sent =
                (self.conduit.send(rank, message)).map_err(|cause| self.why_unsent(cause))?;
            if sent == Sent::Yes {
                return Ok(());
            }
        }
        self.conduit.caps().check(message)?;
        let kept = OwnedMessage::new(message);
        let mut onward = self.onward.lock();
        if onward.bytes + len(&kept) > most {
            return Err(Error::OnwardFull { limit: most });
        }
        self.tally.one(Count::Stalls);
        onward.bytes += len(&kept);
        onward.queues.entry(rank.0).or_default().push_back(kept);
        // Set with the lock held, so that the bit matches the queues.
        let began = self.set_backlog(Backlog::Onward, true);
        drop(onward);
        if began {
            self.wake_for_backlog();
        }
        Ok(())
    }

    /// Sends the messages for which there is room.
    pub(super) fn flush_onward(&self) {
        let mut onward = self.onward.lock();
        if onward.sending {
            return;
        }
        onward.sending = true;
        let peers: Vec<u32> = onward.queues.keys().copied().collect();
        for peer in peers {
            while let Some(kept) = onward.queues.get_mut(&peer).and_then(VecDeque::pop_front) {
                drop(onward);
                let sent = match self.follows_news(Rank(peer)) {
                    true => Ok(Sent::Full),
                    false => self.conduit.send(Rank(peer), &kept.message()),
                };
                onward = self.onward.lock();
                if let Ok(Sent::Full) = sent {
                    onward.queues.entry(peer).or_default().push_front(kept);
                    break;
                }
                // The message was sent, or the peer has ended. Waiters see the peer's standing.
                onward.bytes -= len(&kept);
            }
        }
        let before = onward.queues.len();
        onward.queues.retain(|_, queue| !queue.is_empty());
        onward.sending = false;
        let some = onward.queues.len() < before;
        self.set_backlog(Backlog::Onward, !onward.queues.is_empty());
        drop(onward);
        if some {
            // A task may wait for the queue to be empty.
            self.wake_condition_waiters();
        }
    }

    /// Returns whether messages of handlers are kept here.
    pub(crate) fn has_onward(&self) -> bool {
        self.has_backlog_of(Backlog::Onward)
    }

    /// Returns whether a message for this peer is kept or being sent.
    #[inline]
    pub(crate) fn has_onward_for(&self, rank: Rank) -> bool {
        self.has_onward() && self.keeps_for(rank)
    }

    #[cold]
    fn keeps_for(&self, rank: Rank) -> bool {
        // The queue of a peer stays in the map while its messages are sent.
        self.onward.lock().queues.contains_key(&rank.0)
    }
}
