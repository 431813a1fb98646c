//! Drives the engine: carries out its decisions.

#![allow(unsafe_code)] // copies into memory that an operation borrows, and hands pieces of it on

use std::{cell::Cell, collections::VecDeque};

use hydrant_conduit::{Access, Delivery, Key, Local, Remote, Ticket};
use hydrant_pinning::{
    AccessVerdict, Action, Cause, Decisions, Direction, Engine, EngineMessage, Impossible,
    OutgoingMessage, Refusal, Run,
    wire::{Move, PullDestination},
};

use super::{Registration, outbox::OutboxEntry};
use crate::{
    Error, Rank,
    counters::Count,
    progress::{Backlog, Outcome},
};

/// The room above, which moves data.
pub(crate) trait Carrier: Send + Sync {
    /// Posts a transfer that the engine decided. Returns its outcome if it has ended. Otherwise
    /// [`Registration::transferred`] is called later.
    ///
    /// # Safety
    /// As [`Conduit::post`](hydrant_conduit::Conduit::post), until the end of the transfer is
    /// reported.
    unsafe fn post(&self, piece: &PieceTransfer) -> Option<Outcome>;

    /// Local completion: a put of the engine no longer needs its source.
    fn locally_complete(&self, ticket: Ticket);

    /// Remote completion: an operation of the engine has ended.
    fn ended(&self, ticket: Ticket, outcome: Result<(), hydrant_pinning::Error>);
}

/// A transfer that the engine decided: one piece of an operation of this rank or of a peer.
pub(crate) struct PieceTransfer {
    /// Its number in the engine.
    pub(crate) id: u64,
    pub(crate) access: Access,
}

/// Decisions of the engine that are still to be carried out. The thread's next step reuses the
/// memory: otherwise a miss would allocate it several times.
#[derive(Default)]
pub(super) struct Todo {
    /// The actions in the order decided.
    pub(super) actions: VecDeque<Action>,
    said: Decisions,
}

thread_local! {
    static ROOM: Cell<Option<Todo>> = const { Cell::new(None) };
}

impl Todo {
    pub(super) fn new() -> Self {
        let room = ROOM.try_with(Cell::take).ok().flatten();
        room.unwrap_or_default()
    }

    pub(super) fn leave(self) {
        let _ = ROOM.try_with(|room| room.set(Some(self)));
    }
}

impl Registration {
    /// Calls the engine and carries out its decisions, until none is left. `data`: the bytes that
    /// follow the message that the engine is told of.
    pub(crate) fn step(&self, data: &[u8], tell: impl FnOnce(&mut Engine, &mut Decisions)) {
        let mut todo = Todo::new();
        let mut landed = 0;
        let mut over = false;
        self.call_engine(&mut todo, tell);
        while let Some(action) = todo.actions.pop_front() {
            use Action::{Done, Pinned, Revoked};
            over |= matches!(action, Done { .. } | Pinned { .. } | Revoked { .. });
            self.perform(action, &mut todo, data, &mut landed);
        }
        todo.leave();
        if over {
            self.progress.wake_sleepers();
        }
    }

    /// Calls the engine, and appends its actions to `todo`. Its messages are sent in the order
    /// decided, whichever thread sends them.
    pub(super) fn call_engine(
        &self,
        todo: &mut Todo,
        tell: impl FnOnce(&mut Engine, &mut Decisions),
    ) {
        let Todo { actions, said } = todo;
        let (sends, greedy, impossible) = {
            let mut engine = self.engine.lock();
            if engine.is_timing() {
                engine.tell_time(self.progress.conduit().now().as_nanos() as u64);
            }
            tell(&mut engine, said);
            let impossible = engine.impossible();
            let mut outbox = self.outbox.lock();
            drop(engine);
            // Messages are held back only if no action is left, because an action may take long.
            let is_last = actions.is_empty() && said.actions.is_empty();
            let mut may_wait =
                is_last && self.progress.may_send_along() && !said.messages.is_empty();
            for sending in said.messages.drain(..) {
                let OutgoingMessage {
                    to,
                    message,
                    data,
                    last_of,
                    may_wait: this_may,
                } = sending;
                outbox.push(to, OutboxEntry::Engine(message, data));
                if let Some(op) = last_of {
                    outbox.push(to, OutboxEntry::LocallyComplete(op));
                }
                may_wait &= this_may;
            }
            if may_wait {
                self.progress.set_backlog(Backlog::Along, true);
            }
            let sends = !may_wait && !outbox.is_empty();
            (sends, outbox.take_greedy(), impossible)
        };
        if let Some(impossible) = impossible {
            self.record_impossible(impossible);
        }
        // In virtual time a rank may begin many operations before it polls.
        if let Some(greedy) = greedy
            && !self.progress.virtual_time
        {
            self.progress
                .malformed(greedy, "it keeps asking and takes no answers");
        }
        if sends {
            // Sent before the actions, so that peers work while this rank registers.
            self.flush();
        }
        actions.extend(said.actions.drain(..));
    }

