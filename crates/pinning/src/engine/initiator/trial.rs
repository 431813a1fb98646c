//! The routes of pieces under `auto`, and their times.

use super::{
    super::{
        choice::{OperationClass, PieceRoute, RouteChoice},
        operation::OwnMemory,
    },
    Initiator, StepContext,
};
use crate::Direction;

/// The trial of a route that `auto` chose for a piece, which measures its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteTrial {
    pub(super) class: OperationClass,
    /// The route; `None` while it is not known, or if the piece took several.
    pub(super) route: Option<PieceRoute>,
    /// The start, if the piece is timed.
    begun: Option<u64>,
    /// The number of pieces of its class that it stands for, because a copy is not cut.
    pub(super) parts: u64,
    /// The epoch of the peer's load at its start.
    began: u32,
}

impl Initiator {
    /// Begins to time a piece, if it is to be timed.
    pub(super) fn start_trial(
        &mut self,
        peer: u32,
        direction: Direction,
        len: u64,
        own: OwnMemory,
    ) -> Option<RouteTrial> {
        let choice = self.choice.as_mut()?;
        let class = RouteChoice::class(direction, len, own == OwnMemory::Transient);
        let tables = &self.tables;
        // A peer that registers memory answers late.
        let table = tables.get(&peer);
        let is_free = || table.is_none_or(|table| table.asked.is_empty() && table.load.is_free());
        Some(RouteTrial {
            class,
            route: None,
            begun: choice.begin(class, is_free),
            parts: 1,
            began: table.map_or(0, |table| table.load.epoch()),
        })
    }

    /// Notes the route of a piece.
    pub(super) fn set_route(&mut self, id: u64, route: PieceRoute) {
        self.with_piece(id, |piece| piece.set_route(route));
    }

    /// Notes that the peer had to register memory of a supposed hit.
    pub(super) fn note_peer_registered(&mut self, id: u64, cx: &StepContext<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return;
        };
        if let Some(trial) = &mut piece.trial
            && trial.route == Some(PieceRoute::Hit)
        {
            trial.route = None;
            let run = cx.limits().geometry.span(piece.remote, piece.len).ok();
            if let Some((run, table)) = run.zip(self.tables.get_mut(&piece.peer)) {
                let kept = table.peer_share(cx.limits().total, cx.config().ranks);
                table.pulled.note_missing(run.first, run.count, kept);
            }
        }
    }

    /// Ends the trial of a piece that is over, or that takes another route than was tried.
    pub(super) fn end_trial(&mut self, id: u64, is_fine: bool) {
        let (Some(choice), Some(piece)) = (&mut self.choice, self.pieces.get_mut(&id)) else {
            return;
        };
        let Some(trial) = piece.trial.take() else {
            return;
        };
        let took = choice.stop(trial.begun);
        let table = self.tables.get_mut(&piece.peer);
        let is_undisturbed = table.is_none_or(|table| table.load.finish(trial.began));
        let Some(route) = trial.route.filter(|_| is_fine) else {
            return;
        };
        // A piece that a move is part of takes as long as the move.
        if !is_undisturbed && route != PieceRoute::PeerRegisters {
            return;
        }
        if let Some(nanos) = took {
            // Zero stands for a route without a sample.
            choice.record_time(trial.class, route, (nanos / trial.parts).max(1));
        }
    }
}
