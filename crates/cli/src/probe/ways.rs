//! Connections by TCP from each rank's host to each other's, which a firewall may allow in one direction only.
//!
//! A job of one rank on each host does not show that. A provider over TCP joins two ranks by one connection, and either of
//! them may make it. With more ranks on a host, some pair may need the other direction.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hydrant::Job;

/// The time for a connection. A second one is tried in it, if the first packet was lost.
const PATIENCE: Duration = Duration::from_secs(3);

/// The connections that a rank tries at the same time.
const AT_ONCE: usize = 16;

/// The time between two looks for a connection.
const PAUSE: Duration = Duration::from_millis(5);

/// The reason why one host makes no connection to another, as a number that ranks exchange. 0 stands for none.
const REASONS: [&str; 3] = [
    "the connection is refused, as by a firewall",
    "connections get no answer, as a firewall drops them",
    "connections are rejected, as by a firewall",
];

/// Tries a connection from each rank to each other. Returns, by rank and peer, why there was none. Ranks whose port has
/// no address of IP are left out. Collective.
pub(super) fn blocked(job: &Job) -> hydrant::Result<Vec<Vec<Option<String>>>> {
    // An address of the own host cannot fail to be bound, but for one that the system is about to take away.
    let listener = ip_of(&job.port()).and_then(|ip| TcpListener::bind((ip, 0)).ok());
    let own = (listener.as_ref()).and_then(|listener| listener.local_addr().ok());
    let addresses = job.all_gather(&to_words(own))?;
    let addresses: Vec<Option<SocketAddr>> = addresses.chunks(WORDS).map(from_words).collect();
    let is_over = AtomicBool::new(false);
    let gathered = thread::scope(|scope| {
        if let Some(listener) = &listener {
            scope.spawn(|| accept(listener, &is_over));
        }
        // A rank without an address tries nothing, but its peers may.
        let row = if own.is_some() {
            reasons(job.rank().index(), &addresses)
        } else {
            vec![0; addresses.len()]
        };
        // Every rank has ended its attempts when it comes here.
        let gathered = job.all_gather(&row);
        is_over.store(true, Ordering::Relaxed);
        gathered
    })?;
    let text = |reason: &u64| {
        let at = usize::try_from(*reason).ok()?.checked_sub(1)?;
        REASONS.get(at).map(|reason| (*reason).to_owned())
    };
    let row = |row: &[u64]| row.iter().map(text).collect();
    Ok(gathered.chunks(addresses.len()).map(row).collect())
}

/// Returns the address at the end of a port's name, as `tcp at eth0, 10.9.0.1`.
fn ip_of(port: &str) -> Option<IpAddr> {
    port.rsplit_once(", ")?.1.parse().ok()
}

/// Takes connections, so that those of many ranks need not wait for room.
fn accept(listener: &TcpListener, is_over: &AtomicBool) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !is_over.load(Ordering::Relaxed) {
        if listener.accept().is_err() {
            thread::sleep(PAUSE);
        }
    }
}

/// Tries a connection to each address but the own. Returns a number for each.
fn reasons(own: usize, addresses: &[Option<SocketAddr>]) -> Vec<u64> {
    let attempt = |(peer, address): (usize, &Option<SocketAddr>)| match address {
        Some(address) if peer != own => reason(TcpStream::connect_timeout(address, PATIENCE)),
        _ => 0,
    };
    let mut reasons = Vec::with_capacity(addresses.len());
    let all: Vec<_> = addresses.iter().enumerate().collect();
    for some in all.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = (some.iter())
                .map(|it| scope.spawn(move || attempt(*it)))
                .collect();
            reasons.extend(threads.into_iter().map(|it| it.join().unwrap_or(0)));
        });
    }
    reasons
}

fn reason(outcome: io::Result<TcpStream>) -> u64 {
    let Err(error) = outcome else { return 0 };
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => 1,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => 2,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::PermissionDenied => 3,
        // The own host lacks something, such as descriptors.
        _ => 0,
    }
}

/// The words of an address that ranks exchange.
const WORDS: usize = 3;

fn to_words(address: Option<SocketAddr>) -> [u64; WORDS] {
    let Some(address) = address else {
        return [0; WORDS];
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    [(ip >> 64) as u64, ip as u64, u64::from(address.port())]
}

fn from_words(words: &[u64]) -> Option<SocketAddr> {
    let [high, low, port] = words.try_into().ok()?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_with_an_address_are_tried() {
        assert_eq!(ip_of("tcp at eth0, 10.9.0.1"), "10.9.0.1".parse().ok());
        assert_eq!(ip_of("tcp;ofi_rxm at lo, ::1"), "::1".parse().ok());
        assert_eq!(ip_of("mlx5_0:1"), None);
        assert_eq!(ip_of(""), None);
    }

    #[test]
    fn addresses_are_read_back() {
        for text in ["10.9.0.1:4000", "[fd00::1]:4000"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_words(&to_words(Some(address))), Some(address));
        }
        assert_eq!(from_words(&to_words(None)), None);
    }

    #[test]
    fn a_refused_connection_has_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let open = listener.local_addr().ok();
        let closed = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let closed = closed.ok();
        assert_eq!(reasons(0, &[closed, open, closed, None]), [0, 0, 1, 0]);
        let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::HostUnreachable];
        assert_eq!(kinds.map(|kind| reason(Err(kind.into()))), [2, 3]);
    }

    #[test]
    fn ranks_that_share_memory_try_nothing() {
        let tried = Job::builder().unwrap().run_local(3, blocked);
        for blocked in tried {
            assert_eq!(blocked.unwrap(), vec![vec![None; 3]; 3]);
        }
    }
}
