//! Doing what the engine says.

use std::{cell::Cell, collections::VecDeque};

use hydrant_conduit::{Delivery, Key, Posted, Remote};
use hydrant_pinning::{
    Action, Decisions, Engine, Message, Outgoing, Refusal, Verdict,
    wire::{Grant, Move},
};

use super::{Flight, OPERATION, Registration, lock, outbox::Letter};
use crate::{Error, Rank, Result, counters::Count, job::Core};

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

impl Core {
    /// Tells the engine something and does what it says, until it says nothing more. `data` is
    /// what came with the message that it is told of.
    pub(super) fn step(
        &self,
        registration: &Registration,
        data: &[u8],
        tell: impl FnOnce(&mut Engine, &mut Decisions),
    ) {
        let mut todo = Todo::new();
        let mut landed = 0;
        let mut over = false;
        self.tell(registration, &mut todo, tell);
        while let Some(action) = todo.actions.pop_front() {
            use Action::{Done, Pinned, Revoked};
            over |= matches!(action, Done { .. } | Pinned { .. } | Revoked { .. });
            self.perform(registration, action, &mut todo, data, &mut landed);
        }
        todo.leave();
        if over {
            self.tell_sleepers();
        }
    }

    /// Tells the engine something. What it says comes first in `todo`; its messages go out in
    /// the order decided, whichever thread gets to send them.
    fn tell(
        &self,
        registration: &Registration,
        todo: &mut Todo,
        tell: impl FnOnce(&mut Engine, &mut Decisions),
    ) {
        let Todo { actions, said } = todo;
        let (sends, greedy) = {
            let mut engine = lock(&registration.engine);
            tell(&mut engine, said);
            let mut outbox = lock(&registration.outbox);
            drop(engine);
            for Outgoing { to, message, data } in said.messages.drain(..) {
                outbox.push(to, Letter::Engine(message, data));
            }
            (!outbox.is_empty(), outbox.take_greedy())
        };
        // In virtual time a rank begins whatever it likes before it looks.
        if let Some(greedy) = greedy
            && !self.progress.virtual_time
        {
            self.malformed(greedy, "it asks and takes no answers");
        }
        if sends {
            // First of all: peers work while this rank registers.
            self.flush();
        }
        actions.extend(said.actions.drain(..));
    }

