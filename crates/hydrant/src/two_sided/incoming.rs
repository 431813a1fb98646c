//! What peers say about two-sided messages, and what follows from it. Whoever breaks a rule is expelled.

#![allow(unsafe_code)] // copies into the buffers of receives

use std::sync::{Arc, Weak, atomic::Ordering::Relaxed};

use hydrant_conduit::{Delivery, ReplyPort};
use smallvec::SmallVec;

use super::{
    By, Envelope, Outgoing, Receiving, Sending, TwoSided, Unexpected,
    direct::Direct,
    receive::copy_into,
    wire::{Clear, Said},
};
use crate::{
    Rank,
    progress::{Progress, Route},
};

const RESERVED: &str = "a message under a reserved tag";
const NO_CREDIT: &str = "a message for which there was no credit";

/// Who gets what peers say.
pub(super) struct Incoming(pub(super) Weak<TwoSided>);

impl Route for Incoming {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, _: &mut dyn ReplyPort) {
        let Some(two_sided) = self.0.upgrade() else {
            return;
        };
        two_sided.follow(progress, delivery, None);
    }

    fn peers_ended(&self) {
        if let Some(two_sided) = self.0.upgrade() {
            two_sided.look_for_change_here();
            if two_sided.progress.any_has_come_to_end() {
                two_sided.look_for_ends();
                two_sided.tell_probing();
            }
        }
    }
}

impl TwoSided {
    /// Does what a peer's message asks for. `direct`: a receive that looks for its message itself.
    #[inline(always)]
    pub(super) fn follow(
        &self,
        progress: &Progress,
        delivery: &Delivery<'_>,
        direct: Option<&mut Direct<'_>>,
    ) {
        let (from, payload) = (delivery.from, delivery.payload);
        let followed = match Said::decode(delivery) {
            Some(Said::Eager { tag, send }) => self.arrived((from, tag), send, payload, direct),
            Some(Said::Few { tag, send, data }) => self.arrived((from, tag), send, data, direct),
            Some(Said::Announce {
                tag,
                send,
                len,
                copied,
            }) => {
                if let Some(direct) = direct {
                    direct.is_kept(envelope(from, tag));
                }
                let message = Unexpected::Announced { send, len, copied };
                self.announced(from, tag, message)
            }
            Some(Said::Clear { send, receive, way }) => self.cleared(from, send, receive, way),
            Some(Said::Part { receive, offset }) => self.part(from, receive, offset, payload),
            Some(Said::Written { receive }) => self.said_written(from, receive),
            Some(Said::Received { send }) => self.received(from, send),
            Some(Said::Credit { messages, bytes }) => self.credited(from, messages, bytes),
            Some(Said::Refused { send }) => self.refused(from, send),
            Some(Said::Owed { messages }) => {
                self.owes(from, messages);
                Ok(())
            }
            None => Err("a two-sided message that is none"),
        };
        if let Err(what) = followed {
            progress.malformed(from, what);
        }
    }

