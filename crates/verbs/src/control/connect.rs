//! Making connections: one for each direction on first use, and again after a connection broke.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{Error, Key, Rank};

use super::Control;
use crate::{
    connection::{Opcode, RdmaAccess, RemoteRange},
    datagram::{Datagram, DatagramKind},
    nic::{ConnectAttributes, QueuePair},
    peers::{ConnectRequest, IncomingConnection},
    shared::VerbsShared,
    table,
};

impl Control {
    /// Asks a peer for the queue pair that answers this rank's requests.
    pub(super) fn request_connection(&mut self, rank: Rank) {
        let shared = Arc::clone(&self.shared);
        if let Err(cause) = shared.peers.standings().present(rank) {
            let mut ended = Vec::new();
            shared
                .peers
                .get(rank)
                .connection()
                .lock()
                .end(shared.peers.pool(), &cause, &mut ended);
            return shared.completions.end_operations(ended);
        }
        let pair = match new_pair(&shared, shared.peers.pool().limits().depth as u32) {
            Ok(pair) => Arc::new(pair),
            Err(cause) => {
                tracing::error!(%cause, %rank, "no connection can be made");
                return self.lose(rank, "the NIC has no queue pair for it");
            }
        };
        let mut connection = shared.peers.get(rank).connection().lock();
        let Some((epoch, key)) = connection.pending_connect() else {
            return;
        };
        let request = Datagram {
            epoch,
            pair: pair.number,
            psn: first_psn(),
            key,
            ..Datagram::new(DatagramKind::Connect, shared.endpoint.rank().0)
        };
        connection.connect_with(pair);
        drop(connection);
        if rank == shared.endpoint.rank() {
            return self.accept_connection(rank, &request);
        }
        self.watch.add(rank.0);
        self.connects.note_sent(rank.0, request);
        self.send(rank, request);
    }

    /// Answers a peer's request to connect.
    pub(super) fn accept_connection(&mut self, from: Rank, request: &Datagram) {
        let shared = Arc::clone(&self.shared);
        if shared.peers.standings().present(from).is_err() {
            return;
        }
        let peer = shared.peers.get(from);
        let mut incoming = peer.incoming().lock();
        let oneself = from == shared.endpoint.rank();
        let number = match incoming.classify(request.epoch, oneself) {
            ConnectRequest::Answered(number) => number,
            ConnectRequest::Stale => return,
            ConnectRequest::New => {
                match self.open_incoming_pair(&shared, from, request, &mut incoming) {
                    Ok(number) => number,
                    Err(cause) => {
                        drop(incoming);
                        if self.note_failure(from, &cause) {
                            // A peer resends its request by itself.
                            if from == shared.endpoint.rank() {
                                self.connects.note_sent(from.0, *request);
                            }
                            return;
                        }
                        tracing::error!(%cause, %from, "a connection cannot be answered");
                        return self.lose(from, "the NIC has no room for its connection");
                    }
                }
            }
        };
        drop(incoming);
        if from != shared.endpoint.rank() {
            self.failing_since.remove(&from.0);
        }
        let extent = shared.table.find_remote(Key(request.key));
        let answer = Datagram {
            epoch: request.epoch,
            pair: number,
            psn: request.psn,
            key: request.key,
            about: match extent {
                None => GONE,
                Some(extent) if extent.writable => WRITABLE,
                Some(_) => READABLE,
            },
            start: extent.map_or(0, |extent| extent.start),
            len: extent.map_or(0, |extent| extent.len),
            ..Datagram::new(DatagramKind::Accept, shared.endpoint.rank().0)
        };
        if from == shared.endpoint.rank() {
            return self.finish_connection(from, &answer);
        }
        self.watch.add(from.0);
        self.send(from, answer);
    }

    /// Notes that a connection could not be made. Returns whether it may be tried again. While a link is
    /// down, for example, there is no route, not even to this rank itself.
    fn note_failure(&mut self, rank: Rank, cause: &std::io::Error) -> bool {
        let since = *self.failing_since.entry(rank.0).or_insert_with(|| {
            tracing::info!(%cause, %rank, "a connection cannot be made yet");
            Instant::now()
        });
        since.elapsed() < self.watch.patience().unwrap_or(PATIENCE)
    }

