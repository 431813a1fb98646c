//! The TCP port under which an engine is found: it gives the address of the engine's endpoint to those who ask.
//!
//! ```text
//! question: "HYDMOON" version(1)
//! answer:   "HYDMOON" version(1)  length(2)  address of the endpoint
//! ```
//!
//! The thread sleeps until somebody connects. A connection that sends anything else, or nothing in time, is closed.

use std::{
    io::{self, Read, Write},
    net::{
        IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
    },
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_endpoint::Address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{DNS, EngineFailure, HANDSHAKE, Result, SOCKET};

const MAGIC: [u8; 7] = *b"HYDMOON";
const VERSION: u8 = 1;
const QUESTION: usize = MAGIC.len() + 1;

/// How long a connection may take to ask.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most connections that have not asked. A further one ends the oldest.
const MOST_WAITING: usize = 64;
/// How long no connection is taken after the system refused one.
const PAUSE: Duration = Duration::from_millis(100);

fn question() -> [u8; QUESTION] {
    let mut question = [VERSION; QUESTION];
    question[..MAGIC.len()].copy_from_slice(&MAGIC);
    question
}

/// A host and a port, as peers write them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl HostPort {
    /// Parses `host`, `host:port`, `[host]:port`, or a bare address of IPv6. Without a port it is 0.
    ///
    /// # Errors
    /// If it is none of these.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        let (host, port) = match name.strip_prefix('[') {
            Some(rest) => {
                let bracket = || {
                    EngineFailure::argument(format!("the name \"{name}\" has no bracket that ends"))
                };
                let (host, behind) = rest.split_once(']').ok_or_else(bracket)?;
                let port = match behind.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if behind.is_empty() => None,
                    None => return Err(bracket()),
                };
                (host, port)
            }
            None if name.matches(':').count() == 1 => {
                let (host, port) = name.split_once(':').unwrap_or((name, ""));
                (host, Some(port))
            }
            None => (name, None),
        };
        if host.is_empty() {
            let text = format!("the name \"{name}\" has no host: it is to be host:port");
            return Err(EngineFailure::argument(text));
        }
        let port = match port {
            None => 0,
            Some(port) => port.parse().map_err(|_| {
                let text = format!("the name \"{name}\" has a port that is none: {port}");
                EngineFailure::argument(text)
            })?,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Returns the text that peers open.
    pub(crate) fn name(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Looks the host up.
    fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found = found.map_err(|cause| {
            let text = format!("the host \"{}\" has no address: {cause}", self.host);
            EngineFailure::new(DNS, text)
        })?;
        Ok(found.collect())
    }
}

/// A port of an engine that is bound, before it is served.
pub(crate) struct DoorListener {
    listener: TcpListener,
    name: HostPort,
}

impl DoorListener {
    /// Binds the port of `wanted`, or another one if that is taken or 0. Where the host is no address of this machine, all
    /// addresses are bound.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn bind(wanted: HostPort) -> Result<Self> {
        let mut places = wanted.addresses()?;
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        places.extend(any.map(|host| SocketAddr::new(host, wanted.port)));
        let mut first = None;
        let bound = places.iter().find_map(|place| {
            let listener = TcpListener::bind(place).or_else(|cause| match cause.kind() {
                io::ErrorKind::AddrInUse => TcpListener::bind((place.ip(), 0)),
                _ => Err(cause),
            });
            listener
                .map_err(|cause| first.get_or_insert(cause).kind())
                .ok()
        });
        let cannot = |cause: &io::Error| {
            let text = format!("no port of {} can be opened: {cause}", wanted.host);
            EngineFailure::new(SOCKET, text)
        };
        let Some(listener) = bound else {
            let cause = first.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
            return Err(cannot(&cause));
        };
        listener
            .set_nonblocking(true)
            .map_err(|cause| cannot(&cause))?;
        let port = listener.local_addr().map_err(|cause| cannot(&cause))?;
        let name = HostPort {
            port: port.port(),
            ..wanted
        };
        Ok(Self { listener, name })
    }

    /// Returns the name under which peers find the port.
    pub(crate) fn name(&self) -> String {
        self.name.name()
    }

    /// Starts the thread that gives `address` away.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn serve(self, address: &Address) -> Result<Door> {
        let failed = |cause| {
            let text = format!("the thread of the port cannot be started: {cause}");
            EngineFailure::new(SOCKET, text)
        };
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        let mut answer = question().to_vec();
        let address = address.to_bytes();
        answer.extend_from_slice(&(address.len() as u16).to_le_bytes());
        answer.extend_from_slice(&address);
        let service = DoorService {
            listener: self.listener,
            woken,
            answer,
            waiting: Vec::new(),
            accepts_again: None,
        };
        let thread = thread::Builder::new()
            .name("hydrant-door".to_owned())
            .spawn(move || service.run())
            .map_err(failed)?;
        Ok(Door {
            wake,
            thread: Some(thread),
        })
    }
}

