//! Keeps children of a rank from holding its connections.
//!
//! libfabric opens its sockets without `SOCK_CLOEXEC` (1.17.0, 2.5.1). So a child of `fork`, and a program that a rank
//! starts, would hold them open, and the rank's end would go unseen until its silence is too long. This module marks the
//! sockets to be closed when a child starts a program, and closes them in a child of `fork`.

#![allow(unsafe_code)] // borrows and closes descriptors by number

use std::{
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use hydrant_conduit::fork;
use rustc_hash::FxHashSet;
use rustix::{
    fs::fstat,
    io::{FdFlags, close, fcntl_setfd},
};

use crate::sockets;

/// Descriptors from this number on are not looked after.
const MOST: usize = 1 << 16;

/// The inode of each descriptor that is a socket of a provider; 0 for none. A number may get another owner, the inode
/// may not.
static INODES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// No descriptor from this number on has an inode in the list.
static END: AtomicUsize = AtomicUsize::new(0);

/// The sockets between this rank's endpoint and those of its peers.
pub(crate) struct ProviderSockets {
    own: SocketAddr,
    peers: FxHashSet<SocketAddr>,
}

impl ProviderSockets {
    /// Prepares for the sockets between the endpoints at these addresses.
    pub(crate) fn new(own: SocketAddr, peers: impl Iterator<Item = SocketAddr>) -> Self {
        fork::in_child(close_in_child);
        Self {
            own,
            peers: peers.filter(|peer| *peer != own).collect(),
        }
    }

    /// Marks the sockets that there are now. Those that were marked before cost a system call each.
    pub(crate) fn mark(&self) {
        for descriptor in sockets::descriptors() {
            let Some(noted) = usize::try_from(descriptor)
                .ok()
                .and_then(|at| INODES.get(at))
            else {
                continue;
            };
            let Some(inode) = inode(descriptor) else {
                continue;
            };
            // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail. If its number has a
            // new owner, no program that this process starts inherits that one.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            if noted.load(Relaxed) == inode || !self.has(socket) {
                continue;
            }
            if fcntl_setfd(socket, FdFlags::CLOEXEC).is_ok() {
                noted.store(inode, SeqCst);
                END.fetch_max(descriptor as usize + 1, SeqCst);
            }
        }
    }

    /// Returns true for the endpoint's own socket, and for a connection that it accepted or made.
    fn has(&self, socket: BorrowedFd<'_>) -> bool {
        let [local, remote] = sockets::addresses(socket);
        local.is_some_and(|local| sockets::is_of(local, self.own))
            || remote.is_some_and(|remote| self.peers.contains(&remote))
    }
}

/// Returns the inode of a descriptor that is open.
fn inode(descriptor: RawFd) -> Option<u64> {
    // SAFETY: the call fails if the descriptor is not open. The inode tells whose it is.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fstat(file).ok().map(|of| of.st_ino)
}

/// Closes the marked sockets in a child of `fork`, which has no job. Only system calls are made.
fn close_in_child() {
    for (descriptor, noted) in (0..).zip(&INODES[..END.load(SeqCst)]) {
        let marked = noted.swap(0, SeqCst);
        if marked != 0 && inode(descriptor) == Some(marked) {
            // SAFETY: the inode says that it is still the provider's socket. The child does nothing with the provider.
            unsafe { close(descriptor) };
        }
    }
}
