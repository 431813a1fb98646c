//! The sockets of software providers, as the system shows them.
//!
//! A provider over TCP gives no way to end a connection, and tells nothing of a peer that is gone: it connects again for
//! ever. This module looks at the sockets of the process instead.

#![allow(unsafe_code)] // borrows descriptors by number

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use crate::marks::{self, FileIdentity, identity};
use rustix::{
    io::{close, fcntl_dupfd_cloexec},
    net::{
        Shutdown, SocketAddrAny, SocketType, connect_unspec, getpeername, getsockname, shutdown,
        sockopt::socket_type,
    },
    process::{Resource, getrlimit},
};

/// Descriptors from this number on are not looked for where their list cannot be read.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// Ends the connections between this rank's endpoint at `own` and the endpoint at `peer`: those that this process made,
/// and those from the peer's host that it accepted. Connections of other ranks on that host may be among the latter.
/// They begin again. Data that has arrived and was not read is thrown away.
pub(crate) fn end_connections(own: SocketAddr, peer: SocketAddr) {
    end_those(own, |local, remote| {
        remote == peer || is_of(local, own) && remote.ip() == peer.ip()
    });
}

/// Ends the connections that this process made from the endpoint at `own` to that at `peer`.
pub(crate) fn end_connections_to(own: SocketAddr, peer: SocketAddr) {
    end_those(own, |_, remote| remote == peer);
}

/// Ends all connections of the endpoint at `own`, and those that this process made to these peers.
pub(crate) fn end_all_connections(own: SocketAddr, peers: &[SocketAddr]) {
    end_those(own, |local, remote| {
        is_of(local, own) || peers.contains(&remote)
    });
}

/// Ends the connections with such a local and a remote address. Those of the endpoint at `own` end, too, if the other
/// side has reset them. The system does not tell the address of that side any more, and still hands out what arrived
/// before.
fn end_those(own: SocketAddr, are_chosen: impl Fn(SocketAddr, SocketAddr) -> bool) {
    let is_between = |descriptor: RawFd, socket: BorrowedFd<'_>| match addresses(socket) {
        [Some(local), Some(remote)] => are_chosen(local, remote),
        [Some(local), None] => {
            (is_of(local, own) || marks::has(descriptor, socket)) && is_reset(socket)
        }
        _ => false,
    };
    for descriptor in descriptors() {
        // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail.
        let found = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if !is_between(descriptor, found) {
            continue;
        }
        // The number may have a new owner by now. A copy of the descriptor stays what it is. Without room for a copy, the
        // connection must end all the same.
        let copy = fcntl_dupfd_cloexec(found, 0).ok();
        let socket = copy.as_ref().map_or(found, AsFd::as_fd);
        if is_between(descriptor, socket) {
            // A socket that is only shut down still hands out what it holds.
            let _ = connect_unspec(socket);
            // Now the provider sees the end of the connection.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}

/// The sockets of an endpoint that the provider closes. Dropping this closes those that it has left open: a provider over
/// TCP forgets a connection that was accepted and had not introduced itself (libfabric 1.17.0, 2.5.1).
#[derive(Default)]
pub(crate) struct SocketRemains(Vec<(RawFd, FileIdentity)>);

impl SocketRemains {
    /// Notes the sockets of the endpoint at `own`. The provider has closed its fabric when this is dropped.
    pub(crate) fn of(own: SocketAddr) -> Self {
        let mut remains = Self::default();
        for descriptor in descriptors() {
            // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            if let [Some(local), _] = addresses(socket)
                && is_of(local, own)
                && let Some(identity) = identity(socket)
            {
                remains.0.push((descriptor, identity));
            }
        }
        remains
    }
}

impl Drop for SocketRemains {
    fn drop(&mut self) {
        for (descriptor, was) in self.0.drain(..) {
            // SAFETY: the call fails if the descriptor is not open. The identity tells whose it is.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            if identity(socket) == Some(was) {
                // SAFETY: it is still the provider's socket, and nothing of the provider is left that would close it.
                unsafe { close(descriptor) };
            }
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

/// Returns the open descriptors of this process. Without a free one to read their list, these are all that it may have.
pub(crate) fn descriptors() -> Vec<RawFd> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        return (0..limit.min(MOST_DESCRIPTORS) as RawFd).collect();
    };
    let name =
        |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    folder.filter_map(name).collect()
}

/// Returns true for a TCP socket whose connection was reset.
fn is_reset(socket: BorrowedFd<'_>) -> bool {
    /// The value of `TCP_CLOSE` in the kernel.
    const CLOSED: u8 = 7;
    // The state is the first byte of `struct tcp_info`.
    let mut state = 0_u8;
    let mut len = 1;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    let into = (&raw mut state).cast();
    // SAFETY: the buffer has `len` bytes.
    let code = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, into, &raw mut len) };
    code == 0 && state == CLOSED
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
    /// This process has no descriptor left to ask with.
    NoDescriptor,
    /// The system has no way to the host: no route, or nobody answers on its network.
    NoRoute,
}

/// Asks whether a process listens at an address, and waits at most `patience`.
pub(crate) fn probe(address: SocketAddr, patience: Duration) -> ListenerState {
    match TcpStream::connect_timeout(&address, patience) {
        Ok(_) => ListenerState::Alive,
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => ListenerState::Gone,
        Err(cause) if matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            ListenerState::NoDescriptor
        }
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

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, net::TcpListener};

    use rustix::process::{Rlimit, setrlimit};

    use super::*;

    /// The limit of descriptors is the process's, so this runs in a child.
    #[test]
    fn connections_are_ended_without_a_free_descriptor() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(peer).expect("a connection");
        let own = stream.local_addr().expect("an address");
        let (mut accepted, _) = listener.accept().expect("accepted");
        // SAFETY: the child makes system calls and ends. No other thread of it exists.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let limit = getrlimit(Resource::Nofile);
            let current = Some(64);
            let lowered = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
            let all: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            let is_full = lowered.is_ok() && all.len() < 64;
            let is_out = probe(peer, Duration::from_secs(1)) == ListenerState::NoDescriptor;
            end_connections(own, peer);
            let code = i32::from(!(is_full && is_out));
            // SAFETY: nothing of the child is needed any more.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: the status has room.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child had descriptors left");
        let soon = Some(Duration::from_secs(10));
        accepted.set_read_timeout(soon).expect("a time");
        // The connection has ended, although this process has it open, too.
        let ended = accepted
            .read(&mut [0])
            .map_err(|cause| cause.raw_os_error());
        assert!(
            matches!(ended, Ok(0) | Err(Some(libc::ECONNRESET))),
            "{ended:?}"
        );
    }
}
