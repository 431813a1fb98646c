//! Announced messages at their receivers. Once a receive is matched, the receiver clears the
//! message: it lends its buffer, or tells the sender a [landing](super::landing). The sender
//! [brings](super::long_send) the cleared part, and reports when it is complete.
//!
//! The strategy in force registers both sides, as for any other access. A message is copied in
//! parts if there is no room for another loan or to register memory, so every matched message
//! arrives. It is also copied if that is faster.

#![allow(unsafe_code)] // lends and registers the buffers of receives

use std::sync::{Arc, Weak};

use hydrant_conduit::Key;

use super::{
    Envelope, Landing, PostedReceive, Receiving, TimedRoute, Transport, TwoSided, Unlending,
    choice::LongRoute,
    receive::status,
    request::EndGuard,
    wire::{Clear, LandingSpan, WireMessage},
};
use crate::{Error, Rank, Result};

impl TwoSided {
    /// Clears an announced message for a matched receive with room for it: registers or lends
    /// memory, and asks the sender for the message.
    pub(super) fn clear(
        &self,
        envelope: Envelope,
        (send, len, copied): (u64, usize, bool),
        posted: PostedReceive,
    ) {
        let timed = if copied {
            None
        } else {
            self.choose_route(envelope, len)
        };
        let mut receiving = Receiving {
            from: Rank(envelope.source),
            tag: envelope.tag,
            send,
            buffer: posted.buffer,
            len,
            done: 0,
            landed: 0,
            transport: Transport::Parts,
            timed,
            request: posted.request,
        };
        if copied || timed.is_some_and(|it| it.route == LongRoute::Copied) {
            return self.send_clear(receiving, Clear::Parts);
        }
        if self.transfer.registration().is_none() {
            let clear = self.lend(&mut receiving);
            return self.send_clear(receiving, clear);
        }
        self.register_then_clear(receiving);
    }

