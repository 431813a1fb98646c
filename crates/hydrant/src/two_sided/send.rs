//! Sending: at once, or by an announcement, or when there is credit for either.

#![allow(unsafe_code)] // keeps the addresses of buffers until their requests end, and reads them

use std::{mem, panic::Location, slice, sync::Arc};

use hydrant_conduit::{Message, Standing};

use super::{
    Buffer, Envelope, Outgoing, Request, Sending, State, TwoSided, Unexpected,
    protocol::Long,
    request::Status,
    wire::{self, Said},
};
use crate::{Error, Rank, Result, counters::Count, progress, uses::UseKind};

/// What is to be said to a receiver.
enum Ready {
    /// The message. `send`: its number if its sender wants to know that it was received.
    Eager(Outgoing, u64),
    /// That there is one.
    Announce { tag: u64, send: u64, len: u64 },
}

/// What a send waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until the network has room for it.
    Room,
    /// For nothing: it is sent in the midst of a poll, and kept if there is no room.
    None,
}

impl TwoSided {
    /// Sends a message that may go at once, if that is all there is to it: whether it was sent. Nobody need
    /// be told of its end, for it is over.
    ///
    /// # Errors
    /// As [`begin_send`](Self::begin_send), and that of the network.
    #[inline(always)]
    pub(super) fn send_at_once(&self, to: Rank, tag: u64, data: &[u8]) -> Result<bool> {
        progress::may_wait("a send")?;
        self.check(Some(to.0), Some(tag))?;
        let is_plain = self.protocols.is_eager(data.len()) && !self.are_told();
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
        // That a peer has ended the network says.
        let (encoded, payload) = match data.len() > wire::FEW_BYTES {
            false => (wire::few(tag, 0, data), &[][..]),
            true => (Said::Eager { tag, send: 0 }.encode(), data),
        };
        self.send_in_order(to, &encoded.message(payload))?;
        self.progress.tally.one(Count::MessagesEager);
        Ok(true)
    }

    /// Sends a message, waiting for room, behind what was kept for want of it.
    #[inline(always)]
    fn send_in_order(&self, to: Rank, message: &Message<'_>) -> Result<()> {
        match self.progress.has_onward_for(to) {
            true => self.send_behind(to, message),
            false => self.progress.send(to, message),
        }
    }

    /// Sends a message when what was kept for want of room was sent.
    #[cold]
    fn send_behind(&self, to: Rank, message: &Message<'_>) -> Result<()> {
        match self.progress.conduit().standing(to) {
            Standing::Present => self.progress.send_result(to, message),
            _ => Err(self.progress.gone(to)),
        }
    }

    /// Begins to send a message. `delivered`: the request ends when the message was received, not when
    /// its source may be used again.
    ///
    /// # Safety
    /// Until the request [is over](Request::is_over):
    /// 1. The buffer can be read.
    /// 2. Nobody writes to it.
    ///
    /// # Errors
    /// What is found at once: nothing is under way then.
    pub(super) unsafe fn begin_send(
        &self,
        to: Rank,
        tag: u64,
        buffer: Buffer,
        delivered: bool,
        site: &'static Location<'static>,
    ) -> Result<Arc<Request>> {
        progress::may_wait("a send")?;
        self.check(Some(to.0), Some(tag))?;
        let request = Arc::new(Request::new());
        self.begins(UseKind::Sent, buffer, &request, site);
        if to == self.progress.rank {
            if self.state.lock().refuses {
                return Err(Error::JobOver);
            }
            // SAFETY: the caller's promise.
            unsafe { self.send_to_itself(tag, buffer, &request, delivered) };
            return Ok(request);
        }
        if self.progress.conduit().standing(to) != Standing::Present {
            return Err(self.progress.gone(to));
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
            request.is_under_way(&self.under_way);
            let peer = state.peer(to);
            if peer.draining || !peer.waiting.is_empty() || !peer.allowance.has_message() {
                peer.waiting.push_back(outgoing);
                None
            } else {
                Some(self.prepare(&mut state, to, outgoing))
            }
        };
        match ready {
            // SAFETY: the caller's promise; it is this call that reads the buffer.
            Some(ready) => unsafe { self.transmit(to, ready, Patience::Room) },
            None => self.progress.tally.one(Count::MessagesCreditWaits),
        }
        self.look_for_change_here();
        Ok(request)
    }

