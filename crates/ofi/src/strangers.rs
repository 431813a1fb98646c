//! Protection of an endpoint over TCP from strangers, who can open connections to it, but do not know the job's secret.
//!
//! libfabric parses what a connection sends before this crate sees a message, and `tcp` of 2.5.1 crashes at a malformed
//! header. It also keeps a connection that never sends anything. So the kernel drops connections from hosts that no
//! rank announced, and connections that stay silent are ended.

#![allow(unsafe_code)] // attaches a filter, and borrows descriptors by number

use std::{
    ffi::c_int,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

use rustc_hash::FxHashSet;
use rustix::net::{Shutdown, shutdown};

use crate::sockets;

/// Most instructions of a filter.
const MOST: usize = 4096;

/// The place of the flags in the header of TCP, and the flag of a segment that opens a connection.
const FLAGS: u32 = 13;
const SYN: u32 = 2;
/// The first address that a filter counts from the header of IP. Others count from that of TCP.
const FROM_IP: u32 = libc::SKF_NET_OFF as u32;
/// The place of the sender in the headers of IPv4 and IPv6.
const SENDER_4: u32 = 12;
const SENDER_6: u32 = 8;

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
/// The results of a filter: how many bytes of the segment are kept.
const TAKE: u32 = u32::MAX;
const DROP: u32 = 0;

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    branch(code, k, 0, 0)
}

/// An instruction that skips `jt` others if its condition holds, and `jf` otherwise.
fn branch(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = code as u16;
    libc::sock_filter { code, jt, jf, k }
}

/// Makes the filter that drops a segment that opens a connection, unless it comes from one of these hosts. Returns
/// `None` for more hosts than a filter can hold.
fn filter(own: IpAddr, hosts: &FxHashSet<IpAddr>) -> Option<Vec<libc::sock_filter>> {
    let mut program = vec![
        instruction(LOAD_BYTE, FLAGS),
        branch(IF_SET, SYN, 1, 0),
        instruction(RETURN, TAKE),
    ];
    match own {
        IpAddr::V4(_) => program.push(instruction(LOAD_WORD, FROM_IP.wrapping_add(SENDER_4))),
        IpAddr::V6(_) => {}
    }
    for host in hosts {
        match (own, host) {
            (IpAddr::V4(_), IpAddr::V4(host)) => {
                program.push(branch(IF_EQUAL, u32::from(*host), 0, 1));
            }
            (IpAddr::V6(_), IpAddr::V6(host)) => {
                let octets = host.octets();
                let (words, _) = octets.as_chunks::<4>();
                for (place, word) in (0..).zip(words) {
                    let at = FROM_IP.wrapping_add(SENDER_6 + 4 * u32::from(place));
                    program.push(instruction(LOAD_WORD, at));
                    // To the next host: over the rest of these loads and comparisons, and the return.
                    let rest = 2 * (3 - place) + 1;
                    program.push(branch(IF_EQUAL, u32::from_be_bytes(*word), 0, rest));
                }
            }
            // No connection comes from there.
            _ => continue,
        }
        program.push(instruction(RETURN, TAKE));
    }
    program.push(instruction(RETURN, DROP));
    (program.len() <= MOST).then_some(program)
}

/// Makes the kernel drop connections to the listening socket at `own`, unless they come from one of these hosts.
///
/// # Errors
/// The kernel takes no filter, or not one for so many hosts.
pub(crate) fn admit_only(own: SocketAddr, hosts: &FxHashSet<IpAddr>) -> io::Result<()> {
    let mut program = filter(own.ip(), hosts).ok_or(io::ErrorKind::ArgumentListTooLong)?;
    let listens = |socket| matches!(sockets::addresses(socket), [Some(local), None] if sockets::is_of(local, own));
    for descriptor in sockets::descriptors() {
        // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail. A new owner of its
        // number would have to listen at the same address.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if listens(socket) {
            attach(socket, &mut program)?;
        }
    }
    Ok(())
}

fn attach(socket: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let (from, len) = (&raw const filter, size_of_val(&filter) as libc::socklen_t);
    let (level, option): (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the structure has `len` bytes and names so many instructions. The kernel copies them.
    let code = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, from.cast(), len) };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The connections that an endpoint accepted and that have sent nothing yet.
