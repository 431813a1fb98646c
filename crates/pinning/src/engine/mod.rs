//! The engine of a rank: operations and messages go in, things to do come out.
//!
//! It sends nothing, registers nothing, copies nothing and knows no time; its driver carries its
//! [decisions](Decisions) out and reports back. The driver holds it behind one lock, which it
//! never holds while it does those things. Hits pass it by, through [`Hot`].
//!
//! Three rooms own its state, the lower not knowing of the higher: the *local table* (what of own
//! memory is registered, for whom, and what goes first), and on it the *initiator* (own operations,
//! their pieces, the firehoses held for them) and the *target* (what peers hold here, and what
//! they asked for), which know nothing of each other.
//!
//! An *operation* is cut into *pieces*, small enough that the peer's firehoses and the own
//! limits hold one. A piece first gets the remote side (firehoses that are there, or moves), then
//! the local side (a request on own memory, made while moves are under way), then transfers.
//! What cannot be registered is copied through messages.
//!
//! By the strategy `auto` the initiator asks the [choice] which way a piece goes; that knows
//! nothing of pieces, only what ways took and what was missed.
//!
//! Nothing waits in a circle: who waits for firehoses holds nothing; who waits for own memory
//! holds firehoses, and own memory is given back by those that have all they need; a move or a
//! pull of a peer is answered without waiting for anybody, if need be by a refusal, and then
//! the data is copied, which needs nothing.

mod agree;
mod audit;
mod choice;
mod context;
mod impossible;
mod initiator;
mod local;
mod operation;
mod pattern;
mod stats;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use impossible::Impossible;
pub use initiator::{Attached, Detached, TimedHit};
pub use local::{CrowdedOut, GivenUp, LocalStats};
pub use operation::{Operation, Own, Verdict};
pub use stats::Stats;

use crate::{
    Action, Config, Decisions, Direction, Error, Hot, KeptHit, Limits, Message, Refusal, Region,
    Registered, Run, Strategy, Use, Violation,
    strategy::{Local as LocalPolicy, Remote},
    wire::Grant,
};
use choice::Choice;
use context::{Common, Context};
use impossible::Noted;
use initiator::{Answered, Initiator};
use local::{Local, Requester};
use target::Target;

/// Decides what is registered, at one rank: composes the rooms, and routes what comes in to them.
#[derive(Debug)]
pub struct Engine {
    /// What all rooms read: setup, limits, lost peers, the next name.
    common: Common,
    /// What threads share; its tables are those of the rooms.
    hot: Arc<Hot>,
    /// What of own memory is registered, and for whom. Both other rooms use it.
    local: Local,
    /// Own operations, and the firehoses held for them.
    initiator: Initiator,
    /// What peers hold of own memory, and what they asked for.
    target: Target,
}

