//! Memory to access, and one-sided operations that keep their buffers.

use std::{
    mem, ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::{
    Access, Conduit, Error, Key, Local, Permission, Posted, Rank, Remote, Ticket, Window,
    memory::Place,
};

use super::{log::Log, team::TeamMember};

/// Memory under a key, which is revoked when this is dropped.
pub(super) struct LentWindow<'a> {
    conduit: &'a dyn Conduit,
    pub(super) window: Window,
    pub(super) key: Key,
    revoked: bool,
}

impl<'a> LentWindow<'a> {
    pub(super) fn new(conduit: &'a dyn Conduit, window: Window) -> Result<Self, Error> {
        // SAFETY: 1. the window keeps the memory until `drop` has deregistered it. 2. Windows only
        // make shared-memory accesses.
        let key =
            unsafe { conduit.register(window.as_ptr(), window.len(), Permission::ReadWrite)? };
        Ok(Self {
            conduit,
            window,
            key,
            revoked: false,
        })
    }

    /// Returns the peers' name of the memory.
    pub(super) fn remote(&self) -> Remote {
        let registers = self.conduit.caps().registration.is_some();
        Remote {
            key: self.key,
            offset: if registers {
                self.window.addr() as u64
            } else {
                0
            },
        }
    }

    /// Revokes the key. The memory is the owner's again.
    pub(super) fn revoke(mut self) -> Window {
        self.revoked = true;
        self.conduit.deregister(self.key).expect("a key in force");
        self.window.clone()
    }
}

impl Drop for LentWindow<'_> {
    fn drop(&mut self) {
        if !self.revoked && self.conduit.deregister(self.key).is_err() {
            // Peers may still use the memory.
            mem::forget(self.window.clone());
        }
    }
}

/// The kinds of names for a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressKind {
    Segment,
    Extent,
    Anywhere,
}

impl AddressKind {
    pub(super) const ALL: [AddressKind; 3] = [
        AddressKind::Segment,
        AddressKind::Extent,
        AddressKind::Anywhere,
    ];

    /// Returns the kinds that a conduit has.
    pub(super) fn of(conduit: &dyn Conduit) -> impl Iterator<Item = AddressKind> + use<> {
        let any_address = conduit.caps().any_address;
        let segment = conduit.caps().registration.is_none();
        (Self::ALL.into_iter()).filter(move |place| match place {
            AddressKind::Segment => segment,
            AddressKind::Extent => true,
            AddressKind::Anywhere => any_address,
        })
    }
}

/// Local memory that peers access.
pub(super) struct Arena<'a> {
    pub(super) window: Window,
    pub(super) remote: Remote,
    _lent: Option<LentWindow<'a>>,
}

impl<'a> Arena<'a> {
    /// Makes an arena of `len` zeroed bytes.
    pub(super) fn new(conduit: &'a dyn Conduit, place: AddressKind, len: usize) -> Self {
        if place == AddressKind::Segment {
            let mine = conduit
                .window(conduit.rank())
                .expect("the own segment is mapped");
            conduit.commit(0, len).expect("memory for a test");
            let window = mine
                .part(0, len)
                .expect("a segment large enough for a test");
            window.fill(0, len, 0).expect("in bounds");
            let (key, offset) = (Key::SEGMENT, 0);
            let remote = Remote { key, offset };
            return Self {
                window,
                remote,
                _lent: None,
            };
        }
        let window = Window::private(len);
        if place == AddressKind::Anywhere {
            let (key, offset) = (Key::ANY, window.addr() as u64);
            let remote = Remote { key, offset };
            return Self {
                window,
                remote,
                _lent: None,
            };
        }
        let lent = LentWindow::new(conduit, window.clone()).expect("room for an extent");
        let remote = lent.remote();
        Self {
            window,
            remote,
            _lent: Some(lent),
        }
    }

    /// Publishes the arena to all ranks. Collective. Returns the arenas of all ranks.
    pub(super) fn publish(&self, member: &TeamMember<'_>, log: &mut Log<'_>) -> Vec<Remote> {
        member.exchange(log, self.remote)
    }

    /// Returns a copy of all its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        bytes_of(&self.window)
    }
}

/// Pages at one address, which come and go. The address stays reserved meanwhile.
pub(super) struct ChangingPages {
    start: *mut u8,
    len: usize,
}

