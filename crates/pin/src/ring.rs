//! An `io_uring` and the memory that the kernel pins for it.
//!
//! The ring's table of registered buffers works like the translation table of a NIC. An entry holds
//! the pages that were mapped when it was made, whatever its addresses are mapped to later. The
//! pages count as pinned (`VmPin`).
//!
//! Fixed reads and writes move bytes between an entry and a pipe. Each has ended when
//! [`Ring::pull`] or [`Ring::push`] returns.

#![allow(unsafe_code)] // has the kernel pin, read and write memory

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use hydrant_conduit::Error;
use io_uring::{IoUring, opcode, squeue, types::Fd};

/// Most entries of a table: the kernel's limit.
pub(crate) const MOST_ENTRIES: usize = 1 << 14;
/// Pages of a ring itself. Kernels from 6.13 on count them as locked.
pub(crate) const OWN_PAGES: usize = 2;
/// Most bytes of an entry: the kernel's limit.
pub(crate) const MOST_BYTES: usize = 1 << 30;

/// A ring and its table of registered buffers.
pub(crate) struct Ring {
    ring: IoUring,
    /// True if an operation did not end at once, and may still be running.
    lost: bool,
}

/// The cause why memory was not pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unpinnable {
    /// The memory is not mapped, or not writable.
    Address,
    /// The limit on pinned memory is reached, or the system has no memory left.
    Memory,
    /// Another error number.
    Other(i32),
}

impl Ring {
    /// Makes a ring whose table has `entries` empty entries.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the system has no `io_uring`, or forbids it.
    pub(crate) fn new(entries: usize) -> Result<Self, Error> {
        let ring = IoUring::builder()
            .dontfork()
            .build(4)
            .map_err(setup_error)?;
        (ring.submitter().register_buffers_sparse(entries as u32)).map_err(|cause| {
            if cause.raw_os_error() == Some(libc::EINVAL) {
                let what = "smp+pin needs io_uring with sparse tables of buffers: Linux 5.19";
                Error::Unreachable(what.to_owned())
            } else {
                Error::system("making a table of registered buffers", cause)
            }
        })?;
        Ok(Self { ring, lost: false })
    }

    /// Pins memory under an entry. Returns an error if the memory is not mapped.
    pub(crate) fn pin(&self, entry: u32, addr: usize, len: usize) -> Result<(), Unpinnable> {
        let buffer = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr),
            iov_len: len,
        };
        loop {
            // SAFETY: the kernel looks up the pages itself and keeps them. Only `move_bytes`
            // accesses the pages.
            let done =
                unsafe { (self.ring.submitter()).register_buffers_update(entry, &[buffer], None) };
            let Err(cause) = done else { return Ok(()) };
            return Err(match cause.raw_os_error() {
                Some(libc::EINTR) => continue,
                // Kernels up to 6.1 do not support pages of a file.
                Some(libc::EFAULT | libc::EINVAL | libc::EOVERFLOW | libc::EOPNOTSUPP) => {
                    Unpinnable::Address
                }
                Some(libc::ENOMEM) => Unpinnable::Memory,
                other => Unpinnable::Other(other.unwrap_or(0)),
            });
        }
    }

    /// Empties an entry, which unpins its pages.
    pub(crate) fn unpin(&self, entry: u32) {
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: an empty buffer refers to nothing.
        let done =
            unsafe { (self.ring.submitter()).register_buffers_update(entry, &[nothing], None) };
        if let Err(cause) = done {
            tracing::error!(%cause, entry, "memory stays pinned");
        }
    }

    /// Moves bytes out of a pipe into an entry. `addr` is an address of the time of pinning.
    ///
    /// # Safety
    /// The pinned pages bear being written to in this range.
    pub(crate) unsafe fn pull(
        &mut self,
        pipe: &OwnedFd,
        entry: u32,
        addr: usize,
        len: usize,
    ) -> io::Result<()> {
        let fd = Fd(pipe.as_raw_fd());
        self.move_bytes(len, |done| {
            let at = std::ptr::without_provenance_mut(addr + done);
            opcode::ReadFixed::new(fd, at, (len - done) as u32, entry as u16).build()
        })
    }

    /// Moves bytes from an entry into a pipe that has room for them.
    pub(crate) fn push(
        &mut self,
        pipe: &OwnedFd,
        entry: u32,
        addr: usize,
        len: usize,
    ) -> io::Result<()> {
        let fd = Fd(pipe.as_raw_fd());
        self.move_bytes(len, |done| {
            let at = std::ptr::without_provenance(addr + done);
            opcode::WriteFixed::new(fd, at, (len - done) as u32, entry as u16).build()
        })
    }

    fn move_bytes(
        &mut self,
        len: usize,
        request: impl Fn(usize) -> squeue::Entry,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            match self.run(&request(done)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Runs one operation to its end.
    fn run(&mut self, request: &squeue::Entry) -> io::Result<usize> {
        if self.lost {
            return Err(io::Error::other("an earlier operation never ended"));
        }
        // SAFETY: the request names an entry, whose pages the kernel holds, and a pipe, which stays
        // open until the operation has ended.
        let pushed = unsafe { self.ring.submission().push(request) };
        if pushed.is_err() {
            return Err(io::Error::other("the submission queue is full"));
        }
        let mut submitted = 0;
        loop {
            // Once submitted, the operation only needs waiting. It ends before the call returns,
            // because the pipe has room, or data.
            match self.ring.submit_and_wait(1) {
                Ok(count) => submitted += count,
                Err(cause) => match cause.raw_os_error() {
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                    _ => {
                        self.lost = true;
                        return Err(cause);
                    }
                },
            }
            if let Some(ended) = self.ring.completion().next() {
                let result = ended.result();
                return usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            }
            debug_assert!(submitted <= 1);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel frees a closed ring late. This call unpins its pages at once.
        if let Err(cause) = self.ring.submitter().unregister_buffers() {
            tracing::error!(%cause, "pinned memory is freed later");
        }
    }
}

/// Returns the error for a ring that could not be made.
fn setup_error(cause: io::Error) -> Error {
    let why = match cause.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel has none, or a container hides it (seccomp): run outside, or allow the \
             calls io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "this system forbids it: set kernel.io_uring_disabled to 0 (sysctl), and where a \
             container forbids it (seccomp), allow the calls io_uring_setup, io_uring_enter and \
             io_uring_register"
        }
        Some(libc::EMFILE) => return Error::system("making an io_uring", cause),
        Some(libc::ENOMEM) => "no memory may be locked for it: raise the limit (ulimit -l)",
        _ => "making one failed",
    };
    Error::Unreachable(format!("smp+pin needs io_uring: {why} ({cause})"))
}
