//! Handles the two-sided messages of peers. A peer that breaks a rule is expelled.

#![allow(unsafe_code)] // copies into the buffers of receives

use std::sync::{Arc, Weak, atomic::Ordering::Relaxed};

use hydrant_conduit::{Delivery, ReplyPort};
use smallvec::SmallVec;

use super::{
    Envelope, Outgoing, PendingSend, Receiving, Transport, TwoSided, Unexpected,
    direct::Direct,
    receive::copy_into,
    wire::{Clear, WireMessage},
};
use crate::{
    Rank,
    progress::{Progress, Route},
};

pub(super) const RESERVED: &str = "a message under a reserved tag";
pub(super) const NO_CREDIT: &str = "a message for which there was no credit";

/// The handler of two-sided messages.
pub(super) struct Incoming(pub(super) Weak<TwoSided>);

impl Route for Incoming {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, _: &mut dyn ReplyPort) {
        let Some(two_sided) = self.0.upgrade() else {
            return;
        };
        two_sided.handle(progress, delivery, None);
    }

    fn peers_ended(&self) {
        if let Some(two_sided) = self.0.upgrade() {
            two_sided.check_for_ended_peers_now();
            if two_sided.progress.any_has_come_to_end() {
                two_sided.fail_vain_receives();
                two_sided.wake_probes();
            }
        }
    }
}

impl TwoSided {
    /// Handles a message of a peer. `direct` is a receive that takes its message on arrival.
    #[inline(always)]
    pub(super) fn handle(
        &self,
        progress: &Progress,
        delivery: &Delivery<'_>,
        direct: Option<&mut Direct<'_>>,
    ) {
        let (from, payload) = (delivery.from, delivery.payload);
        let handled = match WireMessage::decode(delivery) {
            Some(WireMessage::Eager { tag, send }) => {
                self.handle_arrived((from, tag), send, payload, direct)
            }
            Some(WireMessage::Few { tag, send, data }) => {
                self.handle_arrived((from, tag), send, data, direct)
            }
            Some(WireMessage::Piece {
                tag,
                send,
                len,
                awaited,
            }) => self.handle_piece(from, (tag, send, len, awaited), payload, direct),
            Some(WireMessage::Announce {
                tag,
                send,
                len,
                copied,
            }) => {
                if let Some(direct) = direct {
                    direct.note_kept(envelope(from, tag));
                }
                let message = Unexpected::Announced { send, len, copied };
                self.handle_announced(from, tag, message)
            }
            Some(WireMessage::Clear {
                send,
                receive,
                clear,
            }) => self.handle_cleared(from, send, receive, clear),
            Some(WireMessage::Part { receive, offset }) => {
                self.handle_part(from, receive, offset, payload)
            }
            Some(WireMessage::Written { receive }) => self.handle_written(from, receive),
            Some(WireMessage::Received { send }) => self.handle_received(from, send),
            Some(WireMessage::Credit { messages, bytes }) => {
                self.handle_credit(from, messages, bytes)
            }
            Some(WireMessage::Refused { send }) => self.handle_refused(from, send),
            Some(WireMessage::Owed { messages }) => {
                self.note_owed(from, messages);
                Ok(())
            }
            None => Err("a two-sided message that is none"),
        };
        if let Err(what) = handled {
            progress.malformed(from, what);
        }
    }

