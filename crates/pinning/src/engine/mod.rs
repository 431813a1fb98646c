//! The engine of a rank: operations and messages go in, decisions come out.
//!
//! It sends nothing, registers nothing, copies nothing and knows no time. Its driver carries its
//! [decisions](Decisions) out and reports back. The driver holds the engine behind one lock, which
//! it never holds while it carries decisions out. Hits bypass the engine, through [`Hot`].
//!
//! Three rooms own its state. The *local table* owns the registrations of own memory, their users
//! and the order of eviction. The *initiator* owns the operations of this rank, their pieces and
//! the firehoses held for them. The *target* owns the peers' holds on own memory and their pending
//! requests. Initiator and target stand on the local table, and know nothing of each other.
//!
//! An *operation* is cut into *pieces*, small enough that the peer's firehoses and the own limits
//! hold one. A piece first gets the remote side: firehoses that are there, or moves. Then it gets
//! the local side, by a request on own memory while moves are in flight. Then it transfers. Memory
//! that cannot be registered is copied through messages.
//!
//! Under the strategy `auto` the initiator asks the [choice] for the route of a piece. The choice
//! knows nothing of pieces, only the times of the routes and the misses.
//!
//! No wait is circular. A piece that waits for firehoses holds nothing. A piece that waits for own
//! memory holds firehoses, and own memory comes back from pieces that have all they need. The
//! target answers a move or a pull without waiting for anybody, by a refusal if need be. Then the
//! data is copied, which needs no registration.
//!
//! A name that is wrong in a peer's message is [`Error::Malformed`], counted in [`Stats::faults`].

mod agree;
mod audit;
mod choice;
mod context;
mod impossible;
mod initiator;
mod local;
mod operation;
mod own_memory;
mod pattern;
mod peer_memory;
mod stats;
mod target;
#[cfg(test)]
mod tests;
mod times;
mod usage;

use std::sync::Arc;

pub use impossible::Impossible;
pub use initiator::{Attached, Detached, TimedHit};
pub use local::{CrowdedOut, GivenUp, LocalStats};
pub use operation::{AccessVerdict, EngineOperation, OwnMemory};
pub use stats::Stats;
pub use usage::{BucketUsage, PeerFirehoses};

use crate::{
    Action, BucketLimits, Config, Decisions, EngineMessage, Error, Hot, KeptHit, Refusal,
    RegisteredExtent, Strategy,
    strategy::{LocalPolicy, RemotePolicy},
};
use choice::RouteChoice;
use context::{EngineCommon, StepContext};
use impossible::Noted;
use initiator::{AnswerTo, Initiator};
use local::{LocalTable, Requester};
use target::Target;

/// Decides what is registered at one rank: composes the rooms, and routes events to them.
#[derive(Debug)]
pub struct Engine {
    /// The state that all rooms read: setup, limits, lost peers, the next name.
    common: EngineCommon,
    /// The part that threads share; its tables belong to the rooms.
    hot: Arc<Hot>,
    /// The registrations of own memory. Both other rooms use it.
    local: LocalTable,
    /// The operations of this rank, and the firehoses held for them.
    initiator: Initiator,
    /// The peers' holds on own memory, and their pending requests.
    target: Target,
}

