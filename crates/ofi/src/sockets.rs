//! The sockets of software providers, as the system shows them.
//!
//! A provider over TCP gives no way to end a connection, and tells nothing of a peer that is gone: it connects again for
//! ever. This module looks at the sockets of the process instead.

#![allow(unsafe_code)] // borrows descriptors by number

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::{BorrowedFd, RawFd},
    time::Duration,
};

use rustix::net::{Shutdown, SocketAddrAny, getpeername, getsockname, shutdown};

/// Ends the connections between this rank's endpoint at `own` and the endpoint at `peer`: those that this process made,
/// and those from the peer's host that it accepted. Connections of other ranks on that host may be among the latter.
/// They begin again.
pub(crate) fn end_connections(own: SocketAddr, peer: SocketAddr) {
    for descriptor in descriptors() {
        let [Some(local), Some(remote)] = addresses(descriptor) else {
            continue;
        };
        let made = remote == peer;
        let accepted = local.port() == own.port() && remote.ip() == peer.ip();
        if made || accepted {
            // SAFETY: the descriptor was such a connection a moment ago. If it was closed since, the call fails.
            let _ = shutdown(
                unsafe { BorrowedFd::borrow_raw(descriptor) },
                Shutdown::Both,
            );
        }
    }
}

/// Returns the own address of a socket and that of the other side, as far as it has them.
pub(crate) fn addresses(descriptor: RawFd) -> [Option<SocketAddr>; 2] {
    // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail. If its number has a new
    // owner, the addresses are that one's.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let local = getsockname(socket).ok().and_then(internet);
    let remote = getpeername(socket).ok().flatten().and_then(internet);
    [local, remote]
}

/// Returns the open descriptors of this process.
pub(crate) fn descriptors() -> Vec<RawFd> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let name =
        |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    folder.filter_map(name).collect()
}

fn internet(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

/// The state of the process behind an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListenerState {
    /// It accepts connections.
    Alive,
    /// The host refuses connections: no process listens.
    Gone,
    /// There was no answer.
    Silent,
    /// The system has no way to the host: no route, or nobody answers on its network.
    NoRoute,
}

/// Asks whether a process listens at an address, and waits at most `patience`.
pub(crate) fn probe(address: SocketAddr, patience: Duration) -> ListenerState {
    match TcpStream::connect_timeout(&address, patience) {
        Ok(_) => ListenerState::Alive,
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => ListenerState::Gone,
        Err(cause) => match cause.kind() {
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            // A route that the administrator prohibited.
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput => ListenerState::NoRoute,
            _ => ListenerState::Silent,
        },
    }
}
