//! Which way the pieces of `auto` went, and what that took.

use super::{
    super::{
        choice::{OperationClass, PieceRoute, RouteChoice},
        operation::Own,
    },
    Initiator, StepContext,
};
use crate::Direction;

/// Which way `auto` sent a piece, to find out what that takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub(super) class: OperationClass,
    /// None as long as it is not known, or if it went several.
    pub(super) route: Option<PieceRoute>,
    /// When it began, if it is timed.
    begun: Option<u64>,
    /// How many of its class it stands for: what is copied is not cut.
    pub(super) parts: u64,
    /// How busy moves had kept the peer by then.
    began: u32,
}

impl Initiator {
    /// Begins to time a piece, if it is to be timed.
    pub(super) fn try_piece(
        &mut self,
        peer: u32,
        direction: Direction,
        len: u64,
        own: Own,
    ) -> Option<Tried> {
        let choice = self.choice.as_mut()?;
        let class = RouteChoice::class(direction, len, own == Own::Transient);
        let tables = &self.tables;
        // A peer that registers memory answers late.
        let table = tables.get(&peer);
        let is_free = || table.is_none_or(|table| table.asked.is_empty() && table.load.is_free());
        Some(Tried {
            class,
            route: None,
            begun: choice.begin(class, is_free),
            parts: 1,
            began: table.map_or(0, |table| table.load.epoch()),
        })
    }

    /// Notes which way a piece goes.
    pub(super) fn goes(&mut self, id: u64, route: PieceRoute) {
        self.with_piece(id, |piece| piece.goes(route));
    }

    /// The peer had to register what it was thought to have registered: that is no hit.
    pub(super) fn was_far(&mut self, id: u64, cx: &StepContext<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return;
        };
        if let Some(tried) = &mut piece.tried
            && tried.route == Some(PieceRoute::Hit)
        {
            tried.route = None;
            let run = cx.limits().geometry.span(piece.remote, piece.len).ok();
            if let Some((run, table)) = run.zip(self.tables.get_mut(&piece.peer)) {
                let kept = table.kept(cx.limits().total, cx.config().ranks);
                table.pulled.note_missing(run.first, run.count, kept);
            }
        }
    }

    /// A piece is over, or went another way than was tried.
    pub(super) fn tried(&mut self, id: u64, is_fine: bool) {
        let (Some(choice), Some(piece)) = (&mut self.choice, self.pieces.get_mut(&id)) else {
            return;
        };
        let Some(tried) = piece.tried.take() else {
            return;
        };
        let took = choice.stop(tried.begun);
        let table = self.tables.get_mut(&piece.peer);
        let is_undisturbed = table.is_none_or(|table| table.load.finish(tried.began));
        let Some(route) = tried.route.filter(|_| is_fine) else {
            return;
        };
        // What a move is part of takes what the move takes.
        if !is_undisturbed && route != PieceRoute::PeerRegisters {
            return;
        }
        if let Some(nanos) = took {
            // Zero is what was not tried.
            choice.record_time(tried.class, route, (nanos / tried.parts).max(1));
        }
    }
}
