//! A connection.

#![allow(unsafe_code)] // copies from and to raw memory

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use hydrant_conduit::{Window, fork::CreatorProcess};
use hydrant_smp::foreign::{self, CopyDirection, CopyPiece, CopyRefusal};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;

use crate::{
    alive::AliveWord,
    area::{GrantName, GrantRefusal, GrantTerms, GrantUse, SharedArea},
    error::LinkError,
    packet::{MAX_PACKET, WirePacket},
    socket::{self, NoPacket, SendOutcome},
};

/// The most bytes that wait to be sent. Messages have a window of their own, which is less. So a peer reaches this only
/// if it asks and does not read the answers.
const MOST_WAITING: usize = 8 << 20;

/// The process at the other end of a connection.
#[derive(Debug, Default)]
pub struct PeerProcess {
    /// Its number, if it is visible here.
    pub pid: Option<u32>,
    /// A descriptor that is readable once the process has ended.
    pub watch: Option<OwnedFd>,
    /// True if the system lets this process copy from and to its memory.
    pub copies: bool,
}

/// A run of an access: own memory, and as many bytes of the memory that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyStep {
    /// The address of the own memory. Its provenance is exposed.
    pub local: usize,
    /// The first byte in the granted memory.
    pub offset: u64,
    /// The number of bytes.
    pub len: usize,
}

/// A packet that arrived, and the descriptor that came along.
#[derive(Debug)]
pub struct LocalPacket<'a> {
    /// The packet.
    pub packet: WirePacket<'a>,
    /// The descriptor.
    pub descriptor: Option<OwnedFd>,
}

/// The fate of a packet that is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendState {
    /// It was sent.
    Sent,
    /// It waits until the socket is writable: [`LocalLink::flush`] is due then.
    Waits,
    /// There is no room. It was not taken.
    Full,
}

struct QueuedPacket {
    packet: Vec<u8>,
    descriptor: Option<Arc<OwnedFd>>,
}

/// A connection to a process of this host. All methods may be called by any thread.
pub struct LocalLink {
    socket: OwnedFd,
    area: SharedArea,
    process: PeerProcess,
    /// Packets that the socket had no room for, and their bytes.
    waiting: Mutex<(VecDeque<QueuedPacket>, usize)>,
    /// True once the connection has ended.
    ended: AtomicBool,
    creator: CreatorProcess,
}

impl std::fmt::Debug for LocalLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalLink({:?})", self.process)
    }
}

impl LocalLink {
    pub(crate) fn new(socket: OwnedFd, area: SharedArea, process: PeerProcess) -> Self {
        Self {
            socket,
            area,
            process,
            waiting: Mutex::default(),
            ended: AtomicBool::new(false),
            creator: CreatorProcess::here(),
        }
    }

    pub(crate) fn own_alive(&self) -> &AliveWord {
        self.area.own_alive()
    }

    pub(crate) fn peer_alive(&self) -> &AliveWord {
        self.area.peer_alive()
    }

    /// Returns the process at the other end.
    pub fn process(&self) -> &PeerProcess {
        &self.process
    }

