//! The process at the other end of a socket of this host.

#![allow(unsafe_code)] // reads a structure from the kernel

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd},
};

/// A process, as the kernel names it to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketPeer {
    /// The number of the process, or `None` if it is not visible here (another PID namespace).
    pub pid: Option<u32>,
    /// The effective user of the process.
    pub user: u32,
}

impl SocketPeer {
    /// Returns the process at the other end of a connected socket. That is the process that
    /// connected, or the one that listened, at the time of that call.
    ///
    /// # Errors
    /// The system's, if it is no connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // `Pid` of rustix cannot be zero, which the kernel gives for a process that is not visible.
        let mut found = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `found` and `len` are local variables, and `len` is the size of `found`. Any
        // bytes are a valid `ucred`.
        let refused = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut len,
            )
        } != 0;
        if refused {
            return Err(io::Error::last_os_error());
        }
        if len as usize != mem::size_of_val(&found) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let pid = u32::try_from(found.pid).ok().filter(|pid| *pid != 0);
        let user = found.uid;
        Ok(Self { pid, user })
    }

    /// Returns whether the process has the same effective user as this one.
    pub fn is_same_user(&self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such option")]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = SocketPeer::of(&one).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert!(peer.is_same_user());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(SocketPeer::of(&file).is_err());
    }
}