impl ChangingPages {
    /// Maps zeroed pages.
    pub(super) fn new(len: usize) -> Self {
        let start = Self::map(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE);
        Self { start, len }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Puts other pages there, which are zero.
    pub(super) fn renew(&self) {
        Self::map(self.start, self.len, ProtFlags::READ | ProtFlags::WRITE);
    }

    /// Leaves nothing there that can be accessed.
    pub(super) fn hide(&self) {
        Self::map(self.start, self.len, ProtFlags::empty());
    }

    /// Returns a copy of all bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: nothing is stored through this place.
        let place = unsafe { Place::new(self.start.expose_provenance() as u64, self.len as u64) };
        assert!(place.load(&mut bytes), "the pages are not mapped");
        bytes
    }

    fn map(at: *mut u8, len: usize, rights: ProtFlags) -> *mut u8 {
        let over = if at.is_null() {
            MapFlags::empty()
        } else {
            MapFlags::FIXED
        };
        // SAFETY: a mapping at an address that the kernel chooses, or over an own one, which is named by its address
        // only.
        let mapped = unsafe { mmap_anonymous(at.cast(), len, rights, MapFlags::PRIVATE | over) };
        mapped.expect("memory for a test").cast()
    }
}

impl Drop for ChangingPages {
    fn drop(&mut self) {
        // SAFETY: an own mapping, which is named by its address only.
        unsafe { munmap(self.start.cast(), self.len) }.expect("an own mapping");
    }
}

/// Returns a copy of all bytes of a window.
pub(super) fn bytes_of(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.read(0, &mut bytes).expect("in bounds");
    bytes
}

/// Returns the memory `bytes` further.
pub(super) fn beyond(remote: Remote, bytes: usize) -> Remote {
    let offset = remote.offset + bytes as u64;
    Remote { offset, ..remote }
}

/// A one-sided operation and its buffer.
pub(super) struct BufferedTransfer<'a> {
    conduit: &'a dyn Conduit,
    buffer: Vec<u8>,
    /// The offset of the data in the buffer. Odd offsets are tried, too.
    lead: usize,
    /// The buffer's key, if the NIC needs one.
    key: Option<Key>,
    posted: Option<Posted>,
}

impl<'a> BufferedTransfer<'a> {
    /// Makes the buffer of an operation under `remote`. The buffer is registered if the remote
    /// memory is.
    fn new(
        conduit: &'a dyn Conduit,
        remote: Key,
        buffer: Vec<u8>,
        lead: usize,
        permission: Permission,
    ) -> Result<Self, Error> {
        let mut transfer = Self {
            conduit,
            buffer,
            lead,
            key: None,
            posted: None,
        };
        if conduit.caps().registration.is_some() && remote != Key::ANY {
            let local = &mut transfer.buffer[lead..];
            // SAFETY: 1. and 2. no peer knows the key, and the transfer deregisters it before it
            // frees the buffer.
            let key = unsafe { conduit.register(local.as_mut_ptr(), local.len(), permission)? };
            transfer.key = Some(key);
        }
        Ok(transfer)
    }

    fn local_key(&self) -> Key {
        self.key.unwrap_or(Key::ANY)
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.posted {
            Some(Posted::Pending(ticket)) => Some(ticket),
            _ => None,
        }
    }

    /// Overwrites the data, which the conduit does not need any more.
    pub(super) fn scribble(&mut self) {
        self.buffer.fill(0xdb);
    }

    fn data(mut self) -> Vec<u8> {
        self.posted = None;
        if let Some(key) = self.key.take()
            && let Err(error) = self.conduit.deregister(key)
        {
            panic!("the buffer of an operation that ended: {error}");
        }
        mem::take(&mut self.buffer).split_off(self.lead)
    }
}

impl Drop for BufferedTransfer<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take()
            && self.conduit.deregister(key).is_err()
        {
            // The rank has left, and its registration is gone or unknown.
            mem::forget(mem::take(&mut self.buffer));
        }
        if self.ticket().is_some() {
            // The conduit may still use the buffer, so it is leaked.
            mem::forget(mem::take(&mut self.buffer));
        }
    }
}

impl<'a> TeamMember<'a> {
    /// Publishes a memory's name to all ranks. Collective. Returns the names of all ranks.
    pub(super) fn exchange(&self, log: &mut Log<'_>, place: Remote) -> Vec<Remote> {
        let keys = self.gather(log, place.key.0);
        let offsets = self.gather(log, place.offset);
        (keys.into_iter().zip(offsets))
            .map(|(key, offset)| Remote {
                key: Key(key),
                offset,
            })
            .collect()
    }