    /// Makes a queue pair that answers a peer, in place of the one before. Returns its number.
    fn open_incoming_pair(
        &self,
        shared: &VerbsShared,
        from: Rank,
        request: &Datagram,
        incoming: &mut IncomingConnection,
    ) -> std::io::Result<u32> {
        // A rank sends itself messages by the loopback, which needs no receive slots.
        if !incoming.has_slots() && from != shared.endpoint.rank() {
            shared.endpoint.grow_receives()?;
            incoming.set_has_slots();
        }
        let pair = new_pair(shared, 1)?;
        pair.connect(&ConnectAttributes {
            address: &shared.endpoint.addresses()[from.index()],
            number: request.pair,
            psn: request.psn,
            timeout: shared.endpoint.ack_timeout(),
        })?;
        let number = pair.number;
        shared.incoming.add(number, from.0);
        if let Some(old) = incoming.replace(pair, request.epoch) {
            shared.incoming.retire(old);
        }
        Ok(number)
    }

    /// Completes a connection after the peer's answer.
    pub(super) fn finish_connection(&mut self, from: Rank, answer: &Datagram) {
        let shared = Arc::clone(&self.shared);
        let Some(peer) = shared.peers.existing(from.0) else {
            return;
        };
        let mut connection = peer.connection().lock();
        let Some(pair) = connection.connecting_pair(answer.epoch) else {
            return;
        };
        let connected = pair.connect(&ConnectAttributes {
            address: &shared.endpoint.addresses()[from.index()],
            number: answer.pair,
            psn: answer.psn,
            timeout: shared.endpoint.ack_timeout(),
        });
        if let Err(cause) = connected {
            drop(connection);
            if self.note_failure(from, &cause) {
                // The request to a peer is resent, and the peer answers the same.
                if from == shared.endpoint.rank() {
                    self.connects.note_sent(from.0, *answer);
                }
                return;
            }
            tracing::error!(%cause, %from, "a connection cannot be used");
            self.connects.note_answered(from.0);
            return self.lose(from, "the connection cannot be used");
        }
        self.connects.note_answered(from.0);
        self.failing_since.remove(&from.0);
        let mtu = shared.endpoint.addresses()[from.index()]
            .mtu
            .min(shared.endpoint.nic().port.mtu);
        connection.set_ready(answer.psn, mtu);
        let refused = connection.take_refused();
        let flushed = connection.flush(shared.peers.pool());
        shared.peers.list_for_doorbell(from, &mut connection);
        drop(connection);
        if flushed.is_err() {
            return self.lose(from, "the NIC refused a request");
        }
        let ended = refused.map(|access| (access.ticket, Err(explain(from, &access, answer))));
        shared
            .completions
            .end_operations(ended.into_iter().collect());
    }
}

impl Control {
    /// Asks a peer for the PSN that it expects next on a connection that broke.
    pub(super) fn query_psn(&mut self, rank: Rank) {
        let shared = Arc::clone(&self.shared);
        let connection = shared.peers.get(rank).connection().lock();
        let Some(epoch) = connection.unclear_epoch() else {
            return;
        };
        let question = Datagram {
            epoch,
            ..Datagram::new(DatagramKind::QueryPsn, shared.endpoint.rank().0)
        };
        drop(connection);
        tracing::info!(%rank, "a connection broke: it is made again");
        if rank == shared.endpoint.rank() {
            return self.tell_psn(rank, &question);
        }
        self.watch.add(rank.0);
        self.connects.note_sent(rank.0, question);
        self.send(rank, question);
    }

    /// Answers a peer whose connection to this rank broke.
    pub(super) fn tell_psn(&mut self, from: Rank, question: &Datagram) {
        let shared = Arc::clone(&self.shared);
        let Some(peer) = shared.peers.existing(from.0) else {
            return;
        };
        let mut incoming = peer.incoming().lock();
        let expected_psn = incoming.expected_psn(question.epoch, |pair| {
            pair.halt()?;
            thread::sleep(SETTLED);
            pair.expected_psn()
        });
        drop(incoming);
        match expected_psn {
            None => {}
            Some(Ok(psn)) => {
                let answer = Datagram {
                    epoch: question.epoch,
                    psn,
                    ..Datagram::new(DatagramKind::ExpectedPsn, shared.endpoint.rank().0)
                };
                if from == shared.endpoint.rank() {
                    return self.resume(from, &answer);
                }
                self.send(from, answer);
            }
            Some(Err(cause)) => {
                tracing::error!(%cause, %from, "the expected PSN of a connection is unknown");
                self.lose(from, "its connection broke");
            }
        }
    }

