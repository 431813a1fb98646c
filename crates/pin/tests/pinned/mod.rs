//! Helpers of the tests of pinned memory.

pub(crate) mod death;
pub(crate) mod limits;
pub(crate) mod memory;

use std::ptr;

use hydrant_conduit::{
    Access, Conduit, Error, Key, Local, Permission, Posted, Rank, Remote, conformance::Log,
};
use rustix::mm::{self, MapFlags, ProtFlags};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Returns the number of pages of this process that the kernel counts as pinned.
pub(crate) fn pinned_pages() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = (text.lines())
        .find(|line| line.starts_with("VmPin:"))
        .expect("VmPin");
    let kib = line.split_whitespace().nth(1).expect("a number");
    kib.parse::<usize>().expect("a number") * 1024 / PAGE
}

/// Private pages, which are never unmapped automatically.
#[derive(Clone, Copy)]
pub(crate) struct MappedPages {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

impl MappedPages {
    pub(crate) fn new(pages: usize) -> Self {
        Self::at(ptr::null_mut(), pages, MapFlags::empty())
    }

    fn at(address: *mut u8, pages: usize, flags: MapFlags) -> Self {
        let len = pages * PAGE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, or the flags forbid to replace existing mappings.
        let base =
            unsafe { mm::mmap_anonymous(address.cast(), len, prot, MapFlags::PRIVATE | flags) };
        Self {
            base: base.expect("memory for a test").cast(),
            len,
        }
    }

    /// Unmaps the pages and maps new ones at the same address.
    pub(crate) fn remap(self) {
        // SAFETY: the pages belong to this test, which holds no reference to them.
        unsafe { mm::munmap(self.base.cast(), self.len) }.expect("mapped");
        let again = Self::at(self.base, self.len / PAGE, MapFlags::FIXED_NOREPLACE);
        assert_eq!(again.base, self.base);
    }

    pub(crate) fn fill(self, value: u8) {
        // SAFETY: the pages are mapped, and only peers of this test write to them meanwhile.
        unsafe { ptr::write_bytes(self.base, value, self.len) };
    }

    /// Returns whether each byte is `value`.
    pub(crate) fn all_bytes_are(self, value: u8) -> bool {
        (0..self.len).all(|at| {
            let byte = self.base.wrapping_add(at);
            // SAFETY: the byte is mapped, and is read by itself, even if peers write meanwhile.
            unsafe { ptr::read_volatile(byte) == value }
        })
    }

    /// Returns the pages as the local side of an operation, under a key.
    pub(crate) fn local(self, key: Key) -> Local {
        let addr = self.base;
        Local { addr, key }
    }

    pub(crate) fn register(
        self,
        conduit: &dyn Conduit,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: the pages stay mapped, or are unmapped as part of the test. No reference to them
        // is held.
        unsafe { conduit.register(self.base, self.len, permission) }
    }

    pub(crate) fn remote(self, key: Key) -> Remote {
        Remote {
            key,
            offset: self.base.addr() as u64,
        }
    }
}

/// Writes all of `from`, registered under `key`, and waits for the outcome.
pub(crate) fn put(
    log: &mut Log<'_>,
    conduit: &dyn Conduit,
    peer: Rank,
    to: Remote,
    from: MappedPages,
    key: Key,
) -> Result<(), Error> {
    let posted = post_put(conduit, peer, to, from, key);
    log.end(conduit, posted)
}

/// Reads all of `to`, registered under `key`, and waits for the outcome.
pub(crate) fn get(
    log: &mut Log<'_>,
    conduit: &dyn Conduit,
    peer: Rank,
    from: Remote,
    to: MappedPages,
    key: Key,
) -> Result<(), Error> {
    let posted = post_get(conduit, peer, from, to, key);
    log.end(conduit, posted)
}

/// Begins a write of all of `from`.
pub(crate) fn post_put(
    conduit: &dyn Conduit,
    peer: Rank,
    to: Remote,
    from: MappedPages,
    key: Key,
) -> Result<Posted, Error> {
    // SAFETY: 1. Pages are never unmapped during an operation, and nobody writes to `from`. 2. `to` is
    // memory of a test.
    unsafe { conduit.post(&Access::put(peer, to, from.local(key), from.len)) }
}

/// Begins a read of all of `to`.
pub(crate) fn post_get(
    conduit: &dyn Conduit,
    peer: Rank,
    from: Remote,
    to: MappedPages,
    key: Key,
) -> Result<Posted, Error> {
    // SAFETY: 1. Pages are never unmapped during an operation, and nobody else uses `to`.
    unsafe { conduit.post(&Access::get(peer, from, to.local(key), to.len)) }
}

/// Formats remote memory for the exchange between ranks.
pub(crate) fn format_remote(remote: Remote) -> String {
    format!("{} {}", remote.key.0, remote.offset)
}

/// Parses remote memory that another rank formatted.
pub(crate) fn parse_remote(text: &str) -> Remote {
    let (key, offset) = text.split_once(' ').expect("two numbers");
    Remote {
        key: Key(key.parse().expect("a key")),
        offset: offset.parse().expect("an address"),
    }
}
