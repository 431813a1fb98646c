//! The target: the peers' holds on own memory, the requests of peers in progress, and own memory
//! that is being taken back.
//!
//! It uses the local table below it, and knows nothing of the initiator.
//!
//! Small data is piggybacked on a move: the data of a small put, or the request for a small get's. The target handles and
//! answers it before it registers anything. So a miss costs its caller one round trip, and the keys follow in a
//! message of their own.

mod get;
mod holders;
mod moves;
mod peer_grants;
mod pull;
mod revoke;

use rustc_hash::FxHashMap;

use super::{
    context::StepContext, impossible::Noted, operation::AccessVerdict, usage::PeerFirehoses,
};
use crate::{Data, EngineMessage};
use holders::Holders;
use moves::ServedMove;
use pull::Pull;
use revoke::Revocation;

/// The target's state.
#[derive(Debug)]
pub(super) struct Target {
    /// Each peer's holds here, and sums over them.
    holders: Holders,
    /// Moves that wait for registrations, by name.
    served: FxHashMap<u64, ServedMove>,
    /// Pulls in progress, by name.
    pulls: FxHashMap<u64, Pull>,
    /// The number of announced pulls whose memory is being registered.
    preparing: u32,
    /// Transfers in flight for pulls, by name: the pull of each.
    writes: FxHashMap<u64, u64>,
    /// Own memory that is being taken back, by the driver's name.
    revocations: FxHashMap<u64, Revocation>,
    /// The counts of its work.
    stats: TargetStats,
    /// The impossible states that it met.
    impossible: Noted,
}

/// The counts of the target's work.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct TargetStats {
    /// Moves answered.
    pub(super) served: u64,
    /// Of those, moves that needed no registration.
    pub(super) served_from_cache: u64,
    /// Firehoses lent to peers beyond their share.
    pub(super) lent: u64,
    /// Firehoses asked back.
    pub(super) recalled: u64,
    /// Revocations begun.
    pub(super) revocations: u64,
    /// Runs of moves that could not be registered.
    pub(super) refused: u64,
}

impl Target {
    /// Makes a target; `sure` is the number of buckets that each peer is sure to find.
    pub(super) fn new(sure: u64) -> Self {
        Self {
            holders: Holders::new(sure),
            served: FxHashMap::default(),
            pulls: FxHashMap::default(),
            preparing: 0,
            writes: FxHashMap::default(),
            revocations: FxHashMap::default(),
            stats: TargetStats::default(),
            impossible: Noted::default(),
        }
    }

    pub(super) fn stats(&self) -> TargetStats {
        self.stats
    }

    pub(super) fn impossible(&self) -> &Noted {
        &self.impossible
    }

    /// The number of buckets that a peer has attached here, as far as this rank knows.
    pub(super) fn attached_by(&self, peer: u32) -> u64 {
        self.holders.attached_by(peer)
    }

    /// The firehoses that peers hold here.
    pub(super) fn holding(&self) -> impl Iterator<Item = PeerFirehoses> {
        self.holders.holding()
    }

    /// The number of firehoses that a peer was lent and not asked back for.
    pub(super) fn lent_to(&self, peer: u32) -> u64 {
        self.holders.lent_to(peer)
    }

    /// The references of peers, by slot of the local table.
    pub(super) fn audit(&self) -> Result<FxHashMap<u32, u32>, String> {
        self.holders.audit()
    }

    /// The size of the state in entries.
    pub(super) fn entries(&self) -> usize {
        let own = self.served.len() + self.pulls.len() + self.writes.len();
        own + self.revocations.len() + self.holders.entries()
    }

    /// Answers a put: its chunk was stored in own memory, or refused.
    pub(super) fn answer_put(
        &mut self,
        from: u32,
        id: u64,
        verdict: AccessVerdict,
        cx: &mut StepContext<'_>,
    ) {
        let refused = verdict.refusal();
        cx.send(from, EngineMessage::Stored { id, refused });
    }

    /// Forgets a lost peer with all its holds.
    pub(super) fn peer_lost(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        self.served.retain(|_, served| !served.is_of(peer));
        self.forget_pulls(peer);
        if let Some(slots) = self.holders.remove(peer) {
            for slot in slots {
                cx.local.detach(slot, false, cx.out);
            }
            cx.local.settle(cx.out);
        }
        self.forget_revocations_of(peer);
    }
}
