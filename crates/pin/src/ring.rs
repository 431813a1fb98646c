//! An `io_uring` and the memory that the kernel pinned for it.
//!
//! Its table of registered buffers is what a NIC's translation table is: an entry holds the
//! pages that were there when it was made, whatever its addresses are mapped to by now, and
//! they count as pinned (`VmPin`). Fixed reads and writes move bytes between an entry and a
//! pipe; each is done when [`Ring::pull`] or [`Ring::push`] returns.

#![allow(unsafe_code)] // registers memory with the kernel and has it read and written there

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use hydrant_conduit::Error;
use io_uring::{IoUring, opcode, squeue, types::Fd};

/// Most entries of a table: the kernel's limit.
pub(crate) const MOST_ENTRIES: usize = 1 << 14;
/// Pages that a ring takes itself. Kernels from 6.13 on count them as locked.
pub(crate) const OWN_PAGES: usize = 2;
/// Most bytes of an entry: the kernel's limit.
pub(crate) const MOST_BYTES: usize = 1 << 30;

/// A ring and its table.
pub(crate) struct Ring {
    ring: IoUring,
    /// An operation did not end at once, and may not have ended yet.
    lost: bool,
}

/// Why memory was not pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unpinnable {
    /// It is not mapped, or not so that it could be written to.
    Address,
    /// More than may be pinned, or than there is.
    Memory,
    /// Something else, by its number.
    Other(i32),
}

impl Ring {
    /// A ring whose table has so many entries, all empty.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where the system has no `io_uring`, or forbids it.
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

    /// Pins memory under an entry. The addresses need not be mapped: that is an error.
    pub(crate) fn pin(&self, entry: u32, addr: usize, len: usize) -> Result<(), Unpinnable> {
        let buffer = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr),
            iov_len: len,
        };
        loop {
            // SAFETY: the kernel looks up the pages itself and keeps them; nothing here relies
            // on the addresses. They are read and written by `move_bytes` alone.
            let done =
                unsafe { (self.ring.submitter()).register_buffers_update(entry, &[buffer], None) };
            let Err(cause) = done else { return Ok(()) };
            return Err(match cause.raw_os_error() {
                Some(libc::EINTR) => continue,
                // Not supported: pages of a file, to kernels up to 6.1.
                Some(libc::EFAULT | libc::EINVAL | libc::EOVERFLOW | libc::EOPNOTSUPP) => {
                    Unpinnable::Address
                }
                Some(libc::ENOMEM) => Unpinnable::Memory,
                other => Unpinnable::Other(other.unwrap_or(0)),
            });
        }
    }

    /// Empties an entry: its pages are no longer pinned.
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

    /// Moves bytes out of a pipe into an entry, at an address of when it was pinned.
    ///
    /// # Safety
    /// The pinned pages bear being written to there.
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

    /// Has one operation done.
    fn run(&mut self, request: &squeue::Entry) -> io::Result<usize> {
        if self.lost {
            return Err(io::Error::other("an earlier operation never ended"));
        }
        // SAFETY: it names an entry, whose pages the kernel holds, and a pipe, which is open
        // until this returns, when the operation is over.
        let pushed = unsafe { self.ring.submission().push(request) };
        if pushed.is_err() {
            return Err(io::Error::other("a submission is left over"));
        }
        let mut submitted = 0;
        loop {
            // Once submitted, what is left is to wait; a pipe with room, or data, is done with
            // before the call returns.
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
        // The kernel takes its time with a ring that is closed; its pages are let go now.
        if let Err(cause) = self.ring.submitter().unregister_buffers() {
            tracing::error!(%cause, "pinned memory is let go later");
        }
    }
}

/// Why there is no ring.
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
