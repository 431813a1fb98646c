//! Announced messages: the receiver lends its buffer, the sender writes into it, and says so.
//!
//! Both sides are registered as for any other access, by the strategy in force. What cannot be written,
//! because there is no room for another loan or to register memory, is copied in parts, so that a
//! message that was matched arrives. So is what is faster that way.

#![allow(unsafe_code)] // writes from the buffers of sends and lends those of receives

use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    sync::{Arc, Weak},
};

use hydrant_conduit::{Key, Posted, Remote};

use super::{
    Begun, Envelope, Outgoing, Posted as PostedReceive, Receiving, TwoSided, Unlending,
    choice::Way, protocol::Long, receive::status, request::Ending, send::bytes_of, wire::Said,
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    transfer::{self, Transfer},
    uses,
};

/// Chunks of the pipeline protocol that are under way at once.
const CHUNKS: usize = 4;

impl TwoSided {
    /// A receive was matched with an announced message, for which its buffer has room: lends the buffer,
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
        if copied || begun.is_some_and(|it| it.way == Way::Copied) {
            return self.ask_for(envelope, (send, len), posted, (None, begun));
        }
        if self.transfer.registration().is_none() {
            let key = self.lend(&posted, len);
            return self.ask_for(envelope, (send, len), posted, (key, begun));
        }
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let ending = Ending::new(Arc::clone(&posted.request), &self.progress);
        self.progress.spawn(async move {
            let start = posted.buffer.at.expose_provenance() as u64;
            this.transfer.make_ready(start, len as u64).await;
            let key = this.lend(&posted, len);
            this.ask_for(envelope, (send, len), posted, (key, begun));
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

    /// Lends the buffer of a receive that was matched, if that can be.
    fn lend(&self, posted: &PostedReceive, len: usize) -> Option<Key> {
        if self.transfer.registration().is_none()
            && self.state.lock().receives.len() >= self.most_lent
        {
            // The rest of the table is for buffers that the program exposes.
            return None;
        }
        // SAFETY: the buffer stays until the request is over, which it is not before the loan is; nobody
        // but the sender uses it until then.
        let lent = unsafe { self.transfer.lend_at_once(posted.buffer.at, len) };
        if let Err(cause) = &lent {
            tracing::debug!(%cause, "a message is copied: its buffer could not be lent");
        }
        // The receiver says itself what it uses.
        if let (Ok(key), Some(registration)) = (&lent, self.transfer.registration()) {
            registration.say_nothing_of(*key);
        }
        lent.ok()
    }

    fn ask_for(
        &self,
        envelope: Envelope,
        (send, len): (u64, usize),
        posted: PostedReceive,
        (key, begun): (Option<Key>, Option<Begun>),
    ) {
        let from = Rank(envelope.source);
        if key.is_none() {
            posted.request.forget_use();
        }
        let receiving = Receiving {
            from,
            tag: envelope.tag,
            buffer: posted.buffer,
            len,
            landed: 0,
            key,
            begun,
            request: posted.request,
        };
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
            // Nobody would end the receive later; nobody was told the key.
            Err(Receiving { key, request, .. }) => {
                if let Some(key) = key {
                    self.transfer.unlend_later(key, || {});
                }
                return request.end(&self.progress, Err(Error::JobOver));
            }
        };
        let key = key.map(|key| key.0);
        self.say(from, Said::Clear { send, receive, key }, &[]);
        self.look_for_change();
    }

    /// All of a message was written: the loan ends, and then the receive.
    pub(super) fn written(&self, receiving: Receiving) {
        let Receiving { from, tag, len, .. } = receiving;
        if let Some(key) = receiving.key {
            self.transfer.is_forgotten_by(from, key);
        }
        let envelope = Envelope {
            source: from.0,
            tag,
        };
        self.end_receive(receiving, Ok(status(envelope, len)));
    }

    /// Ends a receive that was [parted with](super::State::part_with), when nobody writes to its buffer any more.
    pub(super) fn end_receive(&self, receiving: Receiving, end: Result<super::Status>) {
        let Receiving {
            key,
            begun,
            request,
            ..
        } = receiving;
        let Some(key) = key else {
            self.came(begun, Way::Copied, &end);
            return request.end(&self.progress, end);
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

    /// A message was asked for: it goes under this key, or in parts.
    pub(super) fn carry(&self, to: Rank, outgoing: Outgoing, receive: u64, key: Option<u64>) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let ending = Ending::new(Arc::clone(&outgoing.request), &self.progress);
        let work = Carried {
            under_way: VecDeque::new(),
            two_sided: this,
            to,
            outgoing,
            ending: Some(ending),
        };
        self.progress.spawn(work.run(receive, key));
    }
}

/// A message on its way. Its writes are over before it is dropped, and its request ends after that.
struct Carried {
    under_way: VecDeque<Posted>,
    two_sided: Arc<TwoSided>,
    to: Rank,
    outgoing: Outgoing,
    ending: Option<Ending>,
}

impl Carried {
    async fn run(mut self, receive: u64, key: Option<u64>) {
        let end = self.bring(receive, key).await;
        let two_sided = Arc::clone(&self.two_sided);
        if let (Ok(()), Some(key)) = (&end, key) {
            // What is said below says that as well: else the receive would wait for an answer, which a sender that
            // computes is slow to give.
            two_sided.transfer.forget(self.to, key).await;
        }
        let said = end.map(|()| {
            two_sided.say(self.to, Said::Written { receive }, &[]);
            two_sided.sent(self.outgoing.tag, self.outgoing.buffer.len)
        });
        if let Some(ending) = self.ending.take() {
            ending.end(said);
        }
    }

    async fn bring(&mut self, receive: u64, key: Option<u64>) -> Result<()> {
        let Long::Written(chunk) = self.two_sided.protocols.long else {
            return self.copy(receive).await;
        };
        let Some(key) = key else {
            return self.copy(receive).await;
        };
        let written = self.write(Key(key), chunk).await;
        self.finish();
        let count = match chunk < self.outgoing.buffer.len {
            true => Count::MessagesPipeline,
            false => Count::MessagesRendezvous,
        };
        match written {
            Ok(()) => {
                self.two_sided.progress.tally.one(count);
                Ok(())
            }
            Err(cause @ (Error::PeerLost(_) | Error::JobOver | Error::Expelled(_))) => Err(cause),
            Err(cause) => {
                tracing::debug!(%cause, "a message is copied: it could not be written");
                self.copy(receive).await
            }
        }
    }

    /// Writes the message into the receiver's buffer.
    async fn write(&mut self, key: Key, chunk: usize) -> Result<()> {
        let transfer = Arc::clone(&self.two_sided.transfer);
        transfer.learn_of(self.to, key.0).await?;
        let len = self.outgoing.buffer.len;
        let chunk = chunk.min(len).max(1);
        for start in (0..len).step_by(chunk) {
            let part = start..len.min(start + chunk);
            self.begin_one(&transfer, key, part)?;
            if self.under_way.len() >= CHUNKS {
                self.end_one(&transfer).await?;
            }
        }
        while !self.under_way.is_empty() {
            self.end_one(&transfer).await?;
        }
        Ok(())
    }

    /// Begins to write a part.
    fn begin_one(&mut self, transfer: &Transfer, key: Key, part: Range<usize>) -> Result<()> {
        let offset = part.start as u64;
        // SAFETY: the request is not over before this is dropped, which is not before all writes are.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        let access = transfer::put(self.to, Remote { key, offset }, &data[part]);
        // SAFETY: as above: the source stays until the write is over.
        match uses::untold(|| unsafe { transfer.begin(&access) })? {
            Posted::Done => {}
            posted => self.under_way.push_back(posted),
        }
        Ok(())
    }

    /// Waits for the first write under way.
    async fn end_one(&mut self, transfer: &Arc<Transfer>) -> Result<()> {
        let Some(Posted::Pending(ticket)) = self.under_way.front().copied() else {
            self.under_way.pop_front();
            return Ok(());
        };
        let end = poll_fn(|context| transfer.poll_outcome(ticket, context)).await;
        self.under_way.pop_front();
        end
    }

    /// Sends the message in parts, each when there is room for it.
    async fn copy(&mut self, receive: u64) -> Result<()> {
        let two_sided = Arc::clone(&self.two_sided);
        let (progress, to) = (&two_sided.progress, self.to);
        self.outgoing.request.forget_use();
        // SAFETY: as in `write`.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        for (number, part) in data.chunks(two_sided.protocols.part).enumerate() {
            progress.until(|| !progress.has_onward_for(to)).await;
            let offset = (number * two_sided.protocols.part) as u64;
            two_sided.say(to, Said::Part { receive, offset }, part);
        }
        // A part that waits for room yet would wait for the next call, if the program computes and nobody else looks
        // after messages: the receiver with it.
        progress.until(|| !progress.has_onward_for(to)).await;
        let present = hydrant_conduit::Standing::Present;
        match progress.conduit().standing(to) == present {
            true => {
                progress.tally.one(Count::MessagesCopied);
                Ok(())
            }
            false => Err(Error::PeerLost(to)),
        }
    }

    /// Waits until the network reads nothing of the message any more.
    fn finish(&mut self) {
        for posted in self.under_way.drain(..) {
            // How it failed is known, or of no interest.
            let _ = self.two_sided.transfer.finish(posted);
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.finish();
    }
}
