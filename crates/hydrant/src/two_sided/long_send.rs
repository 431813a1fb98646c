//! Announced messages at their senders. The receiver clears a part. The sender writes it to the
//! receiver's buffer, or copies it in parts, and tells the receiver once all of it is there.

#![allow(unsafe_code)] // writes from the buffers of sends

use std::{collections::VecDeque, future::poll_fn, ops::Range, sync::Arc};

use hydrant_conduit::{Key, Posted, Remote, Standing};

use super::{
    Outgoing, PendingSend, TwoSided,
    protocol::LongProtocol,
    request::EndGuard,
    send::bytes_of,
    wire::{Clear, LandingSpan, WireMessage},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    transfer::{self, Transfer},
    uses,
};

/// Chunks of the pipeline protocol in flight at once.
const CHUNKS: usize = 4;

/// An announced message in flight. All writes are over before this is dropped, and its request ends
/// later.
struct LongSend {
    two_sided: Arc<TwoSided>,
    to: Rank,
    /// The number of the send here, and of the receive at the peer.
    send: u64,
    receive: u64,
    outgoing: Outgoing,
    ending: EndGuard,
}

impl TwoSided {
    /// Starts a task that brings the cleared part of a message.
    pub(super) fn carry(
        &self,
        to: Rank,
        (send, outgoing): (u64, Outgoing),
        receive: u64,
        clear: Clear,
    ) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let ending = EndGuard::new(Arc::clone(&outgoing.request), &self.progress);
        let work = LongSend {
            two_sided: this,
            to,
            send,
            receive,
            outgoing,
            ending,
        };
        self.progress.spawn(work.run(clear));
    }
}

impl LongSend {
    async fn run(mut self, clear: Clear) {
        let brought = match clear {
            Clear::Parts => self.copy_rest().await,
            Clear::Loan(key) => self.write_all(key).await,
            Clear::Landing(place) => self.fill_landing(place).await,
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
            // The receiver clears the rest once it knows of this part.
            let mut state = two_sided.state.lock();
            if state.closed {
                return;
            }
            state
                .sends
                .insert(send, PendingSend::Announced(to, outgoing));
            ending.forget();
            drop(state);
            two_sided.tell(to, WireMessage::Written { receive }, &[]);
            return two_sided.check_for_ended_peers();
        }
        two_sided.tell(to, WireMessage::Written { receive }, &[]);
        ending.end(Ok(two_sided.status_of_sent(tag, len)));
    }

    /// Copies the rest of the message.
    async fn copy_rest(&mut self) -> Result<()> {
        self.outgoing.request.forget_use();
        let len = self.outgoing.buffer.len;
        self.copy(self.outgoing.sent..len).await?;
        let count = match self.outgoing.sent {
            0 => Count::MessagesCopied,
            _ => Count::MessagesRendezvous,
        };
        self.note_sent(len, count);
        Ok(())
    }

