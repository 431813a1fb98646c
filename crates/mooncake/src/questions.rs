//! Questions to peers that wait for their answers.

use std::{
    collections::HashMap,
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    time::Duration,
};

use hydrant_endpoint::{Descriptor, Peer};
use parking_lot::Mutex;

use crate::{
    failure::{EngineFailure, HANDSHAKE, METADATA, Result},
    memory::LentRange,
    wire::{MessageBody, MooncakeMessage, RangeRefusal},
};

/// The answer of a peer.
pub(crate) enum PeerAnswer {
    /// The registered memory that was asked for.
    Region(LentRange),
    /// There is no such memory.
    Refused(RangeRefusal),
    /// The fate of a notification: true if it was taken.
    Noted(bool),
}

/// Questions that wait.
#[derive(Default)]
pub(crate) struct Questions {
    state: Mutex<PendingQuestions>,
}

#[derive(Default)]
struct PendingQuestions {
    next: u64,
    waiting: HashMap<u64, PendingQuestion>,
}

struct PendingQuestion {
    /// The incarnation of the peer that was asked.
    peer: u64,
    /// Without it, the asker is told that the peer has gone.
    answer: SyncSender<PeerAnswer>,
}

impl Questions {
    /// Asks a peer, and waits for the answer for `patience`.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn ask(
        &self,
        peer: &Peer,
        body: MessageBody<'_>,
        patience: Duration,
    ) -> Result<PeerAnswer> {
        let (sender, answer) = sync_channel(1);
        let request = {
            let mut asked = self.state.lock();
            asked.next += 1;
            let request = asked.next;
            let question = PendingQuestion {
                peer: peer.incarnation(),
                answer: sender,
            };
            asked.waiting.insert(request, question);
            request
        };
        let sent = peer.send_within(&MooncakeMessage { request, body }.to_bytes(), patience);
        // After the news of an end, which ends the questions that are kept, nothing can be sent.
        let answer = match sent {
            Err(cause) => Err(cause.into()),
            Ok(()) => answer.recv_timeout(patience).map_err(|cause| match cause {
                RecvTimeoutError::Disconnected => gone(peer),
                RecvTimeoutError::Timeout => {
                    let within = patience.as_millis();
                    let text = format!(
                        "the engine {} did not answer within {within} ms",
                        peer.name()
                    );
                    EngineFailure::new(HANDSHAKE, text)
                }
            }),
        };
        self.state.lock().waiting.remove(&request);
        answer
    }

    /// Takes the answer of a peer, if it was asked.
    pub(crate) fn answer(&self, peer: u64, request: u64, answer: PeerAnswer) {
        let mut asked = self.state.lock();
        if (asked.waiting.get(&request)).is_some_and(|question| question.peer == peer)
            && let Some(question) = asked.waiting.remove(&request)
        {
            let _ = question.answer.try_send(answer);
        }
    }

    /// Ends the questions to a peer that has gone.
    pub(crate) fn end(&self, peer: u64) {
        let mut asked = self.state.lock();
        asked.waiting.retain(|_, question| question.peer != peer);
    }

    /// Ends all questions.
    pub(crate) fn end_all(&self) {
        self.state.lock().waiting.clear();
    }
}

impl PeerAnswer {
    /// Returns the answer that a message is. `None` is for one that is no answer.
    pub(crate) fn of(body: MessageBody<'_>) -> Option<Self> {
        match body {
            MessageBody::Region {
                start,
                len,
                descriptor,
            } => Some(Self::Region(LentRange {
                start,
                len,
                descriptor: Descriptor::from_bytes(descriptor).ok()?,
            })),
            MessageBody::Refused(refusal) => Some(Self::Refused(refusal)),
            MessageBody::Noted { taken } => Some(Self::Noted(taken)),
            MessageBody::Ask { .. } | MessageBody::Notify { .. } => None,
        }
    }
}

fn gone(peer: &Peer) -> EngineFailure {
    let text = format!("the engine {} is lost, or has left", peer.name());
    EngineFailure::new(METADATA, text)
}