    /// A message is announced, of which no bytes wait here.
    fn announced(&self, from: Rank, tag: u64, message: Unexpected) -> Result<(), &'static str> {
        if tag > super::MAX_TAG {
            return Err(RESERVED);
        }
        if !self.state.lock().peer(from).account.came(0) {
            return Err(NO_CREDIT);
        }
        self.match_message(envelope(from, tag), message);
        Ok(())
    }

    /// A message is asked for.
    fn cleared(&self, from: Rank, send: u64, receive: u64, way: Clear) -> Result<(), &'static str> {
        const NONE: &str = "a message was asked for that was not announced";
        let outgoing = {
            let mut state = self.state.lock();
            let outgoing = match state.sends.remove(&send) {
                Some(Sending::Announced(to, outgoing)) if to == from => outgoing,
                Some(other) => {
                    state.sends.insert(send, other);
                    return Err(NONE);
                }
                None => return Err(NONE),
            };
            if !outgoing.has(way) {
                state.sends.insert(send, Sending::Announced(from, outgoing));
                return Err("more of a message was asked for than there is");
            }
            outgoing
        };
        self.carry(from, (send, outgoing), receive, way);
        Ok(())
    }

    /// What was cleared of a message was brought, all of it.
    fn said_written(&self, from: Rank, receive: u64) -> Result<(), &'static str> {
        let receiving = {
            let mut state = self.state.lock();
            let receiving = state.receives.get(&receive);
            if !receiving.is_some_and(|it| it.from == from && it.may_be_brought()) {
                return Err("the end of a message that was not asked for");
            }
            state.part_with(receive)
        };
        if let Some(receiving) = receiving {
            self.brought(receiving);
        }
        Ok(())
    }

    /// Messages of this rank were taken out: there may be credit for those that wait.
    fn credited(&self, from: Rank, messages: u64, bytes: u64) -> Result<(), &'static str> {
        let fits = self.state.lock().peer(from).allowance.give(messages, bytes);
        if !fits {
            return Err("more credit than was used");
        }
        self.drain(from);
        Ok(())
    }

    /// A whole message came: it goes straight into the buffer of a receive, or is kept.
    #[inline]
    fn arrived(
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
        if !account.came(bytes) {
            return Err(NO_CREDIT);
        }
        let matching = &mut state.matching;
        if let Some(posted) = matching.fitting(envelope, bytes, &mut short) {
            let credit = account.took(bytes);
            drop(guard);
            // SAFETY: 1. A receive that was posted, whose request is not over. 2. With room. 3. In no table
            // any more.
            unsafe { self.land(envelope, data, posted) };
            self.say_taken(from, credit, send);
        } else if let Some(direct) = direct.as_deref_mut()
            && direct.fits(envelope, data.len())
            && matching.first(direct.pattern).is_none()
        {
            let credit = account.took(bytes);
            drop(guard);
            direct.land(envelope, data);
            self.say_taken(from, credit, send);
        } else if state.refuses {
            drop(guard);
            let data = SmallVec::from_slice(data);
            self.turn_away(envelope, Unexpected::Here { data, send });
        } else {
            let data = SmallVec::from_slice(data);
            matching.keep(envelope, Unexpected::Here { data, send });
            self.keeps.store(true, Relaxed);
            drop(guard);
            self.is_unexpected();
            if let Some(direct) = direct {
                direct.is_kept(envelope);
            }
        }
        self.refuse(envelope, bytes, short);
        Ok(())
    }

    /// A part of a message came.
    fn part(&self, from: Rank, receive: u64, offset: u64, data: &[u8]) -> Result<(), &'static str> {
        const NONE: &str = "a part of a message that was not asked for";
        let mut state = self.state.lock();
        let receiving = state.receives.get_mut(&receive).ok_or(NONE)?;
        let (len, bytes) = (receiving.len as u64, data.len() as u64);
        if receiving.from != from || offset > len || bytes > len - offset {
            return Err(NONE);
        }
        // SAFETY: 1. The request is not over: it ends with this entry, under this lock.
        //         2. The message is no longer than the buffer, and this lies in it.
        unsafe { copy_into(receiving.buffer, offset as usize, data) };
        receiving.landed = receiving.landed.saturating_add(bytes);
        Ok(())
    }

    /// A message that was sent at once was received.
    fn received(&self, from: Rank, send: u64) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        let (tag, len, request) = match state.sends.get(&send) {
            Some(Sending::Sent(to, tag, len, request)) if *to == from => {
                (*tag, *len, Arc::clone(request))
            }
            _ => return Err("a message was received that was not sent"),
        };
        state.sends.remove(&send);
        drop(state);
        let status = self.sent(tag, len);
        request.end(&self.progress, Ok(status));
        Ok(())
    }
}

impl Receiving {
    /// Whether all that was cleared may be there: what is copied is counted.
    fn may_be_brought(&self) -> bool {
        match &self.by {
            By::Parts => self.landed >= (self.len - self.done) as u64,
            By::Loan(_) => true,
            By::Landing(landing) => landing.may_be_whole(self.landed),
        }
    }
}

impl Outgoing {
    /// Whether so much is left of it.
    fn has(&self, way: Clear) -> bool {
        let left = (self.buffer.len - self.sent) as u64;
        match way {
            Clear::Parts | Clear::Loan(_) => true,
            Clear::Place(place) => place.bytes().is_some_and(|bytes| bytes <= left),
        }
    }
}

fn envelope(from: Rank, tag: u64) -> Envelope {
    Envelope {
        source: from.0,
        tag,
    }
}
