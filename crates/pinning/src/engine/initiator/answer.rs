//! Wrong answers of peers: the engine fails the operation that waits for the answer, because no
//! better one will come.

use super::{Initiator, StepContext, TransferKind};
use crate::{EngineMessage, Error};

/// The part of this rank's state that a message answers.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum AnswerTo {
    Move(u64),
    Transfer(u64),
}

impl AnswerTo {
    pub(in crate::engine) fn of_message(message: &EngineMessage) -> Option<Self> {
        match message {
            EngineMessage::Granted(granted) => Some(Self::Move(granted.id)),
            EngineMessage::Stored { id, .. }
            | EngineMessage::Fetched { id, .. }
            | EngineMessage::Pulled { id, .. } => Some(Self::Transfer(*id)),
            _ => None,
        }
    }
}

impl Initiator {
    /// Fails the operation that a wrong answer was for.
    pub(in crate::engine) fn fail_answered(
        &mut self,
        from: u32,
        answered: AnswerTo,
        cause: &Error,
        cx: &mut StepContext<'_>,
    ) {
        match answered {
            AnswerTo::Move(id) => {
                let table = self.tables.get_mut(&from);
                let Some(asked) = table.and_then(|table| table.end_move(id, 0)) else {
                    // The message answers nothing of this rank: that was the fault.
                    return;
                };
                if let Some(choice) = &mut self.choice {
                    choice.stop_move(asked.chosen.and_then(|chosen| chosen.begun));
                }
                for (id, _) in asked.waiters {
                    // A piece may wait for several runs of one move, and ends once. Only other
                    // moves of it are in flight, and they will not find it.
                    if let Some(piece) = self.pieces.get_mut(&id) {
                        piece.failed = Some(cause.clone());
                        self.end_piece(id, cx);
                    }
                }
                self.settle_ahead(from, &[], cx);
                self.serve_waiting(from, cx);
            }
            AnswerTo::Transfer(transfer) => {
                let Some(TransferKind::Chunk { piece, .. } | TransferKind::Pull(piece)) =
                    self.transfer_of(from, transfer)
                else {
                    // The message answers nothing of this rank: that was the fault.
                    return;
                };
                self.transfers.remove(&transfer);
                self.transfer_done(piece, Err(cause.clone()), cx);
            }
        }
    }
}
