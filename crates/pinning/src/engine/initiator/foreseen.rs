//! Firehoses that a predictor expects to be needed soon, or not soon. They are moved ahead of their
//! use, and given back after it. Neither holds anything: firehoses in use stay, and none is taken
//! off for a mere expectation.

use super::{
    Initiator, StepContext,
    firehoses::{Attached, PendingMove, RemoteSide},
};
use crate::{
    Direction, EngineMessage, RegionNumber, Run, Strategy,
    wire::{MAX_LIST, Move, Need},
};

/// The outcome of giving firehoses back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detached {
    /// The firehoses are given back.
    Now,
    /// Operations use some of the firehoses. They go after the last use, unless their use is
    /// foreseen before.
    WhenUnused,
    /// A move in flight brings some firehoses. They go when they have come, unless their use is
    /// foreseen before.
    Coming,
    /// There were no firehoses.
    Nothing,
}

impl Initiator {
    /// Moves firehoses to some memory of a peer, where they are missing, if enough are attached to
    /// nothing.
    pub(in crate::engine) fn attach_ahead(
        &mut self,
        (peer, region, run): (u32, RegionNumber, Run),
        direction: Direction,
        cx: &mut StepContext<'_>,
    ) -> Attached {
        if cx.config().strategy != Strategy::Foresight {
            return Attached::No;
        }
        let table = self.table_of(peer);
        let look = table.acquire_run(run, direction.remote());
        table.drop_holds(&look.holds);
        let missing = look.gaps.iter().map(|gap| gap.count).sum();
        if look.read_only || table.is_revoked() || table.is_short(missing) {
            return Attached::No;
        }
        if look.gaps.is_empty() && look.joins.is_empty() {
            table.cancel_leaving(run);
            return Attached::All;
        }
        let Some(needs) = table.set_aside_wide(&look.gaps, 0) else {
            return Attached::No;
        };
        table.expect(run, direction.remote());
        for needs in needs.chunks(MAX_LIST) {
            self.ask_ahead((peer, region, needs.to_vec()), direction, cx);
        }
        Attached::Coming
    }

    fn ask_ahead(
        &mut self,
        (peer, region, needs): (u32, RegionNumber, Vec<Need>),
        direction: Direction,
        cx: &mut StepContext<'_>,
    ) {
        let id = cx.name();
        let table = self.table_of(peer);
        table.record_move(id, PendingMove::new(needs.clone(), true, Vec::new()));
        let releases = table.take_owed(MAX_LIST);
        self.stats.moves += 1;
        self.stats.released += releases.len() as u64;
        self.give_back(peer, cx);
        let wanted = Move {
            id,
            region,
            write: direction == Direction::Put,
            hold: true,
            borrow: 0,
            releases,
            needs,
            piggyback: None,
        };
        cx.send(peer, EngineMessage::Move(wanted));
    }

    /// The state of the firehoses on some memory of a peer.
    pub(in crate::engine) fn attached(
        &mut self,
        peer: u32,
        run: Run,
        direction: Direction,
    ) -> Attached {
        let table = self.tables.get_mut(&peer);
        table.map_or(Attached::No, |it| {
            it.attached_state(run, direction.remote())
        })
    }

    /// Gives back the firehoses on some memory of a peer, those in use after their last use.
    pub(in crate::engine) fn detach(
        &mut self,
        peer: u32,
        run: Run,
        cx: &mut StepContext<'_>,
    ) -> Detached {
        let Some(table) = self.tables.get_mut(&peer) else {
            return Detached::Nothing;
        };
        table.forget_expected(run);
        let outcome = table.give_up(run);
        if outcome != Detached::Nothing {
            self.settle_ahead(peer, &[], cx);
            self.give_back(peer, cx);
            self.serve_waiting(peer, cx);
        }
        outcome
    }

    /// Settles expected runs after firehoses came or went. It gives back firehoses that came for no
    /// use, and `strays`.
    pub(super) fn settle_ahead(&mut self, peer: u32, strays: &[Run], cx: &mut StepContext<'_>) {
        if cx.config().strategy == Strategy::Foresight {
            self.table_of(peer).settle_ahead(strays);
            self.give_back(peer, cx);
        }
    }

    /// Holds the firehoses of a piece, if all are attached or in flight; returns true if so.
    pub(super) fn hold_attached(&mut self, id: u64, cx: &mut StepContext<'_>) -> bool {
        if cx.config().strategy != Strategy::Foresight {
            return false;
        }
        let Some(piece) = self.pieces.get(&id) else {
            self.impossible
                .note("firehoses are looked up for a piece that is over");
            return false;
        };
        let (peer, used) = (piece.peer, piece.direction.remote());
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            self.impossible
                .note("an operation was begun that leaves the address space");
            return false;
        };
        let Some(table) = self.tables.get_mut(&peer) else {
            return false;
        };
        let look = table.acquire_run(run, used);
        if look.read_only || !look.gaps.is_empty() {
            table.drop_holds(&look.holds);
            return false;
        }
        for (join, part) in &look.joins {
            if let Some(asked) = table.asked.get_mut(join) {
                asked.waiters.push((id, *part));
            }
        }
        let reach = RemoteSide {
            holds: look.holds,
            refused: None,
            pending: look.joins.len() as u32,
        };
        self.stats.remote_hits += u64::from(reach.pending == 0);
        self.with_piece(id, |piece| piece.remote_side = reach);
        self.request_local(id, cx);
        true
    }
}