/// A port that is served. It is closed when this is dropped.
pub(crate) struct Door {
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.wake.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct DoorService {
    listener: TcpListener,
    /// Readable once the port is to be closed.
    woken: UnixStream,
    answer: Vec<u8>,
    waiting: Vec<DoorVisitor>,
    accepts_again: Option<Instant>,
}

/// A connection that has not asked yet.
struct DoorVisitor {
    stream: TcpStream,
    since: Instant,
    question: [u8; QUESTION],
    received: usize,
}

impl DoorService {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.waiting
                .retain(|asker| now.duration_since(asker.since) < PATIENCE);
            self.accepts_again = self.accepts_again.filter(|at| *at > now);
            let ends = self.waiting.iter().map(|asker| asker.since + PATIENCE);
            let until = ends.chain(self.accepts_again).min();
            let timeout = until.and_then(|until| {
                // A millisecond more, so that the time has come by then.
                let left = until.saturating_duration_since(now) + Duration::from_millis(1);
                Timespec::try_from(left).ok()
            });
            let accepts = match self.accepts_again {
                None => PollFlags::IN,
                Some(_) => PollFlags::empty(),
            };
            let mut places = vec![
                PollFd::new(&self.woken, PollFlags::IN),
                PollFd::new(&self.listener, accepts),
            ];
            let askers = self.waiting.iter();
            places.extend(askers.map(|asker| PollFd::new(&asker.stream, PollFlags::IN)));
            match poll(&mut places, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let ready: Vec<bool> = (places.iter())
                .map(|place| !place.revents().is_empty())
                .collect();
            if ready[0] {
                return;
            }
            let mut asked = ready[2..].iter();
            let answer = &self.answer;
            self.waiting.retain_mut(|asker| {
                !asked.next().is_some_and(|ready| *ready) || asker.step(answer)
            });
            if ready[1] {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                if self.waiting.len() == MOST_WAITING {
                    self.waiting.remove(0);
                }
                self.waiting.push(DoorVisitor {
                    stream,
                    since: Instant::now(),
                    question: [0; QUESTION],
                    received: 0,
                });
            }
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
            // Without descriptors the port stays readable, and would keep this thread busy.
            Err(_) => self.accepts_again = Some(Instant::now() + PAUSE),
        }
    }
}

impl DoorVisitor {
    /// Goes on with a connection. Returns whether it has not asked yet.
    fn step(&mut self, answer: &[u8]) -> bool {
        match self.stream.read(&mut self.question[self.received..]) {
            Ok(0) => return false,
            Ok(bytes) => self.received += bytes,
            Err(cause) => {
                let kind = cause.kind();
                return kind == io::ErrorKind::WouldBlock || kind == io::ErrorKind::Interrupted;
            }
        }
        let received = &self.question[..self.received];
        let magic = &MAGIC[..self.received.min(MAGIC.len())];
        if !received.starts_with(magic) {
            return false;
        }
        if self.received < QUESTION {
            return true;
        }
        // The answer fits into the buffer of a new connection. Other versions get the head of this one.
        let answer = if self.question == question() {
            answer
        } else {
            &question()
        };
        let _ = self.stream.write_all(answer);
        false
    }
}

/// Asks the port of an engine for the address of its endpoint.
///
/// # Errors
/// The sentence.
pub(crate) fn ask(name: &str, patience: Duration) -> Result<Address> {
    let deadline = Instant::now() + patience;
    let place = HostPort::parse(name)?;
    let mut last = None;
    for address in place.addresses()? {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return ask_at(stream, name, deadline),
            Err(cause) => last = Some(cause),
        }
    }
    let cause = last.map_or_else(|| "it has no address".to_owned(), |it| it.to_string());
    let text = format!("the engine {name} is not reached: {cause}");
    Err(EngineFailure::new(SOCKET, text))
}

