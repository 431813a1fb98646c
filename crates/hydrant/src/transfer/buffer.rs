//! A buffer that is registered for one transfer: either a peer is told where it lies and under which key, and
//! writes to it; or it is written to a place that a peer has told.
//!
//! That is how long messages go where both sides have agreed on them (ARMCI §3, zero-copy): nobody asks for a
//! firehose, and nothing of it outlives the transfer.
//!
//! Of what a peer writes to, only buckets are registered that are the buffer's alone. So nobody else holds what is to be
//! deregistered before somebody else may have the memory, and whoever gives a buffer up never waits for another's.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::{future::poll_fn, marker::PhantomData, ops::Range, slice, sync::Arc};

use hydrant_conduit::{Access, Key, Local, Posted, Remote, Ticket};
use hydrant_pinning::{Strategy, Use};

use super::{Held, Transfer, under_way::Look};
use crate::{Rank, Result, counters::Count, progress::On, registration::Extents};

/// Bytes of a buffer that are registered at once, at most.
const REGISTERED: usize = 4 << 20;

/// A buffer that may be registered. When this is dropped it is not, and no peer reaches it any more.
///
/// It is nobody's to [forget](std::mem::forget): who has one is a future that has the buffer as well, which runs to
/// its end or is dropped.
pub(crate) struct Buffer<'a> {
    transfer: Arc<Transfer>,
    at: *mut u8,
    len: usize,
    used: Use,
    /// The bytes that are registered, if any are.
    registered: Range<usize>,
    /// The number of the hold on its registration, and its extents.
    hold: Option<(u64, Extents)>,
    /// Peers that were told the key may use it still.
    may_be_in_use: bool,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is a borrowed slice, which may go from thread to thread as `&mut [u8]` does.
unsafe impl Send for Buffer<'_> {}
// SAFETY: who shares it has a NIC read from it, and no more.
unsafe impl Sync for Buffer<'_> {}

/// A write from a buffer. Before it is over nobody is to be told of it; when this is dropped it is over.
pub(crate) struct Write<'a> {
    buffer: &'a Buffer<'a>,
    peer: Rank,
    ticket: Option<Ticket>,
}

impl Transfer {
    /// Bytes of a buffer that are registered at once, at most: what it takes beside M is others' as well.
    pub(crate) fn registered_at_once(&self) -> usize {
        let Some(registration) = &self.registration else {
            return 0;
        };
        let limits = registration.limits();
        let room = (limits.victims / 4).min(limits.max_extent) * limits.geometry.bucket();
        usize::try_from(room).unwrap_or(usize::MAX).min(REGISTERED)
    }

    /// A buffer that a peer is to write to.
    pub(crate) fn to_be_written<'a>(self: &Arc<Self>, memory: &'a mut [u8]) -> Buffer<'a> {
        Buffer::new(self, memory.as_mut_ptr(), memory.len(), Use::Write)
    }

    /// A buffer to be written to peers.
    pub(crate) fn to_be_read<'a>(self: &Arc<Self>, memory: &'a [u8]) -> Buffer<'a> {
        Buffer::new(self, memory.as_ptr().cast_mut(), memory.len(), Use::Read)
    }

    /// Whether nothing of an operation is to be waited for.
    pub(crate) fn has_ended(&self, ticket: Ticket) -> bool {
        self.under_way.has_ended(ticket)
    }
}

impl<'a> Buffer<'a> {
    fn new(transfer: &Arc<Transfer>, at: *mut u8, len: usize, used: Use) -> Self {
        let addr = at.expose_provenance();
        let registered = match used {
            Use::Read => 0..len,
            Use::Write => inside(addr, len, transfer.bucket()),
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

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where a peer that is told finds byte `at` of it, how many bytes at first it must not write there, and how many
    /// follow that it may, until the buffer is [done](Self::is_done). None if there are no such.
    pub(crate) fn lend(&mut self, at: usize) -> Option<(Remote, usize, usize)> {
        let first = at.max(self.registered.start);
        let (key, len) = self.extent(first)?;
        self.may_be_in_use = true;
        let offset = self.at.addr() as u64 + at as u64;
        Some((Remote { key, offset }, first - at, len))
    }

    /// The key of byte `at`, if it is registered, and how many bytes from there on have it.
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

    /// Who was told of it has said that it uses it no more.
    pub(crate) fn is_done(&mut self) {
        self.may_be_in_use = false;
    }

    /// Some of its bytes, of which peers write none now.
    ///
    /// # Panics
    /// If the range leaves it, or it is only to be read.
    pub(crate) fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.len && self.used == Use::Write);
        // SAFETY: the range lies in the borrowed buffer, which was borrowed mutably if it is to be written; this
        // borrows it anew.
        unsafe { slice::from_raw_parts_mut(self.at.add(range.start), range.len()) }
    }