pub(crate) struct SilentConnections {
    own: SocketAddr,
    /// Those of the last look, with the address of the other side.
    seen: FxHashSet<(RawFd, SocketAddr)>,
}

impl SilentConnections {
    pub(crate) fn of(own: SocketAddr) -> Self {
        let seen = FxHashSet::default();
        Self { own, seen }
    }

    /// Ends the connections that were silent at the last look, too. A rank sends its request for a connection as soon as it
    /// is connected.
    pub(crate) fn end(&mut self) {
        let before = std::mem::take(&mut self.seen);
        for descriptor in sockets::descriptors() {
            // SAFETY: the descriptor was open a moment ago. If it was closed since, the calls fail.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let [Some(local), Some(remote)] = sockets::addresses(socket) else {
                continue;
            };
            if !sockets::is_of(local, self.own) || has_sent(socket) != Some(false) {
                continue;
            }
            if before.contains(&(descriptor, remote)) {
                // The provider sees the end of the connection, and closes it.
                let _ = shutdown(socket, Shutdown::Both);
            } else {
                self.seen.insert((descriptor, remote));
            }
        }
    }
}

/// Returns true if the other side of a TCP connection has sent anything.
fn has_sent(socket: BorrowedFd<'_>) -> Option<bool> {
    /// The place of `tcpi_bytes_received` in `struct tcp_info`, in words.
    const RECEIVED: usize = 128 / 8;
    let mut info = [0_u64; RECEIVED + 1];
    let mut len = size_of_val(&info) as libc::socklen_t;
    let (level, option): (c_int, c_int) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    let into = info.as_mut_ptr().cast();
    // SAFETY: the buffer has `len` bytes.
    let code = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, into, &raw mut len) };
    let is_whole = code == 0 && len as usize == size_of_val(&info);
    is_whole.then(|| info[RECEIVED] > 0)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
        time::Duration,
    };

    use super::*;

    /// Returns true if a connection from this host to a listener is accepted that admits only these hosts.
    fn is_admitted(to: IpAddr, hosts: impl IntoIterator<Item = IpAddr>) -> bool {
        let listener = TcpListener::bind((to, 0)).expect("a port");
        let own = listener.local_addr().expect("an address");
        admit_only(own, &hosts.into_iter().collect()).expect("a filter");
        TcpStream::connect_timeout(&own, Duration::from_millis(300)).is_ok()
    }

    #[test]
    fn only_announced_hosts_can_connect() {
        let many = (1..1000_u32).map(|host| Ipv4Addr::from(0x0a00_0000 | host).into());
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(is_admitted(here, [here]));
        assert!(is_admitted(here, many.clone().chain([here])));
        assert!(!is_admitted(here, many.chain([Ipv6Addr::LOCALHOST.into()])));
    }

    #[test]
    fn only_announced_hosts_of_ipv6_can_connect() {
        let here = IpAddr::V6(Ipv6Addr::LOCALHOST);
        if TcpListener::bind((here, 0)).is_err() {
            return;
        }
        // Each differs from this host in one word.
        let others = [0, 32, 64, 96].map(|bit| Ipv6Addr::from(1 ^ 1 << (bit + 1)).into());
        assert!(is_admitted(here, others.into_iter().chain([here])));
        assert!(!is_admitted(here, others));
    }

    #[test]
    fn connections_that_stay_silent_are_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address");
        let connect = || TcpStream::connect(own).expect("a connection");
        let (mut silent, mut speaking) = (connect(), connect());
        let accepted: Vec<_> = (0..2)
            .map(|_| listener.accept().expect("accepted"))
            .collect();
        speaking.write_all(b"hello").expect("sent");
        let mut connections = SilentConnections::of(own);
        connections.end();
        let mut late = connect();
        let third = listener.accept().expect("accepted");
        connections.end();
        assert_eq!(silent.read(&mut [0]).expect("the end"), 0);
        for stream in [&mut speaking, &mut late] {
            let soon = Some(Duration::from_millis(50));
            stream.set_read_timeout(soon).expect("a time");
            let outcome = stream.read(&mut [0]).map_err(|cause| cause.kind());
            assert_eq!(outcome, Err(io::ErrorKind::WouldBlock));
        }
        drop((accepted, third));
    }
}
