//! Collecting: reads the completion queue, and keeps messages until a poll delivers them.
//!
//! The thread with the collector's lock collects: a poll, the control thread while nobody polls, or a waiter for a
//! fence. Messages between conduits are handled here, so they need no poll. Messages of the layer above wait, at
//! most a window for each peer.

#![allow(unsafe_code)] // takes slots by index

use std::sync::atomic::Ordering::Acquire;

use hydrant_conduit::{Error, Rank, Standing};

use crate::{
    arrivals::{Collector, MessageBytes, WaitingMessage},
    commands::LinkCommand,
    context::{OperationName, PostedKind},
    fabric::{Arrival, BATCH},
    introduction::{ADMIT, DECLINE},
    message::{self, ControlKind, ReportedCounts, StreamMessage, StreamRole},
    peers::{OfiPeer, Phase},
    shared::OfiShared,
    slots::{ArrivalSlot, OUTSIDE},
};

/// A peer without a job is given up once so many times its window of messages wait here.
const FLOOD: u32 = 64;
/// Most entries that one collection takes.
const MOST: usize = 64;

impl WaitingMessage {
    /// Copies the message out of the buffer where it arrived.
    pub(crate) fn copied(self, shared: &OfiShared) -> Self {
        let bytes = match self.bytes {
            MessageBytes::InSlot(slot, len) => copy_out(shared, slot, len),
            copied => copied,
        };
        Self { bytes, ..self }
    }
}

/// Copies a message out of its buffer, which is posted again.
fn copy_out(shared: &OfiShared, slot: ArrivalSlot, len: usize) -> MessageBytes {
    let mut words = vec![0; len.div_ceil(8)].into_boxed_slice();
    let bytes = shared.receives.bytes(&slot, len);
    bytemuck::cast_slice_mut(&mut words)[..len].copy_from_slice(bytes);
    shared.receives.give_back(slot);
    MessageBytes::Copied(words, len)
}

impl Collector {
    /// Reads the completion queue. With `copies`, messages do not stay in their buffers. Returns the number of entries.
    pub(crate) fn collect(&mut self, shared: &OfiShared, copies: bool) -> usize {
        let (mut count, mut is_empty) = (0, false);
        shared.check_stall();
        while count < MOST && !is_empty {
            let arrivals = &mut self.arrivals;
            let read =
                (shared.fabric).read_queue(&mut self.batch, |arrival| arrivals.push(arrival));
            match read {
                Ok(0) => break,
                Ok(taken) => {
                    count += taken;
                    // Another call would cost a round of system calls, for what the next poll finds.
                    is_empty = taken < BATCH;
                }
                Err(cause) => {
                    let cause = shared.fabric.error_text(cause.0);
                    tracing::error!(%cause, "the completion queue of libfabric cannot be read");
                    shared.commands.push(LinkCommand::LoseAll);
                    break;
                }
            }
            let mut arrivals = std::mem::take(&mut self.arrivals);
            for arrival in arrivals.drain(..) {
                self.take(shared, arrival, copies);
            }
            self.arrivals = arrivals;
        }
        shared.receives.retry();
        shared.flush();
        shared.take_ended(&mut self.ended);
        self.take_news(shared);
        count
    }

    /// Takes the events of peers that were noted since.
    #[inline]
    fn take_news(&mut self, shared: &OfiShared) {
        if let Some(listening) = &shared.listening {
            for event in listening.take_news() {
                self.push_event(event);
            }
        }
    }

    #[inline]
    fn take(&mut self, shared: &OfiShared, arrival: Arrival, copies: bool) {
        let Some(OperationName { kind, index }) = arrival.context else {
            // A peer's write landed.
            if arrival.error == 0
                && let Some(peer) = shared.peers.known(arrival.data as u32)
                // A write of an earlier session is late. Its sender asks about it, and does not count it.
                && (arrival.data >> 32) as u32 == peer.epoch.load(Acquire)
            {
                peer.counts.note_write();
                peer.note_heard(shared.now_ms());
            }
            return;
        };
        match kind {
            PostedKind::Access => self.end_access(shared, index, arrival.error),
            PostedKind::Send => end_send(shared, index, arrival.error),
            PostedKind::Receive => {
                // SAFETY: the library completed this receive, and this is its only completion.
                let slot = unsafe { shared.receives.take(index) };
                if arrival.error == 0 {
                    self.receive(shared, slot, arrival.len, copies);
                } else {
                    shared.receives.give_back(slot);
                }
            }
        }
    }

