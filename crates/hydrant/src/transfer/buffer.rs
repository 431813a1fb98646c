//! A buffer registered for one transfer. Either a peer learns its address and key and writes to it,
//! or it is written to memory that a peer has named.
//!
//! Long messages take this route where both sides have agreed on it (ARMCI §3, zero-copy). No
//! firehose is needed, and no registration outlives the transfer.
//!
//! A buffer that a peer writes to registers only buckets that lie wholly in it. So no other user
//! holds these buckets, and their deregistration waits for no other user.

#![allow(unsafe_code)] // lends borrowed memory to the conduit until the transfer is complete

use std::{future::poll_fn, marker::PhantomData, ops::Range, slice, sync::Arc};

use hydrant_conduit::{Access, Key, Local, Posted, Remote, Ticket};
use hydrant_pinning::{Strategy, Use};

use super::{OperationHolds, Transfer, in_flight::OperationState};
use crate::{Rank, Result, counters::Count, progress::On, registration::Extents};

/// The limit of bytes of a buffer registered at once.
const REGISTERED: usize = 4 << 20;

/// A buffer that may be registered. After its drop it is not registered, and no peer reaches it.
///
/// It must not be [forgotten](std::mem::forget). Its owner is a future that also owns the memory,
/// and either runs to its end or is dropped.
pub(crate) struct TransferBuffer<'a> {
    transfer: Arc<Transfer>,
    at: *mut u8,
    len: usize,
    used: Use,
    /// The registered bytes, empty if there are none.
    registered: Range<usize>,
    /// The id of the hold on the registration, and the extents.
    hold: Option<(u64, Extents)>,
    /// Peers that know the key may still write.
    may_be_in_use: bool,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: It is a borrowed slice, which may move between threads as `&mut [u8]` does.
unsafe impl Send for TransferBuffer<'_> {}
// SAFETY: A shared reference only allows the NIC to read from it.
unsafe impl Sync for TransferBuffer<'_> {}

/// A write from a buffer. Its end must not be reported before it is over. Its drop waits until it
/// is over.
pub(crate) struct Write<'a> {
    buffer: &'a TransferBuffer<'a>,
    peer: Rank,
    ticket: Option<Ticket>,
}

impl Transfer {
    /// Returns the limit of bytes of a buffer registered at once. Other users share the memory
    /// beside M.
    pub(crate) fn registered_at_once(&self) -> usize {
        let Some(registration) = &self.registration else {
            return 0;
        };
        let limits = registration.limits();
        let room = (limits.victims / 4).min(limits.max_extent) * limits.geometry.bucket();
        usize::try_from(room).unwrap_or(usize::MAX).min(REGISTERED)
    }

    /// Returns a buffer that a peer is to write to.
    pub(crate) fn to_be_written<'a>(self: &Arc<Self>, memory: &'a mut [u8]) -> TransferBuffer<'a> {
        TransferBuffer::new(self, memory.as_mut_ptr(), memory.len(), Use::Write)
    }

    /// Returns a buffer to be written to peers.
    pub(crate) fn to_be_read<'a>(self: &Arc<Self>, memory: &'a [u8]) -> TransferBuffer<'a> {
        TransferBuffer::new(self, memory.as_ptr().cast_mut(), memory.len(), Use::Read)
    }

    /// Returns whether an operation has ended.
    pub(crate) fn has_ended(&self, ticket: Ticket) -> bool {
        self.in_flight.has_ended(ticket)
    }
}

impl<'a> TransferBuffer<'a> {
    fn new(transfer: &Arc<Transfer>, at: *mut u8, len: usize, used: Use) -> Self {
        let addr = at.expose_provenance();
        let registered = match used {
            Use::Read => 0..len,
            Use::Write => whole_buckets(addr, len, transfer.bucket()),
        };
        let registration =
            (transfer.registration.as_ref()).filter(|it| it.strategy() != Strategy::Bounce);
        let hold = registration
            .filter(|_| !registered.is_empty())
            .and_then(|it| {
                it.hold(
                    (addr + registered.start) as u64,
                    registered.len() as u64,
                    used,
                )
            });
        Self {
            transfer: Arc::clone(transfer),
            at,
            len,
            used,
            registered,
            hold,
            may_be_in_use: false,
            memory: PhantomData,
        }
    }

    /// Returns the length of the buffer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lends the buffer from byte `at` on to a peer. Returns the remote address of byte `at`, and
    /// two numbers of bytes: those that the peer must skip, and those behind them that it may
    /// write. It may write until the buffer is [unlent](Self::mark_unlent). Returns `None` if it
    /// may write no byte.
    pub(crate) fn lend(&mut self, at: usize) -> Option<(Remote, usize, usize)> {
        let first = at.max(self.registered.start);
        let (key, len) = self.extent(first)?;
        self.may_be_in_use = true;
        let offset = self.at.addr() as u64 + at as u64;
        Some((Remote { key, offset }, first - at, len))
    }

    /// Returns the key of byte `at`, if it is registered, and the number of bytes from there under
    /// that key.
    fn extent(&self, at: usize) -> Option<(Key, usize)> {
        let (_, extents) = self.hold.as_ref()?;
        let rest = self
            .registered
            .end
            .checked_sub(at)
            .filter(|rest| *rest > 0)?;
        let addr = self.at.addr() as u64 + at as u64;
        let (end, key) = extents.iter().find(|(end, _)| addr < *end)?;
        Some((*key, rest.min((end - addr) as usize)))
    }

    /// Notes that the peer has reported that it uses the buffer no more.
    pub(crate) fn mark_unlent(&mut self) {
        self.may_be_in_use = false;
    }

