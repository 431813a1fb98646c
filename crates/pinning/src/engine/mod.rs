//! The engine of a rank: operations and messages go in, things to do come out.
//!
//! It sends nothing, registers nothing, copies nothing and knows no time; its driver does what
//! the [actions](Action) say and reports back. The driver holds it behind one lock, which it
//! never holds while it does those things. Hits pass it by, through [`Hot`].
//!
//! An *operation* is cut into *pieces*, small enough that the peer's firehoses and the own
//! limits hold one. A piece first gets the far side (firehoses that are there, or moves), then
//! the near side (a claim on own memory, made while moves are under way), then transfers.
//! What cannot be registered is copied through messages.
//!
//! Nothing waits in a circle: who waits for firehoses holds nothing; who waits for own memory
//! holds firehoses, and own memory is given back by those that have all they need; a move or a
//! pull of a peer is answered without waiting for anybody, if need be by a refusal, and then
//! the data is copied, which needs nothing.

mod answer;
mod audit;
mod copy;
mod far;
mod guest;
mod local;
mod operation;
mod pattern;
mod piece;
mod pull;
mod reach;
mod revoke;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

pub use local::LocalStats;
pub use operation::{Operation, Own, Verdict};

use crate::{
    Action, Config, Data, Error, Hit, Hot, Limits, Message, Refusal, Registered, Run,
    strategy::{Local as LocalPolicy, Policy, Remote},
    table::Editor,
    wire::Grant,
};
use answer::Answered;
use far::Far;
use guest::{Guests, Served};
use local::{Claimant, Local};
use piece::{Op, Piece};
use pull::Pull;
use revoke::Revocation;

/// What an engine did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Own memory.
    pub local: LocalStats,
    /// Pieces of operations that reached the engine.
    pub pieces: u64,
    /// Of those, pieces whose far side was there.
    pub far_hits: u64,
    /// Moves sent.
    pub moves: u64,
    /// Operations whose data rode on a move.
    pub rides: u64,
    /// Pieces copied through messages.
    pub copies: u64,
    /// Operations cut into more than one piece.
    pub splits: u64,
    /// Pieces that waited for firehoses.
    pub stalls: u64,
    /// Firehoses given back by moves and messages.
    pub released: u64,
    /// Moves answered for peers.
    pub served: u64,
    /// Of those, moves that needed no registration.
    pub served_from_cache: u64,
    /// Firehoses lent to peers beyond their share.
    pub lent: u64,
    /// Firehoses asked back.
    pub recalled: u64,
    /// Runs that could not be registered.
    pub refused: u64,
}

/// Decides what is registered, at one rank.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    limits: Limits,
    policy: Policy,
    hot: Arc<Hot>,
    local: Local,
    fars: FxHashMap<u32, Far>,
    guests: Guests,
    ops: FxHashMap<u64, Op>,
    pieces: FxHashMap<u64, Piece>,
    /// Transfers and chunks under way: for whom.
    legs: FxHashMap<u64, Leg>,
    served: FxHashMap<u64, Served>,
    pulls: FxHashMap<u64, Pull>,
    /// Own memory held for the own NIC: the claims.
    own: FxHashMap<u64, u64>,
    revocations: FxHashMap<u64, Revocation>,
    lost: FxHashSet<u32>,
    next: u64,
    /// Pieces that wait for firehoses.
    waiting: usize,
    stats: Stats,
}

/// For whom something is under way.
#[derive(Clone, Copy, Debug)]
enum Leg {
    /// A transfer of a piece, by the network.
    Transfer(u64),
    /// A piece that the peer writes.
    Pull(u64),
    /// A chunk of a piece that is copied, and where in the piece.
    Chunk { piece: u64, at: u64 },
    /// A transfer that a peer asked for.
    Served(u64),
}

impl Leg {
    fn piece(self) -> Option<u64> {
        match self {
            Leg::Transfer(piece) | Leg::Pull(piece) | Leg::Chunk { piece, .. } => Some(piece),
            Leg::Served(_) => None,
        }
    }
}