    #[inline]
    fn end_access(&mut self, shared: &OfiShared, index: u32, error: i32) {
        let record = *shared.accesses.record(index);
        let Some(peer) = shared.peers.known(record.peer) else {
            return;
        };
        shared
            .in_flight
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        link.in_flight -= 1;
        if error == 0 {
            peer.note_heard(shared.now_ms());
        }
        let is_done = || record.piece() == record.len || shared.accesses.end_piece(index);
        if error == 0 && is_done() {
            shared.accesses.give_back(index);
            self.ended.push((record.ticket, Ok(())));
        } else if link.phase == Phase::Ended || link.is_closing {
            shared.accesses.give_back(index);
            self.ended
                .push((record.ticket, Err(Error::PeerLost(peer.rank))));
        } else if error == 0 {
            // The next piece comes before later accesses.
            link.queue.push_front(index);
        } else {
            link.unknown.push(index);
            shared.break_link(peer, link);
        }
        shared.go_on(peer, link);
        if !link.queue.is_empty() && link.phase == Phase::Up {
            shared.post_accesses(peer, link);
        }
    }

    #[inline]
    fn receive(&mut self, shared: &OfiShared, slot: ArrivalSlot, len: usize, copies: bool) {
        let bytes = shared.receives.bytes(&slot, len);
        let kept = message::decode(bytes).filter(|message| accept(shared, message));
        let Some(message) = kept else {
            return shared.receives.give_back(slot);
        };
        let (from, is_request) = (message.header.from, message.role == StreamRole::Request);
        // The begin of a session comes before its first message.
        self.take_news(shared);
        let bytes = if copies || shared.receives.are_short() {
            copy_out(shared, slot, len)
        } else {
            MessageBytes::InSlot(slot, len)
        };
        self.messages.push_back(WaitingMessage {
            from,
            is_request,
            bytes,
        });
    }
}

/// Handles a message between conduits. Returns true for a message of the layer above.
#[inline]
fn accept(shared: &OfiShared, message: &StreamMessage<'_>) -> bool {
    let header = &message.header;
    match message.role {
        StreamRole::Hello => shared.hear_hello(message.payload),
        StreamRole::Welcome => shared.hear_welcome(message.payload),
        StreamRole::Refusal => shared.hear_refusal(message.payload),
        StreamRole::Introduce => shared.hear_introduction(message.payload),
        StreamRole::Admit => shared.hear_answer(message.payload, ADMIT),
        StreamRole::Decline => shared.hear_answer(message.payload, DECLINE),
        _ => {
            let Some(peer) = shared.peers.known(header.from) else {
                return false;
            };
            let token = peer.token.load(Acquire);
            // A stranger's message, or one of an earlier session, which the peer sends again.
            if (token != header.token || token == 0) && !shared.confirm(peer, message) {
                return false;
            }
            if shared.peers.standings.of(peer.rank) == Standing::Lost && !is_farewell(message) {
                return false;
            }
            peer.note_heard(shared.now_ms());
            peer.counts.note_reported(ReportedCounts {
                received: header.received,
                handled: header.handled,
                taken: header.taken,
            });
            if message.role == StreamRole::Counts {
                let missing = header.number.wrapping_sub(peer.counts.received());
                if header.number != 0 && (1..u32::MAX / 2).contains(&missing) {
                    note_missing(shared, peer);
                }
                // A rank that leaves waits for its acknowledgements, which a broken link may have lost.
                let has_left = shared.peers.standings.of(peer.rank) != Standing::Present;
                if has_left && !shared.has_left() && shared.listening.is_none() {
                    shared.refuse_session(peer, 0);
                }
                return false;
            }
            let expected = peer.counts.received().wrapping_add(1);
            if header.number != expected {
                if header.number.wrapping_sub(expected) < u32::MAX / 2 {
                    note_missing(shared, peer);
                }
                return false;
            }
            peer.counts.note_received(header.number);
            if message.role != StreamRole::Control {
                return shared.listening.is_none() || accept_above(shared, peer);
            }
            handle_control(shared, peer.rank, header.kind, message.args);
        }
    }
    false
}

