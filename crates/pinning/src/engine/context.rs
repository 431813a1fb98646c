//! What the rooms of an engine decide with, beside what each of them owns.

use rustc_hash::FxHashSet;

use super::local::Local;
use crate::{
    Config, Data, Decisions, Error, Limits, Message, Outgoing, Strategy,
    strategy::{Policy, Remote},
};

/// What is truly every room's: how the rank is set up, which peers are lost, and the names
/// already given out.
#[derive(Debug)]
pub(super) struct Common {
    /// As the engine was made with; never changed.
    config: Config,
    /// What follows from `config`, in buckets; never changed.
    limits: Limits,
    /// What the strategy does on each side; never changed.
    policy: Policy,
    /// Peers that are gone. Only the engine adds to it, in `peer_lost`.
    lost: FxHashSet<u32>,
    /// The next name of a piece, a move, a transfer or a pull: each is given out once.
    next: u64,
    /// Messages of peers that kept no rule so far.
    faults: u64,
}

/// One step of an engine: what a room may use of what others own, and where it says what is to
/// be done.
pub(super) struct Context<'a> {
    pub(super) common: &'a mut Common,
    pub(super) local: &'a mut Local,
    pub(super) out: &'a mut Decisions,
}

impl Common {
    pub(super) fn new(config: Config, limits: Limits) -> Self {
        Self {
            policy: config.strategy.policy(),
            config,
            limits,
            lost: FxHashSet::default(),
            next: 1,
            faults: 0,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    pub(super) fn is_lost(&self, peer: u32) -> bool {
        self.lost.contains(&peer)
    }

    /// Notes that a peer is gone; `false` if that was known.
    pub(super) fn lose(&mut self, peer: u32) -> bool {
        self.lost.insert(peer)
    }

    /// A message of a peer kept no rule.
    pub(super) fn count_fault(&mut self) {
        self.faults += 1;
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults
    }

    /// Whether a rank is a peer that is still there.
    pub(super) fn check_peer(&self, peer: u32) -> Result<(), Error> {
        let Config { rank, ranks, .. } = self.config;
        if self.is_lost(peer) {
            return Err(Error::PeerLost(peer));
        }
        if peer < ranks && peer != rank {
            return Ok(());
        }
        Err(Error::NoPeer {
            rank: peer,
            ranks,
            own: rank,
        })
    }

    /// The peers that are still there.
    pub(super) fn peers(&self) -> impl Iterator<Item = u32> {
        let all = (0..self.config.ranks).filter(|peer| *peer != self.config.rank);
        all.filter(|peer| !self.is_lost(*peer))
    }

    /// Firehoses that this rank owns at each peer: none, if the strategy has no firehoses.
    pub(super) fn share(&self) -> u64 {
        match self.policy.remote {
            Remote::Firehose => self.limits.share,
            // Those that are moved ahead.
            _ if self.config.strategy == Strategy::Foresight => self.limits.share,
            Remote::Static | Remote::Copy | Remote::Handshake(_) | Remote::Paged => 0,
        }
    }

    /// Most bytes of data beside a message in the payload.
    pub(super) fn most_of_a_chunk(&self) -> u64 {
        let most = self.config.max_payload.saturating_sub(Message::CHUNK_BYTES);
        most.clamp(1, u32::MAX as usize) as u64
    }
}

impl Context<'_> {
    pub(super) fn config(&self) -> &Config {
        self.common.config()
    }

    pub(super) fn limits(&self) -> &Limits {
        self.common.limits()
    }

    pub(super) fn policy(&self) -> Policy {
        self.common.policy()
    }

    /// A name that was not given out before.
    pub(super) fn name(&mut self) -> u64 {
        self.common.next += 1;
        self.common.next - 1
    }

    pub(super) fn send(&mut self, to: u32, message: Message) {
        self.send_with(to, message, Data::None);
    }

    /// Sends a message and what follows it, unless the peer is lost.
    pub(super) fn send_with(&mut self, to: u32, message: Message, data: Data) {
        self.send_last_of(None, to, message, data);
    }

    /// As [`send_with`](Self::send_with), what is the last that an operation reads of its buffer.
    pub(super) fn send_last_of(
        &mut self,
        last_of: Option<u64>,
        to: u32,
        message: Message,
        data: Data,
    ) {
        if !self.common.is_lost(to) {
            self.out.messages.push(Outgoing {
                to,
                message,
                data,
                last_of,
                may_wait: false,
            });
        }
    }

    /// Sends a message that the operation which asked for it does not wait for any more; others may.
    pub(super) fn send_leisurely(&mut self, to: u32, message: Message) {
        if !self.common.is_lost(to) {
            self.out.messages.push(Outgoing {
                to,
                message,
                data: Data::None,
                last_of: None,
                may_wait: true,
            });
        }
    }
}
