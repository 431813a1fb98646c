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
