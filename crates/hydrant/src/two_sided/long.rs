//! Announced messages, at their receivers: a receive that was matched lends its buffer, or tells a
//! [place](super::landing) in it; the sender [brings](super::carried) the message, and says so.
//!
//! Both sides are registered as for any other access, by the strategy in force. What cannot be written,
//! because there is no room for another loan or to register memory, is copied in parts, so that a
//! message that was matched arrives. So is what is faster that way.

#![allow(unsafe_code)] // lends and registers the buffers of receives

use std::sync::{Arc, Weak};

use hydrant_conduit::Key;

use super::{
    Begun, By, Envelope, Landing, Posted as PostedReceive, Receiving, TwoSided, Unlending,
    choice::Way,
    receive::status,
    request::Ending,
    wire::{Clear, Place, Said},
};
use crate::{Error, Rank, Result};

impl TwoSided {
    /// A receive was matched with an announced message, for which its buffer has room: has memory registered or lent,
    /// and asks for the message.
    pub(super) fn clear(
        &self,
        envelope: Envelope,
        (send, len, copied): (u64, usize, bool),
        posted: PostedReceive,
    ) {
        let begun = match copied {
            true => None,
            false => self.begun(envelope, len),
        };
        let mut receiving = Receiving {
            from: Rank(envelope.source),
            tag: envelope.tag,
            send,
            buffer: posted.buffer,
            len,
            done: 0,
            landed: 0,
            by: By::Parts,
            begun,
            request: posted.request,
        };
        if copied || begun.is_some_and(|it| it.way == Way::Copied) {
            return self.ask_for(receiving, Clear::Parts);
        }
        if self.transfer.registration().is_none() {
            let way = self.lend(&mut receiving);
            return self.ask_for(receiving, way);
        }
        self.ask_once_registered(receiving);
    }

