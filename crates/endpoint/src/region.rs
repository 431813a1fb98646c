//! Lent memory, as users hold it.

#![allow(unsafe_code)] // takes buffers back

use std::{fmt, mem::ManuallyDrop, ops::Range, sync::Arc, time::Duration};

use crate::{
    Descriptor, Error, Result, Rights,
    descriptor::{DescriptorScope, check_range, end_of},
    lent::{OwnUse, RegionCore},
    owned::OwnedBytes,
    state::EndpointState,
};

/// Memory that this endpoint lends to peers.
///
/// Lending costs the same for any size: nothing is copied, registered or touched. The handle can be cloned, and used by
/// any thread. Once the last clone is dropped, the region is [revoked](Self::revoke).
///
/// Peers may change the memory at any time, so there is no reference to it. [`read`](Self::read) and
/// [`write`](Self::write) copy.
#[derive(Clone)]
pub struct Region {
    pub(crate) handle: Arc<RegionHandle>,
}

pub(crate) struct RegionHandle {
    pub(crate) core: Arc<RegionCore>,
    pub(crate) endpoint: Arc<EndpointState>,
    owned: Option<Arc<OwnedBytes>>,
}

impl Region {
    pub(crate) fn new(
        endpoint: &Arc<EndpointState>,
        core: Arc<RegionCore>,
        owned: Option<Arc<OwnedBytes>>,
    ) -> Self {
        Self {
            handle: Arc::new(RegionHandle {
                core,
                endpoint: Arc::clone(endpoint),
                owned,
            }),
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.handle.core.window.len()
    }

    /// Returns whether the region has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the memory, for programs in C. Peers may change it at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.handle.core.window.as_ptr()
    }

    /// Returns a descriptor of the whole region, for those who may use it.
    pub fn descriptor(&self, rights: Rights) -> Descriptor {
        self.describe(0, self.len() as u64, rights, None)
    }

    /// Returns a descriptor of a part of the region. With a lease it can be used for so long from now on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::BadRange`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use hydrant_endpoint::{Endpoint, Rights};
    ///
    /// let owner = Endpoint::builder().listen()?;
    /// let region = owner.alloc(1 << 20)?;
    /// let page = region.lend(4096..8192, Rights::READ, Some(Duration::from_secs(30)))?;
    /// assert_eq!(page.len(), 4096);
    /// # Ok::<(), hydrant_endpoint::Error>(())
    /// ```
    pub fn lend(
        &self,
        range: Range<u64>,
        rights: Rights,
        lease: Option<Duration>,
    ) -> Result<Descriptor> {
        let len = check_range(&range, self.len() as u64)?;
        Ok(self.describe(range.start, len, rights, lease.map(end_of)))
    }

    fn describe(&self, start: u64, len: u64, rights: Rights, until: Option<u64>) -> Descriptor {
        let endpoint = &self.handle.endpoint;
        let name = [endpoint.incarnation, self.handle.core.id];
        let scope = DescriptorScope {
            start,
            len,
            rights,
            until,
        };
        Descriptor::new(&endpoint.secret, name, scope)
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Revoked`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let used = self.begin_own_use(offset, into.len())?;
        let copied = used.window().read(offset as usize, into);
        copied.map_err(|_| self.out_of_bounds(offset, into.len()))
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let used = self.begin_own_use(offset, bytes.len())?;
        let copied = used.window().write(offset as usize, bytes);
        copied.map_err(|_| self.out_of_bounds(offset, bytes.len()))
    }

    /// Begins a use of a part by this process.
    pub(crate) fn begin_own_use(&self, offset: u64, len: usize) -> Result<OwnUse> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len() as u64) {
            return Err(self.out_of_bounds(offset, len));
        }
        let handle = &self.handle;
        handle.core.begin_own_use(handle.endpoint.label())
    }

    fn out_of_bounds(&self, offset: u64, len: usize) -> Error {
        Error::OutOfBounds {
            offset,
            len: len as u64,
            region: self.len() as u64,
        }
    }

    /// Revokes the region. When this returns, no peer touches the memory any more, and each later use of a descriptor
    /// fails. Uses under way end first: those of a peer that is stopped in the middle of a copy, when it continues or
    /// dies.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn revoke(&self) -> Result<()> {
        self.handle.endpoint.check_origin()?;
        self.handle.revoke(None)
    }

    /// As [`revoke`](Self::revoke), but waits only so long for uses under way. No use begins after the call, and the next
    /// call goes on to wait.
    ///
    /// # Errors
    /// [`Error::StillInUse`], [`Error::Forked`].
    pub fn revoke_within(&self, patience: Duration) -> Result<()> {
        self.handle.endpoint.check_origin()?;
        self.handle.revoke(Some(patience))
    }

    /// Revokes the region, and returns the buffer that it was [made of](crate::Endpoint::expose). Returns `None` if it was
    /// made otherwise, or if another clone took the buffer.
    ///
    /// # Errors
    /// As [`revoke`](Self::revoke).
    ///
    /// ```
    /// use hydrant_endpoint::Endpoint;
    ///
    /// let owner = Endpoint::builder().listen()?;
    /// let region = owner.expose(vec![7; 100])?;
    /// region.write(1, &[8])?;
    /// let buffer = region.take_back()?.expect("the region owned it");
    /// assert_eq!(buffer[..3], [7, 8, 7]);
    /// # Ok::<(), hydrant_endpoint::Error>(())
    /// ```
    pub fn take_back(self) -> Result<Option<Box<[u8]>>> {
        self.revoke()?;
        let Some(owned) = &self.handle.owned else {
            return Ok(None);
        };
        // SAFETY: 1. the region is revoked: no peer uses it, and own uses fail.
        Ok(unsafe { owned.take() })
    }
}

impl RegionHandle {
    fn revoke(&self, patience: Option<Duration>) -> Result<()> {
        self.endpoint.regions.revoke(&self.core);
        self.core.wait_unused(patience)
    }
}

impl Drop for RegionHandle {
    fn drop(&mut self) {
        if self.endpoint.check_origin().is_err() {
            // The memory is the parent's to free.
            let _leaked = ManuallyDrop::new((Arc::clone(&self.core), self.owned.clone()));
            return;
        }
        // Without a limit there is no error.
        let _ = self.revoke(None);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({}, {} bytes)", self.handle.core.id, self.len())
    }
}
