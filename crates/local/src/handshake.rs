//! The begin of a connection.
//!
//! ```text
//! listens    CHALLENGE  version, fresh number
//! connects   HELLO      fresh number, proof, introduction
//! listens    WELCOME    proof, introduction, the area; or DENIED
//! ```
//!
//! A proof is a keyed hash of both numbers and the introduction. So the key itself is never shown, and each side knows
//! that the introduction is from a holder of the key. Both sides also try to read a word of the other's memory. So each
//! knows whether the system lets it copy.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
    time::{Duration, Instant},
};

use hydrant_conduit::{Error, socket_peer::SocketPeer};
use hydrant_smp::foreign::{self, CopyDirection};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    area::SharedArea,
    error::ConnectError,
    link::{LocalLink, PeerProcess},
    packet::{MAX_INTRODUCTION, MAX_PACKET, VERSION, WirePacket},
    proof::{self, Bytes16},
    socket::{self, ConnectAttempt, NoPacket, SendOutcome},
};

/// Causes of a denial.
const WRONG_KEY: u8 = 1;
const CROSSING: u8 = 2;
const OTHER: u8 = 3;
const OTHER_VERSION: u8 = 4;
/// The most bytes of the text of a denial.
const MAX_TEXT: usize = 512;
/// The pause after a refusal because too many connections wait.
const BUSY: Duration = Duration::from_millis(1);

/// A socket that takes connections of those who know a name and a key.
#[derive(Debug)]
pub struct LocalListener {
    socket: OwnedFd,
    name: Bytes16,
    key: Bytes16,
}

impl LocalListener {
    /// Opens a socket with a random name.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn open(key: Bytes16) -> Result<Self, Error> {
        let name = proof::fresh()?;
        let socket = socket::listen(&name)?;
        Ok(Self { socket, name, key })
    }

    /// Returns the name of the socket.
    pub fn name(&self) -> Bytes16 {
        self.name
    }

    /// Takes a connection, if one waits.
    ///
    /// # Errors
    /// [`Error::System`], for instance if no descriptors are left.
    pub fn accept(&self) -> Result<Option<LocalArrival>, Error> {
        let Some(socket) = socket::accept(&self.socket)? else {
            return Ok(None);
        };
        let arrival = LocalArrival {
            socket,
            nonce: proof::fresh()?,
            key: self.key,
            since: Instant::now(),
        };
        let challenge = WirePacket::Challenge {
            version: VERSION,
            nonce: arrival.nonce,
        };
        // A new socket has room for it.
        send(&arrival.socket, &challenge, None);
        Ok(Some(arrival))
    }
}

impl AsFd for LocalListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection that has begun.
#[derive(Debug)]
pub struct LocalArrival {
    socket: OwnedFd,
    nonce: Bytes16,
    key: Bytes16,
    since: Instant,
}

/// The progress of an arrival.
#[derive(Debug)]
pub enum ArrivalStep {
    /// The other side has not answered yet.
    Waiting,
    /// The other side has shown that it knows the key.
    Introduced(Introduction),
    /// The other side has ended, or does not know the key.
    Gone,
}

/// The introduction of a process that connects.
#[derive(Debug)]
pub struct Introduction {
    /// The bytes that the other side gave.
    pub bytes: Vec<u8>,
    nonce: Bytes16,
    word: u64,
    value: u64,
}

/// The reason why an introduced process is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrivalRefusal<'a> {
    /// This process connects to the other at the same time, and that connection counts.
    Crossing,
    /// Another reason, in words.
    Other(&'a str),
}