fn ask_at(mut stream: TcpStream, name: &str, deadline: Instant) -> Result<Address> {
    let no_engine = |what: &str| {
        let text = format!("an engine of Hydrant does not answer at {name}: {what}");
        EngineFailure::new(HANDSHAKE, text)
    };
    let failed = |cause: &io::Error| match cause.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => no_engine("nothing comes"),
        io::ErrorKind::UnexpectedEof => no_engine("the connection ends"),
        _ => no_engine(&cause.to_string()),
    };
    stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .and_then(|()| stream.write_all(&question()))
        .map_err(|cause| failed(&cause))?;
    let mut head = [0; QUESTION];
    read(&mut stream, &mut head, deadline).map_err(|cause| failed(&cause))?;
    let version = head
        .strip_prefix(&MAGIC)
        .ok_or_else(|| no_engine("the answer is of another program"))?;
    if version != [VERSION] {
        return Err(no_engine("the engine is of another version"));
    }
    let mut len = [0; 2];
    read(&mut stream, &mut len, deadline).map_err(|cause| failed(&cause))?;
    let mut address = vec![0; u16::from_le_bytes(len).into()];
    read(&mut stream, &mut address, deadline).map_err(|cause| failed(&cause))?;
    Address::from_bytes(&address).map_err(|cause| no_engine(&cause.to_string()))
}

/// Reads bytes until they are all there, at most until `deadline`.
fn read(stream: &mut TcpStream, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => into = &mut into[bytes..],
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        for (name, wanted) in [
            ("10.0.0.1", "10.0.0.1:0"),
            ("host:17", "host:17"),
            ("::1", "[::1]:0"),
            ("[::1]:17", "[::1]:17"),
            ("[::1]", "[::1]:0"),
        ] {
            assert_eq!(HostPort::parse(name).unwrap().name(), wanted);
        }
        for name in ["", ":17", "host:", "host:70000", "host:x", "[::1", "[::1]x"] {
            assert!(HostPort::parse(name).is_err(), "{name}");
        }
    }

    /// Serves a port that gives the address of an endpoint away.
    fn served() -> (Door, Address, String) {
        let endpoint = hydrant_endpoint::Endpoint::builder().listen().unwrap();
        let listener = DoorListener::bind(HostPort::parse("127.0.0.1").unwrap()).unwrap();
        let name = listener.name();
        let door = listener.serve(endpoint.address()).unwrap();
        (door, endpoint.address().clone(), name)
    }

    #[test]
    fn those_who_ask_get_the_address_and_strangers_get_nothing() {
        let (_door, address, name) = served();
        assert!(ask(&name, PATIENCE).unwrap() == address);
        for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"HYDMOOX", &[0; 4096]] {
            let mut stranger = TcpStream::connect(&name).unwrap();
            stranger.write_all(garbage).unwrap();
            let mut heard = Vec::new();
            // The connection ends with or without an error.
            let _ = stranger.read_to_end(&mut heard);
            assert!(heard.is_empty(), "{heard:?}");
        }
        // Another version hears of this one, and no address.
        let mut later = TcpStream::connect(&name).unwrap();
        later.write_all(b"HYDMOON\x02").unwrap();
        let mut heard = Vec::new();
        let _ = later.read_to_end(&mut heard);
        assert_eq!(heard, b"HYDMOON\x01");
        // Silent connections hold nobody up.
        let silent: Vec<_> = (0..MOST_WAITING + 10)
            .map(|_| TcpStream::connect(&name).unwrap())
            .collect();
        assert!(ask(&name, PATIENCE).unwrap() == address);
        drop(silent);
    }

    #[test]
    fn other_programs_are_no_engines() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let answers: [&[u8]; 5] = [
            b"",
            b"{\"a\": 1, ...}",
            b"HYDMOON\x02",
            b"HYDMOON\x01\xff\xff",
            b"HYDMOON\x01\x02\x00ab",
        ];
        let other = thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; QUESTION]);
                stream.write_all(answer).unwrap();
            }
        });
        for _ in answers {
            assert_eq!(ask(&name, PATIENCE).unwrap_err().code, HANDSHAKE);
        }
        other.join().unwrap();
        assert_eq!(ask(&name, PATIENCE).unwrap_err().code, SOCKET);
    }

    #[test]
    fn a_port_that_is_taken_is_replaced() {
        let first = DoorListener::bind(HostPort::parse("127.0.0.1").unwrap()).unwrap();
        let wanted = HostPort::parse(&first.name()).unwrap();
        let second = DoorListener::bind(wanted.clone()).unwrap();
        assert_ne!(first.name(), second.name());
        drop(first);
        assert_eq!(
            DoorListener::bind(wanted.clone()).unwrap().name(),
            wanted.name()
        );
    }
}
