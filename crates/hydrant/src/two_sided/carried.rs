//! Announced messages that were asked for, at their senders: each is written to the receiver's buffer, or copied in
//! parts, and the receiver is told when all that it asked for is there.

#![allow(unsafe_code)] // writes from the buffers of sends

use std::{collections::VecDeque, future::poll_fn, ops::Range, sync::Arc};

use hydrant_conduit::{Key, Posted, Remote, Standing};

use super::{
    Outgoing, Sending, TwoSided,
    protocol::Long,
    request::Ending,
    send::bytes_of,
    wire::{Clear, Place, Said},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    transfer::{self, Transfer},
    uses,
};

/// Chunks of the pipeline protocol that are under way at once.
const CHUNKS: usize = 4;

/// A message on its way. What is written of it is over before this is dropped, and its request ends after that.
struct Carried {
    two_sided: Arc<TwoSided>,
    to: Rank,
    /// Its number here, and that of its receive there.
    send: u64,
    receive: u64,
    outgoing: Outgoing,
    ending: Ending,
}

impl TwoSided {
    /// A message was asked for: it goes this way, or as much of it as that takes.
    pub(super) fn carry(
        &self,
        to: Rank,
        (send, outgoing): (u64, Outgoing),
        receive: u64,
        way: Clear,
    ) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let ending = Ending::new(Arc::clone(&outgoing.request), &self.progress);
        let work = Carried {
            two_sided: this,
            to,
            send,
            receive,
            outgoing,
            ending,
        };
        self.progress.spawn(work.run(way));
    }
}

impl Carried {
    async fn run(mut self, way: Clear) {
        let brought = match way {
            Clear::Parts => self.copy_rest().await,
            Clear::Loan(key) => self.write_all(key).await,
            Clear::Place(place) => self.fill(place).await,
        };
        let Self {
            two_sided,
            to,
            send,
            receive,
            outgoing,
            ending,
        } = self;
        if let Err(cause) = brought {
            return ending.end(Err(cause));
        }
        let (tag, len) = (outgoing.tag, outgoing.buffer.len);
        let is_whole = outgoing.sent == len;
        if !is_whole {
            // The receiver asks for the rest once it is told.
            let mut state = two_sided.state.lock();
            if state.closed {
                return;
            }
            state.sends.insert(send, Sending::Announced(to, outgoing));
            ending.forget();
            drop(state);
            two_sided.say(to, Said::Written { receive }, &[]);
            return two_sided.look_for_change();
        }
        two_sided.say(to, Said::Written { receive }, &[]);
        ending.end(Ok(two_sided.sent(tag, len)));
    }

    /// Copies what is left.
    async fn copy_rest(&mut self) -> Result<()> {
        self.outgoing.request.forget_use();
        let len = self.outgoing.buffer.len;
        self.copy(self.outgoing.sent..len).await?;
        let count = match self.outgoing.sent {
            0 => Count::MessagesCopied,
            _ => Count::MessagesRendezvous,
        };
        self.is_brought(len, count);
        Ok(())
    }

    /// Writes all of it into a buffer that is lent.
    async fn write_all(&mut self, key: u64) -> Result<()> {
        let Long::Written(chunk) = self.two_sided.protocols.long else {
            return self.copy_rest().await;
        };
        match self.write(Key(key), chunk).await {
            Ok(()) => {}
            Err(cause) if is_final(&cause) => return Err(cause),
            Err(cause) => {
                tracing::debug!(%cause, "a message is copied: it could not be written");
                return self.copy_rest().await;
            }
        }
        // What is said next says that as well: else the receive would wait for an answer, which a sender that
        // computes is slow to give.
        self.two_sided.transfer.forget(self.to, key).await;
        let len = self.outgoing.buffer.len;
        let count = match chunk < len {
            true => Count::MessagesPipeline,
            false => Count::MessagesRendezvous,
        };
        self.is_brought(len, count);
        Ok(())
    }

    async fn write(&mut self, key: Key, chunk: usize) -> Result<()> {
        let transfer = &self.two_sided.transfer;
        transfer.learn_of(self.to, key.0).await?;
        // SAFETY: the request is not over before this is, nor before all writes are, which are dropped before.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        let mut writes = Writes::of(transfer);
        let chunk = chunk.min(data.len()).max(1);
        for (number, part) in data.chunks(chunk).enumerate() {
            let offset = (number * chunk) as u64;
            // SAFETY: as above: the source stays until the write is over.
            unsafe { writes.begin(self.to, Remote { key, offset }, part)? };
            if writes.under_way.len() >= CHUNKS {
                writes.end_one().await?;
            }
        }
        while !writes.under_way.is_empty() {
            writes.end_one().await?;
        }
        Ok(())
    }