    /// Begins to write its bytes from `at` on to a place that a peer has told, `most` of them at most: how many go.
    /// None if they are not registered.
    ///
    /// # Errors
    /// What befalls the write at once.
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
        // SAFETY: a put only reads its source. That lies in the buffer, which what is returned borrows, and stays
        // registered as long as the buffer; the drop of what is returned waits for the end.
        let posted = unsafe { transfer.progress.conduit().post(&access) };
        let posted = posted.map_err(|cause| transfer.progress.why_unsent(cause))?;
        let ticket = match posted {
            Posted::Done => None,
            Posted::Pending(ticket) => {
                transfer.posted(ticket, Held::nothing(), false);
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

impl Buffer<'_> {
    /// Waits until no peer writes to it any more, in a task, though who was told of it may have wanted to.
    pub(crate) async fn until_taken_back(&mut self) {
        if let Some((start, len)) = self.let_go() {
            self.transfer.until_nobody_has(start, len).await;
            self.may_be_in_use = false;
        }
    }

    /// Lets its registration go, and says what is to be taken back because a peer may write there yet.
    fn let_go(&mut self) -> Option<(u64, u64)> {
        if let (Some((id, _)), Some(registration)) =
            (self.hold.take(), self.transfer.registration.as_ref())
        {
            registration.let_go_of_own(id);
        }
        let start = self.at.addr() + self.registered.start;
        (self.may_be_in_use).then_some((start as u64, self.registered.len() as u64))
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if self.transfer.progress.is_forked() {
            return;
        }
        if let (Some((start, len)), Some(registration)) =
            (self.let_go(), &self.transfer.registration)
        {
            // Nothing is registered there when this returns. Peers that have registered it as well, of symmetric
            // memory, are waited for; nobody else has.
            registration.take_back(start, len);
        }
    }
}

/// The bytes of a buffer in buckets of which it has all.
fn inside(addr: usize, len: usize, bucket: usize) -> Range<usize> {
    let start = (addr.next_multiple_of(bucket) - addr).min(len);
    let end = len.saturating_sub((addr + len) % bucket);
    start..end.max(start)
}

impl Write<'_> {
    /// The name of its end, if that is to come.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// How it ended, if it has, once.
    pub(crate) fn end(&mut self) -> Option<Result<()>> {
        let Some(ticket) = self.ticket else {
            return Some(Ok(()));
        };
        let end = match self.buffer.transfer.outcome(ticket) {
            Look::Open => return None,
            Look::Ended(end) => end,
            Look::Gone => Ok(()),
        };
        self.ticket = None;
        Some(end)
    }

    /// Waits for its end, in a task.
    ///
    /// # Errors
    /// What befell it.
    pub(crate) async fn until_over(mut self) -> Result<()> {
        let Some(ticket) = self.ticket else {
            return Ok(());
        };
        let end = poll_fn(|context| self.buffer.transfer.poll_outcome(ticket, context)).await;
        self.ticket = None;
        end
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What befell it.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.ticket.take() {
            Some(ticket) => (self.buffer.transfer).finish_one(On::Served(self.peer), ticket),
            None => Ok(()),
        }
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        // Whoever drops it has another error.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_buckets_are_a_buffer_s_own() {
        assert_eq!(inside(0x1000, 0x3000, 0x1000), 0..0x3000);
        assert_eq!(inside(0x1010, 0x3000, 0x1000), 0xff0..0x2ff0);
        assert_eq!(inside(0x1010, 0x2ff0, 0x1000), 0xff0..0x2ff0);
        // It has none.
        assert!(inside(0x1010, 0x1fe0, 0x1000).is_empty());
        assert!(inside(0x1010, 0x10, 0x1000).is_empty());
        assert!(inside(0x1ff0, 0x20, 0x1000).is_empty());
        // Where nothing is registered a bucket is a byte.
        assert_eq!(inside(0x1010, 5, 1), 0..5);
        for (addr, len) in [(5, 0), (0x1001, 0xfff), (0x1000, 0x1000), (0x1fff, 0x2002)] {
            let inside = inside(addr, len, 0x1000);
            assert!(inside.start <= inside.end && inside.end <= len);
            let ends = [addr + inside.start, addr + inside.end];
            assert!(inside.is_empty() || ends.iter().all(|end| end % 0x1000 == 0));
        }
    }
}