    /// Resumes a broken connection after the peer told its expected PSN.
    pub(super) fn resume(&mut self, from: Rank, answer: &Datagram) {
        let shared = Arc::clone(&self.shared);
        let Some(peer) = shared.peers.existing(from.0) else {
            return;
        };
        let mut connection = peer.connection().lock();
        if connection.unclear_epoch() != Some(answer.epoch) {
            return;
        }
        let mut ended = Vec::new();
        connection.resume_from(shared.peers.pool(), answer.psn, &mut ended);
        drop(connection);
        shared.completions.end_operations(ended);
        self.request_connection(from);
    }
}

/// Soft-RoCE may still process a packet on another core when its queue pair is halted. After this
/// time the packet is counted.
const SETTLED: Duration = Duration::from_millis(2);

/// How long to try for a connection where peers may be silent for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// The owner's answer about a refused key: no extent has it.
const GONE: u32 = 0;
/// The owner's answer: the extent may be read.
const READABLE: u32 = 1;
/// The owner's answer: the extent may be read and written.
const WRITABLE: u32 = 2;

/// Returns the error for an access that the peer's NIC refused.
fn explain(peer: Rank, access: &RdmaAccess, answer: &Datagram) -> Error {
    let RemoteRange { key, addr, len } = access.whole;
    let extent = table::LocalExtent {
        start: answer.start,
        len: answer.len,
        lkey: 0,
        writable: answer.about == WRITABLE,
    };
    match answer.about {
        // `Key::ANY` is in force as long as the peer is, so the memory is not mapped.
        _ if key == Key::ANY.0 => Error::BadAddress { peer, addr, len },
        READABLE | WRITABLE if answer.key == key && !extent.covers(addr, len) => {
            Error::OutOfExtent {
                peer,
                offset: addr,
                len,
                extent: extent.len,
            }
        }
        READABLE if answer.key == key && access.opcode == Opcode::Write => {
            Error::BadAddress { peer, addr, len }
        }
        // The extent permits the access, so the NIC did not find the memory that it paged on demand.
        READABLE | WRITABLE if answer.key == key => Error::BadAddress { peer, addr, len },
        _ => Error::Revoked { peer, key },
    }
}

/// Makes a queue pair to send or to answer requests.
fn new_pair(shared: &VerbsShared, depth: u32) -> std::io::Result<QueuePair> {
    let inline = shared.peers.pool().limits().inline;
    shared
        .completions
        .queue_pair(&shared.endpoint, depth, inline)
}

/// Returns a first PSN that varies, so that packets of an old connection are not taken for a new
/// one's.
fn first_psn() -> u32 {
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
    fn refused_accesses_are_explained_by_the_answer_of_the_owner() {
        let access = |key, addr, opcode| RdmaAccess {
            ticket: Ticket(1),
            opcode,
            last: true,
            copied: false,
            addr: 0,
            len: 8,
            lkey: 0,
            remote: addr,
            rkey: 0,
            whole: RemoteRange { key, addr, len: 8 },
        };
        let answer = |about, key| Datagram {
            about,
            key,
            start: 0x1000,
            len: 0x100,
            ..Datagram::new(DatagramKind::Accept, 3)
        };
        let why = |access: &RdmaAccess, answer| explain(Rank(3), access, &answer);
        let (inside, outside) = (0x1000, 0x10fc);
        assert!(matches!(
            why(&access(7, inside, Opcode::Write), answer(GONE, 7)),
            Error::Revoked { key: 7, .. }
        ));
        assert!(matches!(
            why(&access(7, inside, Opcode::Write), answer(READABLE, 7)),
            Error::BadAddress { len: 8, .. }
        ));
        assert!(matches!(
            why(&access(7, outside, Opcode::Read), answer(WRITABLE, 7)),
            Error::OutOfExtent { offset: 0x10fc, .. }
        ));
        // An extent that is paged on demand may have unmapped memory.
        for about in [READABLE, WRITABLE] {
            assert!(matches!(
                why(&access(7, inside, Opcode::Read), answer(about, 7)),
                Error::BadAddress { len: 8, .. }
            ));
        }
        // With on-demand paging no memory is revoked; it is just not mapped.
        assert!(matches!(
            why(
                &access(Key::ANY.0, inside, Opcode::Write),
                answer(GONE, Key::ANY.0)
            ),
            Error::BadAddress { addr: 0x1000, .. }
        ));
    }
}
