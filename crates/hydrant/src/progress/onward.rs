//! Messages that handlers and tasks send. They must not wait, so that what finds no room at the peer
//! is kept here, and sent by whoever polls.
//!
//! Why no circle of ranks can wait for each other: a rank handles what arrives however much it keeps
//! here. So a peer's messages leave its rings, there is room again, and what is kept goes. What that
//! costs is memory, which [`MAX_KEPT_BYTES`] limits.

use std::collections::VecDeque;

use hydrant_conduit::{Message, Sent};
use rustc_hash::FxHashMap;

use super::{Progress, backlog::Backlog};
use crate::{Error, Rank, Result, counters::Count};

/// Bytes that a rank may keep for peers that have no room.
pub(crate) const MAX_KEPT_BYTES: usize = 64 << 20;

/// What is kept, by peer. Its lock is never held while a message is sent.
#[derive(Default)]
pub(super) struct Onward {
    queues: FxHashMap<u32, VecDeque<Kept>>,
    /// Bytes of all that is kept.
    bytes: usize,
    /// A thread is sending: nobody else does meanwhile, so that messages stay in order.
    sending: bool,
}

/// A message that waits.
struct Kept {
    kind: u8,
    tag: u16,
    args: Vec<u64>,
    payload: Vec<u8>,
}

impl Kept {
    fn of(message: &Message<'_>) -> Self {
        Self {
            kind: message.kind,
            tag: message.tag,
            args: message.args.to_vec(),
            payload: message.payload.to_vec(),
        }
    }

    fn message(&self) -> Message<'_> {
        Message {
            kind: self.kind,
            tag: self.tag,
            args: &self.args,
            payload: &self.payload,
        }
    }

    /// What it takes here, about.
    fn len(&self) -> usize {
        size_of::<Self>() + 8 * self.args.len() + self.payload.len()
    }
}

impl Progress {
    /// Sends a message to a rank of the job, now or when there is room. In a handler, too. Messages of
    /// one thread to one peer stay in order.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::OnwardFull`], and the conduit's for a message that is too long.
    pub(crate) fn send_onward(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.send_or_keep(rank, message, MAX_KEPT_BYTES)
    }

    /// As [`send_onward`](Self::send_onward), without a limit: the result of a call, of which there is
    /// one for each that the peer made.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn send_result(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.send_or_keep(rank, message, usize::MAX)
    }

    fn send_or_keep(&self, rank: Rank, message: &Message<'_>, most: usize) -> Result<()> {
        // What is kept for the peer goes first.
        if !self.has_onward_for(rank) {
            let sent =
                (self.conduit.send(rank, message)).map_err(|cause| self.why_unsent(cause))?;
            if sent == Sent::Yes {
                return Ok(());
            }
        }
        self.conduit.caps().check(message)?;
        let kept = Kept::of(message);
        let mut onward = self.onward.lock();
        if onward.bytes + kept.len() > most {
            return Err(Error::OnwardFull { limit: most });
        }
        self.tally.one(Count::Stalls);
        onward.bytes += kept.len();
        onward.queues.entry(rank.0).or_default().push_back(kept);
        // With the lock held, so that it says what the last who looked has found.
        let began = self.set_backlog(Backlog::Onward, true);
        drop(onward);
        if began {
            self.look_after_backlog();
        }
        Ok(())
    }

    /// Sends what there is room for.
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
                let sent = self.conduit.send(Rank(peer), &kept.message());
                onward = self.onward.lock();
                if let Ok(Sent::Full) = sent {
                    onward.queues.entry(peer).or_default().push_front(kept);
                    break;
                }
                // Or the peer is gone; who waits for it is told by its standing.
                onward.bytes -= kept.len();
            }
        }
        let before = onward.queues.len();
        onward.queues.retain(|_, queue| !queue.is_empty());
        onward.sending = false;
        let some = onward.queues.len() < before;
        self.set_backlog(Backlog::Onward, !onward.queues.is_empty());
        drop(onward);
        if some {
            // A task may wait for that.
            self.wake_hopeful();
        }
    }

    /// Whether handlers have sent what is still here.
    pub(crate) fn has_onward(&self) -> bool {
        self.has_backlog_of(Backlog::Onward)
    }

    /// Whether any of that is for this peer, or is being sent to it.
    #[inline]
    pub(crate) fn has_onward_for(&self, rank: Rank) -> bool {
        self.has_onward() && self.keeps_for(rank)
    }

    #[cold]
    fn keeps_for(&self, rank: Rank) -> bool {
        // A queue stays until it was looked through.
        self.onward.lock().queues.contains_key(&rank.0)
    }
}
