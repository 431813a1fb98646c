//! Making connections: one for each direction, when it is first used, and anew when a refused
//! access broke it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{Error, Key, Rank};

use super::{Control, Datagram, Kind};
use crate::{
    lane::{Access, State, Whole},
    nic::{Connect, QueuePair},
    shared::Shared,
    table,
};

impl Control {
    /// Asks a peer to connect.
    pub(super) fn call(&mut self, rank: Rank) {
        let shared = Arc::clone(&self.shared);
        if let Err(cause) = shared.standings.present(rank) {
            let mut ended = Vec::new();
            shared
                .peer(rank)
                .lane
                .lock()
                .end(&shared.roads, &cause, &mut ended);
            return shared.end_operations(ended);
        }
        let pair = match new_pair(&shared, shared.roads.depth as u32) {
            Ok(pair) => Arc::new(pair),
            Err(cause) => {
                tracing::error!(%cause, %rank, "no connection can be made");
                return self.lose(rank, "the NIC has no queue pair for it");
            }
        };
        let mut lane = shared.peer(rank).lane.lock();
        if lane.state != State::Connecting {
            return;
        }
        let request = Datagram {
            epoch: lane.epoch,
            pair: pair.number,
            packet: packet(),
            key: lane.refused.map_or(0, |access| access.whole.key),
            ..Datagram::new(Kind::Connect, shared.rank.0)
        };
        lane.pair = Some(pair);
        drop(lane);
        if rank == shared.rank {
            return self.answer(rank, &request);
        }
        self.watch.begin(rank.0);
        self.calls.said(rank.0, request);
        self.say(rank, request);
    }

    /// A peer wants to ask something of this rank.
    pub(super) fn answer(&mut self, from: Rank, request: &Datagram) {
        let shared = Arc::clone(&self.shared);
        if shared.standings.present(from).is_err() {
            return;
        }
        let peer = shared.peer(from);
        let mut incoming = peer.incoming.lock();
        let number = match &incoming.pair {
            // Each try of this rank's own is with another queue pair.
            Some(_) if from == shared.rank => None,
            // Asked again.
            Some(pair) if incoming.epoch == request.epoch => Some(pair.number),
            Some(_) if incoming.epoch.wrapping_sub(request.epoch) < u32::MAX / 2 => return,
            _ => None,
        };
        let number = match number {
            Some(number) => number,
            None => match self.open(&shared, from, request, &mut incoming) {
                Ok(number) => number,
                Err(cause) => {
                    drop(incoming);
                    if self.may_try_again(from, &cause) {
                        // A peer asks again by itself.
                        if from == shared.rank {
                            self.calls.said(from.0, *request);
                        }
                        return;
                    }
                    tracing::error!(%cause, %from, "a connection cannot be answered");
                    return self.lose(from, "the NIC has no room for its connection");
                }
            },
        };
        drop(incoming);
        if from != shared.rank {
            self.stuck.remove(&from.0);
        }
        let extent = shared.table.find_remote(Key(request.key));
        let answer = Datagram {
            epoch: request.epoch,
            pair: number,
            packet: request.packet,
            key: request.key,
            about: match extent {
                None => GONE,
                Some(extent) if extent.writable => WRITABLE,
                Some(_) => READABLE,
            },
            start: extent.map_or(0, |extent| extent.start),
            len: extent.map_or(0, |extent| extent.len),
            ..Datagram::new(Kind::Accept, shared.rank.0)
        };
        if from == shared.rank {
            return self.answered(from, &answer);
        }
        self.watch.begin(from.0);
        self.say(from, answer);
    }

    /// Whether a connection that could not be made may still be tried for: while a link is down,
    /// say, there is no route, not even to this rank itself.
    fn may_try_again(&mut self, rank: Rank, cause: &std::io::Error) -> bool {
        let since = *self.stuck.entry(rank.0).or_insert_with(|| {
            tracing::info!(%cause, %rank, "a connection cannot be made yet");
            Instant::now()
        });
        since.elapsed() < self.watch.patience().unwrap_or(PATIENCE)
    }

