//! Pipes: the pipes between NICs.
//!
//! Bytes go from pinned pages into a pipe and out of it into other pinned pages. The kernel
//! does both at once, without a worker of its own, as long as there is room, or data: who
//! writes counts the pages that a pipe has, so that there always is.

#![allow(unsafe_code)] // system calls on addresses of the caller

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use hydrant_conduit::{Error, memory::PAGE};
use rustix::{
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with},
};

/// What a pipe is to hold. The system may give less: to users who have many, two pages.
const WANTED: usize = 256 << 10;

/// Most bytes of a piece. Small enough to stay in a core's cache between going in and out.
pub(crate) const PIECE: usize = 64 << 10;

/// A pipe. Both ends are held on each side, so that nobody is signalled when a peer dies, and
/// both are one descriptor, for each rank has pipes to all others.
pub(crate) struct Pipe {
    pub(crate) ends: OwnedFd,
    /// Pages it holds. A piece takes as many as it has, rounded up, wherever it begins.
    pages: usize,
}

impl Pipe {
    pub(crate) fn new() -> Result<Self, Error> {
        let failed = |cause| Error::system("making a pipe", cause);
        let (read, _write) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        // Only as a file can a pipe be opened for both; its ends are not needed then.
        let path = format!("/proc/self/fd/{}", read.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let ends = open(path, flags, Mode::empty())
            .map_err(|cause| Error::system("opening a pipe by /proc/self/fd", cause))?;
        // As it is, if it cannot be larger.
        let _ = fcntl_setpipe_size(&ends, WANTED);
        let pages = fcntl_getpipe_size(&ends).map_err(failed)? / PAGE;
        Ok(Self {
            ends,
            pages: pages.max(1),
        })
    }

    /// Pages that it holds.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Most bytes that go through at once.
    pub(crate) fn piece(&self) -> usize {
        PIECE.min(self.pages * PAGE)
    }

    /// Writes memory of this process, of any kind, into the pipe; `false` if it is not
    /// readable. There is room.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, or not mapped.
    pub(crate) unsafe fn fill(&self, from: *const u8, len: usize) -> bool {
        // SAFETY: the kernel reads at the address, or says EFAULT.
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

/// Throws away what is in a pipe: so many bytes, or fewer if there are no more.
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

/// Pages of a pipe that a piece may take.
pub(crate) fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pages_as_said_fit_wherever_pieces_begin() {
        let pipe = Pipe::new().unwrap();
        let data = vec![7_u8; PIECE];
        let mut inside = 0;
        let mut sum = 0;
        for turn in 0_usize.. {
            let len = [8, 4097, 4096, 1, 5000, 12288, 8191][turn % 7];
            if inside + pages(len) > pipe.pages() {
                break;
            }
            // SAFETY: `data` is ours.
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
