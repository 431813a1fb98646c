//! What a rank has to do with a peer, and what it has to hand up.

use std::collections::VecDeque;

use hydrant_conduit::{Error, OwnedMessage, Ticket};

use crate::{time::Time, transfer::Way};

/// Something that a poll hands up.
#[derive(Debug)]
pub(crate) enum Item {
    Request(usize, OwnedMessage),
    Reply(usize, OwnedMessage),
    Local(Ticket),
    Complete(Ticket, Result<(), Error>),
}

/// What a rank has to do with a peer.
#[derive(Default)]
pub(crate) struct Pair {
    /// Requests sent to it, and those of them that it has handled.
    pub(crate) sent: u64,
    pub(crate) handled: u64,
    /// Those that it has handled and whose replies have arrived, too: who asks for what was handled
    /// asks for these. There is room again before.
    pub(crate) settled: u64,
    /// Replies of its that are under way.
    pub(crate) coming: u64,
    /// Replies sent to it that it has not taken.
    pub(crate) replies: u64,
    /// Replies to it that wait for room, and when they were given: the handler's clock may be
    /// ahead of what has happened.
    pub(crate) kept: VecDeque<(Time, OwnedMessage)>,
    /// Its requests that wait until these are gone.
    pub(crate) held: VecDeque<OwnedMessage>,
    /// Its requests whose replies wait: not handled before these are gone.
    pub(crate) owed: u64,
    /// When the last request and the last reply to it were posted: no later one is posted earlier, though
    /// the clock of the thread that sends it be behind.
    pub(crate) posted: [Time; 2],
    pub(crate) way: Way,
}

impl Pair {
    /// A request was handled, or a reply has arrived.
    pub(crate) fn settle(&mut self) {
        if self.coming == 0 {
            self.settled = self.handled;
        }
    }

    /// Replies that wait for room, and requests that wait for these.
    pub(crate) fn kept_back(&self) -> (usize, usize) {
        (self.kept.len(), self.held.len())
    }
}