    /// A queue pair that answers a peer, instead of the one before.
    fn open(
        &self,
        shared: &Shared,
        from: Rank,
        request: &Datagram,
        incoming: &mut crate::shared::Incoming,
    ) -> std::io::Result<u32> {
        // A rank sends itself no messages that way.
        if !incoming.housed && from != shared.rank {
            shared.receives.grow()?;
            incoming.housed = true;
        }
        let pair = new_pair(shared, 1)?;
        pair.connect(&Connect {
            place: &shared.places[from.index()],
            number: request.pair,
            packet: request.packet,
            timeout: shared.ack_timeout,
        })?;
        let number = pair.number;
        let mut by_pair = shared.by_pair.write();
        by_pair.insert(number, from.0);
        drop(by_pair);
        if let Some(old) = incoming.pair.replace(pair) {
            shared.retire(old);
        }
        incoming.epoch = request.epoch;
        incoming.expected = None;
        Ok(number)
    }

    /// A peer has made what this rank asked for.
    pub(super) fn answered(&mut self, from: Rank, answer: &Datagram) {
        let shared = Arc::clone(&self.shared);
        let Some(peer) = shared.known(from.0) else {
            return;
        };
        let mut lane = peer.lane.lock();
        if lane.state != State::Connecting || lane.epoch != answer.epoch {
            return;
        }
        let Some(pair) = lane.pair.clone() else {
            return;
        };
        let connected = pair.connect(&Connect {
            place: &shared.places[from.index()],
            number: answer.pair,
            packet: answer.packet,
            timeout: shared.ack_timeout,
        });
        if let Err(cause) = connected {
            drop(lane);
            if self.may_try_again(from, &cause) {
                // A peer is asked again, and answers the same.
                if from == shared.rank {
                    self.calls.said(from.0, *answer);
                }
                return;
            }
            tracing::error!(%cause, %from, "a connection cannot be used");
            self.calls.answered(from.0);
            return self.lose(from, "the connection cannot be used");
        }
        self.calls.answered(from.0);
        self.stuck.remove(&from.0);
        let mtu = shared.places[from.index()].mtu.min(shared.nic.port.mtu);
        lane.begin(answer.packet, mtu);
        let refused = lane.refused.take();
        let flushed = lane.flush(&shared.roads);
        shared.look_after(from, &mut lane);
        drop(lane);
        if flushed.is_err() {
            return self.lose(from, "the NIC refused a request");
        }
        let ended = refused.map(|access| (access.ticket, Err(explain(from, &access, answer))));
        shared.end_operations(ended.into_iter().collect());
    }
}

impl Control {
    /// Asks a peer how far it got before a connection broke.
    pub(super) fn ask(&mut self, rank: Rank) {
        let shared = Arc::clone(&self.shared);
        let lane = shared.peer(rank).lane.lock();
        if lane.state != State::Unclear {
            return;
        }
        let question = Datagram {
            epoch: lane.epoch,
            ..Datagram::new(Kind::HowFar, shared.rank.0)
        };
        drop(lane);
        tracing::info!(%rank, "a connection broke: it is made anew");
        if rank == shared.rank {
            return self.say_how_far(rank, &question);
        }
        self.watch.begin(rank.0);
        self.calls.said(rank.0, question);
        self.say(rank, question);
    }

    /// A peer's connection to this rank broke.
    pub(super) fn say_how_far(&mut self, from: Rank, question: &Datagram) {
        let shared = Arc::clone(&self.shared);
        let Some(peer) = shared.known(from.0) else {
            return;
        };
        let mut incoming = peer.incoming.lock();
        let expected = match (&incoming.pair, incoming.expected) {
            (Some(_), Some(told)) if incoming.epoch == question.epoch => Ok(told),
            (Some(pair), None) if incoming.epoch == question.epoch => pair.halt().and_then(|()| {
                thread::sleep(SETTLED);
                pair.expected()
            }),
            _ => return,
        };
        incoming.expected = expected.as_ref().ok().copied();
        drop(incoming);
        match expected {
            Ok(packet) => {
                let answer = Datagram {
                    epoch: question.epoch,
                    packet,
                    ..Datagram::new(Kind::SoFar, shared.rank.0)
                };
                if from == shared.rank {
                    return self.clarify(from, &answer);
                }
                self.say(from, answer);
            }
            Err(cause) => {
                tracing::error!(%cause, %from, "how far a connection got cannot be told");
                self.lose(from, "its connection broke");
            }
        }
    }