impl Engine {
    /// An engine that decides as `config` says.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn new(config: Config) -> Result<Self, Error> {
        let limits = config.check()?;
        let common = Common::new(config, limits);
        let (config, policy) = (common.config(), common.policy());
        let adaptive = config.adaptive_victims || policy.remote != Remote::Firehose;
        // Firehoses stay when an operation is over, so that M bounds them. What is held for an operation
        // alone may take all.
        let peers = match common.share() {
            0 => limits.total,
            _ => limits.peers_total,
        };
        let local = Local::new(config.rank, limits, adaptive, peers);
        let caches = policy.local == LocalPolicy::Cached
            && matches!(policy.remote, Remote::Firehose | Remote::Static);
        let table = Arc::clone(local.table());
        let hot = Arc::new(Hot::new(limits.geometry, config.ranks, caches, table));
        let choice = (config.strategy == Strategy::Auto)
            .then(|| Choice::new(Arc::clone(&hot), config, limits.share));
        Ok(Self {
            initiator: Initiator::new(Arc::clone(&hot), common.share(), choice),
            target: Target::new(limits.sure),
            common,
            hot,
            local,
        })
    }

    /// What threads share of it.
    pub fn hot(&self) -> &Arc<Hot> {
        &self.hot
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        self.common.limits()
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        let (own, served) = (self.initiator.stats(), self.target.stats());
        Stats {
            local: self.local.stats(),
            served: served.served,
            served_from_cache: served.served_from_cache,
            lent: served.lent,
            recalled: served.recalled,
            refused: own.refused + served.refused,
            faults: self.common.faults(),
            impossible: self.noted().map(Noted::count).iter().sum(),
            ..own
        }
    }

    /// The impossible states that it met, if any.
    pub fn impossible(&self) -> Option<Impossible> {
        Noted::sum(&self.noted())
    }

    fn noted(&self) -> [&Noted; 3] {
        let (own, target) = (self.initiator.impossible(), self.target.impossible());
        [own, target, self.local.impossible()]
    }

    /// Operations under way.
    pub fn busy(&self) -> usize {
        self.initiator.busy()
    }

    /// Firehoses attached to a peer's buckets, and how many there may be.
    pub fn firehoses(&self, peer: u32) -> (u64, u64) {
        self.initiator.firehoses(peer)
    }

    /// Begins an operation; [`Action::Done`] ends it, at once if the peer is lost.
    ///
    /// # Errors
    /// [`Error::NoPeer`], [`Error::Overflow`]; nothing was begun then.
    pub fn begin(&mut self, operation: Operation, out: &mut Decisions) -> Result<(), Error> {
        match self.common.check_peer(operation.peer) {
            Err(lost @ Error::PeerLost(_)) => {
                if let Ok(local) = self.limits().geometry.span(operation.local, operation.len) {
                    self.local.missed(local.first, out);
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
            // It may have held one side for a moment when it was to be a hit, and told nobody.
            self.local.missed(local.first, out);
            let (initiator, _, cx) = &mut self.rooms(out);
            initiator.missed(operation.peer, remote.first, cx);
        }
        let (initiator, _, cx) = &mut self.rooms(out);
        initiator.begin(operation, cx);
        self.pump(out);
        Ok(())
    }

    /// A message came. `verdict` judges what it asks of own memory; the data of one that
    /// [goes to](Message::goes_to) own memory has been stored there if it is not refused.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::NoPeer`]: it has been left undone as far as it was wrong;
    /// what it was to answer has failed.
    pub fn message(
        &mut self,
        from: u32,
        message: Message,
        verdict: Verdict,
        out: &mut Decisions,
    ) -> Result<(), Error> {
        match self.common.check_peer(from) {
            // It was on its way when the peer was lost.
            Err(Error::PeerLost(_)) => return Ok(()),
            outcome => outcome?,
        }
        let answered = Answered::by(&message);
        let (initiator, target, cx) = &mut self.rooms(out);
        let outcome = match message {
            Message::Granted(granted) => initiator.granted(from, granted, cx),
            Message::Stored { id, refused } => initiator.stored(from, id, refused, cx),
            Message::Fetched {
                id,
                refused,
                len,
                room,
            } => {
                initiator.told_of_room(from, room);
                initiator.fetched(from, id, refused, len, cx)
            }
            Message::Pulled {
                id,
                refused,
                registered,
            } => initiator.pulled(from, id, refused, registered, cx),
            Message::Recall { count } => {
                initiator.recalled(from, count, cx);
                Ok(())
            }
            Message::Revoke { id, run } => initiator.revoking(from, id, run, cx),
            Message::Move(wanted) => target.serve_move(from, wanted, verdict, cx),
            Message::Release { runs, unpin } => target.given_back(from, &runs, unpin, cx),
            Message::Put { id, .. } => {
                target.put_stored(from, id, verdict, cx);
                Ok(())
            }
            Message::Get {
                id,
                region,
                from: addr,
                len,
            } => {
                target.serve_get(from, id, (region, addr, len), verdict.refusal(), cx);
                Ok(())
            }
            Message::Ahead { from, len, .. } => {
                target.prepare(from, len, verdict, cx);
                Ok(())
            }
            Message::Pull {
                id, from: addr, to, ..
            } => target.serve_pull(from, id, addr, to, verdict, cx),
            Message::Revoked { id, runs } => target.revoked_by(from, id, &runs, cx),
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

    /// A registration was done, or failed.
    pub fn registered(
        &mut self,
        id: u64,
        result: Result<Registered, Refusal>,
        out: &mut Decisions,
    ) {
        self.local.registered(id, result, out);
        self.pump(out);
    }

    /// A deregistration was done.
    pub fn deregistered(&mut self, id: u64, out: &mut Decisions) {
        self.local.deregistered(id, out);
        self.pump(out);
    }

    /// A transfer was done, or failed.
    pub fn transferred(&mut self, id: u64, result: Result<(), Error>, out: &mut Decisions) {
        let (initiator, target, cx) = &mut self.rooms(out);
        match initiator.take_transfer(id) {
            Some(piece) => initiator.transfer_done(piece, result, cx),
            None => target.transferred(id, result.is_ok(), cx),
        }
        self.pump(out);
    }

    /// Whether a peer takes memory back that this rank has not given back yet.
    pub fn is_asked_back(&self) -> bool {
        self.initiator.is_asked_back()
    }

    /// Whether the time of the driver is of use when an operation begins: to `auto`, now and then.
    pub fn wants_time(&self) -> bool {
        self.initiator.wants_time()
    }

    /// Whether it is of use in any step: something is being timed.
    pub fn is_timing(&self) -> bool {
        self.initiator.is_timing()
    }

    /// The time, in nanoseconds by a clock that the driver keeps to, before a step.
    pub fn tell_time(&mut self, now: u64) {
        self.initiator.tell_time(now);
    }

    /// The next miss of a peer's memory there is attached, if it can be, whatever that costs: somebody
    /// needs it registered and nothing else.
    pub fn want(&mut self, peer: u32, addr: u64) {
        let bucket = self.limits().geometry.bucket_of(addr);
        if let Some(choice) = self.initiator.choice() {
            choice.want(peer, bucket);
        }
    }

    /// An operation that had to [ask](Hot::ask) holds both sides, and whoever posts it waits until it is over:
    /// whether it is posted at once, and what it took is [told](Self::hit_took). Else it goes to the
    /// engine.
    pub fn time_hit(&mut self, peer: u32, direction: Direction, len: u64) -> Option<TimedHit> {
        self.initiator.time_hit(peer, direction, len)
    }

    /// A hit that was to be timed took so many nanoseconds.
    pub fn hit_took(&mut self, timed: TimedHit, nanos: u64) {
        self.initiator.hit_took(timed, nanos);
        self.turn();
    }

    /// A hit was [released](Hot::release) that somebody waits for.
    pub fn released(&mut self, hit: &KeptHit, out: &mut Decisions) {
        if let Some(slot) = hit.local_slot() {
            self.local.released(slot, out);
        }
        let (initiator, _, cx) = &mut self.rooms(out);
        initiator.released(hit.peer, hit.remote_slot, cx);
        self.pump(out);
    }

    /// A peer is gone: what waits for it fails, what it held is given back. Operations that have
    /// transfers under way end when the network has ended those.
    pub fn peer_lost(&mut self, peer: u32, out: &mut Decisions) {
        if !self.common.lose(peer) {
            return;
        }
        let (initiator, target, cx) = &mut self.rooms(out);
        initiator.peer_lost(peer, cx);
        target.peer_lost(peer, cx);
        self.pump(out);
    }

    /// Registers memory for good, all of it or none; [`Action::Pinned`] tells.
    pub fn pin(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.local.pin(id, run, out);
        self.pump(out);
    }

    /// Registers memory of the rank's own for good, all of it or none, as a part of what may be
    /// registered beside M; [`Action::Pinned`] tells.
    pub fn keep(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.local.keep(id, run, out);
        self.pump(out);
    }

    /// Sets a few buckets of what may be registered beside M aside for
    /// [`hold_own`](Self::hold_own), which then finds room whatever operations are under way;
    /// `false` if there is too little.
    pub fn reserve_for_own(&mut self) -> bool {
        self.local.set_reserve()
    }

    /// Holds own memory that [`Hot::hit_local`] did not find, for the own NIC to change it;
    /// [`Action::Pinned`] tells its key, or that there is no room for it now.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn hold_own(
        &mut self,
        id: u64,
        addr: u64,
        len: u64,
        out: &mut Decisions,
    ) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, len)?;
        self.local.hold_own(id, run, out);
        self.pump(out);
        Ok(())
    }

    /// Gives back what [`hold_own`](Self::hold_own) or [`hold`](Self::hold) held. It stays registered as a victim,
    /// unless it does not last: then it is deregistered, at once if no operation uses a part of it.
    pub fn release_own(&mut self, id: u64, out: &mut Decisions) {
        self.local.release_own(id, out);
        self.pump(out);
    }

    /// Holds own memory registered for a transfer that is none of [`begin`](Self::begin), as one that a peer does
    /// who is told the keys; [`Action::Pinned`] tells them, or that there is no room for it now. `lasts`: the
    /// memory stays what it is until [`revoke`](Self::revoke) says otherwise.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn hold(
        &mut self,
        id: u64,
        (addr, len): (u64, u64),
        (used, lasts): (Use, bool),
        out: &mut Decisions,
    ) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, len)?;
        // Some strategies keep nothing of their own beyond its use.
        let lasts = lasts && self.common.policy().local != LocalPolicy::PerOperation;
        self.local.hold_for(id, run, (used, lasts), out);
        self.pump(out);
        Ok(())
    }

    /// Registers own memory that is expected to be needed soon, as far as it is not; [`Action::Pinned`]
    /// tells when that is done, or that there is no room. Nothing holds it then: it is a victim until
    /// somebody uses it.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn foresee(
        &mut self,
        id: u64,
        addr: u64,
        len: u64,
        out: &mut Decisions,
    ) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, len)?;
        self.local.foresee(id, run, out);
        self.pump(out);
        Ok(())
    }

    /// Gives up what is registered of own memory and not expected to be needed soon: the extents that
    /// lie in it, but for those in use. What reaches beyond it was registered for others, and stays.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn give_up(&mut self, addr: u64, len: u64, out: &mut Decisions) -> Result<GivenUp, Error> {
        let run = self.limits().geometry.span(addr, len)?;
        let given_up = self.local.give_up_unused(run, out);
        self.pump(out);
        Ok(given_up)
    }

    /// Has the bucket of an address be registered by itself from now on, and stay when what lies beside it is [given
    /// up](Self::give_up), because two buffers share it; or no longer. 1,024 buckets can be apart at once. What is
    /// registered stays as it is until it is given up.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn set_apart(&mut self, addr: u64, is_apart: bool) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, 1)?;
        self.local.set_apart(run.first, is_apart);
        Ok(())
    }

    /// Gives up the bucket of an address that is [apart](Self::set_apart) and registered by itself, unless it is in use.
    /// It stays apart.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn give_up_apart(&mut self, addr: u64, out: &mut Decisions) -> Result<GivenUp, Error> {
        let run = self.limits().geometry.span(addr, 1)?;
        let given_up = self.local.give_up_apart(run, out);
        self.pump(out);
        Ok(given_up)
    }

    /// Has own memory be given up for operations as soon as more than so many bytes are registered, as far as nobody uses
    /// it. `u64::MAX` is no limit of this kind, which is how it is at first.
    pub fn keep_within(&mut self, bytes: u64) {
        let bucket = self.limits().geometry.bucket();
        self.local.keep_within(bytes / bucket);
    }

    /// What was given up for that since this was last asked.
    pub fn take_crowded_out(&mut self) -> CrowdedOut {
        self.local.take_crowded_out()
    }

    /// Moves firehoses to memory of a peer that is expected to be needed soon, as far as they are not there. Nothing
    /// holds them then. Under the strategy `foresight` alone, and only as far as some are attached to nothing:
    /// [`attached`](Self::attached) tells what became of it. Of what is refused in part nothing stays.
    ///
    /// # Errors
    /// [`Error::Overflow`], [`Error::NoPeer`], [`Error::PeerLost`].
    pub fn attach(
        &mut self,
        (peer, region): (u32, Region),
        (addr, len): (u64, u64),
        direction: Direction,
        out: &mut Decisions,
    ) -> Result<Attached, Error> {
        self.common.check_peer(peer)?;
        let run = self.limits().geometry.span(addr, len)?;
        let (initiator, _, cx) = &mut self.rooms(out);
        let attached = initiator.attach_ahead((peer, region, run), direction, cx);
        self.pump(out);
        Ok(attached)
    }

    /// How the firehoses on memory of a peer stand, for data that goes in that direction.
    pub fn attached(
        &mut self,
        peer: u32,
        (addr, len): (u64, u64),
        direction: Direction,
    ) -> Attached {
        match self.limits().geometry.span(addr, len) {
            Ok(run) => self.initiator.attached(peer, run, direction),
            Err(_) => Attached::No,
        }
    }

    /// Gives the firehoses back on memory of a peer that is not expected to be needed soon: those of extents that
    /// lie in it, of those in use when they are not any more, of those on their way when they have come.
    ///
    /// # Errors
    /// [`Error::Overflow`], [`Error::NoPeer`], [`Error::PeerLost`].
    pub fn detach(
        &mut self,
        peer: u32,
        (addr, len): (u64, u64),
        out: &mut Decisions,
    ) -> Result<Detached, Error> {
        self.common.check_peer(peer)?;
        let run = self.limits().geometry.span(addr, len)?;
        let (initiator, _, cx) = &mut self.rooms(out);
        let given_up = initiator.detach(peer, run, cx);
        self.pump(out);
        Ok(given_up)
    }

    /// The own memory that is registered together with some bytes: the bounds of the extent that has all their
    /// buckets, or of these buckets where it takes several. `None` if it is not registered as a whole.
    pub fn registered_with(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let geometry = self.limits().geometry;
        let run = geometry.span(addr, len).ok()?;
        let reach = self.local.covered(run)?;
        let start = geometry.address_of(reach.first);
        Some((start, geometry.address_of(reach.end()) - start))
    }

    /// Whether own memory is not registered as a whole, and nothing of it is about to be registered or given up.
    pub fn is_gone(&self, addr: u64, len: u64) -> bool {
        let run = self.limits().geometry.span(addr, len);
        run.is_ok_and(|run| self.local.covered(run).is_none() && !self.local.is_changing(run))
    }

    /// Takes own memory back: when [`Action::Revoked`] names `id`, no peer holds a bucket of the
    /// run and none is registered. `id` is the driver's choice, not in use.
    pub fn revoke(&mut self, id: u64, run: Run, out: &mut Decisions) {
        let (_, target, cx) = &mut self.rooms(out);
        target.revoke(id, run, cx);
        self.pump(out);
    }

    /// Memory of a peer that is registered for good, until the peer [takes it
    /// back](Self::revoke).
    ///
    /// # Errors
    /// [`Error::NoPeer`], [`Error::PeerLost`]; [`Error::Malformed`] for more buckets than `most`,
    /// or such that there are none.
    pub fn add_static(&mut self, peer: u32, grants: &[Grant], most: u64) -> Result<(), Error> {
        self.common.check_peer(peer)?;
        let fits = |grant: &Grant| grant.run.is_sane() && grant.run.count <= most;
        if !grants.iter().all(fits) {
            return Err(Error::Malformed {
                peer,
                what: Violation::TooMuchMemory,
            });
        }
        self.initiator.add_static(peer, grants);
        Ok(())
    }

    /// The two rooms that stand on the local table, and what they decide with.
    fn rooms<'a>(
        &'a mut self,
        out: &'a mut Decisions,
    ) -> (&'a mut Initiator, &'a mut Target, Context<'a>) {
        let Self {
            common,
            local,
            initiator,
            target,
            ..
        } = self;
        (initiator, target, Context { common, local, out })
    }

    /// Goes on with whatever has become possible.
    fn pump(&mut self, out: &mut Decisions) {
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
                    Requester::Ahead => target.prepared(request, cx),
                    Requester::Pin(id) => target.answer_pin(id, request, cx),
                    Requester::Keep(id) => cx.local.kept(id, request, cx.out),
                    Requester::Own(id) | Requester::Held(id, _) => {
                        cx.local.own_held(id, request, cx.out)
                    }
                    Requester::Foreseen(id) => cx.local.was_foreseen(id, request, cx.out),
                }
            }
        }
        target.look_at_revocations(cx);
        self.turn();
    }

    /// Tells hits whether they are to ask, and whether somebody waits for what they give back.
    fn turn(&self) {
        let crowded = self.local.is_crowded() || self.initiator.is_crowded();
        self.hot.set_turned(crowded, self.initiator.asks());
    }
}
