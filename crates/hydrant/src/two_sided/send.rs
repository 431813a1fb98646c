//! Sends: eager, or by an announcement, or after a wait for credit.

#![allow(unsafe_code)] // keeps the addresses of buffers until their requests end, and reads them

use std::{mem, panic::Location, slice, sync::Arc};

use hydrant_conduit::{Message, Standing};

use super::{
    Envelope, MessageRequest, Outgoing, PendingSend, RawBuffer, TwoSided, TwoSidedState,
    Unexpected,
    protocol::LongProtocol,
    request::Status,
    wire::{self, WireMessage},
};
use crate::{Error, Rank, Result, counters::Count, progress, uses::UseKind};

/// A control message or a whole message that is ready to be sent.
enum Ready {
    /// The whole message. `send` is its number if its sender waits for the receive or if it goes in
    /// pieces, else 0.
    Eager(Outgoing, u64),
    /// The announcement of a message.
    Announce { tag: u64, send: u64, len: u64 },
}

/// The behaviour of a send without room in the network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    /// Waits for room.
    Wait,
    /// Keeps the message, because a handler must not wait.
    Keep,
}

impl TwoSided {
    /// Sends an eager message without a request. Returns `false` if the message needs one.
    ///
    /// # Errors
    /// As [`begin_send`](Self::begin_send), and the network's.
    #[inline(always)]
    pub(super) fn send_at_once(&self, to: Rank, tag: u64, data: &[u8]) -> Result<bool> {
        progress::may_wait("a send")?;
        self.check(Some(to.0), Some(tag))?;
        let is_plain = self.protocols.is_eager_whole(data.len()) && !self.records_uses();
        if !is_plain || to == self.progress.rank {
            return Ok(false);
        }
        {
            let mut state = self.state.lock();
            if state.refuses {
                return Err(Error::JobOver);
            }
            let peer = state.peer(to);
            let is_first = !peer.draining && peer.waiting.is_empty();
            if !is_first || !peer.allowance.take_whole(data.len() as u64) {
                return Ok(false);
            }
        }
        // The network reports a peer that has ended.
        let (encoded, payload) = if data.len() > wire::FEW_BYTES {
            (WireMessage::Eager { tag, send: 0 }.encode(), data)
        } else {
            (wire::encode_few(tag, 0, data), &[][..])
        };
        self.send_in_order(to, &encoded.message(payload))?;
        self.progress.tally.one(Count::MessagesEager);
        Ok(true)
    }

    /// Waits for room and sends a message, behind messages that are kept because there was no room.
    #[inline(always)]
    fn send_in_order(&self, to: Rank, message: &Message<'_>) -> Result<()> {
        if self.progress.has_onward_for(to) {
            self.send_behind(to, message)
        } else {
            self.progress.send(to, message)
        }
    }

    /// Sends a message behind the kept ones.
    #[cold]
    fn send_behind(&self, to: Rank, message: &Message<'_>) -> Result<()> {
        match self.progress.conduit().standing(to) {
            Standing::Present => self.progress.send_result(to, message),
            _ => Err(self.progress.why_gone(to)),
        }
    }

    /// Begins to send a message. If `delivered`, the request ends when the message was received,
    /// else when its source is free.
    ///
    /// # Safety
    /// Until the request [is over](MessageRequest::is_over):
    /// 1. The buffer can be read.
    /// 2. Nobody writes to it.
    ///
    /// # Errors
    /// Errors found at once. Then no request is open.
    pub(super) unsafe fn begin_send(
        &self,
        to: Rank,
        tag: u64,
        buffer: RawBuffer,
        delivered: bool,
        site: &'static Location<'static>,
    ) -> Result<Arc<MessageRequest>> {
        progress::may_wait("a send")?;
        self.check(Some(to.0), Some(tag))?;
        let request = Arc::new(MessageRequest::new());
        self.record_start(UseKind::Sent, buffer, &request, site);
        if to == self.progress.rank {
            if self.state.lock().refuses {
                return Err(Error::JobOver);
            }
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            unsafe { self.send_to_itself(tag, buffer, &request, delivered) };
            return Ok(request);
        }
        if self.progress.conduit().standing(to) != Standing::Present {
            return Err(self.progress.why_gone(to));
        }
        let outgoing = Outgoing {
            tag,
            buffer,
            sent: 0,
            request: Arc::clone(&request),
            delivered,
        };
        let ready = {
            let mut state = self.state.lock();
            if state.refuses {
                return Err(Error::JobOver);
            }
            request.count_in(&self.in_flight);
            let peer = state.peer(to);
            if peer.draining || !peer.waiting.is_empty() || !peer.allowance.has_message() {
                peer.waiting.push_back(outgoing);
                None
            } else {
                Some(self.prepare(&mut state, to, outgoing))
            }
        };
        match ready {
            // SAFETY: 1. The caller's conditions 1 and 2. This call reads the buffer.
            Some(ready) => unsafe { self.transmit(to, ready, WhenFull::Wait) },
            None => self.progress.tally.one(Count::MessagesCreditWaits),
        }
        self.check_for_ended_peers_now();
        Ok(request)
    }