    /// Records an impossible state of the engine. It is counted, the first is logged, and the rank
    /// goes on.
    #[cold]
    fn record_impossible(&self, impossible: Impossible) {
        let count = self.progress.tally.snapshot().impossible;
        self.progress.tally.set(Count::Impossible, impossible.count);
        if count == 0 {
            tracing::error!(rank = %self.progress.rank, "{impossible}; a step was skipped");
        }
    }

    /// Carries out an action. Decisions that follow from it join `todo`.
    pub(super) fn perform(&self, action: Action, todo: &mut Todo, data: &[u8], landed: &mut usize) {
        match action {
            Action::Register {
                id,
                need,
                preferred,
            } => {
                let result = self.register(need, preferred);
                if let Ok(got) = &result {
                    self.record_change(self.bytes_of(got.run));
                }
                if self.uses().is_some() {
                    // In virtual time a helper registers beside the application, which must not see
                    // the registration before it is done.
                    self.progress.conduit().poll_memory();
                }
                self.call_engine(todo, |engine, out| {
                    engine.registered(id, result, out);
                });
            }
            Action::Deregister { id, key, run } => {
                self.progress.tally.one(Count::Deregistrations);
                // SAFETY: the engine ends a registration only when no peer that is present holds a firehose on it.
                // A peer returns a firehose once its operations by it are complete.
                let ended = unsafe { self.progress.conduit().deregister_unused(Key(key)) };
                if let Err(cause) = ended {
                    tracing::error!(%cause, "memory was not deregistered");
                }
                self.record_change(-self.bytes_of(run));
                self.call_engine(todo, |engine, out| engine.deregistered(id, out));
            }
            Action::Transfer {
                id,
                peer,
                direction,
                local,
                local_key,
                remote,
                remote_key,
                len,
                last_of,
            } => {
                let remote = Remote {
                    key: Key(remote_key),
                    offset: remote,
                };
                let local = Local {
                    addr: std::ptr::with_exposed_provenance_mut(local as usize),
                    key: Key(local_key),
                };
                let (peer, len) = (Rank(peer), len as usize);
                let access = match direction {
                    Direction::Put => Access::put(peer, remote, local, len),
                    Direction::Get => Access::get(peer, remote, local, len),
                };
                let piece = PieceTransfer { id, access };
                let posted = self.post(&piece);
                if let Some(op) = last_of {
                    self.report_local_completion(op);
                }
                if let Some(outcome) = posted {
                    let outcome = outcome.map_err(|cause| access_failed(peer, &cause));
                    self.call_engine(todo, |engine, out| {
                        engine.transferred(id, outcome, out);
                    });
                }
            }
            Action::Land { to, len } => {
                let end = *landed + len as usize;
                if let Some(part) = data.get(*landed..end) {
                    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
                    // SAFETY: `to` is the destination of a get in flight, valid for `len` bytes that the
                    // engine asked the peer for. No other access overlaps it, and `part` is no longer.
                    unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                    *landed = end;
                }
            }
            Action::Done { op, result } => {
                if let Some(carrier) = self.carrier() {
                    carrier.ended(Self::ticket(op), result);
                }
            }
            Action::Pinned { id, result } => {
                self.pinned.lock().insert(id, result);
            }
            Action::Revoked { id } => {
                self.revoked.lock().insert(id, ());
            }
        }
    }

    /// Returns the bytes of a run.
    pub(super) fn bytes_of(&self, run: Run) -> i64 {
        i64::try_from(run.count.saturating_mul(self.geometry.bucket())).unwrap_or(i64::MAX)
    }

    /// Reports local completion: the last message with data of a put was sent, or its data went
    /// inline.
    pub(super) fn report_local_completion(&self, op: u64) {
        if let Some(carrier) = self.carrier() {
            carrier.locally_complete(Self::ticket(op));
            self.progress.wake_sleepers();
        }
    }