    /// Decides how a message goes to a peer that may be sent one.
    fn prepare(&self, state: &mut State, to: Rank, outgoing: Outgoing) -> Ready {
        let len = outgoing.buffer.len;
        let is_eager = self.protocols.is_eager(len);
        let allowance = &mut state.peer(to).allowance;
        let has_room = allowance.take(if is_eager { len as u64 } else { 0 });
        if is_eager && has_room || len == 0 {
            let send = match outgoing.delivered {
                true => state.number(),
                false => 0,
            };
            if outgoing.delivered {
                let sent = Sending::Sent(to, outgoing.tag, len, Arc::clone(&outgoing.request));
                state.sends.insert(send, sent);
            }
            return Ready::Eager(outgoing, send);
        }
        let (send, tag) = (state.number(), outgoing.tag);
        state.sends.insert(send, Sending::Announced(to, outgoing));
        Ready::Announce {
            tag,
            send,
            len: len as u64,
        }
    }

    /// Says what is ready. What becomes of it is told its request.
    ///
    /// # Safety
    /// The buffer of a message that goes at once can be read while this runs.
    unsafe fn transmit(&self, to: Rank, ready: Ready, patience: Patience) {
        let (said, payload, outgoing): (_, &[u8], _) = match ready {
            Ready::Eager(outgoing, send) => {
                let tag = outgoing.tag;
                // SAFETY: the caller's promise.
                let data = unsafe { bytes_of(outgoing.buffer) };
                let (said, payload) = Said::whole(tag, send, data);
                (said, payload, Some((outgoing, send)))
            }
            Ready::Announce { tag, send, len } => {
                let copied = self.protocols.long == Long::Copied;
                let said = Said::Announce {
                    tag,
                    send,
                    len,
                    copied,
                };
                (said, &[], None)
            }
        };
        let encoded = said.encode();
        let message = encoded.message(payload);
        let sent = match patience {
            Patience::None => self.progress.send_result(to, &message),
            Patience::Room => self.send_in_order(to, &message),
        };
        if let Err(cause) = sent {
            // Nobody else has the number: it was not sent.
            let send = match said {
                Said::Eager { send, .. } | Said::Few { send, .. } | Said::Announce { send, .. } => {
                    send
                }
                _ => 0,
            };
            let gone = self.state.lock().sends.remove(&send);
            let request = match gone {
                Some(Sending::Announced(_, outgoing)) => Some(outgoing.request),
                Some(Sending::Sent(.., request)) => Some(request),
                None => outgoing.map(|(outgoing, _)| outgoing.request),
            };
            if let Some(request) = request {
                request.end(&self.progress, Err(cause));
            }
            return;
        }
        if let Some((outgoing, _)) = outgoing {
            self.progress.tally.one(Count::MessagesEager);
            match outgoing.delivered {
                true => outgoing.request.leave(),
                false => {
                    let status = self.sent(outgoing.tag, outgoing.buffer.len);
                    outgoing.request.end(&self.progress, Ok(status));
                }
            }
        }
    }

    /// What is known of an own message.
    pub(super) fn sent(&self, tag: u64, bytes: usize) -> Status {
        Status {
            source: self.progress.rank,
            tag,
            bytes,
        }
    }

