//! The file descriptor that a launcher left open for this process.
#![allow(
    unsafe_code,
    reason = "a descriptor known only by the number in PMI_FD has to be borrowed from that number"
)]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags};

/// Duplicates descriptor `number`, which must be an open socket or pipe.
///
/// Programs that this process starts inherit neither the duplicate nor the original. Otherwise they
/// could speak to the launcher in this rank's name.
pub(crate) fn open(number: i32) -> rustix::io::Result<OwnedFd> {
    let original = borrow(number)?;
    rustix::io::fcntl_setfd(original, FdFlags::CLOEXEC)?;
    rustix::io::fcntl_dupfd_cloexec(original, 3)
}

/// Returns true if descriptor `number` is an open socket or pipe.
pub(crate) fn is_open(number: i32) -> bool {
    borrow(number).is_ok()
}

/// Borrows descriptor `number` for a moment, if it is an open socket or pipe.
fn borrow<'a>(number: i32) -> rustix::io::Result<BorrowedFd<'a>> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: `number` is not -1. The callers use the borrow for calls that neither close nor
    // write, and the kernel answers EBADF if no such descriptor is open.
    let original = unsafe { BorrowedFd::borrow_raw(number) };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(original)?.st_mode);
    if matches!(kind, FileType::Socket | FileType::Fifo) {
        Ok(original)
    } else {
        Err(Errno::NOTSOCK)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_an_open_socket_or_pipe_is_accepted() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert!(is_open(a.as_raw_fd()) && !is_open(-1) && !is_open(1 << 20));
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