    /// Returns some bytes, which no peer writes at present.
    ///
    /// # Panics
    /// Panics if the range exceeds the buffer, or the buffer is only to be read.
    pub(crate) fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.len && self.used == Use::Write);
        // SAFETY: The range lies in the borrowed buffer. The buffer was borrowed mutably, because
        // it is to be written, and this reborrows it.
        unsafe { slice::from_raw_parts_mut(self.at.wrapping_add(range.start), range.len()) }
    }

    /// Begins to write at most `most` bytes from `at` on to memory that a peer has named. Returns
    /// the bytes of the write, or `None` if they are not registered.
    ///
    /// # Errors
    /// The failure of the post.
    pub(crate) fn write(
        &self,
        at: usize,
        (peer, to): (Rank, Remote),
        most: usize,
    ) -> Result<Option<(Write<'_>, usize)>> {
        let Some((key, len)) = self.extent(at) else {
            return Ok(None);
        };
        let (transfer, len) = (&self.transfer, len.min(most));
        let local = Local {
            addr: self.at.wrapping_add(at),
            key,
        };
        let access = Access::put(peer, to, local, len);
        transfer.progress.tally.one(Count::Indirect);
        // SAFETY: A put only reads its source. The source lies in the buffer, which the returned
        // write borrows, and stays registered as long as the buffer. The drop of the write waits
        // for the end.
        let posted = unsafe { transfer.progress.conduit().post(&access) };
        let posted = posted.map_err(|cause| transfer.progress.why_unsent(cause))?;
        let ticket = match posted {
            Posted::Done => None,
            Posted::Pending(ticket) => {
                transfer.note_posted(ticket, OperationHolds::nothing(), false);
                Some(ticket)
            }
        };
        let write = Write {
            buffer: self,
            peer,
            ticket,
        };
        Ok(Some((write, len)))
    }
}

impl TransferBuffer<'_> {
    /// Waits until no peer writes any more. To be called by a task, also if the peer has not
    /// reported its last write.
    pub(crate) async fn revoke(&mut self) {
        if let Some((start, len)) = self.release_hold() {
            self.transfer.until_deregistered(start, len).await;
            self.may_be_in_use = false;
        }
    }

    /// Releases the registration. Returns the range to be revoked, if a peer may still write there.
    fn release_hold(&mut self) -> Option<(u64, u64)> {
        if let (Some((id, _)), Some(registration)) =
            (self.hold.take(), self.transfer.registration.as_ref())
        {
            registration.let_go_of_own(id);
        }
        let start = self.at.addr() + self.registered.start;
        (self.may_be_in_use).then_some((start as u64, self.registered.len() as u64))
    }
}

impl Drop for TransferBuffer<'_> {
    fn drop(&mut self) {
        if self.transfer.progress.is_forked() {
            return;
        }
        if let (Some((start, len)), Some(registration)) =
            (self.release_hold(), &self.transfer.registration)
        {
            // The range is not registered when this returns. Of symmetric memory, peers may hold
            // the same buckets, and this waits for them. There are no other holders.
            registration.take_back(start, len);
        }
    }
}

/// Returns the bytes of a buffer that lie in whole buckets.
fn whole_buckets(addr: usize, len: usize, bucket: usize) -> Range<usize> {
    let start = (addr.next_multiple_of(bucket) - addr).min(len);
    let end = len.saturating_sub((addr + len) % bucket);
    start..end.max(start)
}

impl Write<'_> {
    /// Returns the ticket of the write, if its end is still to come.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Takes the outcome of the write, if it has ended.
    pub(crate) fn take_outcome(&mut self) -> Option<Result<()>> {
        let Some(ticket) = self.ticket else {
            return Some(Ok(()));
        };
        let end = match self.buffer.transfer.outcome(ticket) {
            OperationState::InFlight => return None,
            OperationState::Ended(end) => end,
            OperationState::Taken => Ok(()),
        };
        self.ticket = None;
        Some(end)
    }

    /// Waits for the end of the write, in a task.
    ///
    /// # Errors
    /// The failure of the write.
    pub(crate) async fn until_end(mut self) -> Result<()> {
        let Some(ticket) = self.ticket else {
            return Ok(());
        };
        let end = poll_fn(|context| self.buffer.transfer.poll_outcome(ticket, context)).await;
        self.ticket = None;
        end
    }

    /// Waits for the end of the write.
    ///
    /// # Errors
    /// The failure of the write.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.ticket.take() {
            Some(ticket) => (self.buffer.transfer).finish_one(On::Served(self.peer), ticket),
            None => Ok(()),
        }
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        // The owner that drops a write has another error.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_buckets_are_registered() {
        assert_eq!(whole_buckets(0x1000, 0x3000, 0x1000), 0..0x3000);
        assert_eq!(whole_buckets(0x1010, 0x3000, 0x1000), 0xff0..0x2ff0);
        assert_eq!(whole_buckets(0x1010, 0x2ff0, 0x1000), 0xff0..0x2ff0);
        // The buffer has no whole bucket.
        assert!(whole_buckets(0x1010, 0x1fe0, 0x1000).is_empty());
        assert!(whole_buckets(0x1010, 0x10, 0x1000).is_empty());
        assert!(whole_buckets(0x1ff0, 0x20, 0x1000).is_empty());
        // Without registration a bucket is a byte.
        assert_eq!(whole_buckets(0x1010, 5, 1), 0..5);
        for (addr, len) in [(5, 0), (0x1001, 0xfff), (0x1000, 0x1000), (0x1fff, 0x2002)] {
            let range = whole_buckets(addr, len, 0x1000);
            assert!(range.start <= range.end && range.end <= len);
            let ends = [addr + range.start, addr + range.end];
            assert!(range.is_empty() || ends.iter().all(|end| end % 0x1000 == 0));
        }
    }
}
