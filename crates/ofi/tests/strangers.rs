//! Strangers who connect to a rank's port: they hold no descriptors of it, and other hosts do not get that far.

#![allow(unsafe_code)] // borrows descriptors by number

use std::{
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::BorrowedFd,
    time::Duration,
};

use hydrant_conduit::{Conduit, Rank, Standing, conformance::Log};
use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::{HANG, left_out, ranks};
use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket, sockopt};

/// Returns the addresses on the loopback interface at which this process listens.
fn listening() -> Vec<SocketAddr> {
    let folder = std::fs::read_dir("/proc/self/fd").expect("the open files");
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let all: Vec<i32> = folder.flatten().filter_map(number).collect();
    let address = |descriptor: i32| {
        // SAFETY: if the number is no open socket, the calls fail.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let listens = sockopt::socket_acceptconn(socket) == Ok(true);
        SocketAddr::try_from(getsockname(socket).ok()?)
            .ok()
            .filter(|_| listens)
    };
    let loopback = |address: &SocketAddr| address.ip() == Ipv4Addr::LOCALHOST;
    all.into_iter()
        .filter_map(address)
        .filter(loopback)
        .collect()
}

/// Returns true if a host with another address of the loopback network can connect.
fn another_host_connects(to: SocketAddr) -> bool {
    let stranger = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let soon = Some(Duration::from_millis(300));
    sockopt::set_socket_timeout(&stranger, sockopt::Timeout::Send, soon).expect("a time");
    bind(&stranger, &SocketAddr::from(([127, 0, 0, 2], 0))).expect("another address");
    connect(&stranger, &to).is_ok()
}

#[test]
fn strangers_get_no_connection_for_long() {
    let options = OfiOptions {
        segment: 1 << 20,
        extents: 64,
        interface: "lo".to_owned(),
        ..OfiOptions::default()
    };
    if let Err(why) = endpoints(&options) {
        return left_out(why);
    }
    ranks::joined(2, |mut bootstrap| {
        let conduit = attach(&mut bootstrap, &options).expect("a provider of libfabric");
        let conduit: &dyn Conduit = &conduit;
        let other = Rank(1 - conduit.rank().0);
        if other == Rank(1) {
            let ports = listening();
            assert!(ports.len() >= 2, "each rank has a port");
            let mut silent = Vec::new();
            for port in ports {
                assert!(!another_host_connects(port));
                let connect = |_| TcpStream::connect(port).expect("a connection");
                silent.extend((0..8).map(connect));
            }
            for mut stream in silent {
                stream.set_read_timeout(Some(HANG)).expect("a time");
                // The end of the stream, or a reset connection.
                let ended = (stream.read(&mut [0])).map_err(|cause| cause.raw_os_error());
                assert!(
                    matches!(ended, Ok(0) | Err(Some(libc::ECONNRESET))),
                    "{ended:?}"
                );
            }
        }
        assert_eq!(conduit.standing(other), Standing::Present);
        let log = &mut Log::default();
        conduit.come_to_end(true);
        log.until(conduit, |_| conduit.has_come_to_end(other));
    });
}
