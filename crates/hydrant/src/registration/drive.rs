//! Doing what the engine says.

#![allow(unsafe_code)] // copies into memory that an operation borrows, and hands pieces of it on

use std::{cell::Cell, collections::VecDeque};

use hydrant_conduit::{Access, Delivery, Key, Local, Remote, Ticket};
use hydrant_pinning::{
    AccessVerdict, Action, Cause, Decisions, Direction, Engine, Impossible, Message,
    OutgoingMessage, Refusal, Run,
    wire::{Move, PullDestination},
};

use super::{Registration, outbox::Queued};
use crate::{
    Error, Rank,
    counters::Count,
    progress::{Backlog, Outcome},
};

/// The room above, which moves data.
pub(crate) trait Carrier: Send + Sync {
    /// Posts a transfer that the engine wants: its end, if it has ended. Else
    /// [`Registration::transferred`] is told of that.
    ///
    /// # Safety
    /// As [`Conduit::post`](hydrant_conduit::Conduit::post), until the end is told.
    unsafe fn post(&self, piece: &Piece) -> Option<Outcome>;

    /// A put of the engine needs its source no longer.
    fn left(&self, ticket: Ticket);

    /// An operation of the engine has ended.
    fn ended(&self, ticket: Ticket, outcome: Result<(), hydrant_pinning::Error>);
}

/// A transfer that the engine wants: one piece of an operation, or of a peer's.
pub(crate) struct Piece {
    /// Its number at the engine.
    pub(crate) id: u64,
    pub(crate) access: Access,
}

/// What the engine said and nobody has done yet. The room for it is used again by the thread's next
/// step: a miss would allocate it several times.
#[derive(Default)]
struct Todo {
    /// In the order decided.
    actions: VecDeque<Action>,
    said: Decisions,
}

thread_local! {
    static ROOM: Cell<Option<Todo>> = const { Cell::new(None) };
}

impl Todo {
    fn new() -> Self {
        let room = ROOM.try_with(Cell::take).ok().flatten();
        room.unwrap_or_default()
    }

    fn leave(self) {
        let _ = ROOM.try_with(|room| room.set(Some(self)));
    }
}

