//! The thread of an endpoint that polls, and tells the layer above.

use std::{
    cell::Cell,
    mem,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Conduit, Delivery, Error, OwnedMessage, Rank, ReplyPort, Sink, Sleep, Sleeper, Ticket,
};
use hydrant_ofi::{PeerEvent, PeerHandler};
use parking_lot::{Mutex, MutexGuard};

use super::{
    EndpointRoom, FabricSession, FabricState, SessionEvent, SessionSink,
    operations::PeerOperationFailure,
    wire::{self, EndpointMessage},
};

/// The longest sleep: with nothing to do, and while messages wait for room.
const REST: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(1);
/// How long a thread polls that waits for an operation, before it sleeps.
const PATIENCE: Duration = Duration::from_micros(100);

/// A delivery of the conduit.
enum HeardItem {
    Event(PeerEvent),
    Message(Rank, OwnedMessage),
    Ended(Ticket, Result<(), Error>),
    Malformed(Rank),
}

/// The deliveries of the current poll, in order.
pub(super) struct HeardQueue {
    queue: Mutex<Vec<HeardItem>>,
    sink: Arc<dyn SessionSink>,
}

impl HeardQueue {
    pub(super) fn new(sink: Arc<dyn SessionSink>) -> Self {
        Self {
            queue: Mutex::default(),
            sink,
        }
    }
}

impl PeerHandler for HeardQueue {
    fn admit(&self, introduction: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        self.sink.admit(introduction)
    }

    fn event(&self, event: PeerEvent) {
        self.queue.lock().push(HeardItem::Event(event));
    }
}

/// The sink of a poll.
struct PollSink<'a>(&'a HeardQueue);

impl Sink for PollSink<'_> {
    fn request(&mut self, delivery: Delivery<'_>, _: &mut dyn ReplyPort) {
        let message = OwnedMessage {
            kind: delivery.kind,
            tag: delivery.tag,
            args: delivery.args.into(),
            payload: delivery.payload.into(),
        };
        let heard = HeardItem::Message(delivery.from, message);
        self.0.queue.lock().push(heard);
    }

    fn reply(&mut self, delivery: Delivery<'_>) {
        // Endpoints send none.
        self.0
            .queue
            .lock()
            .push(HeardItem::Malformed(delivery.from));
    }

    fn local(&mut self, _: Ticket) {}

    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        self.0.queue.lock().push(HeardItem::Ended(ticket, result));
    }

    fn malformed(&mut self, error: Error) {
        if let Error::Malformed { peer, .. } = error {
            self.0.queue.lock().push(HeardItem::Malformed(peer));
        }
    }
}

thread_local! {
    /// True while this thread polls.
    static IS_POLLING: Cell<bool> = const { Cell::new(false) };
}

/// Returns true in a thread that polls, and so calls the layer above.
pub(super) fn is_polling_here() -> bool {
    IS_POLLING.get()
}

/// The time in which this thread polls.
struct TurnScope(bool);

impl TurnScope {
    fn begin() -> Self {
        Self(IS_POLLING.replace(true))
    }
}

impl Drop for TurnScope {
    fn drop(&mut self) {
        IS_POLLING.set(self.0);
    }
}

/// A call of the layer above that is due.
enum Due {
    Event(SessionEvent),
    Message(FabricSession, Box<[u8]>),
}

impl EndpointRoom {
    /// Polls until the endpoint is dropped.
    pub(super) fn poll_until_over(&self) {
        while !self.is_over.load(SeqCst) {
            if !self.poll_in_turn(self.turn.lock()) {
                let is_waiting = !self.state.lock().outbox.is_empty();
                let timeout = if is_waiting { NAP } else { REST };
                let ready = &mut || self.is_over.load(SeqCst);
                self.conduit.wait(Sleeper::Service, Some(timeout), ready);
            }
        }
    }

    /// Polls once, unless another thread does.
    pub(super) fn poll_once(&self) {
        if let Some(turn) = self.turn.try_lock() {
            self.poll_in_turn(turn);
        }
    }

    /// Polls until something happened, for a short time at most, unless another thread does.
    pub(super) fn poll_for_a_while(&self, is_done: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_done() && since.elapsed() < PATIENCE {
            self.poll_once();
        }
    }

    /// Polls once. Returns false if nothing happened. The lock keeps what is heard in order.
    fn poll_in_turn(&self, _turn: MutexGuard<'_, ()>) -> bool {
        let _polling = TurnScope::begin();
        let count = self.conduit.poll(&mut PollSink(&self.heard));
        let heard = mem::take(&mut *self.heard.queue.lock());
        let is_idle = count == 0 && heard.is_empty();
        let mut state = self.state.lock();
        if heard.is_empty() && state.outbox.is_empty() {
            return !is_idle;
        }
        for it in heard {
            // The layer above is told in order, after the lock is released.
            if let Some(due) = self.hear(&mut state, it) {
                state = self.tell_due(state, due);
            }
        }
        self.flush(&mut state);
        self.tell_ended(state);
        self.work.notify_all();
        self.returned.notify_all();
        !is_idle
    }