    /// Returns the carrier. It exists as long as this, which it owns.
    fn carrier(&self) -> Option<std::sync::Arc<dyn Carrier>> {
        self.carrier.get()?.upgrade()
    }

    fn post(&self, piece: &PieceTransfer) -> Option<Outcome> {
        match self.carrier() {
            // SAFETY: 1. The own memory is the buffer of an operation in flight, which its caller
            //            keeps valid, or it is registered and held for a peer.
            //         2. The peer gave out the remote key.
            Some(carrier) => unsafe { carrier.post(piece) },
            None => Some(Err(hydrant_conduit::Error::PeerLost(piece.access.peer))),
        }
    }

    /// Handles one or two messages of a peer's engine.
    pub(crate) fn messages(&self, delivery: &Delivery<'_>) {
        let (from, leading) = (delivery.from, usize::from(delivery.tag));
        let Some((first, rest)) = delivery.payload.split_at_checked(leading) else {
            let what = "the first of two messages is longer than both";
            return self.progress.malformed(from, what);
        };
        if !first.is_empty() {
            self.message(from, first);
        }
        self.message(from, rest);
    }

    /// Handles a message of a peer's engine.
    fn message(&self, from: Rank, bytes: &[u8]) {
        let (message, data) = match EngineMessage::decode(bytes) {
            Ok(decoded) => decoded,
            Err(hydrant_pinning::wire::Malformed(what)) => {
                return self.progress.malformed(from, what);
            }
        };
        let len = data.len() as u64;
        let lent = &self.lent;
        let missed = message.goes_to().filter(|(region, to)| {
            let store = || self.store(*to, data);
            !lent.while_lent(from, *region, (*to, len), store)
        });
        let mut outcome = Ok(());
        let mut unanswered = Some(message);
        while let Some(mut message) = unanswered.take() {
            let judged = lent.ends();
            if let EngineMessage::Move(wanted) = &mut message {
                self.clip_to_heard(&mut wanted.needs);
            }
            let verdict = match missed {
                None => judge(self, from, &message),
                Some((region, to)) => AccessVerdict::Refused(lent.why_not(from, region, (to, len))),
            };
            let served = self.use_by_peer(from, &message, verdict);
            let freed = self.own_memory_freed_by(&message);
            self.step(data, |engine, out| {
                // Memory is first withdrawn from the peers, or a change of it applied, and then revoked by the engine.
                // Either that is seen here, or the engine revokes what is granted here.
                if lent.ends() != judged {
                    unanswered = Some(message);
                    return;
                }
                outcome = engine.message(from.0, message, verdict, out);
            });
            if let (Some(served), Some(uses), None) = (served, self.uses(), &unanswered) {
                uses.used(&served);
            }
            if let (Some(freed), Some(uses)) = (&freed, self.uses()) {
                uses.freed(freed);
            }
        }
        if let Err(hydrant_pinning::Error::Malformed { what, .. }) = outcome {
            self.progress.malformed(from, what.as_str());
        }
    }

    /// Returns the own memory that a peer no longer uses according to a message, if a caller waits
    /// for that.
    fn own_memory_freed_by(&self, message: &EngineMessage) -> Option<Vec<(u64, u64)>> {
        let runs = given_back(message);
        if runs.is_empty() || !self.uses()?.waits_for_freed() {
            return None;
        }
        let geometry = self.geometry;
        let place = |run: &Run| {
            let start = geometry.address_of(run.first);
            (start, geometry.address_of(run.end()).saturating_sub(start))
        };
        Some(runs.iter().map(place).collect())
    }

    /// Releases what an ended peer held.
    pub(super) fn peer_ended(&self, peer: Rank) {
        self.forget_loans(peer);
        // Before the engine ends operations with the peer. From then on their buffers belong to the
        // callers again.
        self.outbox.lock().forget(peer.0);
        self.step(&[], |engine, out| engine.peer_lost(peer.0, out));
        if let Some(uses) = self.uses() {
            uses.all_freed();
        }
        // The end of a loan may have waited for this peer alone, in a thread that saw another
        // thread come here and went to sleep.
        self.progress.wake_sleepers();
    }
}

