//! The initiator: the operations of this rank, their pieces, and the firehoses held for them at
//! peers.
//!
//! It uses the local table below it, and knows nothing of the target.

mod answer;
mod audit;
mod choose;
mod copy;
mod firehoses;
mod foreseen;
mod head;
mod piece;
mod remote_side;
mod revoke;
mod sides;
mod timed;
mod transfer;
mod trial;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    choice::RouteChoice, context::StepContext, impossible::Noted, operation::EngineOperation,
    stats::Stats, usage::PeerFirehoses,
};
use crate::{Data, Hot, wire::Grant};
pub(super) use answer::AnswerTo;
pub use firehoses::Attached;
use firehoses::FirehoseTable;
pub use foreseen::Detached;
use piece::{InFlightOperation, Piece};
pub use timed::TimedHit;

/// The initiator's state.
#[derive(Debug)]
pub(super) struct Initiator {
    /// The part that threads share. A peer's firehose table is added to it when it is made.
    hot: Arc<Hot>,
    /// The firehoses owned at each peer; never changed.
    share: u64,
    /// The firehose tables, by peer, from the first use of a peer on.
    tables: FxHashMap<u32, FirehoseTable>,
    /// The operations in flight, by the driver's name.
    ops: FxHashMap<u64, InFlightOperation>,
    /// Their pieces, by name.
    pieces: FxHashMap<u64, Piece>,
    /// The piece of each transfer, pull and chunk in flight, by name.
    transfers: FxHashMap<u64, TransferKind>,
    /// Of these, the number that the network carries out.
    one_sided: usize,
    /// The number of pieces in the queues of all firehose tables.
    waiting: usize,
    /// The choice of routes under `auto`; `None` under other strategies.
    choice: Option<Box<RouteChoice>>,
    /// The counts of its work. The counts of the local table and the target stay zero.
    stats: Stats,
    /// The impossible states that it met.
    impossible: Noted,
}

/// The kind of a transfer in flight, and its piece.
#[derive(Clone, Copy, Debug)]
enum TransferKind {
    /// The network transfers the piece.
    OneSided(u64),
    /// The peer writes the piece.
    Pull(u64),
    /// A chunk of a piece that is copied, and its place in the piece.
    Chunk { piece: u64, at: u64 },
}

impl TransferKind {
    fn piece(self) -> u64 {
        match self {
            TransferKind::OneSided(piece)
            | TransferKind::Pull(piece)
            | TransferKind::Chunk { piece, .. } => piece,
        }
    }
}

impl Initiator {
    pub(super) fn new(hot: Arc<Hot>, share: u64, choice: Option<RouteChoice>) -> Self {
        Self {
            hot,
            share,
            tables: FxHashMap::default(),
            ops: FxHashMap::default(),
            pieces: FxHashMap::default(),
            transfers: FxHashMap::default(),
            one_sided: 0,
            waiting: 0,
            choice: choice.map(Box::new),
            stats: Stats::default(),
            impossible: Noted::default(),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        self.stats
    }

    pub(super) fn impossible(&self) -> &Noted {
        &self.impossible
    }

    /// The choice of `auto`.
    pub(super) fn choice(&mut self) -> Option<&mut RouteChoice> {
        self.choice.as_deref_mut()
    }

    /// Returns true if `auto` needs the time.
    pub(super) fn wants_time(&self) -> bool {
        (self.choice.as_ref()).is_some_and(|choice| choice.wants_time())
    }

    /// Returns true if something is being timed.
    pub(super) fn is_timing(&self) -> bool {
        (self.choice.as_ref()).is_some_and(|choice| choice.is_timing())
    }

    /// Tells the time in nanoseconds, for `auto`.
    pub(super) fn tell_time(&mut self, now: u64) {
        let in_flight = self.pieces.len();
        let moved = self.one_sided > 0;
        if let Some(choice) = &mut self.choice {
            choice.meter.tell(now, in_flight, moved);
        }
    }

    /// Returns true if hits must ask first.
    pub(super) fn asks(&self) -> bool {
        self.choice.as_ref().is_some_and(|choice| choice.asks())
    }

    /// The number of operations in flight.
    pub(super) fn busy(&self) -> usize {
        self.ops.len()
    }

    /// Returns true if pieces wait for firehoses.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting > 0
    }

    /// The number of firehoses attached to a peer's buckets, and the most that there may be.
    pub(super) fn firehoses(&self, peer: u32) -> (u64, u64) {
        (self.tables.get(&peer)).map_or((0, self.share), |table| {
            (table.attached() as u64, table.credit())
        })
    }

    /// The firehoses attached to buckets of peers.
    pub(super) fn holding(&self) -> impl Iterator<Item = PeerFirehoses> {
        let tables = self.tables.iter().filter(|(_, table)| table.attached() > 0);
        tables.map(|(peer, table)| PeerFirehoses {
            peer: *peer,
            held_here: 0,
            held_there: table.attached() as u64,
        })
    }

    /// Takes the piece of a transfer that ended, or `None` if it is the target's.
    pub(super) fn take_transfer(&mut self, id: u64) -> Option<u64> {
        match self.transfers.get(&id)? {
            TransferKind::OneSided(piece) => {
                let piece = *piece;
                self.transfers.remove(&id);
                self.one_sided -= 1;
                Some(piece)
            }
            TransferKind::Pull(_) | TransferKind::Chunk { .. } => None,
        }
    }

    /// Serves the waiters after a hit gave back an awaited firehose.
    pub(super) fn released(&mut self, peer: u32, slot: u32, cx: &mut StepContext<'_>) {
        if let Some(table) = self.tables.get_mut(&peer) {
            table.released(slot);
            self.serve_waiting(peer, cx);
        }
    }

    /// Serves the waiters of a firehose that an attempt to hit held for a moment.
    pub(super) fn recover_missed_release(
        &mut self,
        peer: u32,
        remote: u64,
        cx: &mut StepContext<'_>,
    ) {
        if let Some(table) = self.tables.get_mut(&peer) {
            table.recover_missed_release(remote);
            self.serve_waiting(peer, cx);
        }
    }

    /// Fails the operations that wait for a lost peer. Operations with transfers in flight end when
    /// the network has ended those.
    pub(super) fn peer_lost(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        self.fail_pieces(peer, cx);
        if let Some(choice) = &mut self.choice {
            choice.forget_timed();
        }
        // Hits and transfers in flight hold its records until they end.
        if let Some(table) = self.tables.get_mut(&peer) {
            table.lose();
        }
    }

    /// Adds memory of a peer that is registered for good.
    pub(super) fn add_static(&mut self, peer: u32, grants: &[Grant]) {
        let table = self.table_of(peer);
        grants.iter().for_each(|grant| table.add_static(grant));
    }

    fn table_of(&mut self, peer: u32) -> &mut FirehoseTable {
        let Self { hot, share, .. } = self;
        self.tables.entry(peer).or_insert_with(|| {
            let table = FirehoseTable::new(*share, hot.announcements());
            hot.add_peer(peer, table.shared());
            table
        })
    }
}
