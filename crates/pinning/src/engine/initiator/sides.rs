//! Both sides of a piece: the request for its own memory, and the release of both sides at its end.

use super::{
    super::{choice::PieceRoute, local::Requester, operation::OwnMemory},
    Initiator, StepContext,
};
use crate::engine::pattern::Sequence;
use crate::{
    EngineMessage,
    strategy::{AfterUse, LocalPolicy, RemotePolicy},
    wire::{MAX_LIST, Need},
};

/// The state of a piece's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LocalSide {
    /// Nothing is needed, or nothing is requested yet.
    Unasked,
    Requested(u64),
    Ready(u64),
    /// The NIC takes the data along.
    Inline,
}

impl Initiator {
    /// Requests the own memory of a pull, and has the peer register its own meanwhile.
    pub(super) fn request_both(&mut self, id: u64, cx: &mut StepContext<'_>) {
        self.request_local(id, cx);
        let Some(piece) = self.pieces.get(&id) else {
            return;
        };
        // The pull itself goes at once where nothing must be registered here.
        if let LocalSide::Requested(request) = piece.local_side
            && cx.local.is_open(request)
        {
            let message = EngineMessage::Ahead {
                region: piece.region,
                from: piece.remote,
                len: piece.len,
            };
            cx.send(piece.peer, message);
        }
    }

    /// Requests the own memory of a piece.
    pub(super) fn request_local(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("own memory is wanted for a piece that is over");
        };
        let Ok(run) = cx.limits().geometry.span(piece.local, piece.len) else {
            return self
                .impossible
                .note("an operation was begun that leaves the address space");
        };
        let used = piece.direction.local();
        let (requester, need) = match (piece.own, cx.policy().local) {
            (OwnMemory::Inline | OwnMemory::Unregistered, _) => {
                self.with_piece(id, |piece| piece.local_side = LocalSide::Inline);
                self.transfer_when_ready(id, cx);
                return;
            }
            // A wider registration would only be deregistered again.
            (OwnMemory::Transient, _) => (
                Requester::Transient(id),
                Need {
                    run,
                    preferred: run,
                },
            ),
            (_, LocalPolicy::PerOperation) => (
                Requester::Piece(id),
                Need {
                    run,
                    preferred: run,
                },
            ),
            _ => {
                let bytes = Sequence {
                    addr: piece.local,
                    len: piece.len,
                };
                (Requester::Piece(id), cx.local.need_for(run, bytes))
            }
        };
        let request = cx.local.request(requester, vec![need], used, cx.out);
        let waits = cx.local.is_pending(request);
        if let Some(piece) = self.pieces.get_mut(&id) {
            // A hit that has to register own memory first is no hit.
            if let Some(trial) = &mut piece.trial
                && waits
                && !trial.class.transient
                && trial.route == Some(PieceRoute::Hit)
            {
                trial.route = None;
            }
            piece.local_side = LocalSide::Requested(request);
        }
    }

    /// Continues a piece whose own memory is registered, or was refused.
    pub(in crate::engine) fn local_side_done(&mut self, id: u64, cx: &mut StepContext<'_>) {
        if let Some(piece) = self.pieces.get_mut(&id)
            && let LocalSide::Requested(request) = piece.local_side
        {
            piece.local_side = LocalSide::Ready(request);
            self.transfer_when_ready(id, cx);
        }
    }

    /// Gives back the holds of a piece on both sides.
    pub(super) fn release_sides(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self
                .impossible
                .note("a piece that is over gives something back");
        };
        let (peer, local_side) = (piece.peer, piece.local_side);
        let holds = std::mem::take(&mut piece.remote_side.holds);
        piece.local_side = LocalSide::Unasked;
        if let LocalSide::Requested(request) | LocalSide::Ready(request) = local_side {
            let unpin = cx.policy().local == LocalPolicy::PerOperation;
            cx.local.end(request, unpin, cx.out);
        }
        if holds.is_empty() {
            return;
        }
        match cx.policy().remote {
            RemotePolicy::Handshake(after) => {
                // Firehoses that were moved ahead stay until they are given back.
                self.table_of(peer).drop_holds(&holds);
                self.table_of(peer).take_leaving(&holds);
                let loose = holds.iter().filter(|hold| hold.slot.is_none());
                let loose: Vec<_> = loose.map(|hold| hold.run).collect();
                for runs in loose.chunks(MAX_LIST).filter(|_| after != AfterUse::Keep) {
                    let (runs, unpin) = (runs.to_vec(), after == AfterUse::Unpin);
                    cx.send(peer, EngineMessage::Release { runs, unpin });
                }
                if !self.table_of(peer).owed.is_empty() {
                    self.settle_ahead(peer, &[], cx);
                    self.give_back(peer, cx);
                }
                self.answer_revocations(peer, cx);
            }
            _ => {
                self.table_of(peer).drop_holds(&holds);
                self.serve_waiting(peer, cx);
            }
        }
    }
}
