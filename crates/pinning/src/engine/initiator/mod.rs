//! The initiator: own operations, their pieces, and the firehoses held for them at peers.
//!
//! It uses the local table below it, and knows nothing of what peers do with own memory.

mod answer;
mod audit;
mod choose;
mod copy;
mod firehoses;
mod foreseen;
mod head;
mod piece;
mod reach;
mod revoke;
mod sides;
mod timed;
mod transfer;
mod tried;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    choice::RouteChoice, context::StepContext, impossible::Noted, operation::Operation,
    stats::Stats,
};
use crate::{Data, Hot, wire::Grant};
pub(super) use answer::AnswerTo;
use firehoses::FirehoseTable;
pub use foreseen::{Attached, Detached};
use piece::{Op, Piece};
pub use timed::TimedHit;

/// The initiator's state.
#[derive(Debug)]
pub(super) struct Initiator {
    /// What threads share: a peer's firehose table is added to it when it is made.
    hot: Arc<Hot>,
    /// Firehoses owned at each peer; never changed.
    share: u64,
    /// The firehose tables, by peer, from the first use of a peer on.
    tables: FxHashMap<u32, FirehoseTable>,
    /// Operations under way, by the driver's name for them.
    ops: FxHashMap<u64, Op>,
    /// Their pieces, by name.
    pieces: FxHashMap<u64, Piece>,
    /// Transfers, pulls and chunks under way, by name: for which piece.
    transfers: FxHashMap<u64, Transfer>,
    /// Of these, how many are the network's.
    one_sided: usize,
    /// Pieces that wait for firehoses: how many there are in the queues of all tables.
    waiting: usize,
    /// Which way operations go, by `auto`; none by other strategies.
    choice: Option<Box<RouteChoice>>,
    /// What it did so far. The counts of the local table and the target stay zero.
    stats: Stats,
    /// The bugs that it met.
    impossible: Noted,
}

/// For which piece something is under way.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    /// A transfer, by the network.
    OneSided(u64),
    /// The peer writes the piece.
    Pull(u64),
    /// A chunk of a piece that is copied, and where in the piece.
    Chunk { piece: u64, at: u64 },
}

impl Transfer {
    fn piece(self) -> u64 {
        match self {
            Transfer::OneSided(piece) | Transfer::Pull(piece) | Transfer::Chunk { piece, .. } => {
                piece
            }
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

    /// What `auto` knows.
    pub(super) fn choice(&mut self) -> Option<&mut RouteChoice> {
        self.choice.as_deref_mut()
    }

    /// Whether `auto` would know what time it is.
    pub(super) fn wants_time(&self) -> bool {
        (self.choice.as_ref()).is_some_and(|choice| choice.wants_time())
    }

    /// Whether something is being timed.
    pub(super) fn is_timing(&self) -> bool {
        (self.choice.as_ref()).is_some_and(|choice| choice.is_timing())
    }

    /// The time, in nanoseconds, for `auto`.
    pub(super) fn tell_time(&mut self, now: u64) {
        let under_way = self.pieces.len();
        let moved = self.one_sided > 0;
        if let Some(choice) = &mut self.choice {
            choice.meter.tell(now, under_way, moved);
        }
    }

    /// Whether hits are to ask first.
    pub(super) fn asks(&self) -> bool {
        self.choice.as_ref().is_some_and(|choice| choice.asks())
    }

    /// Operations under way.
    pub(super) fn busy(&self) -> usize {
        self.ops.len()
    }

    /// Whether pieces wait for firehoses.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting > 0
    }

    /// Firehoses attached to a peer's buckets, and how many there may be.
    pub(super) fn firehoses(&self, peer: u32) -> (u64, u64) {
        (self.tables.get(&peer)).map_or((0, self.share), |table| {
            (table.attached() as u64, table.credit())
        })
    }

    /// The piece of a transfer that was done, or failed; none if it is none of an own operation.
    pub(super) fn take_transfer(&mut self, id: u64) -> Option<u64> {
        match self.transfers.get(&id)? {
            Transfer::OneSided(piece) => {
                let piece = *piece;
                self.transfers.remove(&id);
                self.one_sided -= 1;
                Some(piece)
            }
            Transfer::Pull(_) | Transfer::Chunk { .. } => None,
        }
    }

    /// A hit that somebody waits for gave back a firehose, if it held one.
    pub(super) fn released(&mut self, peer: u32, slot: u32, cx: &mut StepContext<'_>) {
        if let Some(table) = self.tables.get_mut(&peer) {
            table.released(slot);
            self.firehoses_free(peer, cx);
        }
    }

    /// What begins missed: a hit may have held a firehose for a moment, and told nobody.
    pub(super) fn recover_missed_release(
        &mut self,
        peer: u32,
        remote: u64,
        cx: &mut StepContext<'_>,
    ) {
        if let Some(table) = self.tables.get_mut(&peer) {
            table.recover_missed_release(remote);
            self.firehoses_free(peer, cx);
        }
    }

    /// A peer is gone: what waits for it fails. Operations that have transfers under way end when
    /// the network has ended those.
    pub(super) fn peer_lost(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        self.fail_pieces(peer, cx);
        if let Some(choice) = &mut self.choice {
            choice.forget_timed();
        }
        // Hits and transfers under way hold its records until they end.
        if let Some(table) = self.tables.get_mut(&peer) {
            table.lose();
        }
    }

    /// Memory of a peer that is registered for good.
    pub(super) fn add_static(&mut self, peer: u32, grants: &[Grant]) {
        let table = self.table_of(peer);
        grants.iter().for_each(|grant| table.add_static(grant));
    }

    fn table_of(&mut self, peer: u32) -> &mut FirehoseTable {
        let Self { hot, share, .. } = self;
        self.tables.entry(peer).or_insert_with(|| {
            let table = FirehoseTable::new(*share);
            hot.add_peer(peer, table.shared());
            table
        })
    }
}