impl Engine {
    /// An engine that decides as `config` says.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn new(config: Config) -> Result<Self, Error> {
        let limits = config.check()?;
        let policy = config.strategy.policy();
        let adaptive = config.adaptive_victims || policy.remote != Remote::Firehose;
        let peers = match policy.remote {
            Remote::Firehose => limits.peers_total,
            _ => limits.total,
        };
        let local = Local::new(limits, adaptive, peers);
        let caches = policy.local == LocalPolicy::Cached
            && matches!(policy.remote, Remote::Firehose | Remote::Static);
        let hot = Hot::new(
            limits.geometry,
            config.ranks,
            caches,
            Arc::clone(local.table()),
        );
        Ok(Self {
            config,
            limits,
            policy,
            hot: Arc::new(hot),
            local,
            fars: FxHashMap::default(),
            guests: Guests::new(limits.sure),
            ops: FxHashMap::default(),
            pieces: FxHashMap::default(),
            legs: FxHashMap::default(),
            served: FxHashMap::default(),
            pulls: FxHashMap::default(),
            own: FxHashMap::default(),
            revocations: FxHashMap::default(),
            lost: FxHashSet::default(),
            next: 1,
            waiting: 0,
            stats: Stats::default(),
        })
    }

    /// What threads share of it.
    pub fn hot(&self) -> &Arc<Hot> {
        &self.hot
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        Stats {
            local: self.local.stats,
            ..self.stats
        }
    }

    /// Operations under way.
    pub fn busy(&self) -> usize {
        self.ops.len()
    }

    /// Firehoses attached to a peer's buckets, and how many there may be.
    pub fn firehoses(&self, peer: u32) -> (u64, u64) {
        (self.fars.get(&peer)).map_or((0, self.limits.share), |far| {
            (far.attached() as u64, far.credit)
        })
    }

    /// Begins an operation; [`Action::Done`] ends it, at once if the peer is lost.
    ///
    /// # Errors
    /// [`Error::NoPeer`], [`Error::Overflow`]; nothing was begun then.
    pub fn begin(&mut self, operation: Operation, out: &mut Vec<Action>) -> Result<(), Error> {
        match self.check_peer(operation.peer) {
            Err(lost @ Error::PeerLost(_)) => {
                out.push(Action::Done {
                    op: operation.id,
                    result: Err(lost),
                });
                return Ok(());
            }
            outcome => outcome?,
        }
        let geometry = self.limits.geometry;
        let local = geometry.span(operation.local, operation.len)?;
        let remote = geometry.span(operation.remote, operation.len)?;
        self.missed(operation.peer, remote.first, local.first, out);
        self.begin_op(operation, out);
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
        out: &mut Vec<Action>,
    ) -> Result<(), Error> {
        match self.check_peer(from) {
            // It was on its way when the peer was lost.
            Err(Error::PeerLost(_)) => return Ok(()),
            outcome => outcome?,
        }
        let answered = Answered::by(&message);
        let outcome = match message {
            Message::Move(wanted) => self.serve_move(from, wanted, verdict, out),
            Message::Granted(granted) => self.granted(from, granted, out),
            Message::Release { runs, unpin } => self.given_back(from, &runs, unpin, out),
            Message::Put { id, .. } => {
                self.send(
                    from,
                    Message::Stored {
                        id,
                        refused: verdict.refusal(),
                    },
                    out,
                );
                Ok(())
            }
            Message::Stored { id, refused } => self.stored(from, id, refused, out),
            Message::Get {
                id,
                region,
                from: addr,
                len,
            } => {
                self.serve_get(from, id, (region, addr, len), verdict.refusal(), out);
                Ok(())
            }
            Message::Fetched { id, refused, len } => self.fetched(from, id, refused, len, out),
            Message::Pull {
                id, from: addr, to, ..
            } => self.serve_pull(from, id, addr, to, verdict, out),
            Message::Pulled { id, refused } => self.pulled(from, id, refused, out),
            Message::Recall { count } => {
                self.recalled(from, count, out);
                Ok(())
            }
            Message::Revoke { id, run } => self.doomed(from, id, run, out),
            Message::Revoked { id, runs } => self.revoked_by(from, id, &runs, out),
        };
        let outcome = outcome.map_err(|what| Error::Malformed { peer: from, what });
        if let (Err(cause), Some(answered)) = (&outcome, answered) {
            self.fail_answered(from, answered, cause, out);
        }
        self.pump(out);
        outcome
    }

    /// A registration was done, or failed.
    pub fn registered(
        &mut self,
        id: u64,
        result: Result<Registered, Refusal>,
        out: &mut Vec<Action>,
    ) {
        self.local.registered(id, result, out);
        self.pump(out);
    }

    /// A deregistration was done.
    pub fn deregistered(&mut self, id: u64, out: &mut Vec<Action>) {
        self.local.deregistered(id, out);
        self.pump(out);
    }

    /// A transfer was done, or failed.
    pub fn transferred(&mut self, id: u64, result: Result<(), Error>, out: &mut Vec<Action>) {
        match self.legs.get(&id).copied() {
            Some(Leg::Transfer(piece)) => {
                self.legs.remove(&id);
                self.leg_done(piece, result, out);
            }
            Some(Leg::Served(pull)) => {
                self.legs.remove(&id);
                self.pull_done(pull, result.is_ok(), out);
            }
            _ => {}
        }
        self.pump(out);
    }

    /// A hit was [released](Hot::release) that somebody waits for.
    pub fn released(&mut self, hit: &Hit, out: &mut Vec<Action>) {
        if let Some(slot) = hit.local_slot() {
            self.local.released(slot, out);
        }
        if let Some(far) = self.fars.get_mut(&hit.peer) {
            far.released(hit.remote_slot);
        }
        self.firehoses_free(hit.peer, out);
        self.pump(out);
    }

    /// A peer is gone: what waits for it fails, what it held is given back. Operations that have
    /// transfers under way end when the network has ended those.
    pub fn peer_lost(&mut self, peer: u32, out: &mut Vec<Action>) {
        if !self.lost.insert(peer) {
            return;
        }
        self.fail_pieces(peer, out);
        // Hits and transfers under way hold its records until they end.
        if let Some(far) = self.fars.get_mut(&peer) {
            far.lose();
        }
        self.guest_left(peer, out);
        self.revocations_without(peer);
        self.pump(out);
    }

    /// Registers memory for good, all of it or none; [`Action::Pinned`] tells.
    pub fn pin(&mut self, id: u64, run: Run, out: &mut Vec<Action>) {
        let need = crate::wire::Need { run, welcome: run };
        self.local.claim(Claimant::Pin(id), vec![need], true, out);
        self.pump(out);
    }

    /// Registers memory of the rank's own for good, all of it or none, as a part of what may be
    /// registered beside M; [`Action::Pinned`] tells.
    pub fn keep(&mut self, id: u64, run: Run, out: &mut Vec<Action>) {
        let need = crate::wire::Need { run, welcome: run };
        (self.local).claim(Claimant::Keep(id), vec![need], true, out);
        self.pump(out);
    }

    /// Sets a few buckets of what may be registered beside M aside for
    /// [`hold_own`](Self::hold_own), which then finds room whatever operations are under way;
    /// `false` if there is too little.
    pub fn reserve_for_own(&mut self) -> bool {
        self.local.set_reserve()
    }

    /// Holds own memory that [`Hot::hit_near`] did not find, for the own NIC to change it;
    /// [`Action::Pinned`] tells its key, or that there is no room for it now.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn hold_own(
        &mut self,
        id: u64,
        addr: u64,
        len: u64,
        out: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let run = self.limits.geometry.span(addr, len)?;
        self.local.missed(run.first, out);
        let need = crate::wire::Need { run, welcome: run };
        (self.local).claim(Claimant::Own(id), vec![need], true, out);
        self.pump(out);
        Ok(())
    }

    /// Gives back what [`hold_own`](Self::hold_own) held. It stays registered as a victim.
    pub fn let_go_own(&mut self, id: u64, out: &mut Vec<Action>) {
        if let Some(claim) = self.own.remove(&id) {
            self.local.end(claim, false, out);
        }
        self.pump(out);
    }

    /// Memory of a peer that is registered for good, until the peer [takes it
    /// back](Self::revoke).
    ///
    /// # Errors
    /// [`Error::NoPeer`], [`Error::PeerLost`]; [`Error::Malformed`] for more buckets than `most`,
    /// or such that there are none.
    pub fn add_static(&mut self, peer: u32, grants: &[Grant], most: u64) -> Result<(), Error> {
        self.check_peer(peer)?;
        let fits = |grant: &Grant| grant.run.is_sane() && grant.run.count <= most;
        if !grants.iter().all(fits) {
            return Err(Error::Malformed {
                peer,
                what: "a registration of more memory than there is",
            });
        }
        let far = self.far(peer);
        grants.iter().for_each(|grant| far.add_static(grant));
        Ok(())
    }

    fn check_peer(&self, peer: u32) -> Result<(), Error> {
        let Config { rank, ranks, .. } = self.config;
        if self.lost.contains(&peer) {
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

    fn far(&mut self, peer: u32) -> &mut Far {
        let share = match self.policy.remote {
            Remote::Firehose => self.limits.share,
            _ => 0,
        };
        let hot = &self.hot;
        self.fars.entry(peer).or_insert_with(|| {
            let far = Far::new(share);
            hot.add_peer(peer, far.table());
            far
        })
    }

    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn send(&self, to: u32, message: Message, out: &mut Vec<Action>) {
        self.send_with(to, message, Data::None, out);
    }

    fn send_with(&self, to: u32, message: Message, data: Data, out: &mut Vec<Action>) {
        if !self.lost.contains(&to) {
            out.push(Action::Send { to, message, data });
        }
    }

    /// What is begun missed: a hit may have held one side for a moment, and told nobody.
    fn missed(&mut self, peer: u32, remote: u64, local: u64, out: &mut Vec<Action>) {
        self.local.missed(local, out);
        if let Some(far) = self.fars.get_mut(&peer) {
            far.missed(remote);
            self.firehoses_free(peer, out);
        }
    }

    /// Goes on with whatever has become possible.
    fn pump(&mut self, out: &mut Vec<Action>) {
        loop {
            let done = self.local.take_done();
            if done.is_empty() {
                break;
            }
            for (claimant, claim) in done {
                match claimant {
                    Claimant::Piece(id) | Claimant::Passing(id) => self.near_side(id, out),
                    Claimant::Move(id) => self.answer_move(id, claim, out),
                    Claimant::Pull(id) => self.pull_data(id, claim, out),
                    Claimant::Pin(id) => self.pinned(id, claim, out),
                    Claimant::Keep(id) => self.kept(id, claim, out),
                    Claimant::Own(id) => self.own_held(id, claim, out),
                }
            }
        }
        self.look_at_revocations(out);
        (self.hot).set_crowded(self.local.is_crowded() || self.waiting > 0);
    }

    fn pinned(&mut self, id: u64, claim: u64, out: &mut Vec<Action>) {
        let Some(refused) = self.local.get(claim).map(|claim| claim.refused.clone()) else {
            return;
        };
        let result = match refused.first() {
            None => {
                let holds = self.local.keep(claim, out);
                self.local.settle(out);
                Ok(holds.iter().map(local::Hold::grant).collect())
            }
            Some((run, why)) => {
                self.local.end(claim, true, out);
                Err(self.no_room(*run, *why))
            }
        };
        out.push(Action::Pinned { id, result });
    }

    fn kept(&mut self, id: u64, claim: u64, out: &mut Vec<Action>) {
        let Some(it) = self.local.get(claim) else {
            return;
        };
        let result = match it.refused.first() {
            // The claim stays, and holds it.
            None => Ok(it.holds.iter().map(local::Hold::grant).collect()),
            Some((run, why)) => Err(self.no_room(*run, *why)),
        };
        match result {
            Ok(_) => self.local.settle_for_good(claim),
            Err(_) => self.local.end(claim, true, out),
        }
        out.push(Action::Pinned { id, result });
    }

    fn own_held(&mut self, id: u64, claim: u64, out: &mut Vec<Action>) {
        let Some(it) = self.local.get(claim) else {
            return;
        };
        let result = match it.refused.first() {
            None => Ok(it.holds.iter().map(local::Hold::grant).collect()),
            Some((run, why)) => Err(self.no_room(*run, *why)),
        };
        match result {
            Ok(_) => _ = self.own.insert(id, claim),
            Err(_) => self.local.end(claim, false, out),
        }
        out.push(Action::Pinned { id, result });
    }

    fn no_room(&self, run: Run, why: Refusal) -> Error {
        let bytes = |buckets: u64| buckets * self.limits.geometry.bucket();
        match why {
            Refusal::Limit => Error::PastLimit {
                wanted: bytes(run.count),
                registered: bytes(self.local.stats.registered),
                limit: bytes(self.limits.total),
            },
            why => Error::Unreachable {
                rank: self.config.rank,
                addr: self.limits.geometry.address_of(run.first),
                len: bytes(run.count),
                why,
            },
        }
    }
}

/// The extents of a table that share a bucket with a run, in whichever of two ways is shorter.
fn extents_in(editor: &Editor, run: Run) -> Vec<Run> {
    let whole = |slot| {
        let extent = editor.extent(slot);
        Run {
            first: extent.base,
            count: extent.end - extent.base,
        }
    };
    let mut found: Vec<Run> = if run.count > editor.len() as u64 {
        (editor.iter())
            .filter(|(bucket, _)| run.first <= *bucket && *bucket < run.end())
            .map(|(_, slot)| whole(slot))
            .collect()
    } else {
        run.buckets()
            .filter_map(|bucket| editor.get(bucket).map(whole))
            .collect()
    };
    found.sort_unstable();
    found.dedup();
    found
}
