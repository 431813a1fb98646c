//! Memory that a caller vouched for, copied by the kernel.
//!
//! The kernel copies, not this process: memory that is not mapped, or not any more, is then an
//! error and no crash, and the compiler sees nothing of copies that race.

#![allow(unsafe_code)] // copies to and from addresses; asks the kernel to bring in pages

use std::ffi::c_void;

use crate::Permission;
use rustix::{io::Errno, mm};

use super::PAGE;

/// A stretch of this process's memory.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The first address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

impl Place {
    /// The memory at an address; it need not be mapped.
    ///
    /// # Safety
    /// For as long as the place is used: nobody relies on the memory being left alone, if it
    /// is stored to. If it is not, there is nothing to keep.
    pub unsafe fn new(addr: u64, len: u64) -> Self {
        Self { addr, len }
    }

    /// A part; the caller has checked that it is one.
    pub fn part(self, offset: u64, len: u64) -> Self {
        debug_assert!(offset <= self.len && len <= self.len - offset);
        Self {
            addr: self.addr + offset,
            len,
        }
    }

    /// Copies `data` in, which is as long; false where memory is not mapped or not writable.
    pub fn store(self, data: &[u8]) -> bool {
        debug_assert_eq!(data.len() as u64, self.len);
        let local = libc::iovec {
            iov_base: data.as_ptr().cast_mut().cast(),
            iov_len: data.len(),
        };
        let remote = self.vector();
        // SAFETY: the kernel reads `data`, which is borrowed, and writes to the place, of which
        // `new` was promised that it may be written to; it checks all addresses itself.
        let copied = unsafe { libc::process_vm_writev(pid(), &local, 1, &remote, 1, 0) };
        usize::try_from(copied) == Ok(data.len())
    }

    /// Copies out; false where memory is not mapped.
    pub fn load(self, data: &mut [u8]) -> bool {
        debug_assert_eq!(data.len() as u64, self.len);
        let local = libc::iovec {
            iov_base: data.as_mut_ptr().cast(),
            iov_len: data.len(),
        };
        let remote = self.vector();
        // SAFETY: the kernel writes to `data`, which is borrowed mutably, and checks all
        // addresses itself.
        let copied = unsafe { libc::process_vm_readv(pid(), &local, 1, &remote, 1, 0) };
        usize::try_from(copied) == Ok(data.len())
    }

    /// Brings all pages in as pinning would; false if some are not mapped or do not permit
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
            // SAFETY: populating changes nothing that can be seen but which pages are there.
            return match unsafe { mm::madvise(at, len, advice) } {
                Ok(()) => true,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => false,
            };
        }
    }

    /// The number of the first page it touches, and how many it touches.
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

/// Copies what a write takes from its caller's memory.
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn take(from: *const u8, len: usize) -> Box<[u8]> {
    if len == 0 {
        return Box::default();
    }
    // SAFETY: readable for `len` bytes, says the caller, and so not null; whoever writes to it
    // meanwhile breaks the caller's promise to the conduit.
    unsafe { std::slice::from_raw_parts(from, len) }.into()
}