    /// Brings what a place takes of it.
    async fn fill(&mut self, place: Place) -> Result<()> {
        let transfer = Arc::clone(&self.two_sided.transfer);
        // SAFETY: the request is not over before this is, nor before the writes are, which are dropped before.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        let start = self.outgoing.sent + place.before as usize;
        let end = start + place.len as usize;
        let all = end + place.after as usize;
        let source = transfer.to_be_read(&data[start..end]);
        let at = |at: usize| Remote {
            key: Key(place.key),
            offset: (place.offset).wrapping_add(place.before + (at - start) as u64),
        };
        let mut next = start;
        let mut write = source.write(0, (self.to, at(next)), end - next);
        // While that is under way.
        self.copy(self.outgoing.sent..start).await?;
        self.copy(end..all).await?;
        let written = loop {
            let written = match write {
                Ok(Some((write, len))) => write.until_over().await.map(|()| len),
                Ok(None) => break Ok(()),
                Err(cause) => Err(cause),
            };
            match written {
                Ok(len) => next += len,
                Err(cause) => break Err(cause),
            }
            if next == end {
                break Ok(());
            }
            write = source.write(next - start, (self.to, at(next)), end - next);
        };
        match written {
            Err(cause) if is_final(&cause) => return Err(cause),
            Err(cause) => {
                tracing::debug!(%cause, "a message is copied: it could not be written");
            }
            Ok(()) => {}
        }
        // What could not be registered here, or not be written.
        self.copy(next..end).await?;
        self.is_brought(all, Count::MessagesRendezvous);
        Ok(())
    }

    /// So much of it was brought; if that is all, it is counted.
    fn is_brought(&mut self, sent: usize, count: Count) {
        self.outgoing.sent = sent;
        if sent == self.outgoing.buffer.len {
            self.two_sided.progress.tally.one(count);
        }
    }

    /// Sends some bytes of it in parts, each when there is room for it.
    async fn copy(&mut self, range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (two_sided, to) = (&self.two_sided, self.to);
        let progress = &two_sided.progress;
        // SAFETY: the request is not over before this is.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        let mut offset = range.start as u64;
        for part in data[range].chunks(two_sided.protocols.part) {
            progress.until(|| !progress.has_onward_for(to)).await;
            let receive = self.receive;
            two_sided.say(to, Said::Part { receive, offset }, part);
            offset += part.len() as u64;
        }
        // A part that waits for room yet would wait for the next call, if the program computes and nobody else looks
        // after messages: the receiver with it.
        progress.until(|| !progress.has_onward_for(to)).await;
        match progress.conduit().standing(to) == Standing::Present {
            true => Ok(()),
            false => Err(progress.gone(to)),
        }
    }
}

/// Whether there is nobody to copy to either.
fn is_final(cause: &Error) -> bool {
    matches!(
        cause,
        Error::PeerLost(_) | Error::JobOver | Error::Expelled(_)
    )
}

/// Writes to a lent buffer. When this is dropped they are over.
struct Writes {
    transfer: Arc<Transfer>,
    under_way: VecDeque<Posted>,
}

impl Writes {
    fn of(transfer: &Arc<Transfer>) -> Self {
        Self {
            transfer: Arc::clone(transfer),
            under_way: VecDeque::new(),
        }
    }

    /// Begins one.
    ///
    /// # Safety
    /// Its source stays as it is until it is over.
    unsafe fn begin(&mut self, to: Rank, place: Remote, data: &[u8]) -> Result<()> {
        let access = transfer::put(to, place, data);
        // SAFETY: the caller's promise.
        match uses::untold(|| unsafe { self.transfer.begin(&access) })? {
            Posted::Done => {}
            posted => self.under_way.push_back(posted),
        }
        Ok(())
    }

    /// Waits for the first.
    async fn end_one(&mut self) -> Result<()> {
        let Some(Posted::Pending(ticket)) = self.under_way.front().copied() else {
            self.under_way.pop_front();
            return Ok(());
        };
        let end = poll_fn(|context| self.transfer.poll_outcome(ticket, context)).await;
        self.under_way.pop_front();
        end
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        for posted in self.under_way.drain(..) {
            // How it failed is known, or of no interest.
            let _ = self.transfer.finish(posted);
        }
    }
}