    /// A peer says how far it got.
    pub(super) fn clarify(&mut self, from: Rank, answer: &Datagram) {
        let shared = Arc::clone(&self.shared);
        let Some(peer) = shared.known(from.0) else {
            return;
        };
        let mut lane = peer.lane.lock();
        if lane.state != State::Unclear || lane.epoch != answer.epoch {
            return;
        }
        let mut ended = Vec::new();
        lane.clarify(&shared.roads, answer.packet, &mut ended);
        drop(lane);
        shared.end_operations(ended);
        self.call(from);
    }
}

/// Soft-RoCE may be at a packet on another processor when its queue pair is halted: it is counted
/// when this has passed.
const SETTLED: Duration = Duration::from_millis(2);

/// How long a connection is tried for where peers may be silent for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the owner says of an extent whose key was refused.
const GONE: u32 = 0;
const READABLE: u32 = 1;
const WRITABLE: u32 = 2;

/// Why the peer's NIC refused an access.
fn explain(peer: Rank, access: &Access, answer: &Datagram) -> Error {
    let Whole { key, addr, len } = access.whole;
    let extent = table::Extent {
        start: answer.start,
        len: answer.len,
        lkey: 0,
        writable: answer.about == WRITABLE,
    };
    match answer.about {
        // It is in force as long as the peer is: what it does not open is not there.
        _ if key == Key::ANY.0 => Error::BadAddress { peer, addr, len },
        READABLE | WRITABLE if answer.key == key && !extent.covers(addr, len) => {
            Error::OutOfExtent {
                peer,
                offset: addr,
                len,
                extent: extent.len,
            }
        }
        READABLE if answer.key == key && access.write => Error::BadAddress { peer, addr, len },
        _ => Error::Revoked { peer, key },
    }
}

/// A queue pair that asks, or answers.
fn new_pair(shared: &Shared, depth: u32) -> std::io::Result<QueuePair> {
    QueuePair::connected(
        &shared.nic,
        &shared.sent,
        &shared.received,
        &shared.shared_queue,
        depth,
        shared.roads.inline,
    )
}

/// Where packets begin to be counted: anywhere, so that those of an old connection are not taken
/// for the new one's.
fn packet() -> u32 {
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    since.subsec_nanos().wrapping_mul(0x9e37_79b9) >> 8
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::Ticket;

    use super::*;

    #[test]
    fn refused_accesses_are_explained_by_what_the_owner_says() {
        let asked = |key, addr, write| Access {
            ticket: Ticket(1),
            write,
            last: true,
            addr: 0,
            len: 8,
            lkey: 0,
            remote: addr,
            rkey: 0,
            whole: Whole { key, addr, len: 8 },
        };
        let said = |about, key| Datagram {
            about,
            key,
            start: 0x1000,
            len: 0x100,
            ..Datagram::new(Kind::Accept, 3)
        };
        let why = |access: &Access, answer| explain(Rank(3), access, &answer);
        let (inside, outside) = (0x1000, 0x10fc);
        assert!(matches!(
            why(&asked(7, inside, true), said(GONE, 7)),
            Error::Revoked { key: 7, .. }
        ));
        assert!(matches!(
            why(&asked(7, inside, true), said(READABLE, 7)),
            Error::BadAddress { len: 8, .. }
        ));
        assert!(matches!(
            why(&asked(7, outside, false), said(WRITABLE, 7)),
            Error::OutOfExtent { offset: 0x10fc, .. }
        ));
        // Where the NIC pages nothing is revoked: it is not mapped.
        assert!(matches!(
            why(&asked(Key::ANY.0, inside, true), said(GONE, Key::ANY.0)),
            Error::BadAddress { addr: 0x1000, .. }
        ));
    }
}