impl LocalArrival {
    /// Returns since when the connection waits.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Goes on, once the socket is readable.
    pub fn step(&mut self) -> ArrivalStep {
        let mut buffer = [0; MAX_PACKET + 1];
        let received = match socket::receive(&self.socket, &mut buffer) {
            Ok(received) => received,
            Err(NoPacket::NotYet) => return ArrivalStep::Waiting,
            Err(NoPacket::Ended | NoPacket::TooLong) => return ArrivalStep::Gone,
        };
        let Ok(WirePacket::Hello {
            version,
            nonce,
            proof,
            word,
            value,
            introduction,
        }) = WirePacket::parse(&buffer[..received.len])
        else {
            return ArrivalStep::Gone;
        };
        if version != VERSION {
            self.deny(OTHER_VERSION, &VERSION.to_string());
            return ArrivalStep::Gone;
        }
        let shown = [
            &self.nonce[..],
            &nonce,
            &word.to_le_bytes(),
            &value.to_le_bytes(),
            introduction,
        ];
        if !proof::is_same(&proof, &proof::hash(&self.key, "hello", &shown)) {
            self.deny(WRONG_KEY, "");
            return ArrivalStep::Gone;
        }
        ArrivalStep::Introduced(Introduction {
            bytes: introduction.to_vec(),
            nonce,
            word,
            value,
        })
    }

    /// Makes the connection.
    ///
    /// # Errors
    /// [`Error::System`]. The connection has ended then.
    ///
    /// # Panics
    /// If the own introduction is longer than [`MAX_INTRODUCTION`].
    pub fn accept(self, other: &Introduction, own: &[u8]) -> Result<LocalLink, Error> {
        assert!(own.len() <= MAX_INTRODUCTION, "an introduction is short");
        let process = process(&self.socket, other.word, other.value)?;
        let mut area = SharedArea::create()?;
        let [word, value] = own_word()?;
        let shown = [
            &self.nonce[..],
            &other.nonce,
            &word.to_le_bytes(),
            &value.to_le_bytes(),
            own,
        ];
        let welcome = WirePacket::Welcome {
            proof: proof::hash(&self.key, "welcome", &shown),
            word,
            value,
            introduction: own,
        };
        send(&self.socket, &welcome, area.file());
        area.close_file();
        Ok(LocalLink::new(self.socket, area, process))
    }

    /// Refuses the connection.
    pub fn refuse(self, refusal: ArrivalRefusal<'_>) {
        match refusal {
            ArrivalRefusal::Crossing => self.deny(CROSSING, ""),
            ArrivalRefusal::Other(text) => self.deny(OTHER, text),
        }
    }

    fn deny(&self, cause: u8, text: &str) {
        let text = text.as_bytes();
        let text = &text[..text.len().min(MAX_TEXT)];
        send(&self.socket, &WirePacket::Denied { cause, text }, None);
    }
}

