//! Answers that are wrong: what they were to answer fails, for nothing better will come.

use super::{Initiator, StepContext, Transfer};
use crate::{Error, Message};

/// What of this rank's a message answers.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum AnswerTo {
    Move(u64),
    Transfer(u64),
}

impl AnswerTo {
    pub(in crate::engine) fn of_message(message: &Message) -> Option<Self> {
        match message {
            Message::Granted(granted) => Some(Self::Move(granted.id)),
            Message::Stored { id, .. }
            | Message::Fetched { id, .. }
            | Message::Pulled { id, .. } => Some(Self::Transfer(*id)),
            _ => None,
        }
    }
}

impl Initiator {
    /// An answer was wrong.
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
                let Some(asked) = table.and_then(|table| table.answered(id, 0)) else {
                    // It answers nothing of this rank's: that was what was wrong.
                    return;
                };
                if let Some(choice) = &mut self.choice {
                    choice.stop_move(asked.chosen.and_then(|chosen| chosen.begun));
                }
                for (id, _) in asked.waiters {
                    // A piece may wait for several runs of one move, and ends once. Nothing of it
                    // is under way but other moves, which will not find it.
                    if let Some(piece) = self.pieces.get_mut(&id) {
                        piece.failed = Some(cause.clone());
                        self.end_piece(id, cx);
                    }
                }
                self.settle_ahead(from, &[], cx);
                self.firehoses_free(from, cx);
            }
            AnswerTo::Transfer(transfer) => {
                let Some(Transfer::Chunk { piece, .. } | Transfer::Pull(piece)) =
                    self.transfer_of(from, transfer)
                else {
                    // It answers nothing of this rank's: that was what was wrong.
                    return;
                };
                self.transfers.remove(&transfer);
                self.transfer_done(piece, Err(cause.clone()), cx);
            }
        }
    }
}
