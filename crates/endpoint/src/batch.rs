//! Batches: many runs of bytes, transferred together.

#![allow(unsafe_code)] // hands borrowed memory to copies

use std::{marker::PhantomData, sync::Arc, time::Instant};

use hydrant_local::GrantUse;

use crate::{
    BatchFailure, BatchHandle, Error, Peer, Region, RemoteRegion, Result, carry::BatchCore,
    plan::BatchPlan,
};

/// The most bytes that [`Batch::start`] copies by itself. A worker copies more.
const INLINE: u64 = 64 << 10;

/// Rows of equal length in a region.
///
/// Row `i` begins at `offset + i * stride`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionRows {
    /// The first byte of the first row.
    pub offset: u64,
    /// The bytes from the begin of a row to that of the next.
    pub stride: u64,
}

/// Rows of equal length in own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRows {
    /// The number of rows.
    pub count: usize,
    /// The bytes of a row.
    pub bytes: usize,
    /// The bytes from the begin of a row to that of the next.
    pub stride: usize,
}

/// A batch of reads and writes, in any number, of any peers. It may borrow memory for `'a`.
///
/// The parts of a batch are transferred in no particular order. [`run`](Self::run) transfers it and returns.
/// [`start`](Self::start) returns at once, for batches that borrow nothing: their own memory is of [regions](Region).
///
/// ```
/// use hydrant_endpoint::{Batch, Endpoint, Rights};
///
/// let owner = Endpoint::builder().name("owner").listen()?;
/// let lent = owner.alloc(1 << 20)?;
/// let user = Endpoint::builder().name("user").listen()?;
/// let peer = user.connect(owner.address())?;
/// let remote = peer.open(&lent.descriptor(Rights::READ_WRITE))?;
///
/// let mut batch = Batch::new();
/// batch.write(&remote, 0, b"one")?;
/// batch.write(&remote, 4096, b"two")?;
/// batch.run()?;
///
/// let own = user.alloc(8192)?;
/// let mut batch = Batch::new();
/// batch.read_region(&remote, 0, &own, 0..4099)?;
/// batch.message(&peer, b"done")?;
/// batch.start()?.wait()?;
/// let mut seen = [0; 3];
/// own.read(4096, &mut seen)?;
/// assert_eq!(&seen, b"two");
/// # Ok::<(), hydrant_endpoint::Error>(())
/// ```
#[derive(Default)]
pub struct Batch<'a> {
    plan: BatchPlan,
    _borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Batch<'a> {
    /// Makes an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of parts.
    pub fn len(&self) -> usize {
        self.plan.parts.len()
    }

    /// Returns whether there are no parts.
    pub fn is_empty(&self) -> bool {
        self.plan.parts.is_empty()
    }

    /// Adds a write of bytes to a remote region.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NotPermitted`], [`Error::Exhausted`]. Nothing is added then.
    pub fn write(&mut self, remote: &RemoteRegion, offset: u64, bytes: &'a [u8]) -> Result<()> {
        let local = bytes.as_ptr().expose_provenance();
        self.plan.add(
            remote.opened(),
            GrantUse::Write,
            [(local, offset, bytes.len())],
        )
    }

    /// Adds a read of bytes from a remote region.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&mut self, remote: &RemoteRegion, offset: u64, into: &'a mut [u8]) -> Result<()> {
        let local = into.as_mut_ptr().expose_provenance();
        self.plan.add(
            remote.opened(),
            GrantUse::Read,
            [(local, offset, into.len())],
        )
    }

    /// Adds a write of a range of an own region. The region cannot be revoked until the batch is over.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::Revoked`] for the own region.
    pub fn write_region(
        &mut self,
        remote: &RemoteRegion,
        offset: u64,
        own: &Region,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        self.add_region(remote, GrantUse::Write, offset, own, range)
    }

    /// Adds a read to a range of an own region. The region cannot be revoked until the batch is over.
    ///
    /// # Errors
    /// As [`write_region`](Self::write_region).
    pub fn read_region(
        &mut self,
        remote: &RemoteRegion,
        offset: u64,
        own: &Region,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        self.add_region(remote, GrantUse::Read, offset, own, range)
    }

    /// Adds a write of rows of `bytes` to rows of a remote region, as one part.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::OutOfBounds`] if the rows leave `bytes`, or [`Error::LengthMismatch`] if
    /// rows overlap.
    pub fn write_rows(
        &mut self,
        remote: &RemoteRegion,
        to: RegionRows,
        bytes: &'a [u8],
        rows: LocalRows,
    ) -> Result<()> {
        let local = bytes.as_ptr().expose_provenance();
        self.add_rows(remote, GrantUse::Write, to, (local, bytes.len()), rows)
    }

    /// Adds a read of rows of a remote region to rows of `into`, as one part.
    ///
    /// # Errors
    /// As [`write_rows`](Self::write_rows).
    pub fn read_rows(
        &mut self,
        remote: &RemoteRegion,
        from: RegionRows,
        into: &'a mut [u8],
        rows: LocalRows,
    ) -> Result<()> {
        let local = into.as_mut_ptr().expose_provenance();
        self.add_rows(remote, GrantUse::Read, from, (local, into.len()), rows)
    }

    /// Adds a write of memory that is named by its address.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Safety
    /// 1. Until the batch is over, `from` is readable for `len` bytes. Concurrent accesses to them are atomic, or
    ///    outside the compiler's view.
    pub unsafe fn write_raw(
        &mut self,
        remote: &RemoteRegion,
        offset: u64,
        from: *const u8,
        len: usize,
    ) -> Result<()> {
        self.plan.add(
            remote.opened(),
            GrantUse::Write,
            [(from.expose_provenance(), offset, len)],
        )
    }

    /// Adds a read to memory that is named by its address.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Safety
    /// 1. Until the batch is over, `to` is writable for `len` bytes, and nobody holds a reference to them. Concurrent
    ///    accesses to them are atomic, or outside the compiler's view.
    pub unsafe fn read_raw(
        &mut self,
        remote: &RemoteRegion,
        offset: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<()> {
        self.plan.add(
            remote.opened(),
            GrantUse::Read,
            [(to.expose_provenance(), offset, len)],
        )
    }

    /// Sets the time at which the batch ends at the latest. Parts that were not transferred by then are not.
    pub fn deadline(&mut self, deadline: Instant) -> &mut Self {
        self.plan.deadline = Some(deadline);
        self
    }

    /// Sets a message that is sent once all parts are there, even if nobody waits for the batch. The receiver sees the
    /// data before the message. A batch has one message at most; the last counts.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`], [`Error::NotConnected`], [`Error::Lost`], [`Error::Left`].
    pub fn message(&mut self, to: &Peer, bytes: &[u8]) -> Result<&mut Self> {
        if bytes.len() > crate::MAX_MESSAGE {
            return Err(Error::MessageTooLong {
                len: bytes.len(),
                limit: crate::MAX_MESSAGE,
            });
        }
        self.plan.message = Some((Arc::clone(to.endpoint()), to.session()?, bytes.to_vec()));
        Ok(self)
    }

    /// Transfers the batch. When this returns, its data is there, or nothing of it lands any more.
    ///
    /// # Errors
    /// [`BatchFailure`], with the first cause and the fate of each part.
    pub fn run(self) -> Result<(), BatchFailure> {
        match self.core() {
            Some(batch) => batch.run(),
            None => Ok(()),
        }
    }

    fn core(self) -> Option<Arc<BatchCore>> {
        let endpoint = match (self.plan.remotes.first(), &self.plan.message) {
            (Some(remote), _) => Arc::clone(&remote.endpoint),
            (None, Some((endpoint, ..))) => Arc::clone(endpoint),
            (None, None) => return None,
        };
        // SAFETY: 1. The memory is borrowed for `'a`, in which the batch ends: `run` waits, and `start` takes only batches
        // that borrow for ever. The memory of regions is used by shared accesses, and kept by the uses in the plan. For
        // raw memory the caller promised it.
        Some(unsafe { BatchCore::new(&endpoint, self.plan) })
    }

    fn add_region(
        &mut self,
        remote: &RemoteRegion,
        how: GrantUse,
        offset: u64,
        own: &Region,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        let len = crate::descriptor::check_range(&range, own.len() as u64)? as usize;
        let used = own.begin_own_use(range.start, len)?;
        let base = used.window().as_ptr().expose_provenance();
        self.plan.add(
            remote.opened(),
            how,
            [(base + range.start as usize, offset, len)],
        )?;
        self.plan.uses.push(used);
        Ok(())
    }

    fn add_rows(
        &mut self,
        remote: &RemoteRegion,
        how: GrantUse,
        there: RegionRows,
        (local, room): (usize, usize),
        rows: LocalRows,
    ) -> Result<()> {
        let Some(last) = rows.count.checked_sub(1) else {
            return self.plan.add(remote.opened(), how, []);
        };
        let overlaps = last > 0 && (rows.stride < rows.bytes || there.stride < rows.bytes as u64);
        if overlaps {
            return Err(Error::LengthMismatch {
                what: "rows overlap: the stride is shorter than a row",
                left: there.stride.min(rows.stride as u64),
                right: rows.bytes as u64,
            });
        }
        let end = |offset: u64, stride: u64| {
            (stride.checked_mul(last as u64))
                .and_then(|begin| begin.checked_add(offset))
                .and_then(|begin| begin.checked_add(rows.bytes as u64))
        };
        let span = end(0, rows.stride as u64);
        if span.is_none_or(|end| end > room as u64) {
            return Err(Error::OutOfBounds {
                offset: 0,
                len: span.unwrap_or(u64::MAX),
                region: room as u64,
            });
        }
        if end(there.offset, there.stride).is_none_or(|end| end > remote.len()) {
            return Err(Error::OutOfBounds {
                offset: there.offset,
                len: end(0, there.stride).unwrap_or(u64::MAX),
                region: remote.len(),
            });
        }
        let runs = (0..rows.count).map(|row| {
            let offset = there.offset + row as u64 * there.stride;
            (local + row * rows.stride, offset, rows.bytes)
        });
        self.plan.add(remote.opened(), how, runs)
    }
}

impl Batch<'static> {
    /// Starts the batch. A short one is transferred before this returns. Workers transfer a long one, and nobody has to
    /// wait or poll for that.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn start(self) -> Result<BatchHandle> {
        let Some(batch) = self.core() else {
            return Ok(BatchHandle::empty());
        };
        batch.start(INLINE)?;
        Ok(BatchHandle::new(batch))
    }
}