    /// Handles an announcement of a message, none of whose bytes are here.
    fn handle_announced(
        &self,
        from: Rank,
        tag: u64,
        message: Unexpected,
    ) -> Result<(), &'static str> {
        if tag > super::MAX_TAG {
            return Err(RESERVED);
        }
        if !self.state.lock().peer(from).account.charge(0) {
            return Err(NO_CREDIT);
        }
        self.match_message(envelope(from, tag), message);
        Ok(())
    }

    /// Handles a receiver's clear of an announced message.
    fn handle_cleared(
        &self,
        from: Rank,
        send: u64,
        receive: u64,
        clear: Clear,
    ) -> Result<(), &'static str> {
        const NONE: &str = "a message was asked for that was not announced";
        if !clear.names_only_the_buffer() {
            return Err("a message was asked for under a key that is no buffer's");
        }
        let outgoing = {
            let mut state = self.state.lock();
            let outgoing = match state.sends.remove(&send) {
                Some(PendingSend::Announced(to, outgoing)) if to == from => outgoing,
                Some(other) => {
                    state.sends.insert(send, other);
                    return Err(NONE);
                }
                None => return Err(NONE),
            };
            if !outgoing.can_fill(clear) {
                state
                    .sends
                    .insert(send, PendingSend::Announced(from, outgoing));
                return Err("more of a message was asked for than there is");
            }
            outgoing
        };
        self.carry(from, (send, outgoing), receive, clear);
        Ok(())
    }

    /// Handles the report that the cleared part of a message is complete.
    fn handle_written(&self, from: Rank, receive: u64) -> Result<(), &'static str> {
        let receiving = {
            let mut state = self.state.lock();
            let receiving = state.receives.get(&receive);
            if !receiving.is_some_and(|it| it.from == from && it.may_be_complete()) {
                return Err("the end of a message that was not asked for");
            }
            state.take_receiving(receive)
        };
        if let Some(receiving) = receiving {
            self.finish_part(receiving);
        }
        Ok(())
    }

    /// Handles returned credit, which waiting messages may use.
    fn handle_credit(&self, from: Rank, messages: u64, bytes: u64) -> Result<(), &'static str> {
        let fits = self
            .state
            .lock()
            .peer(from)
            .allowance
            .refill(messages, bytes);
        if !fits {
            return Err("more credit than was used");
        }
        self.send_waiting(from);
        Ok(())
    }

    /// Handles a whole message: copies it into the buffer of a receive, or keeps it.
    #[inline]
    fn handle_arrived(
        &self,
        (from, tag): (Rank, u64),
        send: u64,
        data: &[u8],
        mut direct: Option<&mut Direct<'_>>,
    ) -> Result<(), &'static str> {
        if tag > super::MAX_TAG {
            return Err(RESERVED);
        }
        let (envelope, bytes) = (envelope(from, tag), data.len() as u64);
        let mut short = None;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let account = &mut state.peers[from.index()].get_or_insert_default().account;
        if !account.charge(bytes) {
            return Err(NO_CREDIT);
        }
        let matching = &mut state.matching;
        if let Some(posted) = matching.take_fitting(envelope, bytes, &mut short) {
            let credit = account.release(bytes);
            drop(guard);
            // SAFETY: 1. The receive was posted, and its request is open. 2. The buffer has room.
            // 3. The receive was taken out of the only table.
            unsafe { self.land(envelope, data, posted) };
            self.tell_taken(from, credit, send);
        } else if let Some(direct) = direct.as_deref_mut()
            && direct.fits(envelope, data.len())
            && matching.first(direct.pattern).is_none()
        {
            let credit = account.release(bytes);
            drop(guard);
            direct.land(envelope, data);
            self.tell_taken(from, credit, send);
        } else if state.refuses {
            drop(guard);
            let data = SmallVec::from_slice(data);
            self.turn_away(envelope, Unexpected::Here { data, send });
        } else {
            let data = SmallVec::from_slice(data);
            matching.keep(envelope, Unexpected::Here { data, send });
            self.keeps.store(true, Relaxed);
            drop(guard);
            self.note_unexpected();
            if let Some(direct) = direct {
                direct.note_kept(envelope);
            }
        }
        self.fail_short(envelope, bytes, short);
        Ok(())
    }

    /// Handles a part of a message.
    fn handle_part(
        &self,
        from: Rank,
        receive: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), &'static str> {
        const NONE: &str = "a part of a message that was not asked for";
        let mut state = self.state.lock();
        let receiving = state.receives.get_mut(&receive).ok_or(NONE)?;
        let (len, bytes) = (receiving.len as u64, data.len() as u64);
        if receiving.from != from || offset > len || bytes > len - offset {
            return Err(NONE);
        }
        // SAFETY: 1. The request is open: it ends with this entry, under this lock.
        // 2. The part lies within the message, which is no longer than the buffer.
        unsafe { copy_into(receiving.buffer, offset as usize, data) };
        receiving.landed = receiving.landed.saturating_add(bytes);
        Ok(())
    }

    /// Handles the report that an eager message was received.
    fn handle_received(&self, from: Rank, send: u64) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        let (tag, len, request) = match state.sends.get(&send) {
            Some(PendingSend::Sent(to, tag, len, request)) if *to == from => {
                (*tag, *len, Arc::clone(request))
            }
            _ => return Err("a message was received that was not sent"),
        };
        state.sends.remove(&send);
        drop(state);
        let status = self.status_of_sent(tag, len);
        request.end(&self.progress, Ok(status));
        Ok(())
    }
}

impl Receiving {
    /// Returns whether the cleared part may be complete. Only copied bytes are counted.
    fn may_be_complete(&self) -> bool {
        match &self.transport {
            Transport::Parts => self.landed >= (self.len - self.done) as u64,
            Transport::Loan(_) => true,
            Transport::Landing(landing) => landing.may_be_whole(self.landed),
        }
    }
}

impl Outgoing {
    /// Returns whether the rest of the message is that long.
    fn can_fill(&self, clear: Clear) -> bool {
        let left = (self.buffer.len - self.sent) as u64;
        match clear {
            Clear::Parts | Clear::Loan(_) => true,
            Clear::Landing(place) => place.bytes().is_some_and(|bytes| bytes <= left),
        }
    }
}

pub(super) fn envelope(from: Rank, tag: u64) -> Envelope {
    Envelope {
        source: from.0,
        tag,
    }
}
