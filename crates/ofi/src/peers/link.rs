//! The link to one peer: the session, the stream of messages, and the accesses that wait or are in flight.
//!
//! A link is *up* while a session is confirmed. An operation that fails breaks it: the provider dropped the connection.
//! The link is then idle until every operation with the provider has ended. Then a new session begins, and both ranks
//! tell each other how many messages and writes of the other they have. So the fate of each is known: messages that did
//! not arrive are sent again, writes that landed are done. Of any other access the peer is asked whether its key is
//! still in force, because a refused access breaks the connection, too.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use rustc_hash::FxHashSet;

use crate::{
    keys::ProviderKeys,
    session::{Greeting, Sessions},
    slots::SendBuffer,
};

/// The phase of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing was sent yet.
    Unused,
    /// No session: one is to be asked for, or was.
    Down,
    /// A session is confirmed.
    Up,
    /// The peer left or is lost.
    Ended,
}

/// The state of this rank's stream and writes at the peer, as told at the begin of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    /// The number of the last message that the peer has.
    pub(crate) received: u32,
    /// How many writes landed there.
    pub(crate) writes: u64,
}

/// A session that the peer asked for, and did not confirm yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingSession {
    /// The peer's hello.
    pub(crate) hello: Greeting,
    /// This rank's fresh number.
    pub(crate) answered: u64,
    /// The token by which the peer confirms.
    pub(crate) token: u64,
}

/// The knowledge of a peer that sessions with it need.
#[derive(Clone, Copy)]
pub(crate) struct Acquaintance {
    /// The socket address of its endpoint, if it has one.
    pub(crate) at: Option<SocketAddr>,
    pub(crate) sessions: Sessions,
    /// The keys of its memory.
    pub(crate) keys: ProviderKeys,
}

/// The link to one peer.
pub(crate) struct Link {
    pub(crate) known_as: Acquaintance,
    pub(crate) phase: Phase,
    /// The token of messages to the peer.
    pub(crate) token: u64,
    /// The fresh number of this rank's last hello, while it is unanswered.
    pub(crate) asked: Option<u64>,
    /// The fresh number of the hello by which the last session began. A copy of that hello may come late.
    pub(crate) last_asked: u64,
    /// A session that the peer asked for.
    pub(crate) pending: Option<PendingSession>,
    /// The state at the peer, while operations of the last session are still with the provider.
    pub(crate) resumption: Option<Resumption>,
    /// Since when the link is down.
    pub(crate) down_since: Instant,
    /// When to send the next hello.
    pub(crate) next_hello: Instant,
    /// The time from that hello to the one after it. Zero before the first.
    pub(crate) hello_pause: Duration,
    /// The number of the last message of the stream.
    pub(crate) sent: u32,
    /// How many messages of the layer above are among them.
    pub(crate) sent_above: u32,
    /// The number of the last message that was posted.
    pub(crate) posted: u32,
    /// The messages that the peer may not have, in order. The last has the number `sent`.
    pub(crate) kept: VecDeque<SendBuffer>,
    /// Accesses to post.
    pub(crate) queue: VecDeque<u32>,
    /// Accesses and messages with the provider that will complete.
    pub(crate) in_flight: u32,
    /// Accesses whose fate is unknown, because the connection broke.
    pub(crate) unknown: Vec<u32>,
    /// Accesses that the peer was asked about.
    pub(crate) asked_about: Vec<u32>,
    /// True once the peer refused an access: then it is asked about each key before its first use, because a refusal
    /// breaks the connection.
    pub(crate) is_cautious: bool,
    /// Keys that the peer permitted lately, while the link is cautious.
    pub(crate) known_keys: FxHashSet<u64>,
    /// True if the peer said that it leaves. Only messages between conduits go to it.
    pub(crate) is_closing: bool,
    /// The number of the last write posted.
    pub(crate) written: u64,
    /// True if the link is listed for the next flush.
    pub(crate) is_listed: bool,
    /// True once the connections with the peer were ended.
    pub(crate) is_cut: bool,
    /// Without a job: true once it is known that the peer is there.
    pub(crate) is_proved: bool,
}

impl Link {
    pub(crate) fn new(known_as: Acquaintance) -> Self {
        let now = Instant::now();
        Self {
            known_as,
            phase: Phase::Unused,
            token: 0,
            asked: None,
            last_asked: 0,
            pending: None,
            resumption: None,
            down_since: now,
            next_hello: now,
            hello_pause: Duration::ZERO,
            sent: 0,
            sent_above: 0,
            posted: 0,
            kept: VecDeque::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            unknown: Vec::new(),
            asked_about: Vec::new(),
            is_cautious: false,
            known_keys: FxHashSet::default(),
            is_closing: false,
            written: 0,
            is_listed: false,
            is_cut: false,
            is_proved: false,
        }
    }

    /// Returns the number of the first kept message.
    #[inline]
    pub(crate) fn first_kept(&self) -> u32 {
        self.sent
            .wrapping_sub(self.kept.len() as u32)
            .wrapping_add(1)
    }

    /// Removes and returns the first kept message, if the peer has it.
    #[inline]
    pub(crate) fn take_known(&mut self, known: u32) -> Option<SendBuffer> {
        let ahead = known.wrapping_sub(self.first_kept());
        // A number before the first kept message, or after the last, wraps to a large one.
        ((ahead as usize) < self.kept.len()).then(|| self.kept.pop_front())?
    }

    /// Returns the next message to post, with its number.
    #[inline]
    pub(crate) fn next_unposted(&mut self) -> Option<(u32, &mut SendBuffer)> {
        if self.posted == self.sent {
            return None;
        }
        let number = self.posted.wrapping_add(1);
        let place = number.wrapping_sub(self.first_kept());
        self.kept.get_mut(place as usize).map(|slot| (number, slot))
    }

    /// Returns true if nothing waits and nothing is in flight or unknown to the peer.
    pub(crate) fn is_settled(&self) -> bool {
        self.kept.is_empty()
            && self.queue.is_empty()
            && self.in_flight == 0
            && self.unknown.is_empty()
            && self.asked_about.is_empty()
    }
}