    fn perform(
        &self,
        registration: &Registration,
        action: Action,
        todo: &mut Todo,
        data: &[u8],
        landed: &mut usize,
    ) {
        match action {
            Action::Register {
                id,
                need,
                preferred,
            } => {
                let result = self.register(registration, need, preferred);
                self.tell(registration, todo, |engine, out| {
                    engine.registered(id, result, out);
                });
            }
            Action::Deregister { id, key, .. } => {
                self.tally.one(Count::Deregistrations);
                if let Err(cause) = self.conduit.deregister(Key(key)) {
                    tracing::error!(%cause, "memory was not deregistered");
                }
                self.tell(registration, todo, |engine, out| {
                    engine.deregistered(id, out)
                });
            }
            Action::Transfer {
                id,
                peer,
                put,
                local,
                local_key,
                remote,
                remote_key,
                len,
            } => {
                let place = Remote {
                    key: Key(remote_key),
                    offset: remote,
                };
                let near = std::ptr::with_exposed_provenance_mut::<u8>(local as usize);
                let (peer, len, key) = (Rank(peer), len as usize, Key(local_key));
                let posted = if put {
                    // SAFETY: the buffer of an operation under way, or own memory that is
                    // registered and held for a peer's pull.
                    unsafe { self.conduit.write(peer, place, near, len, key) }
                } else {
                    // SAFETY: the buffer of an operation under way, which nobody else uses.
                    unsafe { self.conduit.read(peer, place, near, len, key) }
                };
                match posted {
                    Ok(Posted::Pending(ticket)) => {
                        self.posted(ticket, Flight::leg(id), false);
                    }
                    done => {
                        let result = done.map(drop).map_err(|cause| access_failed(&cause));
                        self.tell(registration, todo, |engine, out| {
                            engine.transferred(id, result, out);
                        });
                    }
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
                let ticket = hydrant_conduit::Ticket(OPERATION | op);
                self.completed(ticket, result.map_err(as_conduit));
            }
            Action::Pinned { id, result } => {
                lock(&registration.pinned).insert(id, result);
            }
            Action::Revoked { id } => {
                lock(&registration.revoked).insert(id, ());
            }
        }
    }

    /// A message of a peer's engine.
    pub(crate) fn registration_message(&self, delivery: &Delivery<'_>) {
        let Some(registration) = &self.registration else {
            return self.malformed(delivery.from, "a registration message where none is needed");
        };
        let (message, data) = match Message::decode(delivery.payload) {
            Ok(decoded) => decoded,
            Err(hydrant_pinning::wire::Malformed(what)) => {
                return self.malformed(delivery.from, what);
            }
        };
        let from = delivery.from;
        let len = data.len() as u64;
        let lent = &registration.lent;
        let missed = message.goes_to().filter(|(region, to)| {
            let store = || self.store(*to, data);
            !lent.while_lent(from, *region, (*to, len), store)
        });
        let mut outcome = Ok(());
        self.step(registration, data, |engine, out| {
            // Judged while the engine is held: a loan that ends is taken off first and revoked
            // by the engine then, so that what is granted here is seen by its revocation.
            let verdict = match missed {
                None => judge(registration, from, &message),
                Some((region, to)) => Verdict::Refused(lent.why_not(from, region, (to, len))),
            };
            outcome = engine.message(from.0, message, verdict, out);
        });
        if let Err(hydrant_pinning::Error::Malformed { what, .. }) = outcome {
            self.malformed(delivery.from, what);
        }
    }

    /// A peer ended, in whatever order: what it held is given back.
    pub(crate) fn peer_ended(&self, peer: Rank) {
        if let Some(registration) = &self.registration {
            self.forget_loans(registration, peer);
            self.step(registration, &[], |engine, out| {
                engine.peer_lost(peer.0, out)
            });
        }
    }

    /// Registers own memory for good, all of it or none.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit.
    pub(crate) fn pin(
        &self,
        registration: &Registration,
        addr: u64,
        len: u64,
    ) -> Result<Vec<Grant>> {
        let run = registration.geometry.span(addr, len)?;
        if run.count == 0 {
            return Ok(Vec::new());
        }
        let id = registration.name();
        self.step(registration, &[], |engine, out| engine.pin(id, run, out));
        let mut outcome = None;
        self.wait(
            crate::progress::On::Nobody,
            crate::progress::For::Message,
            || {
                outcome = lock(&registration.pinned).remove(&id);
                outcome.is_some()
            },
        )?;
        (outcome.unwrap_or(Ok(Vec::new()))).map_err(Error::from)
    }
}

/// Whether a peer may have what a message asks of own memory, and whether it may keep it
/// registered: memory that it names by its address may come and go unseen.
fn judge(registration: &Registration, peer: Rank, message: &Message) -> Verdict {
    if !is_offered(registration, peer, message) {
        return Verdict::Refused(Refusal::NotLent);
    }
    let (lent, geometry) = (&registration.lent, registration.geometry);
    let lasts = match message {
        Message::Move(wanted) => {
            (wanted.needs.iter()).all(|need| lent.lasts_until(geometry, need.run) == need.run.end())
        }
        Message::Pull { from, to, .. } => {
            let lens = to.iter().map(|place| place.len);
            let len = lens.fold(0, u64::saturating_add);
            let run = geometry.span(*from, len);
            run.is_ok_and(|run| lent.lasts_until(geometry, run) == run.end())
        }
        _ => true,
    };
    match lasts {
        true => Verdict::Fine,
        false => Verdict::Copy,
    }
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
        } => {
            let lens = to.iter().map(|place| place.len);
            let len = lens.fold(0, u64::saturating_add);
            lent.is_lent(peer, *region, (*from, len))
        }
        _ => true,
    }
}

/// What the network said, for the engine.
pub(super) fn access_failed(cause: &hydrant_conduit::Error) -> hydrant_pinning::Error {
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
        cause => hydrant_pinning::Error::Access {
            rank: 0,
            why: cause.to_string(),
        },
    }
}

/// What the engine said, in the words of conduits: both end at the same waits.
fn as_conduit(cause: hydrant_pinning::Error) -> hydrant_conduit::Error {
    use hydrant_conduit::Error as C;
    use hydrant_pinning::Error as P;
    match cause {
        P::PeerLost(rank) => C::PeerLost(Rank(rank)),
        P::Unreachable {
            rank,
            addr,
            len,
            why: Refusal::NotMapped | Refusal::ReadOnly,
        } => C::BadAddress {
            peer: Rank(rank),
            addr,
            len,
        },
        P::Unreachable {
            rank,
            why: Refusal::NotLent,
            ..
        } => C::Revoked {
            peer: Rank(rank),
            key: 0,
        },
        P::Access { why, .. } => C::System {
            what: "a transfer between registered memory",
            cause: why,
        },
        cause => C::System {
            what: "registration",
            cause: cause.to_string(),
        },
    }
}
