//! The pipes between NICs.
//!
//! Bytes move from pinned pages into a pipe, and from there into other pinned pages. The kernel
//! does either step at once, without a worker thread, if the pipe has room, or data. A writer
//! counts the pages in a pipe, so that there always is room.

#![allow(unsafe_code)] // system calls on the caller's addresses

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use hydrant_conduit::{Error, memory::PAGE};
use rustix::{
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with},
};

/// The wanted capacity of a pipe. The system may grant less: two pages to users with many pipes.
const WANTED: usize = 256 << 10;

/// Most bytes of a piece. A piece is small enough to stay in a core's cache while it is in the
/// pipe.
pub(crate) const PIECE: usize = 64 << 10;

/// A pipe. Each side holds both ends, so that a peer's death raises no signal. Both ends are one
/// descriptor, because each rank has pipes to all others.
pub(crate) struct Pipe {
    pub(crate) ends: OwnedFd,
    /// The capacity in pages. A piece takes its length in pages, rounded up, wherever it begins.
    pages: usize,
}

impl Pipe {
    pub(crate) fn new() -> Result<Self, Error> {
        let failed = |cause| Error::system("making a pipe", cause);
        let (read, _write) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        // Only opening the pipe as a file gives one descriptor for both ends. The original ends are
        // not needed then.
        let path = format!("/proc/self/fd/{}", read.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let ends = open(path, flags, Mode::empty())
            .map_err(|cause| Error::system("opening a pipe by /proc/self/fd", cause))?;
        // The capacity stays as it is if it cannot be raised.
        let _ = fcntl_setpipe_size(&ends, WANTED);
        let pages = fcntl_getpipe_size(&ends).map_err(failed)? / PAGE;
        Ok(Self {
            ends,
            pages: pages.max(1),
        })
    }

    /// Returns the capacity in pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the most bytes of one piece.
    pub(crate) fn piece(&self) -> usize {
        PIECE.min(self.pages * PAGE)
    }

    /// Writes memory of this process, of any kind, into the pipe, which has room. Returns `false`
    /// if the memory is not readable.
    ///
    /// # Safety
    /// 1. `from` is readable for `len` bytes, or not mapped.
    pub(crate) unsafe fn fill(&self, from: *const u8, len: usize) -> bool {
        // SAFETY: the address is readable, or the kernel returns EFAULT, by the caller's condition 1.
        let count = unsafe { libc::write(self.ends.as_raw_fd(), from.cast(), len) };
        if usize::try_from(count) == Ok(len) {
            return true;
        }
        if let Ok(count) = usize::try_from(count) {
            discard(&self.ends, count);
        }
        false
    }
}

/// Discards `bytes` bytes from a pipe, or all if there are fewer.
pub(crate) fn discard(pipe: &OwnedFd, mut bytes: usize) {
    let mut sink = [0_u8; PAGE];
    while bytes > 0 {
        let most = bytes.min(PAGE);
        match rustix::io::read(pipe, &mut sink[..most]) {
            Ok(0) => return,
            Ok(count) => bytes -= count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Returns the pages of a pipe that a piece may take.
pub(crate) fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_holds_its_capacity_wherever_pieces_begin() {
        let pipe = Pipe::new().unwrap();
        let data = vec![7_u8; PIECE];
        let mut inside = 0;
        let mut sum = 0;
        for turn in 0_usize.. {
            let len = [8, 4097, 4096, 1, 5000, 12288, 8191][turn % 7];
            if inside + pages(len) > pipe.pages() {
                break;
            }
            // SAFETY: `data` is a local array of sufficient length.
            assert!(unsafe { pipe.fill(data.as_ptr(), len) }, "{inside} pages");
            inside += pages(len);
            sum += len;
        }
        assert!(sum > 0);
        discard(&pipe.ends, sum);
        let mut byte = [0];
        assert!(
            rustix::io::read(&pipe.ends, &mut byte).is_err(),
            "not empty"
        );
        // SAFETY: page zero is never mapped.
        assert!(!unsafe { pipe.fill(std::ptr::without_provenance(8), 8) });
    }
}