    /// Asks for what is left of a message, when its place is registered.
    fn ask_once_registered(&self, mut receiving: Receiving) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let ending = Ending::new(Arc::clone(&receiving.request), &self.progress);
        self.progress.spawn(async move {
            let way = match this.land_next(&mut receiving) {
                Some(place) => Clear::Place(place),
                None if this.goes_in_parts(&receiving) => Clear::Parts,
                None => {
                    let start = receiving.buffer.at.expose_provenance() as u64;
                    this.transfer.make_ready(start, receiving.len as u64).await;
                    this.lend(&mut receiving)
                }
            };
            this.ask_for(receiving, way);
            // From here on it ends with what was noted.
            ending.forget();
        });
    }

    /// Which way a message comes, where that is chosen.
    fn begun(&self, envelope: Envelope, len: usize) -> Option<Begun> {
        if !self.chooses {
            return None;
        }
        let conduit = self.progress.conduit();
        let mapped = conduit.window(Rank(envelope.source)).is_some();
        let now = self.now();
        let mut state = self.state.lock();
        Some(state.choice.as_mut()?.begin(now, len, mapped))
    }

    /// A message whose way was chosen has come by this way, or will not.
    fn came(&self, begun: Option<Begun>, way: Way, end: &Result<super::Status>) {
        let Some(begun) = begun else { return };
        let now = self.now();
        if let Some(choice) = &mut self.state.lock().choice {
            // What was copied for want of a loan says nothing of writing.
            choice.end(now, begun, end.is_ok() && begun.way == way);
        }
    }

    /// The time in nanoseconds. In virtual time it may have to be waited for, so not under the lock.
    fn now(&self) -> u64 {
        let now = self.progress.conduit().now().as_nanos();
        u64::try_from(now).unwrap_or(u64::MAX)
    }

    /// Whether what could not be registered of a message goes in parts, not by a loan: where there is no whole bucket
    /// to register, messages about buckets take longer than parts do.
    fn goes_in_parts(&self, receiving: &Receiving) -> bool {
        let is_short = receiving.len < 2 * self.transfer.bucket();
        receiving.done > 0 || is_short && self.tells_places(receiving.from)
    }

    /// Registers what comes next of a message, where its sender is told such places.
    fn land_next(&self, receiving: &mut Receiving) -> Option<Place> {
        if !self.tells_places(receiving.from) {
            return None;
        }
        let next = receiving.done..receiving.len;
        // SAFETY: the buffer stays until the request is over, which it is not before the landing is; nobody but the
        // sender uses it until then.
        let (landing, place) = unsafe { Landing::new(&self.transfer, receiving.buffer, next) }?;
        receiving.by = By::Landing(landing);
        Some(place)
    }

    /// Lends the buffer of a receive that was matched, if that can be.
    fn lend(&self, receiving: &mut Receiving) -> Clear {
        if self.transfer.registration().is_none()
            && self.state.lock().receives.len() >= self.most_lent
        {
            // The rest of the table is for buffers that the program exposes.
            return Clear::Parts;
        }
        let Receiving { buffer, len, .. } = *receiving;
        // SAFETY: the buffer stays until the request is over, which it is not before the loan is; nobody
        // but the sender uses it until then.
        let key = match unsafe { self.transfer.lend_at_once(buffer.at, len) } {
            Ok(key) => key,
            Err(cause) => {
                tracing::debug!(%cause, "a message is copied: its buffer could not be lent");
                return Clear::Parts;
            }
        };
        // The receiver says itself what it uses.
        if let Some(registration) = self.transfer.registration() {
            registration.say_nothing_of(key);
        }
        receiving.by = By::Loan(key);
        Clear::Loan(key.0)
    }

    fn ask_for(&self, receiving: Receiving, way: Clear) {
        let (from, send) = (receiving.from, receiving.send);
        if way == Clear::Parts && receiving.done == 0 {
            receiving.request.forget_use();
        }
        let noted = {
            let mut state = self.state.lock();
            match state.closed {
                true => Err(receiving),
                false => {
                    let receive = state.number();
                    state.receives.insert(receive, receiving);
                    Ok(receive)
                }
            }
        };
        let receive = match noted {
            Ok(receive) => receive,
            // Nobody would end the receive later; nobody was told of the buffer.
            Err(Receiving { by, request, .. }) => {
                match by {
                    By::Loan(key) => self.transfer.unlend_later(key, || {}),
                    By::Landing(mut landing) => landing.is_done(),
                    By::Parts => {}
                }
                return request.end(&self.progress, Err(Error::JobOver));
            }
        };
        self.say(from, Said::Clear { send, receive, way }, &[]);
        self.look_for_change();
    }

    /// All that was cleared of a message was brought: the receive ends once the loan does, or asks for the rest.
    pub(super) fn brought(&self, mut receiving: Receiving) {
        receiving.done = match &mut receiving.by {
            By::Loan(key) => {
                self.transfer.is_forgotten_by(receiving.from, *key);
                receiving.len
            }
            By::Landing(landing) => {
                landing.is_done();
                receiving.done + landing.bytes()
            }
            By::Parts => receiving.len,
        };
        if receiving.done < receiving.len {
            // What was registered is not any more before what comes next is.
            receiving.by = By::Parts;
            receiving.landed = 0;
            return self.ask_once_registered(receiving);
        }
        let envelope = Envelope {
            source: receiving.from.0,
            tag: receiving.tag,
        };
        let len = receiving.len;
        self.end_receive(receiving, Ok(status(envelope, len)));
    }

    /// Ends a receive that was [parted with](super::State::part_with), when nobody writes to its buffer any more.
    pub(super) fn end_receive(&self, receiving: Receiving, end: Result<super::Status>) {
        let Receiving {
            by, begun, request, ..
        } = receiving;
        let key = match by {
            By::Loan(key) => key,
            By::Parts => {
                self.came(begun, Way::Copied, &end);
                return request.end(&self.progress, end);
            }
            By::Landing(landing) => {
                drop(landing);
                self.came(begun, Way::Written, &end);
                return request.end(&self.progress, end);
            }
        };
        // If the job ends before the loan does, what is to follow is dropped, and `close` sees to it.
        let me = Weak::clone(&self.me);
        self.transfer.unlend_later(key, move || {
            if let Some(this) = me.upgrade() {
                this.unlent(key, end);
            }
        });
    }

    /// Nobody writes to the buffer of a receive any more, which ends.
    fn unlent(&self, key: Key, end: Result<super::Status>) {
        let unlending = self.state.lock().unlending.remove(&key.0);
        if let Some(Unlending { begun, request, .. }) = unlending {
            self.came(begun, Way::Written, &end);
            request.end(&self.progress, end);
        }
    }

    /// Ends a receive whose sender is lost, once it writes there no more.
    pub(super) fn give_up(&self, receive: u64, cause: Error) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        // If this does not run, `close` finds the receive.
        self.progress.spawn(async move {
            let Some(receiving) = this.state.lock().receives.remove(&receive) else {
                return;
            };
            let ending = Ending::new(receiving.request, &this.progress);
            // Dropped before `ending` is.
            let mut by = receiving.by;
            if let By::Landing(landing) = &mut by {
                landing.until_taken_back().await;
            }
            drop(by);
            let end = Err(cause);
            this.came(receiving.begun, Way::Written, &end);
            ending.end(end);
        });
    }
}
