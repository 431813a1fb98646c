//! Lent memory.

#![allow(unsafe_code)] // makes windows of memory that is lent

use std::{
    fmt,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use hydrant_conduit::Window;
use hydrant_local::GrantName;
use parking_lot::{Condvar, Mutex};

use crate::{
    Descriptor, Error, Result, Rights,
    descriptor::{Scope, check_range, end_of},
    session::Session,
    state::EndpointState,
};

/// The state of a region that both its owner and the service thread use.
pub(crate) struct RegionCore {
    pub(crate) id: u64,
    pub(crate) window: Window,
    /// The file that peers map, if there is one.
    pub(crate) file: Option<Arc<OwnedFd>>,
    lending: Mutex<Lending>,
    /// Notified when the last own use has ended.
    unused: Condvar,
}

struct Lending {
    is_revoked: bool,
    grants: Vec<(Arc<Session>, GrantName)>,
    /// The uses of the memory by this process.
    own_uses: usize,
}

impl RegionCore {
    pub(crate) fn new(id: u64, window: Window, file: Option<Arc<OwnedFd>>) -> Arc<Self> {
        Arc::new(Self {
            id,
            window,
            file,
            lending: Mutex::new(Lending {
                is_revoked: false,
                grants: Vec::new(),
                own_uses: 0,
            }),
            unused: Condvar::new(),
        })
    }

    /// Grants the memory to a peer by `grant`, unless it is revoked. The lock is held meanwhile, so that a revocation
    /// sees the grant.
    ///
    /// # Errors
    /// [`Error::Revoked`], or that of `grant`.
    pub(crate) fn grant(
        self: &Arc<Self>,
        session: &Arc<Session>,
        grant: impl FnOnce() -> Option<GrantName>,
    ) -> Option<Option<GrantName>> {
        let mut lending = self.lending.lock();
        if lending.is_revoked {
            return None;
        }
        let granted = grant();
        if let Some(name) = granted {
            lending.grants.push((Arc::clone(session), name));
            session.note_granted(name, self);
        }
        Some(granted)
    }

    /// Ends a grant that the peer does not use any more. Returns `false` if it is in use.
    pub(crate) fn release(&self, session: &Session, grant: GrantName) -> bool {
        let mut lending = self.lending.lock();
        let is_it = |(its, name): &(Arc<Session>, GrantName)| {
            its.number == session.number && *name == grant
        };
        let Some(place) = lending.grants.iter().position(is_it) else {
            return true;
        };
        session.link.end_grant(grant, false);
        // A grant in use stays in the list, so that a revocation waits for it.
        let is_unused = session.link.wait_unused(grant, || false);
        if is_unused {
            lending.grants.swap_remove(place);
            session.link.free_grant(grant);
        }
        is_unused
    }

    /// Revokes the memory, and waits until nobody uses it, at most for `patience`.
    ///
    /// # Errors
    /// [`Error::StillInUse`]. The next call goes on.
    pub(crate) fn revoke(&self, patience: Option<Duration>) -> Result<()> {
        let since = Instant::now();
        let deadline = patience.and_then(|patience| since.checked_add(patience));
        let still_in_use = || Error::StillInUse {
            within: since.elapsed(),
        };
        let mut lending = self.lending.lock();
        lending.is_revoked = true;
        for (session, grant) in &lending.grants {
            session.link.end_grant(*grant, false);
        }
        let goes_on = || deadline.is_none_or(|deadline| Instant::now() < deadline);
        while let Some((session, grant)) = lending.grants.last().cloned() {
            // The lock is not held while this thread waits.
            drop(lending);
            if !session.link.wait_unused(grant, goes_on) {
                return Err(still_in_use());
            }
            session.forget_granted(grant);
            lending = self.lending.lock();
            let is_it = |(its, name): &(Arc<Session>, GrantName)| {
                its.number == session.number && *name == grant
            };
            if let Some(place) = lending.grants.iter().position(is_it) {
                lending.grants.swap_remove(place);
                session.link.free_grant(grant);
            }
        }
        while lending.own_uses > 0 {
            match deadline {
                None => self.unused.wait(&mut lending),
                Some(deadline) => {
                    let waited = self.unused.wait_until(&mut lending, deadline);
                    if waited.timed_out() && lending.own_uses > 0 {
                        return Err(still_in_use());
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins a use of the memory by this process.
    ///
    /// # Errors
    /// [`Error::Revoked`].
    pub(crate) fn begin_own_use(self: &Arc<Self>, label: &str) -> Result<OwnUse> {
        let mut lending = self.lending.lock();
        if lending.is_revoked {
            return Err(Error::Revoked {
                peer: label.to_owned(),
            });
        }
        lending.own_uses += 1;
        Ok(OwnUse(Arc::clone(self)))
    }
}

/// A use of an own region by this process, which a revocation waits for.
pub(crate) struct OwnUse(Arc<RegionCore>);

impl OwnUse {
    pub(crate) fn window(&self) -> &Window {
        &self.0.window
    }
}

impl Drop for OwnUse {
    fn drop(&mut self) {
        let mut lending = self.0.lending.lock();
        lending.own_uses -= 1;
        if lending.own_uses == 0 {
            drop(lending);
            self.0.unused.notify_all();
        }
    }
}

/// A buffer that a region owns. It is freed when the last window of it is gone, unless it was taken back.
pub(crate) struct OwnedBytes {
    buffer: NonNull<[u8]>,
    is_taken: AtomicBool,
}

// SAFETY: this owns the buffer, and gives no access to it but by `take`, which works once.
unsafe impl Send for OwnedBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// Takes a buffer. Returns it, and a window of it.
    pub(crate) fn new(buffer: Vec<u8>) -> (Arc<Self>, Window) {
        let buffer = NonNull::from(Box::leak(buffer.into_boxed_slice()));
        buffer.cast::<u8>().as_ptr().expose_provenance();
        let owned = Arc::new(Self {
            buffer,
            is_taken: AtomicBool::new(false),
        });
        // SAFETY: 1. The window keeps the buffer, which is taken back only after a revocation, and then nobody uses the
        // window. 2. The box was leaked, so that nobody has a reference. 3. It is initialized.
        let window = unsafe { Window::new(buffer.cast(), buffer.len(), Arc::clone(&owned) as _) };
        (owned, window)
    }

    /// Returns the buffer, once.
    ///
    /// # Safety
    /// 1. Nobody uses a window of it from now on.
    unsafe fn take(&self) -> Option<Box<[u8]>> {
        if self.is_taken.swap(true, SeqCst) {
            return None;
        }
        // SAFETY: `new` leaked a box, and it is made a box again only once. Nobody else uses it, by condition 1.
        Some(unsafe { Box::from_raw(self.buffer.as_ptr()) })
    }
}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: 1. all windows hold this, so none is left.
        drop(unsafe { self.take() });
    }
}

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
        let scope = Scope {
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
        self.endpoint.regions.lock().remove(&self.core.id);
        self.core.revoke(patience)
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