    /// Writes the whole message into a lent buffer.
    async fn write_all(&mut self, key: u64) -> Result<()> {
        let LongProtocol::Written(chunk) = self.two_sided.protocols.long else {
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
        // The next message tells the receiver, too. Otherwise the receive would wait for an answer,
        // for which a computing sender takes its time.
        self.two_sided.transfer.forget(self.to, key).await;
        let len = self.outgoing.buffer.len;
        let count = if chunk < len {
            Count::MessagesPipeline
        } else {
            Count::MessagesRendezvous
        };
        self.note_sent(len, count);
        Ok(())
    }

    async fn write(&mut self, key: Key, chunk: usize) -> Result<()> {
        let transfer = &self.two_sided.transfer;
        transfer.learn_of(self.to, key.0).await?;
        // SAFETY: 1., 2. The request ends after this future. The writes are dropped, and so over,
        // before it.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        let mut writes = Writes::of(transfer);
        let chunk = chunk.min(data.len()).max(1);
        for (number, part) in data.chunks(chunk).enumerate() {
            let offset = (number * chunk) as u64;
            // SAFETY: 1. The source stays until the write is over, as above.
            unsafe { writes.begin(self.to, Remote { key, offset }, part)? };
            if writes.in_flight.len() >= CHUNKS {
                writes.end_one().await?;
            }
        }
        while !writes.in_flight.is_empty() {
            writes.end_one().await?;
        }
        Ok(())
    }

    /// Brings the part of the message that a landing takes.
    async fn fill_landing(&mut self, place: LandingSpan) -> Result<()> {
        let transfer = Arc::clone(&self.two_sided.transfer);
        // SAFETY: 1., 2. The request ends after this future. The writes are dropped, and so over,
        // before it.
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
        // Copied while the write is in flight.
        self.copy(self.outgoing.sent..start).await?;
        self.copy(end..all).await?;
        let written = loop {
            let written = match write {
                Ok(Some((write, len))) => write.until_end().await.map(|()| len),
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
        // These bytes could not be registered here, or not be written.
        self.copy(next..end).await?;
        self.note_sent(all, Count::MessagesRendezvous);
        Ok(())
    }

    /// Notes that the receiver has the first `sent` bytes. Counts the message if that is all of it.
    fn note_sent(&mut self, sent: usize, count: Count) {
        self.outgoing.sent = sent;
        if sent == self.outgoing.buffer.len {
            self.two_sided.progress.tally.one(count);
        }
    }

    /// Sends some bytes of the message in parts, each when there is room for it.
    async fn copy(&mut self, range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (two_sided, to) = (&self.two_sided, self.to);
        let progress = &two_sided.progress;
        // SAFETY: 1., 2. The request ends after this future.
        let data = unsafe { bytes_of(self.outgoing.buffer) };
        let mut offset = range.start as u64;
        for part in data[range].chunks(two_sided.protocols.part) {
            progress.until(|| !progress.has_onward_for(to)).await;
            let receive = self.receive;
            two_sided.tell(to, WireMessage::Part { receive, offset }, part);
            offset += part.len() as u64;
        }
        // A part that still waits for room would wait for the program's next call if the program
        // computes, and so would the receiver.
        progress.until(|| !progress.has_onward_for(to)).await;
        if progress.conduit().standing(to) == Standing::Present {
            Ok(())
        } else {
            Err(progress.why_gone(to))
        }
    }
}

/// Returns whether copies would fail, too.
fn is_final(cause: &Error) -> bool {
    matches!(
        cause,
        Error::PeerLost(_) | Error::JobOver | Error::Expelled(_)
    )
}

/// Writes to a lent buffer. The drop waits until all are over.
struct Writes {
    transfer: Arc<Transfer>,
    in_flight: VecDeque<Posted>,
}

impl Writes {
    fn of(transfer: &Arc<Transfer>) -> Self {
        Self {
            transfer: Arc::clone(transfer),
            in_flight: VecDeque::new(),
        }
    }

    /// Begins a write.
    ///
    /// # Safety
    /// 1. `data` stays as it is until the write is over.
    unsafe fn begin(&mut self, to: Rank, place: Remote, data: &[u8]) -> Result<()> {
        let access = transfer::put(to, place, data);
        // SAFETY: 1. The caller's condition 1. 2. The key is not `Key::ANY`, which `handle_cleared`
        // refuses. The peer lent the memory under it.
        match uses::without_reports(|| unsafe { self.transfer.begin(&access) })? {
            Posted::Done => {}
            posted => self.in_flight.push_back(posted),
        }
        Ok(())
    }

    /// Waits for the first write.
    async fn end_one(&mut self) -> Result<()> {
        let Some(Posted::Pending(ticket)) = self.in_flight.front().copied() else {
            self.in_flight.pop_front();
            return Ok(());
        };
        let end = poll_fn(|context| self.transfer.poll_outcome(ticket, context)).await;
        self.in_flight.pop_front();
        end
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        for posted in self.in_flight.drain(..) {
            // The failure is known, or of no interest.
            let _ = self.transfer.finish(posted);
        }
    }
}
