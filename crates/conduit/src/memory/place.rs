//! Copies by the kernel, to and from memory of this process that a caller guarantees.
//!
//! The kernel copies, not this process. Memory that is not mapped any more is then an error and no
//! crash, and the compiler knows nothing of copies that race.

#![allow(unsafe_code)] // copies to and from addresses; asks the kernel to fault in pages

use std::ffi::c_void;

use crate::Permission;
use rustix::{io::Errno, mm};

use super::PAGE;

/// A range of this process's memory.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The first address.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
}

impl Place {
    /// Names the memory at an address. It need not be mapped.
    ///
    /// # Safety
    /// 1. While the place is used for stores, the program tolerates the change of the memory.
    pub unsafe fn new(addr: u64, len: u64) -> Self {
        Self { addr, len }
    }

    /// Returns a part. The caller has checked its bounds.
    pub fn part(self, offset: u64, len: u64) -> Self {
        debug_assert!(offset <= self.len && len <= self.len - offset);
        Self {
            addr: self.addr + offset,
            len,
        }
    }

    /// Copies `data` in, which has the same length. Returns false if the memory is not mapped or
    /// not writable.
    pub fn store(self, data: &[u8]) -> bool {
        debug_assert_eq!(data.len() as u64, self.len);
        let local = libc::iovec {
            iov_base: data.as_ptr().cast_mut().cast(),
            iov_len: data.len(),
        };
        let remote = self.vector();
        // SAFETY: the kernel reads `data`, which is borrowed, and writes to the place. By condition
        // 1 of `new` the program tolerates that. The kernel checks all addresses itself.
        let copied = unsafe { libc::process_vm_writev(pid(), &local, 1, &remote, 1, 0) };
        usize::try_from(copied) == Ok(data.len())
    }

    /// Copies out. Returns false if the memory is not mapped.
    pub fn load(self, data: &mut [u8]) -> bool {
        debug_assert_eq!(data.len() as u64, self.len);
        let local = libc::iovec {
            iov_base: data.as_mut_ptr().cast(),
            iov_len: data.len(),
        };
        let remote = self.vector();
        // SAFETY: the kernel writes to `data`, which is borrowed mutably, and checks all addresses
        // itself.
        let copied = unsafe { libc::process_vm_readv(pid(), &local, 1, &remote, 1, 0) };
        usize::try_from(copied) == Ok(data.len())
    }

    /// Faults in all pages as pinning would. Returns false if some are not mapped or do not permit
    /// the access.
    pub fn pin(self, permission: Permission) -> bool {
        let (first, pages) = self.pages();
        let advice = match permission {
            Permission::Read => mm::Advice::LinuxPopulateRead,
            Permission::ReadWrite => mm::Advice::LinuxPopulateWrite,
        };
        let Some(len) = pages.checked_mul(PAGE) else {
            return false;
        };
        if len == 0 {
            return true;
        }
        let at = std::ptr::without_provenance_mut::<c_void>(first as usize * PAGE);
        loop {
            // SAFETY: the call only faults in pages. Their contents do not change.
            return match unsafe { mm::madvise(at, len, advice) } {
                Ok(()) => true,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => false,
            };
        }
    }

    /// Makes all pages resident and writable, as [`pin`](Self::pin) does. Pages at the start that are resident already cost
    /// little, so that they may be there. Returns false if some pages are not mapped or not writable.
    pub fn make_resident(self) -> bool {
        let absent = self.first_absent();
        absent >= self.len
            || self
                .part(absent, self.len - absent)
                .pin(Permission::ReadWrite)
    }

    /// Returns the offset of the first page that is not resident, or that the kernel does not tell of; the length, if there
    /// is none.
    fn first_absent(self) -> u64 {
        const AT_ONCE: usize = 4096;
        let (first, pages) = self.pages();
        let mut resident = [0_u8; AT_ONCE];
        for start in (0..pages).step_by(AT_ONCE) {
            let count = AT_ONCE.min(pages - start);
            let at = (first as usize + start) * PAGE;
            let at = std::ptr::without_provenance_mut::<c_void>(at);
            // SAFETY: the kernel writes a byte for each page, and there is room for them.
            let told = unsafe { libc::mincore(at, count * PAGE, resident.as_mut_ptr()) } == 0;
            let absent = |page: &u8| !told || page & 1 == 0;
            if let Some(page) = resident[..count].iter().position(absent) {
                let addr = (first + (start + page) as u64) * PAGE as u64;
                return addr.saturating_sub(self.addr);
            }
        }
        self.len
    }

    /// Returns whether the kernel faults in pages on request (Linux 5.14), so that [`pin`](Self::pin) can succeed.
    pub fn can_pin() -> bool {
        let at = std::ptr::without_provenance_mut::<c_void>(PAGE);
        // SAFETY: of no bytes, the call does nothing.
        unsafe { mm::madvise(at, 0, mm::Advice::LinuxPopulateRead) }.is_ok()
    }

    /// Returns the number of the first page that the range touches, and the number of pages.
    pub fn pages(self) -> (u64, usize) {
        let page = PAGE as u64;
        let first = self.addr / page;
        if self.len == 0 {
            return (first, 0);
        }
        let last = self.addr.saturating_add(self.len - 1) / page;
        (first, (last - first + 1) as usize)
    }

    fn vector(self) -> libc::iovec {
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut::<c_void>(self.addr as usize),
            iov_len: self.len as usize,
        }
    }
}

fn pid() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// Copies the source of a write from its caller's memory.
///
/// # Safety
/// 1. `from` is readable for `len` bytes, and nobody writes to it meanwhile.
pub unsafe fn take(from: *const u8, len: usize) -> Box<[u8]> {
    if len == 0 {
        return Box::default();
    }
    // SAFETY: by condition 1 the bytes are readable and do not change. `len` is not 0, so `from` is
    // not null.
    unsafe { std::slice::from_raw_parts(from, len) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    #[test]
    #[cfg_attr(miri, ignore = "miri lacks these system calls")]
    fn absent_pages_are_found_and_made() {
        const PAGES: usize = 5000;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of new memory.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                PAGES * PAGE,
                rights,
                MapFlags::PRIVATE,
            )
        };
        let base = base.expect("memory");
        // SAFETY: a huge page would make neighbours resident. The advice changes no contents.
        let _ = unsafe { mm::madvise(base, PAGES * PAGE, mm::Advice::LinuxNoHugepage) };
        // SAFETY: only the kernel changes the memory.
        let all = unsafe { Place::new(base.addr() as u64, (PAGES * PAGE) as u64) };
        let page = PAGE as u64;
        assert_eq!(all.first_absent(), 0);
        assert!(all.part(0, 4321 * page).make_resident());
        assert_eq!(all.first_absent(), 4321 * page);
        // A range that begins amid a page that is absent, and one amid a page that is there.
        assert_eq!(all.part(4321 * page + 9, 10).first_absent(), 0);
        assert_eq!(all.part(4320 * page + 9, page).first_absent(), page - 9);
        assert!(all.make_resident());
        assert_eq!(all.first_absent(), all.len);
        // SAFETY: nobody uses the memory any more.
        unsafe { munmap(base, PAGES * PAGE) }.expect("it was mapped");
        assert!(!all.make_resident());
    }
}
