//! The file descriptor that a launcher left open for us.
#![allow(
    unsafe_code,
    reason = "a descriptor known only by the number in PMI_FD has to be borrowed from that number"
)]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags};

/// Our own duplicate of descriptor `number`, which must be an open socket or pipe.
///
/// Neither it nor the original is inherited by programs this process starts:
/// they would speak to the launcher in our name.
pub(crate) fn open(number: i32) -> rustix::io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: `number` is not -1. The borrow lasts for the three calls below,
    // none of which closes or writes; the kernel answers EBADF if no such
    // descriptor is open.
    let original = unsafe { BorrowedFd::borrow_raw(number) };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(original)?.st_mode);
    if !matches!(kind, FileType::Socket | FileType::Fifo) {
        return Err(Errno::NOTSOCK);
    }
    rustix::io::fcntl_setfd(original, FdFlags::CLOEXEC)?;
    rustix::io::fcntl_dupfd_cloexec(original, 3)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_an_open_socket_or_pipe_will_do() {
        let (a, _b) = UnixStream::pair().unwrap();
        let fd = open(a.as_raw_fd()).unwrap();
        assert_ne!(fd.as_raw_fd(), a.as_raw_fd());
        assert!(
            rustix::io::fcntl_getfd(&a)
                .unwrap()
                .contains(FdFlags::CLOEXEC)
        );
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(open(file.as_raw_fd()).unwrap_err(), Errno::NOTSOCK);
        assert_eq!(open(-1).unwrap_err(), Errno::BADF);
        assert_eq!(open(1 << 20).unwrap_err(), Errno::BADF);
    }
}