impl Registration {
    /// Tells the engine something and does what it says, until it says nothing more. `data` is
    /// what came with the message that it is told of.
    pub(crate) fn step(&self, data: &[u8], tell: impl FnOnce(&mut Engine, &mut Decisions)) {
        let mut todo = Todo::new();
        let mut landed = 0;
        let mut over = false;
        self.tell(&mut todo, tell);
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

    /// Tells the engine something. What it says comes first in `todo`; its messages go out in
    /// the order decided, whichever thread gets to send them.
    fn tell(&self, todo: &mut Todo, tell: impl FnOnce(&mut Engine, &mut Decisions)) {
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
            // Nothing waits for what is still to be done, which takes as long as it takes.
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
                outbox.push(to, Queued::Engine(message, data));
                if let Some(op) = last_of {
                    outbox.push(to, Queued::Left(op));
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
            self.met(impossible);
        }
        // In virtual time a rank begins whatever it likes before it looks.
        if let Some(greedy) = greedy
            && !self.progress.virtual_time
        {
            self.progress
                .malformed(greedy, "it asks and takes no answers");
        }
        if sends {
            // First of all: peers work while this rank registers.
            self.flush();
        }
        actions.extend(said.actions.drain(..));
    }

    /// The engine met an impossible state: it is counted, the first is logged, and the rank lives on.
    #[cold]
    fn met(&self, impossible: Impossible) {
        let count = self.progress.tally.snapshot().impossible;
        self.progress.tally.set(Count::Impossible, impossible.count);
        if count == 0 {
            tracing::error!(rank = %self.progress.rank, "{impossible}; a step was left undone");
        }
    }

    fn perform(&self, action: Action, todo: &mut Todo, data: &[u8], landed: &mut usize) {
        match action {
            Action::Register {
                id,
                need,
                preferred,
            } => {
                let result = self.register(need, preferred);
                if let Ok(got) = &result {
                    self.changed_by(self.bytes_of(got.run));
                }
                if self.uses().is_some() {
                    // In virtual time a helper registers beside the application, which must not find
                    // it done before it is.
                    self.progress.conduit().poll_memory();
                }
                self.tell(todo, |engine, out| {
                    engine.registered(id, result, out);
                });
            }
            Action::Deregister { id, key, run } => {
                self.progress.tally.one(Count::Deregistrations);
                if let Err(cause) = self.progress.conduit().deregister(Key(key)) {
                    tracing::error!(%cause, "memory was not deregistered");
                }
                self.changed_by(-self.bytes_of(run));
                self.tell(todo, |engine, out| engine.deregistered(id, out));
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
                let piece = Piece { id, access };
                let posted = self.post(&piece);
                if let Some(op) = last_of {
                    self.left(op);
                }
                if let Some(outcome) = posted {
                    let outcome = outcome.map_err(|cause| access_failed(peer, &cause));
                    self.tell(todo, |engine, out| {
                        engine.transferred(id, outcome, out);
                    });
                }
            }
            Action::Land { to, len } => {
                let end = *landed + len as usize;
                if let Some(part) = data.get(*landed..end) {
                    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
                    // SAFETY: the destination of a get that is under way, `len` bytes of which
                    // the engine asked the peer for; nobody else uses it.
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

    /// The bytes of a run.
    fn bytes_of(&self, run: Run) -> i64 {
        i64::try_from(run.count.saturating_mul(self.geometry.bucket())).unwrap_or(i64::MAX)
    }

    /// The last message with data of a put was sent, or the NIC has taken its data along.
    pub(super) fn left(&self, op: u64) {
        if let Some(carrier) = self.carrier() {
            carrier.left(Self::ticket(op));
            self.progress.wake_sleepers();
        }
    }

    /// Who carries transfers: it lives as long as this, which it owns.
    fn carrier(&self) -> Option<std::sync::Arc<dyn Carrier>> {
        self.carrier.get()?.upgrade()
    }

    fn post(&self, piece: &Piece) -> Option<Outcome> {
        match self.carrier() {
            // SAFETY: 1. The own memory is the buffer of an operation under way, whose caller
            //            promised so, or is registered and held for a peer.
            //         2. The remote key is one that the peer gave out.
            Some(carrier) => unsafe { carrier.post(piece) },
            None => Some(Err(hydrant_conduit::Error::PeerLost(piece.access.peer))),
        }
    }

    /// One or two messages of a peer's engine.
    pub(crate) fn messages(&self, delivery: &Delivery<'_>) {
        let (from, leading) = (delivery.from, usize::from(delivery.tag));
        let Some((first, rest)) = delivery.payload.split_at_checked(leading) else {
            let what = "a message goes along that is longer than both";
            return self.progress.malformed(from, what);
        };
        if !first.is_empty() {
            self.message(from, first);
        }
        self.message(from, rest);
    }

    /// A message of a peer's engine.
    fn message(&self, from: Rank, bytes: &[u8]) {
        let (message, data) = match Message::decode(bytes) {
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
        while let Some(message) = unanswered.take() {
            let judged = lent.ends();
            let verdict = match missed {
                None => judge(self, from, &message),
                Some((region, to)) => AccessVerdict::Refused(lent.why_not(from, region, (to, len))),
            };
            let served = self.served(from, &message, verdict);
            let freed = self.freed_by(&message);
            self.step(data, |engine, out| {
                // Memory that goes is taken off first and then taken back by the engine: either that
                // is seen here, or the engine takes back what is granted here.
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

    /// The own memory that a peer says in a message that it uses no more, if anybody waits for that.
    fn freed_by(&self, message: &Message) -> Option<Vec<(u64, u64)>> {
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

    /// A peer ended, in whatever order: what it held is given back.
    pub(super) fn peer_ended(&self, peer: Rank) {
        self.forget_loans(peer);
        // Before the engine ends operations with it: their buffers are their callers' again then.
        self.outbox.lock().forget(peer.0);
        self.step(&[], |engine, out| engine.peer_lost(peer.0, out));
        if let Some(uses) = self.uses() {
            uses.all_freed();
        }
        // The end of a loan may have waited for this peer alone, in a thread that saw another one
        // come here and went to sleep.
        self.progress.wake_sleepers();
    }
}

/// Whether a peer may have what a message asks of own memory, and whether it may keep it
/// registered: memory that it names by its address may come and go unseen.
fn judge(registration: &Registration, peer: Rank, message: &Message) -> AccessVerdict {
    if !is_offered(registration, peer, message) {
        return AccessVerdict::Refused(Refusal::NotLent);
    }
    let (lent, geometry) = (&registration.lent, registration.geometry);
    let lasts = |from, len| {
        let run = geometry.span(from, len);
        run.is_ok_and(|run| lent.lasts_until(geometry, run) == run.end())
    };
    let lasts = match message {
        Message::Move(wanted) => {
            (wanted.needs.iter()).all(|need| lent.lasts_until(geometry, need.run) == need.run.end())
        }
        Message::Pull { from, to, .. } => lasts(*from, bytes_of(to)),
        Message::Ahead { from, len, .. } => lasts(*from, *len),
        _ => true,
    };
    if lasts {
        AccessVerdict::Fine
    } else {
        AccessVerdict::Copy
    }
}

/// The own memory that a peer says in a message that it uses no more.
fn given_back(message: &Message) -> &[Run] {
    match message {
        Message::Move(Move { releases: runs, .. })
        | Message::Release { runs, .. }
        | Message::Revoked { runs, .. } => runs,
        _ => &[],
    }
}

/// Bytes of all places together.
fn bytes_of(places: &[PullDestination]) -> u64 {
    let lens = places.iter().map(|place| place.len);
    lens.fold(0, u64::saturating_add)
}

/// Whether a peer may have what a message asks of own memory.
fn is_offered(registration: &Registration, peer: Rank, message: &Message) -> bool {
    let lent = &registration.lent;
    match message {
        Message::Move(Move { region, needs, .. }) => {
            let geometry = registration.geometry;
            (needs.iter()).all(|need| lent.covers(peer, *region, geometry, need.run))
        }
        Message::Get {
            region, from, len, ..
        } => lent.is_lent(peer, *region, (*from, u64::from(*len))),
        Message::Pull {
            region, from, to, ..
        } => lent.is_lent(peer, *region, (*from, bytes_of(to))),
        Message::Ahead { region, from, len } => lent.is_lent(peer, *region, (*from, *len)),
        _ => true,
    }
}

/// What the network said, for the engine.
pub(super) fn access_failed(peer: Rank, cause: &hydrant_conduit::Error) -> hydrant_pinning::Error {
    match cause {
        hydrant_conduit::Error::PeerLost(rank) => hydrant_pinning::Error::PeerLost(rank.0),
        // Of what was granted, not all was mapped.
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

/// Why an operation of the engine failed, as who waits for it is told. What the network said travels
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
    fn what_the_network_says_of_a_miss_is_what_it_says_of_a_hit() {
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