    /// Returns whether a message is sent at once, if there is room for it. To a rank whose memory is
    /// mapped here, only a message of one piece is.
    fn is_eager_to(&self, to: Rank, len: usize) -> bool {
        self.protocols.is_eager_whole(len)
            || self.protocols.is_eager(len) && self.progress.conduit().window(to).is_none()
    }

    /// Returns whether a message is sent in pieces, if it is sent at once.
    #[inline]
    fn goes_in_pieces(&self, len: usize) -> bool {
        len > self.protocols.part
    }

    /// Decides how a message is sent. There must be credit for a message.
    fn prepare(&self, state: &mut TwoSidedState, to: Rank, outgoing: Outgoing) -> Ready {
        let len = outgoing.buffer.len;
        let is_eager = self.is_eager_to(to, len);
        let allowance = &mut state.peer(to).allowance;
        let has_room = allowance.take(if is_eager { len as u64 } else { 0 });
        if is_eager && has_room || len == 0 {
            let send = if outgoing.delivered || self.goes_in_pieces(len) {
                state.next_number()
            } else {
                0
            };
            if outgoing.delivered {
                let sent = PendingSend::Sent(to, outgoing.tag, len, Arc::clone(&outgoing.request));
                state.sends.insert(send, sent);
            }
            return Ready::Eager(outgoing, send);
        }
        let (send, tag) = (state.next_number(), outgoing.tag);
        state
            .sends
            .insert(send, PendingSend::Announced(to, outgoing));
        Ready::Announce {
            tag,
            send,
            len: len as u64,
        }
    }

    /// Sends a ready message, and ends its request if that fails.
    ///
    /// # Safety
    /// 1. The buffer of an eager message can be read, and nobody writes to it, until this returns.
    unsafe fn transmit(&self, to: Rank, ready: Ready, when_full: WhenFull) {
        let (control, payload, outgoing): (_, &[u8], _) = match ready {
            Ready::Eager(outgoing, send) => {
                let tag = outgoing.tag;
                // SAFETY: 1., 2. The caller's condition 1.
                let data = unsafe { bytes_of(outgoing.buffer) };
                let (control, payload) = if self.goes_in_pieces(data.len()) {
                    let piece = WireMessage::Piece {
                        tag,
                        send,
                        len: data.len() as u64,
                        awaited: outgoing.delivered,
                    };
                    (piece, data)
                } else {
                    WireMessage::whole(tag, send, data)
                };
                (control, payload, Some((outgoing, send)))
            }
            Ready::Announce { tag, send, len } => {
                let copied = self.protocols.long == LongProtocol::Copied;
                let control = WireMessage::Announce {
                    tag,
                    send,
                    len,
                    copied,
                };
                (control, &[], None)
            }
        };
        let encoded = control.encode();
        let send_one = |payload| {
            let message = encoded.message(payload);
            match when_full {
                WhenFull::Keep => self.progress.send_result(to, &message),
                WhenFull::Wait => self.send_in_order(to, &message),
            }
        };
        let sent = if self.goes_in_pieces(payload.len()) {
            (payload.chunks(self.protocols.part)).try_for_each(send_one)
        } else {
            send_one(payload)
        };
        if let Err(cause) = sent {
            // The peer is gone, or does not know this number, because the message was not sent.
            let send = match control {
                WireMessage::Eager { send, .. }
                | WireMessage::Few { send, .. }
                | WireMessage::Piece { send, .. }
                | WireMessage::Announce { send, .. } => send,
                _ => 0,
            };
            let gone = self.state.lock().sends.remove(&send);
            let request = match gone {
                Some(PendingSend::Announced(_, outgoing)) => Some(outgoing.request),
                Some(PendingSend::Sent(.., request)) => Some(request),
                None => outgoing.map(|(outgoing, _)| outgoing.request),
            };
            if let Some(request) = request {
                request.end(&self.progress, Err(cause));
            }
            return;
        }
        if let Some((outgoing, _)) = outgoing {
            self.progress.tally.one(Count::MessagesEager);
            if outgoing.delivered {
                outgoing.request.mark_source_free();
            } else {
                let status = self.status_of_sent(outgoing.tag, outgoing.buffer.len);
                outgoing.request.end(&self.progress, Ok(status));
            }
        }
    }

    /// Returns the status of a message that this rank has sent.
    pub(super) fn status_of_sent(&self, tag: u64, bytes: usize) -> Status {
        Status {
            source: self.progress.rank,
            tag,
            bytes,
        }
    }