/// Accepts a message of the layer above without a job. The end of a peer is told after its last message, and a peer that
/// keeps to no window fills no memory.
fn accept_above(shared: &OfiShared, peer: &OfiPeer) -> bool {
    let waiting = peer.counts.note_arrived();
    if waiting > FLOOD * (shared.limits.window + 16) {
        shared.commands.push(LinkCommand::Abandon(peer.rank));
        return false;
    }
    shared.peers.standings.of(peer.rank) == Standing::Present
}

/// Begins a new session, in which the peer sends again what is missing.
#[cold]
fn note_missing(shared: &OfiShared, peer: &OfiPeer) {
    tracing::debug!(peer = %peer.rank, "a message is missing");
    shared.break_link(peer, &mut peer.link.lock());
}

/// Returns true for what a rank says at its end, which a rank that counts as lost may say, too.
fn is_farewell(message: &StreamMessage<'_>) -> bool {
    message.role == StreamRole::Counts
        || message.role == StreamRole::Control
            && ControlKind::of(message.header.kind) == Some(ControlKind::Leave)
}

fn handle_control(shared: &OfiShared, from: Rank, kind: u8, args: &[u64]) {
    let Some(peer) = shared.peers.known(from.0) else {
        return;
    };
    let first = args.first().copied().unwrap_or(0);
    match ControlKind::of(kind) {
        // Peers without a job know nothing of each other.
        Some(ControlKind::Lost | ControlKind::Expelled) if shared.listening.is_some() => {
            shared.commands.push(LinkCommand::GivenUp(from));
        }
        Some(ControlKind::Ending) if shared.listening.is_some() => {}
        Some(ControlKind::Ending) => {
            shared.peers.standings.note_end(from, first as u32);
            shared.sleepers.wake_all();
        }
        Some(ControlKind::Leave) => shared
            .commands
            .push(LinkCommand::NoteLeft(from, first == 1)),
        Some(ControlKind::Lost) if first < u64::from(shared.peers.size()) => {
            let lost = Rank(first as u32);
            shared.commands.push(if lost == shared.rank {
                LinkCommand::Lose(from, "it counts this rank as lost")
            } else {
                LinkCommand::NoteLost(lost)
            });
        }
        Some(ControlKind::Expelled) => shared.commands.push(LinkCommand::Expelled(from)),
        Some(ControlKind::Wake) => shared.sleepers.wake_all(),
        Some(ControlKind::Fence) => shared.send_control(peer, ControlKind::FenceDone, &[first]),
        Some(ControlKind::FenceDone) => peer.counts.note_fenced(first),
        Some(ControlKind::Query) => shared.judge(peer, args),
        Some(ControlKind::Verdict) => shared.hear_verdict(peer, args),
        _ => {}
    }
    // The sender learns soon that its message arrived.
    if matches!(
        ControlKind::of(kind),
        Some(ControlKind::Ending | ControlKind::Leave | ControlKind::Lost)
    ) {
        let _ = shared.send_counts(peer, &peer.link.lock());
    }
}

fn end_send(shared: &OfiShared, index: u32, error: i32) {
    let rank = shared.sends.complete(index);
    let Some(peer) = shared.peers.known(rank) else {
        // A message without a number.
        if let Some(peer) = shared.peers.known(rank ^ OUTSIDE) {
            peer.end_outside();
        }
        return;
    };
    let mut guard = peer.link.lock();
    let link = &mut *guard;
    link.in_flight -= 1;
    if error != 0 {
        shared.break_link(peer, link);
    }
    shared.go_on(peer, link);
}