/// Judges a request of a peer for own memory: may the peer have it, and may it stay registered?
/// Transient memory, named by its address, is only copied.
fn judge(registration: &Registration, peer: Rank, message: &EngineMessage) -> AccessVerdict {
    if !is_offered(registration, peer, message) {
        return AccessVerdict::Refused(Refusal::NotLent);
    }
    let geometry = registration.geometry;
    let lasts = |region, from, len| {
        let run = geometry.span(from, len);
        run.is_ok_and(|run| registration.may_stay_registered(region, run))
    };
    let lasts = match message {
        EngineMessage::Move(wanted) => (wanted.needs.iter())
            .all(|need| registration.may_stay_registered(wanted.region, need.run)),
        EngineMessage::Pull {
            region, from, to, ..
        } => lasts(*region, *from, bytes_of(to)),
        EngineMessage::Ahead { region, from, len } => lasts(*region, *from, *len),
        _ => true,
    };
    if lasts {
        AccessVerdict::Fine
    } else {
        AccessVerdict::Copy
    }
}

/// Returns the own memory that a peer no longer uses according to a message.
fn given_back(message: &EngineMessage) -> &[Run] {
    match message {
        EngineMessage::Move(Move { releases: runs, .. })
        | EngineMessage::Release { runs, .. }
        | EngineMessage::Revoked { runs, .. } => runs,
        _ => &[],
    }
}

/// Returns the bytes of all destinations together.
fn bytes_of(places: &[PullDestination]) -> u64 {
    let lens = places.iter().map(|place| place.len);
    lens.fold(0, u64::saturating_add)
}

/// Returns whether a peer may have the own memory that a message asks for.
fn is_offered(registration: &Registration, peer: Rank, message: &EngineMessage) -> bool {
    let lent = &registration.lent;
    match message {
        EngineMessage::Move(Move { region, needs, .. }) => {
            let geometry = registration.geometry;
            (needs.iter()).all(|need| lent.covers(peer, *region, geometry, need.run))
        }
        EngineMessage::Get {
            region, from, len, ..
        } => lent.is_lent(peer, *region, (*from, u64::from(*len))),
        EngineMessage::Pull {
            region, from, to, ..
        } => lent.is_lent(peer, *region, (*from, bytes_of(to))),
        EngineMessage::Ahead { region, from, len } => lent.is_lent(peer, *region, (*from, *len)),
        _ => true,
    }
}

/// Converts an error of the network for the engine.
pub(super) fn access_failed(peer: Rank, cause: &hydrant_conduit::Error) -> hydrant_pinning::Error {
    match cause {
        hydrant_conduit::Error::PeerLost(rank) => hydrant_pinning::Error::PeerLost(rank.0),
        // Not all of the granted memory was mapped.
        hydrant_conduit::Error::BadAddress { peer, addr, len }
        | hydrant_conduit::Error::OutOfExtent {
            peer,
            offset: addr,
            len,
            ..
        } => hydrant_pinning::Error::Unreachable {
            rank: peer.0,
            addr: *addr,
            len: *len,
            why: Refusal::NotMapped,
        },
        cause => hydrant_pinning::Error::Network {
            rank: peer.0,
            cause: Cause::new(cause.clone()),
        },
    }
}

/// Converts the error of an engine's operation for its waiter. An error of the network comes out
/// unchanged.
pub(crate) fn failed(cause: hydrant_pinning::Error) -> Error {
    use hydrant_pinning::Error as P;
    match cause {
        P::PeerLost(rank) => Error::PeerLost(Rank(rank)),
        P::Unreachable {
            rank,
            addr,
            len,
            why: Refusal::NotMapped | Refusal::ReadOnly,
        } => Error::BadAddress {
            rank: Rank(rank),
            addr,
            len,
        },
        P::Unreachable {
            rank,
            why: Refusal::NotLent,
            ..
        } => Error::Revoked { rank: Rank(rank) },
        P::Network { rank, cause } => match cause.get::<hydrant_conduit::Error>() {
            Some(said) => Error::from(said.clone()),
            None => Error::Registration(P::Network { rank, cause }),
        },
        cause => Error::Registration(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_error_reads_the_same_for_a_miss_and_a_hit() {
        use hydrant_conduit::Error as C;
        let peer = Rank(3);
        for said in [
            C::Revoked { peer, key: 7 },
            C::PeerLost(peer),
            C::BadAddress {
                peer,
                addr: 4096,
                len: 8,
            },
            C::System {
                what: "a transfer",
                cause: "it failed".to_owned(),
            },
        ] {
            let of_a_hit = Error::from(said.clone()).to_string();
            assert_eq!(failed(access_failed(peer, &said)).to_string(), of_a_hit);
        }
    }
}