    /// Tells the layer above without the lock.
    fn tell_due<'a>(
        &'a self,
        mut state: MutexGuard<'a, FabricState>,
        due: Due,
    ) -> MutexGuard<'a, FabricState> {
        self.flush(&mut state);
        self.tell_ended(state);
        let ending = match due {
            Due::Event(event) => {
                let ending = event.ending();
                self.sink.event(event);
                ending
            }
            Due::Message(from, bytes) => {
                self.sink.message(from, &bytes);
                None
            }
        };
        let mut state = self.state.lock();
        if let Some(record) = ending.and_then(|session| state.sessions.get_mut(&session)) {
            record.is_told = true;
        }
        state
    }

    /// Tells the ends of operations without the lock, and frees numbers of sessions that are over.
    pub(super) fn tell_ended(&self, mut state: MutexGuard<'_, FabricState>) {
        let ended = state.take_ended();
        self.release_unused(&mut state);
        drop(state);
        for (_, finish, outcome) in ended {
            finish(outcome);
        }
    }

    /// Frees the numbers of sessions that have ended and have no operation.
    fn release_unused(&self, state: &mut FabricState) {
        let over = mem::take(&mut state.over);
        for session in over {
            match state.sessions.get(&session) {
                Some(record) if record.uses > 0 || !record.is_told => state.over.push(session),
                Some(record) => {
                    self.control.release(record.rank);
                    state.sessions.remove(&session);
                }
                None => {}
            }
        }
    }

    fn hear(&self, state: &mut FabricState, heard: HeardItem) -> Option<Due> {
        match heard {
            HeardItem::Event(event) => Some(Due::Event(self.hear_event(state, event))),
            HeardItem::Message(from, message) => {
                let session = *state.by_rank.get(&from)?;
                self.hear_message(state, session, from, &message)
            }
            HeardItem::Ended(ticket, outcome) => {
                let piece = state.operations.posted.remove(&ticket)?;
                let outcome = outcome.map_err(PeerOperationFailure::from);
                state.end_piece(&piece, outcome);
                self.end_use(state, &piece);
                None
            }
            HeardItem::Malformed(from) => {
                self.control.abandon(from);
                None
            }
        }
    }

    fn hear_event(&self, state: &mut FabricState, event: PeerEvent) -> SessionEvent {
        let session = state.session_of(event.peer());
        let told = match event {
            PeerEvent::Met {
                introduction,
                asked,
                ..
            } => return SessionEvent::Met(session, introduction, asked),
            PeerEvent::Failed { why, .. } => SessionEvent::Failed(session, why),
            PeerEvent::Left { .. } => SessionEvent::Left(session),
            PeerEvent::Lost { why, .. } => SessionEvent::Lost(session, why),
            _ => SessionEvent::Lost(session, "it ended"),
        };
        // The number belongs to the next session that gets it.
        if let Some(record) = state.sessions.get_mut(&session) {
            record.is_open = false;
            let rank = record.rank;
            state.by_rank.remove(&rank);
            state.outbox.forget(rank);
        }
        state.lender.forget(session);
        for piece in state.grants.forget(session) {
            state.end_piece(&piece, Err(PeerOperationFailure::Lost));
        }
        state.over.push(session);
        told
    }

    fn hear_message(
        &self,
        state: &mut FabricState,
        session: FabricSession,
        from: Rank,
        message: &OwnedMessage,
    ) -> Option<Due> {
        match wire::decode(&message.delivery(from)) {
            Some(EndpointMessage::Text(bytes)) => return Some(Due::Message(session, bytes.into())),
            Some(EndpointMessage::Ask(chunk, writes)) => {
                if state.outbox.is_flooded(from) {
                    self.control.abandon(from);
                } else {
                    state.ask(session, chunk, writes);
                }
            }
            Some(EndpointMessage::Grant(chunk, memory)) => {
                self.granted(state, session, chunk, Ok(memory));
            }
            Some(EndpointMessage::Refuse(chunk, why)) => {
                self.granted(state, session, chunk, Err(why));
            }
            Some(EndpointMessage::Recall(chunk)) => self.recalled(state, session, chunk),
            Some(EndpointMessage::Return(chunk)) => state.returned(session, chunk),
            None => self.control.abandon(from),
        }
        None
    }
}
