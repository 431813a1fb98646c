//! What peers say about two-sided messages, and what follows from it. Whoever breaks a rule is expelled.

#![allow(unsafe_code)] // copies into the buffers of receives

use std::sync::{Arc, Weak};

use hydrant_conduit::{Delivery, ReplyPort};
use smallvec::SmallVec;

use super::{Envelope, Receiving, Sending, TwoSided, Unexpected, receive::copy_into, wire::Said};
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
        let followed = match Said::decode(delivery) {
            Some(said) => two_sided.heard(delivery.from, said, delivery.payload),
            None => Err("a two-sided message that is none"),
        };
        if let Err(what) = followed {
            progress.malformed(delivery.from, what);
        }
    }

    fn peers_ended(&self) {
        if let Some(two_sided) = self.0.upgrade() {
            two_sided.look_after_drain();
        }
    }
}

impl TwoSided {
    /// Does what a peer's message asks for, or says which rule it breaks.
    fn heard(&self, from: Rank, said: Said<'_>, payload: &[u8]) -> Result<(), &'static str> {
        match said {
            Said::Eager { tag, send } => self.arrived(from, tag, send, payload),
            Said::Few { tag, send, data } => self.arrived(from, tag, send, data),
            Said::Announce {
                tag,
                send,
                len,
                copied,
            } => {
                let message = Unexpected::Announced { send, len, copied };
                self.admit_announcement(from, tag)?;
                self.match_message(envelope(from, tag), message);
                Ok(())
            }
            Said::Clear { send, receive, key } => {
                let outgoing = {
                    let mut state = self.state.lock();
                    match state.sends.remove(&send) {
                        Some(Sending::Announced(to, outgoing)) if to == from => outgoing,
                        Some(other) => {
                            state.sends.insert(send, other);
                            return Err("a message was asked for that was not announced");
                        }
                        None => return Err("a message was asked for that was not announced"),
                    }
                };
                self.carry(from, outgoing, receive, key);
                Ok(())
            }
            Said::Part { receive, offset } => self.part(from, receive, offset, payload),
            Said::Written { receive } => {
                let receiving = {
                    let mut state = self.state.lock();
                    let receiving = state.receives.get(&receive);
                    if !receiving.is_some_and(|it| it.from == from && it.may_be_whole()) {
                        return Err("the end of a message that was not asked for");
                    }
                    state.part_with(receive)
                };
                if let Some(receiving) = receiving {
                    self.written(receiving);
                }
                Ok(())
            }
            Said::Received { send } => self.received(from, send),
            Said::Credit { messages, bytes } => {
                let fits = self.state.lock().peer(from).allowance.give(messages, bytes);
                if !fits {
                    return Err("more credit than was used");
                }
                self.drain(from);
                Ok(())
            }
        }
    }

    /// A whole message came: it goes straight into the buffer of a receive, or is kept.
    fn arrived(&self, from: Rank, tag: u64, send: u64, data: &[u8]) -> Result<(), &'static str> {
        if tag > super::MAX_TAG {
            return Err(RESERVED);
        }
        let envelope = envelope(from, tag);
        let mut short = Vec::new();
        let (found, credit) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let account = &mut state.peers[from.index()].get_or_insert_default().account;
            let bytes = data.len() as u64;
            if !account.came(bytes) {
                return Err(NO_CREDIT);
            }
            let found = (state.matching).fitting(envelope, bytes, &mut short);
            let credit = match found {
                Some(_) => account.took(bytes),
                None => {
                    let data = SmallVec::from_slice(data);
                    (state.matching).keep(envelope, Unexpected::Here { data, send });
                    None
                }
            };
            (found, credit)
        };
        match found {
            Some(posted) => {
                // SAFETY: 1. A receive that was posted, whose request is not over. 2. With room. 3. In no table
                // any more.
                unsafe { self.land(envelope, data, posted) };
                self.say_taken(from, credit, send);
            }
            None => self.is_unexpected(),
        }
        self.refuse(envelope, short);
        Ok(())
    }

    /// Counts an announcement, of which no bytes wait here.
    fn admit_announcement(&self, from: Rank, tag: u64) -> Result<(), &'static str> {
        if tag > super::MAX_TAG {
            return Err(RESERVED);
        }
        match self.state.lock().peer(from).account.came(0) {
            true => Ok(()),
            false => Err(NO_CREDIT),
        }
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
    /// Whether all of it may be there: what is copied is counted.
    fn may_be_whole(&self) -> bool {
        self.key.is_some() || self.landed >= self.len as u64
    }
}

fn envelope(from: Rank, tag: u64) -> Envelope {
    Envelope {
        source: from.0,
        tag,
    }
}