    /// Sends waiting messages as far as there is credit. It runs in a handler.
    pub(super) fn send_waiting(&self, to: Rank) {
        loop {
            let (ready, data) = {
                let mut state = self.state.lock();
                let peer = state.peer(to);
                if peer.draining {
                    return;
                }
                let outgoing = if peer.allowance.has_message() {
                    peer.waiting.pop_front()
                } else {
                    None
                };
                let Some(outgoing) = outgoing else {
                    let Some(messages) = self.take_owed_update(peer) else {
                        return;
                    };
                    // Otherwise another thread could send more, and announce a newer number first.
                    peer.draining = true;
                    drop(state);
                    self.tell(to, WireMessage::Owed { messages }, &[]);
                    let mut state = self.state.lock();
                    let peer = state.peer(to);
                    peer.draining = false;
                    if peer.allowance.has_message() && !peer.waiting.is_empty() {
                        continue;
                    }
                    return;
                };
                peer.draining = true;
                let mut data = if self.is_eager_to(to, outgoing.buffer.len) {
                    // SAFETY: 1., 2. The request is open: before the message is sent, its request
                    // ends only after it was taken out of `waiting`, under this lock.
                    unsafe { bytes_of(outgoing.buffer) }.to_vec()
                } else {
                    Vec::new()
                };
                let mut ready = self.prepare(&mut state, to, outgoing);
                if let Ready::Eager(outgoing, _) = &mut ready {
                    // Another thread may find the peer lost, and end the request.
                    outgoing.buffer.at = data.as_mut_ptr();
                    // The source was copied, so it is free. A scope whose body fails no longer
                    // finds the message from here on, and must not wait until it is received.
                    if outgoing.delivered {
                        outgoing.request.mark_source_free();
                    }
                }
                (ready, data)
            };
            if matches!(&ready, Ready::Eager(outgoing, _) if outgoing.delivered) {
                self.progress.wake_sleepers();
            }
            // SAFETY: 1. `data` is this call's own copy.
            unsafe { self.transmit(to, ready, WhenFull::Keep) };
            drop(data);
            self.state.lock().peer(to).draining = false;
        }
    }

    /// Sends a message of this rank to itself: a copy is received or kept.
    ///
    /// # Safety
    /// 1., 2. As [`begin_send`](Self::begin_send).
    unsafe fn send_to_itself(
        &self,
        tag: u64,
        buffer: RawBuffer,
        request: &Arc<MessageRequest>,
        delivered: bool,
    ) {
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        let data = unsafe { bytes_of(buffer) }.to_vec();
        request.mark_source_free();
        let status = self.status_of_sent(tag, buffer.len);
        let receipt = if delivered {
            Arc::clone(request)
        } else {
            request.end(&self.progress, Ok(status));
            // Nobody waits for this request.
            Arc::new(MessageRequest::new())
        };
        let envelope = Envelope {
            source: self.progress.rank.0,
            tag,
        };
        let message = Unexpected::Own {
            data,
            request: receipt,
        };
        self.match_message(envelope, message);
    }

    /// Detaches a send whose scope ends before the message was cleared: copies the data, so that
    /// the message can still be sent once its source is gone.
    pub(super) fn detach(&self, request: &Arc<MessageRequest>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let announced = state
            .sends
            .values_mut()
            .filter_map(|sending| match sending {
                PendingSend::Announced(_, outgoing) => Some(outgoing),
                PendingSend::Sent(..) => None,
            });
        let peers = state.peers.iter_mut().flatten();
        let waiting = peers.flat_map(|peer| peer.waiting.iter_mut());
        let found = (announced.chain(waiting)).find(|it| Arc::ptr_eq(&it.request, request));
        let Some(outgoing) = found else { return };
        let own = Arc::new(MessageRequest::new());
        own.count_in(&self.in_flight);
        // SAFETY: 1., 2. The request is open: it ends with the entry found, under this lock.
        let mut data = unsafe { bytes_of(outgoing.buffer) }.to_vec();
        outgoing.buffer.at = data.as_mut_ptr();
        own.keep_buffer(&self.progress, Box::new(data));
        let theirs = mem::replace(&mut outgoing.request, own);
        let status = self.status_of_sent(outgoing.tag, outgoing.buffer.len);
        // The end wakes a waiter, which is code of the program.
        drop(guard);
        theirs.end(&self.progress, Ok(status));
    }
}

/// Returns the bytes of a buffer.
///
/// # Safety
/// While they are used:
/// 1. The buffer can be read.
/// 2. Nobody writes to it.
pub(super) unsafe fn bytes_of<'a>(buffer: RawBuffer) -> &'a [u8] {
    match buffer.len {
        0 => &[],
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        len => unsafe { slice::from_raw_parts(buffer.at, len) },
    }
}