    /// Returns true once the connection has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// Returns true if the process at the other end has ended, or the connection has.
    pub fn is_gone(&self) -> bool {
        if self.has_ended() {
            return true;
        }
        let Some(watch) = &self.process.watch else {
            return false;
        };
        let mut fds = [PollFd::new(watch, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
    }

    /// Ends the connection. The other side learns of it, even if a child holds the socket.
    pub fn end(&self) {
        self.ended.store(true, Release);
        if !self.creator.is_here() {
            // The socket is the parent's.
            return;
        }
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sends a packet, or keeps it until there is room.
    ///
    /// # Errors
    /// [`LinkError::Ended`].
    pub fn send(
        &self,
        packet: &WirePacket<'_>,
        descriptor: Option<&Arc<OwnedFd>>,
    ) -> Result<SendState, LinkError> {
        if self.has_ended() {
            return Err(LinkError::Ended);
        }
        let mut bytes = Vec::with_capacity(128);
        packet.encode(&mut bytes);
        let mut waiting = self.waiting.lock();
        let (queue, queued) = &mut *waiting;
        if queue.is_empty() {
            match socket::send(&self.socket, &bytes, descriptor.map(|fd| fd.as_fd())) {
                SendOutcome::Sent => return Ok(SendState::Sent),
                SendOutcome::Full => {}
                SendOutcome::Ended => return Err(LinkError::Ended),
            }
        }
        if *queued >= MOST_WAITING {
            return Ok(SendState::Full);
        }
        *queued += bytes.len();
        queue.push_back(QueuedPacket {
            packet: bytes,
            descriptor: descriptor.cloned(),
        });
        Ok(SendState::Waits)
    }

    /// Returns true if packets wait to be sent.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.lock().0.is_empty()
    }

    /// Sends what waits. Returns whether nothing is left.
    ///
    /// # Errors
    /// [`LinkError::Ended`].
    pub fn flush(&self) -> Result<bool, LinkError> {
        let mut waiting = self.waiting.lock();
        let (queue, queued) = &mut *waiting;
        while let Some(first) = queue.front() {
            let descriptor = first.descriptor.as_ref().map(|fd| fd.as_fd());
            match socket::send(&self.socket, &first.packet, descriptor) {
                SendOutcome::Sent => {
                    *queued -= first.packet.len();
                    queue.pop_front();
                }
                SendOutcome::Full => return Ok(false),
                SendOutcome::Ended => return Err(LinkError::Ended),
            }
        }
        Ok(true)
    }

    /// Takes the next packet that has arrived. `buffer` has [`LocalLink::BUFFER`] bytes.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> Result<Option<LocalPacket<'a>>, ReceiveError> {
        let received = match socket::receive(&self.socket, buffer) {
            Ok(received) => received,
            Err(NoPacket::NotYet) => return Ok(None),
            Err(NoPacket::Ended) => return Err(ReceiveError::Ended),
            Err(NoPacket::TooLong) => return Err(ReceiveError::Malformed("a long packet")),
        };
        let packet = WirePacket::parse(&buffer[..received.len]);
        let packet = packet.map_err(|malformed| ReceiveError::Malformed(malformed.0))?;
        Ok(Some(LocalPacket {
            packet,
            descriptor: received.descriptor,
        }))
    }

    /// The bytes of a buffer for [`receive`](Self::receive).
    pub const BUFFER: usize = MAX_PACKET + 1;

    /// Grants own memory to the peer. Returns `None` if all grants are in use.
    pub fn grant(&self, terms: &GrantTerms) -> Option<GrantName> {
        self.area.grant(terms)
    }

    /// Returns true if a grant of own memory is in force.
    pub fn is_granted(&self, name: GrantName) -> bool {
        self.area.is_granted(name)
    }

    /// Returns the address of own memory for an access that this process makes in the peer's name.
    ///
    /// # Errors
    /// [`GrantRefusal`].
    pub fn permits(
        &self,
        name: GrantName,
        range: [u64; 2],
        how: GrantUse,
    ) -> Result<usize, GrantRefusal> {
        self.area.permits(name, range, how)
    }

    /// Ends a grant of own memory. No access begins from now on.
    pub fn end_grant(&self, name: GrantName, is_expired: bool) {
        self.area.end(name, is_expired);
    }

    /// Waits until no access of the peer uses a grant that has ended. A peer that has died uses none. Returns `false` if
    /// `goes_on` says no first.
    pub fn wait_unused(&self, name: GrantName, mut goes_on: impl FnMut() -> bool) -> bool {
        let mut has_died = false;
        let is_unused = self.area.wait_unused(name, || {
            has_died = self.is_dead();
            !has_died && goes_on()
        });
        is_unused || has_died
    }

    /// Frees the place of a grant that has ended and that nobody uses, once.
    pub fn free_grant(&self, name: GrantName) {
        self.area.free(name);
    }

    /// Returns true if the process at the other end has ended, so that none of its copies is under way.
    fn is_dead(&self) -> bool {
        match &self.process.watch {
            Some(watch) => {
                let mut fds = [PollFd::new(watch, PollFlags::IN)];
                matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
            }
            // A process that cannot be watched is in another namespace of processes, and cannot copy. Its stores to
            // mapped memory end before its connection.
            None => self.has_ended(),
        }
    }

    /// Reads or writes the peer's memory under a grant, by as few copies as possible. The runs are done in order.
    /// `mapping` is that memory, if this process maps it.
    ///
    /// # Errors
    /// The number of bytes that were copied, from the first run on, and the cause. The run after them may have been
    /// copied in part.
    ///
    /// # Safety
    /// 1. The local memory of each run is writable ([`GrantUse::Read`]) or readable ([`GrantUse::Write`]). Concurrent accesses to it
    ///    are atomic or outside the compiler's view.
    /// 2. With [`GrantUse::Read`], nobody holds a reference to the local memory.
    pub unsafe fn copy(
        &self,
        grant: GrantName,
        mapping: Option<&Window>,
        how: GrantUse,
        runs: &[CopyStep],
    ) -> Result<(), (usize, LinkError)> {
        // The memory of a dead process stays mapped.
        if self.has_ended() || self.peer_alive().has_died() {
            return Err((0, LinkError::Ended));
        }
        let mut end = 0_u64;
        for run in runs {
            let its_end = run.offset.checked_add(run.len as u64);
            end = end.max(its_end.ok_or((0, LinkError::Refused(GrantRefusal::OutOfBounds)))?);
        }
        let begun = self.area.begin_use(grant, [0, end], how);
        // Dropped at the end of the copy.
        let (base, _guard) = begun.map_err(|refused| (0, LinkError::Refused(refused)))?;
        if let Some(window) = mapping {
            let mut done = 0;
            for run in runs {
                let at = run.offset as usize;
                let local = std::ptr::with_exposed_provenance_mut::<u8>(run.local);
                let copied = match how {
                    // SAFETY: 1. the caller's condition 1. 2. A mapping of a peer's memory is apart from own memory.
                    GrantUse::Write => unsafe { window.write_shared(at, local, run.len) },
                    // SAFETY: as above, with the caller's condition 2.
                    GrantUse::Read => unsafe { window.read_shared(at, local, run.len) },
                };
                if copied.is_err() {
                    return Err((done, LinkError::Refused(GrantRefusal::OutOfBounds)));
                }
                done += run.len;
            }
            return Ok(());
        }
        let Some(pid) = self.process.pid.filter(|_| self.process.copies) else {
            return Err((0, LinkError::Forbidden));
        };
        let pieces = merge(base, runs);
        let way = match how {
            GrantUse::Write => CopyDirection::Out,
            GrantUse::Read => CopyDirection::In,
        };
        // SAFETY: 1. the caller's conditions 1 and 2.
        let copied = unsafe { foreign::copy_pieces(pid, way, &pieces) };
        copied.map_err(|(done, refusal)| {
            let error = match refusal {
                CopyRefusal::Address if self.is_gone() => LinkError::Ended,
                CopyRefusal::Address => LinkError::BadAddress,
                CopyRefusal::Gone => LinkError::Ended,
                CopyRefusal::Forbidden | CopyRefusal::Other(_) => LinkError::Forbidden,
            };
            (done, error)
        })
    }
}

impl AsFd for LocalLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for LocalLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// The reason why no packet can be received any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveError {
    /// The connection has ended.
    Ended,
    /// The peer sent what no process of this version sends.
    Malformed(&'static str),
}

/// Joins runs that are adjacent at both sides.
fn merge(base: usize, runs: &[CopyStep]) -> SmallVec<[CopyPiece; 4]> {
    let mut pieces: SmallVec<[CopyPiece; 4]> = SmallVec::with_capacity(runs.len());
    for run in runs {
        let (local, remote) = (run.local, base.wrapping_add(run.offset as usize));
        match pieces.last_mut() {
            Some(last)
                if last.local + last.len == local
                    && last.remote.wrapping_add(last.len) == remote =>
            {
                last.len += run.len;
            }
            _ => pieces.push(CopyPiece {
                local,
                remote,
                len: run.len,
            }),
        }
    }
    pieces
}
