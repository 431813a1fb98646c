//! Pages at one address that are unmapped, emptied and moved.

use std::ptr;

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mprotect,
    mremap_fixed, munmap,
};

/// Pages at one address, whichever they are.
pub(crate) struct Place {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pages are this value's alone.
unsafe impl Send for Place {}

/// The way in which pages go and others come.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) enum Renewal {
    /// New memory is mapped over the old.
    Over,
    /// The memory is unmapped, and new memory mapped.
    Apart,
    /// The pages are emptied.
    Emptied,
    /// Other pages move here.
    Moved,
}

impl Renewal {
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) const ALL: [Self; 4] = [Self::Over, Self::Apart, Self::Emptied, Self::Moved];
}

fn map_at(at: *mut u8, len: usize, flags: MapFlags) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping of its own at an address of the kernel's choice, or over an own mapping that nobody has
    // borrowed.
    let mapped = unsafe { mmap_anonymous(at.cast(), len, rights, MapFlags::PRIVATE | flags) };
    mapped.expect("memory").cast()
}

fn unmap(at: *mut u8, len: usize) {
    // SAFETY: an own mapping, which nobody has borrowed.
    unsafe { munmap(at.cast(), len) }.expect("an own mapping");
}

/// Empties whole pages.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn empty(pages: &mut [u8]) {
    // SAFETY: the pages are borrowed, and are private memory: they are zero afterwards.
    let emptied = unsafe {
        madvise(
            pages.as_mut_ptr().cast(),
            pages.len(),
            Advice::LinuxDontNeed,
        )
    };
    emptied.expect("private memory");
}

/// Makes whole pages readable alone, or writable again.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn set_writable(pages: &mut [u8], is_writable: bool) {
    let mut rights = MprotectFlags::READ;
    rights.set(MprotectFlags::WRITE, is_writable);
    // SAFETY: the pages are borrowed, and nobody writes to them while they can only be read.
    unsafe { mprotect(pages.as_mut_ptr().cast(), pages.len(), rights) }.expect("own pages");
}

/// Makes whole pages inaccessible, or writable again.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn set_accessible(pages: &mut [u8], is_accessible: bool) {
    let rights = match is_accessible {
        true => MprotectFlags::READ | MprotectFlags::WRITE,
        false => MprotectFlags::empty(),
    };
    // SAFETY: the pages are borrowed, and nobody accesses them until they are accessible again.
    unsafe { mprotect(pages.as_mut_ptr().cast(), pages.len(), rights) }.expect("own pages");
}

impl Place {
    pub(crate) fn new(len: usize) -> Self {
        let len = len.next_multiple_of(4096);
        let start = map_at(ptr::null_mut(), len, MapFlags::empty());
        Self { start, len }
    }

    /// Maps pages at an address, unless something is mapped there.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn at(address: u64, len: usize) -> Option<Self> {
        let at = ptr::with_exposed_provenance_mut(address as usize);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a mapping of its own, over no other.
        let mapped = unsafe { mmap_anonymous(at, len, rights, flags) };
        mapped.ok().map(|start| Self {
            start: start.cast(),
            len,
        })
    }

    /// Makes the pages readable alone, or writable again.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn set_writable(&mut self, is_writable: bool) {
        set_writable(self.bytes(), is_writable);
    }

    /// Returns the address of the pages.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    /// Returns the bytes.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped for as long as this, and this borrow of it is the only one here.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Other pages, full of one value, take the place of those that are there.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn renew(&mut self, how: Renewal, value: u8) -> &mut [u8] {
        match how {
            Renewal::Over => _ = map_at(self.start, self.len, MapFlags::FIXED),
            Renewal::Apart => {
                unmap(self.start, self.len);
                // Another thread may have mapped the address meanwhile.
                let again = map_at(self.start, self.len, MapFlags::empty());
                self.start = again;
            }
            Renewal::Emptied => empty(self.bytes()),
            Renewal::Moved => {
                let other = map_at(ptr::null_mut(), self.len, MapFlags::empty());
                // SAFETY: both are own mappings, which nobody has borrowed.
                let moved = unsafe {
                    mremap_fixed(
                        other.cast(),
                        self.len,
                        self.len,
                        MremapFlags::MAYMOVE,
                        self.start.cast(),
                    )
                };
                assert_eq!(moved.expect("room").addr(), self.start.addr());
            }
        }
        let bytes = self.bytes();
        bytes.fill(value);
        bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}
