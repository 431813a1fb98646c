//! The state that the rooms of an engine decide with, beside their own.

use rustc_hash::FxHashSet;

use super::local::LocalTable;
use crate::{
    BucketLimits, Config, Data, Decisions, EngineMessage, Error, OutgoingMessage, Strategy,
    strategy::{RemotePolicy, StrategyPolicy},
};

/// The state of all rooms: the setup, the lost peers, and the names given out.
#[derive(Debug)]
pub(super) struct EngineCommon {
    /// The settings of the engine; never changed.
    config: Config,
    /// The limits that follow from `config`, in buckets; never changed.
    limits: BucketLimits,
    /// The policy of the strategy on each side; never changed.
    policy: StrategyPolicy,
    /// The lost peers. Only `Engine::peer_lost` adds to them.
    lost: FxHashSet<u32>,
    /// The next name of a piece, a move, a transfer or a pull. Each name is given out once.
    next: u64,
    /// The number of peers' messages that broke the protocol.
    faults: u64,
}

/// One step of an engine: the foreign state that a room may use, and the decisions that it adds to.
pub(super) struct StepContext<'a> {
    pub(super) common: &'a mut EngineCommon,
    pub(super) local: &'a mut LocalTable,
    pub(super) out: &'a mut Decisions,
}

impl EngineCommon {
    pub(super) fn new(config: Config, limits: BucketLimits) -> Self {
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

    pub(super) fn limits(&self) -> &BucketLimits {
        &self.limits
    }

    pub(super) fn policy(&self) -> StrategyPolicy {
        self.policy
    }

    pub(super) fn is_lost(&self, peer: u32) -> bool {
        self.lost.contains(&peer)
    }

    /// Notes that a peer is lost; returns false if that was known.
    pub(super) fn lose(&mut self, peer: u32) -> bool {
        self.lost.insert(peer)
    }

    /// Counts a peer's message that broke the protocol.
    pub(super) fn count_fault(&mut self) {
        self.faults += 1;
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults
    }

    /// Checks that a rank is a peer, and not lost.
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

    /// The peers that are not lost.
    pub(super) fn peers(&self) -> impl Iterator<Item = u32> {
        let all = (0..self.config.ranks).filter(|peer| *peer != self.config.rank);
        all.filter(|peer| !self.is_lost(*peer))
    }

    /// The firehoses that this rank owns at each peer: none, if the strategy has no firehoses.
    pub(super) fn share(&self) -> u64 {
        match self.policy.remote {
            RemotePolicy::Firehose => self.limits.share,
            // Foresight moves firehoses ahead of need.
            _ if self.config.strategy == Strategy::Foresight => self.limits.share,
            RemotePolicy::Static
            | RemotePolicy::Copy
            | RemotePolicy::Handshake(_)
            | RemotePolicy::Paged => 0,
        }
    }

    /// The most bytes of data beside a message in the payload.
    pub(super) fn most_of_a_chunk(&self) -> u64 {
        let most = self
            .config
            .max_payload
            .saturating_sub(EngineMessage::CHUNK_BYTES);
        most.clamp(1, u32::MAX as usize) as u64
    }
}

impl StepContext<'_> {
    pub(super) fn config(&self) -> &Config {
        self.common.config()
    }

    pub(super) fn limits(&self) -> &BucketLimits {
        self.common.limits()
    }

    pub(super) fn policy(&self) -> StrategyPolicy {
        self.common.policy()
    }

    /// Gives out a name.
    pub(super) fn name(&mut self) -> u64 {
        self.common.next += 1;
        self.common.next - 1
    }

    pub(super) fn send(&mut self, to: u32, message: EngineMessage) {
        self.send_with(to, message, Data::None);
    }

    /// Sends a message and its data, unless the peer is lost.
    pub(super) fn send_with(&mut self, to: u32, message: EngineMessage, data: Data) {
        self.send_last_of(None, to, message, data);
    }

    /// As [`send_with`](Self::send_with), for the last message that reads the buffer of the
    /// operation `last_of`.
    pub(super) fn send_last_of(
        &mut self,
        last_of: Option<u64>,
        to: u32,
        message: EngineMessage,
        data: Data,
    ) {
        if !self.common.is_lost(to) {
            self.out.messages.push(OutgoingMessage {
                to,
                message,
                data,
                last_of,
                may_wait: false,
            });
        }
    }

    /// Sends a message that its own operation does not wait for; others may wait for it.
    pub(super) fn send_leisurely(&mut self, to: u32, message: EngineMessage) {
        if !self.common.is_lost(to) {
            self.out.messages.push(OutgoingMessage {
                to,
                message,
                data: Data::None,
                last_of: None,
                may_wait: true,
            });
        }
    }
}