    /// Posts a write of a copy of `data`.
    pub(super) fn post_write(
        &self,
        peer: Rank,
        to: Remote,
        data: &[u8],
    ) -> Result<BufferedTransfer<'a>, Error> {
        self.post_write_as(peer, to, data, false)
    }

    /// Like [`post_write`](Self::post_write). `waits` is that of [`Access`].
    pub(super) fn post_write_as(
        &self,
        peer: Rank,
        to: Remote,
        data: &[u8],
        waits: bool,
    ) -> Result<BufferedTransfer<'a>, Error> {
        let lead = lead();
        let mut buffer = vec![0; lead];
        buffer.extend_from_slice(data);
        let mut transfer =
            BufferedTransfer::new(self.conduit, to.key, buffer, lead, Permission::Read)?;
        let key = transfer.local_key();
        let addr = transfer.buffer[lead..].as_mut_ptr();
        let from = Local { addr, key };
        let access = Access {
            waits,
            ..Access::put(peer, to, from, data.len())
        };
        // SAFETY: 1. a transfer keeps its buffer until the operation has ended, or for ever.
        // 2. The peer's memory is a window of a test, or cannot be written.
        transfer.posted = Some(unsafe { self.conduit.post(&access)? });
        Ok(transfer)
    }

    /// Posts an inline write, and overwrites its source at once.
    pub(super) fn post_inline(
        &self,
        peer: Rank,
        to: Remote,
        data: &[u8],
        waits: bool,
    ) -> Result<Posted, Error> {
        let mut buffer = data.to_vec();
        let from = Local::unregistered(buffer.as_mut_ptr());
        let access = Access {
            waits,
            ..Access::put(peer, to, from, data.len())
        };
        // SAFETY: 1. the buffer outlives the call, and the write is inline. 2. The peer lends the
        // memory.
        let posted = unsafe { self.conduit.post(&access) };
        buffer.fill(0xdb);
        posted
    }

    /// Posts a read of `len` bytes.
    pub(super) fn post_read(
        &self,
        peer: Rank,
        from: Remote,
        len: usize,
    ) -> Result<BufferedTransfer<'a>, Error> {
        self.post_read_as(peer, from, len, false)
    }

    /// Like [`post_read`](Self::post_read). `waits` is that of [`Access`].
    pub(super) fn post_read_as(
        &self,
        peer: Rank,
        from: Remote,
        len: usize,
        waits: bool,
    ) -> Result<BufferedTransfer<'a>, Error> {
        let lead = lead();
        let buffer = vec![0x77; lead + len];
        let mut transfer =
            BufferedTransfer::new(self.conduit, from.key, buffer, lead, Permission::ReadWrite)?;
        let key = transfer.local_key();
        let addr = transfer.buffer[lead..].as_mut_ptr();
        let to = Local { addr, key };
        let access = Access {
            waits,
            ..Access::get(peer, from, to, len)
        };
        // SAFETY: 1. as above, and nothing else uses the buffer. 2. This is no put.
        transfer.posted = Some(unsafe { self.conduit.post(&access)? });
        Ok(transfer)
    }

    /// Waits for the end of an operation. Returns the data written or read.
    pub(super) fn land(
        &self,
        log: &mut Log<'_>,
        transfer: BufferedTransfer<'_>,
    ) -> Result<Vec<u8>, Error> {
        if let Some(ticket) = transfer.ticket() {
            self.until(log, "a one-sided operation", |log| {
                log.outcome(ticket).is_some()
            });
            log.outcome(ticket).expect("just seen")?;
        }
        Ok(transfer.data())
    }

    pub(super) fn put(
        &self,
        log: &mut Log<'_>,
        peer: Rank,
        to: Remote,
        data: &[u8],
    ) -> Result<(), Error> {
        let transfer = self.post_write(peer, to, data)?;
        self.land(log, transfer).map(drop)
    }

    pub(super) fn get(
        &self,
        log: &mut Log<'_>,
        peer: Rank,
        from: Remote,
        len: usize,
    ) -> Result<Vec<u8>, Error> {
        let transfer = self.post_read(peer, from, len)?;
        self.land(log, transfer)
    }
}

/// Returns 0 to 7, in turn.
fn lead() -> usize {
    static TURN: AtomicU64 = AtomicU64::new(0);
    (TURN.fetch_add(1, Relaxed) % 8) as usize
}
