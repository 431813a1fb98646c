//! Keeps children of a rank from holding its connections.
//!
//! libfabric opens its sockets without `SOCK_CLOEXEC` (1.17.0, 2.5.1). So a child of `fork`, and a program that a rank
//! starts, would hold them open, and the rank's end would go unseen until its silence is too long. This module marks the
//! sockets to be closed when a child starts a program, and closes them in a child of `fork`.

#![allow(unsafe_code)] // borrows and closes descriptors by number

use std::{net::SocketAddr, os::fd::BorrowedFd, sync::atomic::Ordering::SeqCst};

use hydrant_conduit::fork;
use rustc_hash::FxHashSet;
use rustix::io::{FdFlags, close, fcntl_setfd};

use crate::{
    marks::{self, DEVICE, END, FileIdentity, INODES, identity},
    sockets,
};

/// The sockets between this rank's endpoint and those of its peers.
pub(crate) struct ProviderSockets {
    own: SocketAddr,
}

impl ProviderSockets {
    /// Prepares for the sockets of the endpoint at this address.
    pub(crate) fn new(own: SocketAddr) -> Self {
        fork::in_child(close_in_child);
        Self { own }
    }

    /// Marks the sockets that there are now between this endpoint and those of `peers`. Those that were marked before
    /// cost a system call each.
    pub(crate) fn mark(&self, peers: &[SocketAddr]) {
        let peers: FxHashSet<SocketAddr> = peers.iter().copied().collect();
        for descriptor in sockets::descriptors() {
            let Some(noted) = usize::try_from(descriptor)
                .ok()
                .and_then(|at| INODES.get(at))
            else {
                continue;
            };
            // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail. If its number has a
            // new owner, no program that this process starts inherits that one.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let Some(FileIdentity { device, inode }) = identity(socket) else {
                continue;
            };
            if marks::has(descriptor, socket) || !self.has(socket, &peers) {
                continue;
            }
            if fcntl_setfd(socket, FdFlags::CLOEXEC).is_ok() {
                DEVICE.store(device, SeqCst);
                noted.store(inode, SeqCst);
                END.fetch_max(descriptor as usize + 1, SeqCst);
            }
        }
    }

    /// Returns true for the endpoint's own socket, and for a connection that it accepted or made.
    fn has(&self, socket: BorrowedFd<'_>, peers: &FxHashSet<SocketAddr>) -> bool {
        let [local, remote] = sockets::addresses(socket);
        local.is_some_and(|local| sockets::is_of(local, self.own))
            || remote.is_some_and(|remote| remote != self.own && peers.contains(&remote))
    }
}

/// Closes the marked sockets in a child of `fork`, which has no job. Only system calls are made.
fn close_in_child() {
    let device = DEVICE.load(SeqCst);
    for (descriptor, noted) in (0..).zip(&INODES[..END.load(SeqCst)]) {
        let inode = noted.swap(0, SeqCst);
        // SAFETY: the call fails if the descriptor is not open. The identity tells whose it is.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if inode != 0 && identity(file) == Some(FileIdentity { device, inode }) {
            // SAFETY: the inode says that it is still the provider's socket. The child does nothing with the provider.
            unsafe { close(descriptor) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        net::{TcpListener, UdpSocket},
        os::fd::{AsFd, AsRawFd, RawFd},
    };

    use rustix::io::fcntl_getfd;

    use super::*;

    fn is_marked(socket: impl AsFd) -> bool {
        fcntl_getfd(socket).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
    }

    /// Returns true if a child of `fork` has this descriptor.
    fn child_has(descriptor: RawFd) -> bool {
        // SAFETY: the child makes system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the call changes nothing.
            let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(i32::from(flags < 0)) };
        }
        let mut status = -1;
        // SAFETY: the status is a local variable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status == 0
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no other process")]
    fn children_lack_the_sockets_of_the_provider_alone() {
        let open = |socket: &dyn AsFd| {
            fcntl_setfd(socket.as_fd(), FdFlags::empty()).expect("an open socket");
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address");
        // Sockets of the program may have the same port.
        let elsewhere = TcpListener::bind(("127.0.0.2", own.port())).expect("another address");
        let datagrams = UdpSocket::bind(own).expect("another protocol");
        for socket in [&listener as &dyn AsFd, &elsewhere, &datagrams] {
            open(socket);
        }
        ProviderSockets::new(own).mark(&[]);
        assert!(is_marked(&listener) && !child_has(listener.as_raw_fd()));
        // A file has the number that a socket had, and its inode by chance.
        let file = File::open("/proc/self/exe").expect("a program");
        let place = &INODES[file.as_raw_fd() as usize];
        place.store(identity(&file).expect("a file").inode, SeqCst);
        END.fetch_max(file.as_raw_fd() as usize + 1, SeqCst);
        assert!(child_has(file.as_raw_fd()));
        for (socket, descriptor) in [
            (&elsewhere as &dyn AsFd, elsewhere.as_raw_fd()),
            (&datagrams, datagrams.as_raw_fd()),
        ] {
            assert!(!is_marked(socket) && child_has(descriptor));
        }
    }
}
