//! Answers that are wrong: what they were to answer fails, for nothing better will come.

use super::{Context, Initiator, Leg};
use crate::{Error, Message};

/// What of this rank's a message answers.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Answered {
    Move(u64),
    Leg(u64),
}

impl Answered {
    pub(in crate::engine) fn by(message: &Message) -> Option<Self> {
        match message {
            Message::Granted(granted) => Some(Self::Move(granted.id)),
            Message::Stored { id, .. }
            | Message::Fetched { id, .. }
            | Message::Pulled { id, .. } => Some(Self::Leg(*id)),
            _ => None,
        }
    }
}

impl Initiator {
    /// An answer was wrong.
    pub(in crate::engine) fn fail_answered(
        &mut self,
        from: u32,
        answered: Answered,
        cause: &Error,
        cx: &mut Context<'_>,
    ) {
        match answered {
            Answered::Move(id) => {
                let far = self.fars.get_mut(&from);
                let Some(asked) = far.and_then(|far| far.answered(id, 0)) else {
                    return;
                };
                for (piece, _) in asked.waiters {
                    // Nothing of it is under way but moves, which will not find it.
                    self.with_piece(piece, |piece| piece.failed = Some(cause.clone()));
                    self.end_piece(piece, cx);
                }
                self.firehoses_free(from, cx);
            }
            Answered::Leg(leg) => {
                let Some(Leg::Chunk { piece, .. } | Leg::Pull(piece)) = self.leg_of(from, leg)
                else {
                    return;
                };
                self.legs.remove(&leg);
                self.leg_done(piece, Err(cause.clone()), cx);
            }
        }
    }
}
