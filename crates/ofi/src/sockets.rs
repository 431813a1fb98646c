//! The sockets of software providers, as the system shows them.
//!
//! A provider over TCP gives no way to end a connection, and tells nothing of a peer that is gone: it connects again for
//! ever. This module looks at the sockets of the process instead.

#![allow(unsafe_code)] // borrows descriptors by number

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd, RawFd},
    time::Duration,
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    net::{
        Shutdown, SocketAddrAny, SocketType, connect_unspec, getpeername, getsockname, shutdown,
        sockopt::socket_type,
    },
};

/// Ends the connections between this rank's endpoint at `own` and the endpoint at `peer`: those that this process made,
/// and those from the peer's host that it accepted. Connections of other ranks on that host may be among the latter.
/// They begin again. Data that has arrived and was not read is thrown away.
pub(crate) fn end_connections(own: SocketAddr, peer: SocketAddr) {
    let is_between = |socket: BorrowedFd<'_>| {
        let [Some(local), Some(remote)] = addresses(socket) else {
            return false;
        };
        remote == peer || is_of(local, own) && remote.ip() == peer.ip()
    };
    for descriptor in descriptors() {
        // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail.
        let found = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if !is_between(found) {
            continue;
        }
        // The number may have a new owner by now. A copy of the descriptor stays what it is.
        let Ok(socket) = fcntl_dupfd_cloexec(found, 0) else {
            continue;
        };
        if is_between(socket.as_fd()) {
            // A socket that is only shut down still hands out what it holds.
            let _ = connect_unspec(&socket);
            // Now the provider sees the end of the connection.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }
}

/// Returns true if a socket with this address is at the endpoint `own`.
pub(crate) fn is_of(local: SocketAddr, own: SocketAddr) -> bool {
    (local.ip(), local.port()) == (own.ip(), own.port())
}

/// Returns the own address of a TCP socket and that of the other side, as far as it has them.
pub(crate) fn addresses(socket: BorrowedFd<'_>) -> [Option<SocketAddr>; 2] {
    // A program's datagram socket may have the same port.
    if socket_type(socket) != Ok(SocketType::STREAM) {
        return [None; 2];
    }
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
