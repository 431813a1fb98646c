//! A buffer that a transfer has for itself: the peer is told where it lies and under which key, or its
//! NIC's is told the peer's.
//!
//! That is how long messages go where both sides have agreed on them (ARMCI §3, zero-copy): nobody asks for a
//! firehose, and nothing of it outlives the transfer.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::{marker::PhantomData, ops::Range, slice, sync::Arc};

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
    /// Whether the memory of buffers is registered for a transfer, as far as there is room.
    pub(crate) fn registers_buffers(&self) -> bool {
        (self.registration.as_ref()).is_some_and(|it| it.strategy() != Strategy::Bounce)
    }

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
        let addr = at.expose_provenance() as u64;
        let hold = (transfer.registration.as_ref()).filter(|_| transfer.registers_buffers());
        let hold = hold.and_then(|registration| registration.hold(addr, len as u64, used));
        Self {
            transfer: Arc::clone(transfer),
            at,
            len,
            used,
            hold,
            may_be_in_use: false,
            memory: PhantomData,
        }
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where a peer that is told finds byte `at` of it, and how many bytes from there on. It may write there until
    /// the buffer is [done](Self::is_done). None if it is not registered.
    pub(crate) fn lend(&mut self, at: usize) -> Option<(Remote, usize)> {
        let (key, len) = self.extent(at)?;
        self.may_be_in_use = true;
        let offset = self.at.addr() as u64 + at as u64;
        Some((Remote { key, offset }, len))
    }

    /// The key of byte `at`, and how many bytes from there on have it.
    fn extent(&self, at: usize) -> Option<(Key, usize)> {
        let (_, extents) = self.hold.as_ref()?;
        let addr = self.at.addr() as u64 + at as u64;
        let (end, key) = extents.iter().find(|(end, _)| addr < *end)?;
        Some((*key, self.len.checked_sub(at)?.min((end - addr) as usize)))
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
        let posted = unsafe { transfer.progress.conduit().post(&access)? };
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

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let Some((id, _)) = self.hold.take() else {
            return;
        };
        let Some(registration) = &self.transfer.registration else {
            return;
        };
        registration.let_go_of_own(id);
        if self.may_be_in_use {
            // Who was told of it may write yet: nothing is registered there when this returns. That waits for
            // operations, and other buffers, that share a page with it.
            registration.take_back(self.at.addr() as u64, self.len as u64);
        }
    }
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

    /// Waits for its end.
    ///
    /// # Errors
    /// What befell it.
    pub(crate) fn wait(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
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