    /// Registers memory for the rest of a message by a task, then clears it.
    fn register_then_clear(&self, mut receiving: Receiving) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let ending = EndGuard::new(Arc::clone(&receiving.request), &self.progress);
        self.progress.spawn(async move {
            let clear = match this.register_landing(&mut receiving) {
                Some(place) => Clear::Landing(place),
                None if this.goes_in_parts(&receiving) => Clear::Parts,
                None => {
                    let start = receiving.buffer.at.expose_provenance() as u64;
                    this.transfer.make_ready(start, receiving.len as u64).await;
                    this.lend(&mut receiving)
                }
            };
            this.send_clear(receiving, clear);
            // From here on the entry in `receives` ends the request.
            ending.forget();
        });
    }

    /// Chooses the route of a message, where routes are chosen.
    fn choose_route(&self, envelope: Envelope, len: usize) -> Option<TimedRoute> {
        if !self.chooses {
            return None;
        }
        let conduit = self.progress.conduit();
        let mapped = conduit.window(Rank(envelope.source)).is_some();
        let now = self.now();
        let mut state = self.state.lock();
        Some(state.choice.as_mut()?.begin(now, len, mapped))
    }

    /// Notes that a message has arrived by `route`, or has failed.
    fn record_time(
        &self,
        timed: Option<TimedRoute>,
        route: LongRoute,
        end: &Result<super::Status>,
    ) {
        let Some(timed) = timed else { return };
        let now = self.now();
        if let Some(choice) = &mut self.state.lock().choice {
            // A message that was copied for want of a loan is no sample of writing.
            choice.end(now, timed, end.is_ok() && timed.route == route);
        }
    }

    /// Returns the time in nanoseconds. In virtual time this may wait, so it is not called under
    /// the lock.
    fn now(&self) -> u64 {
        let now = self.progress.conduit().now().as_nanos();
        u64::try_from(now).unwrap_or(u64::MAX)
    }

    /// Returns whether bytes that could not be registered are copied in parts, not written to a
    /// loan. Without a whole bucket, messages about buckets take longer than parts.
    fn goes_in_parts(&self, receiving: &Receiving) -> bool {
        let is_short = receiving.len < 2 * self.transfer.bucket();
        receiving.done > 0 || is_short && self.uses_landings(receiving.from)
    }

    /// Registers the next landing of a message, if its sender writes to landings.
    fn register_landing(&self, receiving: &mut Receiving) -> Option<LandingSpan> {
        if !self.uses_landings(receiving.from) {
            return None;
        }
        let next = receiving.done..receiving.len;
        // SAFETY: 1. The buffer stays until the request is over, and the request ends after the
        // landing. 2. Until then only the sender uses the buffer.
        let (landing, place) = unsafe { Landing::new(&self.transfer, receiving.buffer, next) }?;
        receiving.transport = Transport::Landing(landing);
        Some(place)
    }

    /// Lends the buffer of a matched receive, if possible.
    fn lend(&self, receiving: &mut Receiving) -> Clear {
        if self.transfer.registration().is_none()
            && self.state.lock().receives.len() >= self.most_lent
        {
            // The rest of the table is for buffers that the program exposes.
            return Clear::Parts;
        }
        let Receiving { buffer, len, .. } = *receiving;
        // SAFETY: 1. The buffer stays until the request is over, and the request ends after the
        // loan. 2. Until then only the sender uses the buffer.
        let key = match unsafe { self.transfer.lend_at_once(buffer.at, len) } {
            Ok(key) => key,
            Err(cause) => {
                tracing::debug!(%cause, "a message is copied: its buffer could not be lent");
                return Clear::Parts;
            }
        };
        // The receive's request records the use.
        if let Some(registration) = self.transfer.registration() {
            registration.say_nothing_of(key);
        }
        receiving.transport = Transport::Loan(key);
        Clear::Loan(key.0)
    }

    fn send_clear(&self, receiving: Receiving, clear: Clear) {
        let (from, send) = (receiving.from, receiving.send);
        if clear == Clear::Parts && receiving.done == 0 {
            receiving.request.forget_use();
        }
        let noted = {
            let mut state = self.state.lock();
            if state.closed {
                Err(receiving)
            } else {
                let receive = state.next_number();
                state.receives.insert(receive, receiving);
                Ok(receive)
            }
        };
        let receive = match noted {
            Ok(receive) => receive,
            // No later event would end the receive. The peer does not know of the buffer.
            Err(Receiving {
                transport, request, ..
            }) => {
                match transport {
                    Transport::Loan(key) => self.transfer.unlend_later(key, || {}),
                    Transport::Landing(mut landing) => landing.release(),
                    Transport::Parts => {}
                }
                return request.end(&self.progress, Err(Error::JobOver));
            }
        };
        self.tell(
            from,
            WireMessage::Clear {
                send,
                receive,
                clear,
            },
            &[],
        );
        self.check_for_ended_peers();
    }

    /// Handles a complete cleared part: ends the receive, after its loan if there is one, or clears
    /// the next part.
    pub(super) fn finish_part(&self, mut receiving: Receiving) {
        receiving.done = match &mut receiving.transport {
            Transport::Loan(key) => {
                self.transfer.note_forgotten_by(receiving.from, *key);
                receiving.len
            }
            Transport::Landing(landing) => {
                landing.release();
                receiving.done + landing.bytes()
            }
            Transport::Parts => receiving.len,
        };
        if receiving.done < receiving.len {
            // The old landing is deregistered before the next one is registered.
            receiving.transport = Transport::Parts;
            receiving.landed = 0;
            return self.register_then_clear(receiving);
        }
        let envelope = Envelope {
            source: receiving.from.0,
            tag: receiving.tag,
        };
        let len = receiving.len;
        self.end_receive(receiving, Ok(status(envelope, len)));
    }

    /// Ends a receive that was [taken out](super::TwoSidedState::take_receiving), once nobody
    /// writes to its buffer.
    pub(super) fn end_receive(&self, receiving: Receiving, end: Result<super::Status>) {
        let Receiving {
            transport,
            timed,
            request,
            ..
        } = receiving;
        let key = match transport {
            Transport::Loan(key) => key,
            Transport::Parts => {
                self.record_time(timed, LongRoute::Copied, &end);
                return request.end(&self.progress, end);
            }
            Transport::Landing(landing) => {
                drop(landing);
                self.record_time(timed, LongRoute::Written, &end);
                return request.end(&self.progress, end);
            }
        };
        // If the job ends before the loan, the closure is dropped, and `close` ends the request.
        let me = Weak::clone(&self.me);
        self.transfer.unlend_later(key, move || {
            if let Some(this) = me.upgrade() {
                this.finish_loan(key, end);
            }
        });
    }

    /// Ends a receive whose loan has ended.
    fn finish_loan(&self, key: Key, end: Result<super::Status>) {
        let unlending = self.state.lock().unlending.remove(&key.0);
        if let Some(Unlending { timed, request, .. }) = unlending {
            self.record_time(timed, LongRoute::Written, &end);
            request.end(&self.progress, end);
        }
    }

    /// Ends the receive of a lost sender, once its landing is deregistered.
    pub(super) fn end_lost_receive(&self, receive: u64, cause: Error) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        // If this does not run, `close` finds the receive.
        self.progress.spawn(async move {
            let Some(receiving) = this.state.lock().receives.remove(&receive) else {
                return;
            };
            let ending = EndGuard::new(receiving.request, &this.progress);
            // `transport` is dropped before `ending`.
            let mut transport = receiving.transport;
            if let Transport::Landing(landing) = &mut transport {
                landing.revoke().await;
            }
            drop(transport);
            let end = Err(cause);
            this.record_time(receiving.timed, LongRoute::Written, &end);
            ending.end(end);
        });
    }
}