impl AsFd for LocalArrival {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to the process that listens under `name`, and waits for it until `deadline`. Returns the connection and the
/// other side's introduction.
///
/// # Errors
/// [`ConnectError`].
///
/// # Panics
/// If the own introduction is longer than [`MAX_INTRODUCTION`].
pub fn connect(
    name: &Bytes16,
    key: &Bytes16,
    own: &[u8],
    deadline: Instant,
) -> Result<(LocalLink, Vec<u8>), ConnectError> {
    assert!(own.len() <= MAX_INTRODUCTION, "an introduction is short");
    let socket = loop {
        match socket::connect(name)? {
            ConnectAttempt::Connected(socket) => break socket,
            ConnectAttempt::Nobody => return Err(ConnectError::Nobody),
            ConnectAttempt::Busy if Instant::now() < deadline => std::thread::sleep(BUSY),
            ConnectAttempt::Busy => return Err(ConnectError::TimedOut),
        }
    };
    let mut buffer = [0; MAX_PACKET + 1];
    let (packet, _) = next(&socket, &mut buffer, deadline)?;
    let WirePacket::Challenge { version, nonce } = packet else {
        return Err(ConnectError::Malformed("no challenge"));
    };
    if version != VERSION {
        return Err(ConnectError::Version {
            theirs: version,
            ours: VERSION,
        });
    }
    let (theirs, nonce) = (nonce, proof::fresh()?);
    let [word, value] = own_word()?;
    let shown = [
        &theirs[..],
        &nonce,
        &word.to_le_bytes(),
        &value.to_le_bytes(),
        own,
    ];
    let hello = WirePacket::Hello {
        version: VERSION,
        nonce,
        proof: proof::hash(key, "hello", &shown),
        word,
        value,
        introduction: own,
    };
    send(&socket, &hello, None);
    let (packet, file) = next(&socket, &mut buffer, deadline)?;
    let (proof, word, value, introduction) = match packet {
        WirePacket::Welcome {
            proof,
            word,
            value,
            introduction,
        } => (proof, word, value, introduction),
        WirePacket::Denied { cause, text } => return Err(denied(cause, text)),
        _ => return Err(ConnectError::Malformed("no welcome")),
    };
    let shown = [
        &theirs[..],
        &nonce,
        &word.to_le_bytes(),
        &value.to_le_bytes(),
        introduction,
    ];
    if !proof::is_same(&proof, &proof::hash(key, "welcome", &shown)) {
        return Err(ConnectError::WrongKey);
    }
    let introduction = introduction.to_vec();
    let file = file.ok_or(ConnectError::Malformed("a welcome without a file"))?;
    let area = SharedArea::open(file)?;
    let process = process(&socket, word, value)?;
    Ok((LocalLink::new(socket, area, process), introduction))
}

fn denied(cause: u8, text: &[u8]) -> ConnectError {
    let text = String::from_utf8_lossy(text);
    match cause {
        WRONG_KEY => ConnectError::WrongKey,
        CROSSING => ConnectError::Crossing,
        OTHER_VERSION => ConnectError::Version {
            theirs: text.parse().unwrap_or(0),
            ours: VERSION,
        },
        _ => ConnectError::Refused(text.chars().filter(|char| !char.is_control()).collect()),
    }
}

/// Waits for the next packet.
fn next<'a>(
    socket: &OwnedFd,
    buffer: &'a mut [u8],
    deadline: Instant,
) -> Result<(WirePacket<'a>, Option<OwnedFd>), ConnectError> {
    let received = loop {
        match socket::receive(socket, buffer) {
            Ok(received) => break received,
            Err(NoPacket::NotYet) => {}
            Err(NoPacket::Ended) => return Err(ConnectError::Nobody),
            Err(NoPacket::TooLong) => return Err(ConnectError::Malformed("a long packet")),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectError::TimedOut);
        }
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(cause) => return Err(Error::system("waiting for an endpoint", cause).into()),
        }
    };
    let packet = WirePacket::parse(&buffer[..received.len]);
    let packet = packet.map_err(|malformed| ConnectError::Malformed(malformed.0))?;
    Ok((packet, received.descriptor))
}

fn send(socket: &OwnedFd, packet: &WirePacket<'_>, descriptor: Option<BorrowedFd<'_>>) {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes);
    // The first packets of a socket have room. If the other side has ended, the next read says so.
    let outcome = socket::send(socket, &bytes, descriptor);
    debug_assert_ne!(outcome, SendOutcome::Full, "a new socket has room");
}

/// Returns the address of a word of this process, and its value.
fn own_word() -> Result<[u64; 2], Error> {
    static WORD: OnceLock<u64> = OnceLock::new();
    let fresh = proof::fresh()?;
    let drawn = fresh.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let word = WORD.get_or_init(|| drawn);
    Ok([std::ptr::from_ref(word).expose_provenance() as u64, *word])
}

/// Finds out about the process at the other end. `word` is the address of a word of it, whose value is `value`.
fn process(socket: &OwnedFd, word: u64, value: u64) -> Result<PeerProcess, Error> {
    let peer = SocketPeer::of(socket)
        .map_err(|cause| Error::system("asking for the process behind a socket", cause))?;
    let Some(pid) = peer.pid else {
        return Ok(PeerProcess::default());
    };
    let watch = (i32::try_from(pid).ok())
        .and_then(Pid::from_raw)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    Ok(PeerProcess {
        pid: Some(pid),
        watch,
        copies: reads_word(pid, word, value),
    })
}

/// Returns whether the system lets this process copy from another.
#[allow(unsafe_code)] // names the other's memory by its address
fn reads_word(pid: u32, word: u64, value: u64) -> bool {
    let mut seen = [0_u8; 8];
    // SAFETY: 1. `seen` is a local buffer of 8 bytes.
    let read = unsafe { foreign::copy(pid, CopyDirection::In, seen.as_mut_ptr(), word, 8) };
    read.is_ok() && u64::from_ne_bytes(seen) == value
}
