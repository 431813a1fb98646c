//! Accesses that go through the conduit.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and waits until it is done

use hydrant_conduit::{Access, Local, Posted, Remote};

use crate::{Rank, Result, counters::Count, job::Core, progress, registration::Flight};

impl Core {
    /// Writes to a peer's memory; remotely complete on return.
    pub(crate) fn write(&self, rank: Rank, to: Remote, data: &[u8]) -> Result<()> {
        progress::may_wait("a put that goes through the network")?;
        if let Some(registration) = &self.registration {
            let (from, len) = (data.as_ptr().cast_mut(), data.len());
            return self.to_the_end(|| {
                // SAFETY: `data` is borrowed until this returns, and a put only reads it.
                unsafe { self.do_far(registration, rank, to, from, len, true) }
            });
        }
        // SAFETY: `data` is borrowed until `finish` returns, which it does only when the
        // operation is complete. No key of this crate's safe API is `Key::ANY`.
        let posted = unsafe { self.begin_write(rank, to, data)? };
        self.finish(posted)
    }

    /// Reads a peer's memory.
    pub(crate) fn read(&self, rank: Rank, from: Remote, data: &mut [u8]) -> Result<()> {
        progress::may_wait("a get that goes through the network")?;
        if let Some(registration) = &self.registration {
            let (to, len) = (data.as_mut_ptr(), data.len());
            return self.to_the_end(|| {
                // SAFETY: `data` is borrowed mutably until this returns.
                unsafe { self.do_far(registration, rank, from, to, len, false) }
            });
        }
        // SAFETY: `data` is borrowed mutably until `finish` returns, which it does only when
        // the operation is complete.
        let posted = unsafe { self.begin_read(rank, from, data)? };
        self.finish(posted)
    }

    /// Begins a write.
    ///
    /// # Safety
    /// `data` stays as it is, readable, until the operation is complete.
    pub(crate) unsafe fn begin_write(&self, rank: Rank, to: Remote, data: &[u8]) -> Result<Posted> {
        let (from, len) = (data.as_ptr().cast_mut(), data.len());
        if let Some(registration) = &self.registration {
            return self.to_the_end(|| {
                // SAFETY: handed on; a put only reads `from`.
                unsafe { self.begin_far(registration, rank, to, from, len, true) }
            });
        }
        self.tally.one(Count::Indirect);
        self.to_the_end(|| {
            let access = Access::put(rank, to, Local::unregistered(from), len);
            // SAFETY: handed on.
            let posted = unsafe { self.conduit.post(&access)? };
            self.note(posted);
            Ok(posted)
        })
    }

    /// Begins a read.
    ///
    /// # Safety
    /// `data` is left alone until the operation is complete.
    pub(crate) unsafe fn begin_read(
        &self,
        rank: Rank,
        from: Remote,
        data: &mut [u8],
    ) -> Result<Posted> {
        let (to, len) = (data.as_mut_ptr(), data.len());
        if let Some(registration) = &self.registration {
            return self.to_the_end(|| {
                // SAFETY: handed on.
                unsafe { self.begin_far(registration, rank, from, to, len, false) }
            });
        }
        self.tally.one(Count::Indirect);
        self.to_the_end(|| {
            let access = Access::get(rank, from, Local::unregistered(to), len);
            // SAFETY: handed on.
            let posted = unsafe { self.conduit.post(&access)? };
            self.note(posted);
            Ok(posted)
        })
    }

    fn note(&self, posted: Posted) {
        if let Posted::Pending(ticket) = posted {
            self.posted(ticket, Flight::plain(), false);
        }
    }
}