    /// Sends what waited for credit, as far as there is credit now. In the midst of a poll.
    pub(super) fn drain(&self, to: Rank) {
        loop {
            let (ready, data) = {
                let mut state = self.state.lock();
                let peer = state.peer(to);
                if peer.draining {
                    return;
                }
                let outgoing = match peer.allowance.has_message() {
                    true => peer.waiting.pop_front(),
                    false => None,
                };
                let Some(outgoing) = outgoing else {
                    let Some(messages) = self.still_owes(peer) else {
                        return;
                    };
                    // Else a thread that sends the rest meanwhile would announce a newer number first.
                    peer.draining = true;
                    drop(state);
                    self.say(to, Said::Owed { messages }, &[]);
                    let mut state = self.state.lock();
                    let peer = state.peer(to);
                    peer.draining = false;
                    match peer.allowance.has_message() && !peer.waiting.is_empty() {
                        true => continue,
                        false => return,
                    }
                };
                peer.draining = true;
                let mut data = match self.protocols.is_eager(outgoing.buffer.len) {
                    // SAFETY: its request is not over: before it is sent, it ends only after it was taken
                    // out of where it waited, under this lock.
                    true => unsafe { bytes_of(outgoing.buffer) }.to_vec(),
                    false => Vec::new(),
                };
                let mut ready = self.prepare(&mut state, to, outgoing);
                if let Ready::Eager(outgoing, _) = &mut ready {
                    // Another thread may find the peer lost, and end the request.
                    outgoing.buffer.at = data.as_mut_ptr();
                    // The source was copied. A scope whose body fails finds the message nowhere from here on, and is
                    // not to wait until it is received.
                    if outgoing.delivered {
                        outgoing.request.leave();
                    }
                }
                (ready, data)
            };
            if matches!(&ready, Ready::Eager(outgoing, _) if outgoing.delivered) {
                self.progress.wake_sleepers();
            }
            // SAFETY: the data of a message that goes at once is here.
            unsafe { self.transmit(to, ready, Patience::None) };
            drop(data);
            self.state.lock().peer(to).draining = false;
        }
    }

    /// A message of this rank to itself: a copy, which is received or kept.
    ///
    /// # Safety
    /// As [`begin_send`](Self::begin_send).
    unsafe fn send_to_itself(
        &self,
        tag: u64,
        buffer: Buffer,
        request: &Arc<Request>,
        delivered: bool,
    ) {
        // SAFETY: 1., 2.
        let data = unsafe { bytes_of(buffer) }.to_vec();
        request.leave();
        let status = self.sent(tag, buffer.len);
        let theirs = match delivered {
            true => Arc::clone(request),
            false => {
                request.end(&self.progress, Ok(status));
                // Nobody asks for that one.
                Arc::new(Request::new())
            }
        };
        let envelope = Envelope {
            source: self.progress.rank.0,
            tag,
        };
        let message = Unexpected::Own {
            data,
            request: theirs,
        };
        self.match_message(envelope, message);
    }

    /// A send whose scope ends before it was asked for: the data is copied, so that it may be sent all the
    /// same when its source is gone.
    pub(super) fn detach(&self, request: &Arc<Request>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let announced = state
            .sends
            .values_mut()
            .filter_map(|sending| match sending {
                Sending::Announced(_, outgoing) => Some(outgoing),
                Sending::Sent(..) => None,
            });
        let peers = state.peers.iter_mut().flatten();
        let waiting = peers.flat_map(|peer| peer.waiting.iter_mut());
        let found = (announced.chain(waiting)).find(|it| Arc::ptr_eq(&it.request, request));
        let Some(outgoing) = found else { return };
        let own = Arc::new(Request::new());
        own.is_under_way(&self.under_way);
        // SAFETY: its request is not over: it ends with the entry that was found, under this lock.
        let mut data = unsafe { bytes_of(outgoing.buffer) }.to_vec();
        outgoing.buffer.at = data.as_mut_ptr();
        own.keep(&self.progress, Box::new(data));
        let theirs = mem::replace(&mut outgoing.request, own);
        let status = self.sent(outgoing.tag, outgoing.buffer.len);
        // That wakes who waits, by the program's code.
        drop(guard);
        theirs.end(&self.progress, Ok(status));
    }
}

/// The bytes of a buffer.
///
/// # Safety
/// While they are used:
/// 1. The buffer can be read.
/// 2. Nobody writes to it.
pub(super) unsafe fn bytes_of<'a>(buffer: Buffer) -> &'a [u8] {
    match buffer.len {
        0 => &[],
        // SAFETY: 1., 2.
        len => unsafe { slice::from_raw_parts(buffer.at, len) },
    }
}