impl Engine {
    /// Makes an engine with these settings.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn new(config: Config) -> Result<Self, Error> {
        let limits = config.check()?;
        let common = EngineCommon::new(config, limits);
        let (config, policy) = (common.config(), common.policy());
        let adaptive = config.adaptive_victims || policy.remote != RemotePolicy::Firehose;
        // Firehoses stay after an operation, so M bounds them. Registrations for one operation
        // alone may take all.
        let peers = match common.share() {
            0 => limits.total,
            _ => limits.peers_total,
        };
        let local = LocalTable::new(config.rank, limits, adaptive, peers);
        let caches = policy.local == LocalPolicy::Cached
            && matches!(policy.remote, RemotePolicy::Firehose | RemotePolicy::Static);
        let table = Arc::clone(local.table());
        let hot = Arc::new(Hot::new(limits.geometry, config.ranks, caches, table));
        let choice = (config.strategy == Strategy::Auto)
            .then(|| RouteChoice::new(Arc::clone(&hot), config, limits.share));
        Ok(Self {
            initiator: Initiator::new(Arc::clone(&hot), common.share(), choice),
            target: Target::new(limits.sure),
            common,
            hot,
            local,
        })
    }

    /// The part that threads share.
    pub fn hot(&self) -> &Arc<Hot> {
        &self.hot
    }

    /// The limits in force.
    pub fn limits(&self) -> &BucketLimits {
        self.common.limits()
    }

    /// The counts of the engine's work so far.
    pub fn stats(&self) -> Stats {
        let (own, served) = (self.initiator.stats(), self.target.stats());
        Stats {
            local: self.local.stats(),
            served: served.served,
            served_from_cache: served.served_from_cache,
            lent: served.lent,
            recalled: served.recalled,
            revocations: served.revocations,
            refused: own.refused + served.refused,
            faults: self.common.faults(),
            impossible: self.noted().map(Noted::count).iter().sum(),
            ..own
        }
    }

    /// The impossible states that the engine met, if any.
    pub fn impossible(&self) -> Option<Impossible> {
        Noted::sum(&self.noted())
    }

    fn noted(&self) -> [&Noted; 3] {
        let (own, target) = (self.initiator.impossible(), self.target.impossible());
        [own, target, self.local.impossible()]
    }

    /// The number of operations in flight.
    pub fn busy(&self) -> usize {
        self.initiator.busy()
    }

    /// The number of firehoses attached to a peer's buckets, and the most that there may be.
    pub fn firehoses(&self, peer: u32) -> (u64, u64) {
        self.initiator.firehoses(peer)
    }

    /// Begins an operation. [`Action::Done`] ends it, at once if the peer is lost.
    ///
    /// # Errors
    /// [`Error::NoPeer`], [`Error::Overflow`]; then nothing began.
    pub fn begin(&mut self, operation: EngineOperation, out: &mut Decisions) -> Result<(), Error> {
        match self.common.check_peer(operation.peer) {
            Err(lost @ Error::PeerLost(_)) => {
                if let Ok(local) = self.limits().geometry.span(operation.local, operation.len) {
                    self.local.recover_missed_release(local.first, out);
                    self.pump(out);
                }
                out.actions.push(Action::Done {
                    op: operation.id,
                    result: Err(lost),
                });
                return Ok(());
            }
            outcome => outcome?,
        }
        let geometry = self.limits().geometry;
        let local = geometry.span(operation.local, operation.len)?;
        let remote = geometry.span(operation.remote, operation.len)?;
        if !operation.copied {
            // The attempt to hit may have held one side for a moment, without a word to a waiter.
            self.local.recover_missed_release(local.first, out);
            let (initiator, _, cx) = &mut self.rooms(out);
            initiator.recover_missed_release(operation.peer, remote.first, cx);
        }
        let (initiator, _, cx) = &mut self.rooms(out);
        initiator.begin(operation, cx);
        self.pump(out);
        Ok(())
    }

    /// Handles a message from a peer. `verdict` is the driver's judgment of the message's access to
    /// own memory. If the message [goes to](EngineMessage::goes_to) own memory, the driver has stored its
    /// data there, unless it refused.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::NoPeer`]: the engine has ignored the wrong part. The
    /// operation that the message was to answer has failed.
    pub fn message(
        &mut self,
        from: u32,
        message: EngineMessage,
        verdict: AccessVerdict,
        out: &mut Decisions,
    ) -> Result<(), Error> {
        match self.common.check_peer(from) {
            // The message was in flight when the peer was lost.
            Err(Error::PeerLost(_)) => return Ok(()),
            outcome => outcome?,
        }
        let answered = AnswerTo::of_message(&message);
        let (initiator, target, cx) = &mut self.rooms(out);
        let outcome = match message {
            EngineMessage::Granted(granted) => initiator.on_granted(from, granted, cx),
            EngineMessage::Stored { id, refused } => initiator.on_stored(from, id, refused, cx),
            EngineMessage::Fetched {
                id,
                refused,
                len,
                room,
            } => {
                initiator.note_room(from, room);
                initiator.on_fetched(from, id, refused, len, cx)
            }
            EngineMessage::Pulled {
                id,
                refused,
                registered,
            } => initiator.on_pulled(from, id, refused, registered, cx),
            EngineMessage::Recall { count } => {
                initiator.on_recall(from, count, cx);
                Ok(())
            }
            EngineMessage::Revoke { id, run } => initiator.on_revoke(from, id, run, cx),
            EngineMessage::Move(wanted) => target.serve_move(from, wanted, verdict, cx),
            EngineMessage::Release { runs, unpin } => target.on_release(from, &runs, unpin, cx),
            EngineMessage::Put { id, .. } => {
                target.answer_put(from, id, verdict, cx);
                Ok(())
            }
            EngineMessage::Get {
                id,
                region,
                from: addr,
                len,
            } => {
                target.serve_get(from, id, (region, addr, len), verdict.refusal(), cx);
                Ok(())
            }
            EngineMessage::Ahead { from, len, .. } => {
                target.on_ahead(from, len, verdict, cx);
                Ok(())
            }
            EngineMessage::Pull {
                id, from: addr, to, ..
            } => target.serve_pull(from, id, addr, to, verdict, cx),
            EngineMessage::Revoked { id, runs } => target.on_revoked(from, id, &runs, cx),
        };
        let outcome = outcome.map_err(|what| Error::Malformed { peer: from, what });
        if let Err(cause) = &outcome {
            cx.common.count_fault();
            if let Some(answered) = answered {
                initiator.fail_answered(from, answered, cause, cx);
            }
        }
        self.pump(out);
        outcome
    }

    /// Reports that a registration ended.
    pub fn registered(
        &mut self,
        id: u64,
        result: Result<RegisteredExtent, Refusal>,
        out: &mut Decisions,
    ) {
        self.local.registered(id, result, out);
        self.pump(out);
    }

    /// Reports that a deregistration ended.
    pub fn deregistered(&mut self, id: u64, out: &mut Decisions) {
        self.local.deregistered(id, out);
        self.pump(out);
    }

    /// Reports that a transfer ended.
    pub fn transferred(&mut self, id: u64, result: Result<(), Error>, out: &mut Decisions) {
        let (initiator, target, cx) = &mut self.rooms(out);
        match initiator.take_transfer(id) {
            Some(piece) => initiator.transfer_done(piece, result, cx),
            None => target.transferred(id, result.is_ok(), cx),
        }
        self.pump(out);
    }

    /// Reports that a hit was [released](Hot::release) that an operation waits for.
    pub fn released(&mut self, hit: &KeptHit, out: &mut Decisions) {
        self.give_back(hit, out);
        self.pump(out);
    }

    fn give_back(&mut self, hit: &KeptHit, out: &mut Decisions) {
        if let Some(slot) = hit.local_slot() {
            self.local.released(slot, out);
        }
        let (initiator, _, cx) = &mut self.rooms(out);
        initiator.released(hit.peer, hit.remote_slot, cx);
    }

    /// Reports that a peer is lost. Operations that wait for it fail, and its holds are given back.
    /// Operations with transfers in flight end when the network has ended those.
    pub fn peer_lost(&mut self, peer: u32, out: &mut Decisions) {
        if !self.common.lose(peer) {
            return;
        }
        let (initiator, target, cx) = &mut self.rooms(out);
        initiator.peer_lost(peer, cx);
        target.peer_lost(peer, cx);
        self.pump(out);
    }

    /// The two rooms that stand on the local table, and the context of their decisions.
    fn rooms<'a>(
        &'a mut self,
        out: &'a mut Decisions,
    ) -> (&'a mut Initiator, &'a mut Target, StepContext<'a>) {
        let Self {
            common,
            local,
            initiator,
            target,
            ..
        } = self;
        (initiator, target, StepContext { common, local, out })
    }

    /// Routes finished requests to their rooms until none is left.
    fn pump(&mut self, out: &mut Decisions) {
        for hit in self.hot.take_missed() {
            self.give_back(&hit, out);
        }
        let (initiator, target, cx) = &mut self.rooms(out);
        loop {
            let done = cx.local.take_done();
            if done.is_empty() {
                break;
            }
            for (requester, request) in done {
                match requester {
                    Requester::Piece(id) | Requester::Transient(id) => {
                        initiator.local_side_done(id, cx)
                    }
                    Requester::Move(id) => target.answer_move(id, request, cx),
                    Requester::Pull(id) => target.pull_data(id, request, cx),
                    Requester::Ahead => target.end_announced(request, cx),
                    Requester::Pin(id) => target.answer_pin(id, request, cx),
                    Requester::Keep(id) => cx.local.answer_keep(id, request, cx.out),
                    Requester::Own(id) | Requester::Held(id, _) => {
                        cx.local.answer_hold(id, request, cx.out)
                    }
                    Requester::Foreseen(id) | Requester::Background(id) => {
                        cx.local.answer_foreseen(id, request, cx.out)
                    }
                }
            }
        }
        target.finish_revocations(cx);
        self.update_hot_flags();
    }

    /// Tells the hits to ask first or not, and to report their release if an operation waits.
    fn update_hot_flags(&self) {
        let crowded = self.local.is_crowded() || self.initiator.is_crowded();
        let unanswered = self.target.has_unanswered();
        (self.hot).set_turned(crowded, self.initiator.asks(), unanswered);
    }
}
