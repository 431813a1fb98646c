//! The state of one connection to a peer.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Instant,
};

use hydrant_fabric::PeerOperationFailure;
use hydrant_local::{GrantName, LinkError, SendState, WirePacket};
use parking_lot::{Condvar, Mutex};

use crate::{
    Error, LossCause, Result, identity::PeerIdentity, link::SessionLink, promise::Promise,
};

/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 256 << 10;
/// The most bytes of messages to a peer that it has not read. Each message counts [`OVERHEAD`] bytes more.
pub(crate) const WINDOW: usize = 1 << 20;
/// The bytes that a message counts beside its own.
const OVERHEAD: usize = 64;
/// The bytes of read messages of which the sender is told at once.
const REPORT: u64 = (WINDOW / 4) as u64;

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionEnding {
    /// The peer has closed its endpoint.
    Left,
    /// The peer is lost.
    Lost(LossCause),
    /// This endpoint is closed.
    Closed,
}

impl SessionEnding {
    /// Returns the error of those who need the connection.
    pub(crate) fn error(self, peer: String) -> Error {
        match self {
            Self::Left => Error::Left { peer },
            Self::Lost(cause) => Error::Lost { peer, cause },
            Self::Closed => Error::Closed,
        }
    }
}

/// Causes of a refusal to open a region.
pub(crate) const REVOKED: u8 = 1;
pub(crate) const EXPIRED: u8 = 2;
pub(crate) const FORGED: u8 = 3;
pub(crate) const OTHER_OWNER: u8 = 4;
pub(crate) const FULL: u8 = 5;

/// The answer to the question for a region.
pub(crate) enum RegionAnswer {
    Granted {
        grant: GrantName,
        file: Option<OwnedFd>,
        file_offset: u64,
    },
    Refused {
        cause: u8,
    },
    Ended,
}

/// A connection to a peer.
pub(crate) struct Session {
    pub(crate) peer: Arc<PeerIdentity>,
    pub(crate) link: SessionLink,
    /// The number by which the service thread knows it.
    pub(crate) number: u64,
    /// Set once, by the thread that ends the connection.
    ending: OnceLock<SessionEnding>,
    questions: Mutex<HashMap<u64, Arc<Promise<RegionAnswer>>>>,
    next_question: AtomicU64,
    outbox: Mutex<MessageOutbox>,
    /// Notified when there may be room in the outbox.
    room: Condvar,
    /// Written by the service thread.
    inbox: Mutex<Inbox>,
}

/// Messages to the peer.
#[derive(Default)]
struct MessageOutbox {
    /// The bytes that the peer has not read.
    unread: usize,
    /// Messages that wait for room at the peer.
    waiting: VecDeque<Vec<u8>>,
}

/// Messages of the peer.
#[derive(Default)]
struct Inbox {
    /// The parts of a message whose end has not come.
    partial: Vec<u8>,
    /// The bytes that the program has not read.
    unread: usize,
    /// The bytes that it has read, of which the peer was not told.
    unreported: u64,
}

impl Session {
    pub(crate) fn new(peer: Arc<PeerIdentity>, link: SessionLink, number: u64) -> Arc<Self> {
        Arc::new(Self {
            peer,
            link,
            number,
            ending: OnceLock::new(),
            questions: Mutex::default(),
            next_question: AtomicU64::new(0),
            outbox: Mutex::default(),
            room: Condvar::new(),
            inbox: Mutex::default(),
        })
    }

    /// Ends the connection, once. If this call did, returns the wakers of tasks that wait for an answer.
    pub(crate) fn end(&self, ending: SessionEnding) -> Option<Vec<Waker>> {
        if self.ending.set(ending).is_err() {
            return None;
        }
        (self.link).end(matches!(
            ending,
            SessionEnding::Left | SessionEnding::Closed
        ));
        let questions = std::mem::take(&mut *self.questions.lock());
        let mut wakers = Vec::new();
        for promise in questions.into_values() {
            let _ = promise.keep(RegionAnswer::Ended);
            wakers.extend(promise.take_waker());
        }
        // A sender that has not begun to wait holds the lock.
        drop(self.outbox.lock());
        self.room.notify_all();
        Some(wakers)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ending.get().is_some()
    }

    /// Returns the error of those who need the connection, which has ended or is about to.
    pub(crate) fn end_error(&self) -> Error {
        let peer = self.peer.label();
        let ending = self.ending.get().copied();
        let cause = if self.link.is_gone() {
            LossCause::Died
        } else {
            LossCause::Broken
        };
        ending.unwrap_or(SessionEnding::Lost(cause)).error(peer)
    }

    /// Returns the error of an access.
    pub(crate) fn access_error(&self, error: LinkError, [offset, len, region]: [u64; 3]) -> Error {
        use hydrant_local::GrantRefusal as Refusal;
        let peer = self.peer.label();
        match error {
            LinkError::Refused(Refusal::Revoked) => Error::Revoked { peer },
            LinkError::Refused(Refusal::Expired) => Error::Expired { peer },
            LinkError::Refused(Refusal::NotPermitted) => Error::NotPermitted {
                peer,
                what: "the access",
            },
            LinkError::Refused(Refusal::OutOfBounds) => Error::OutOfBounds {
                offset,
                len,
                region,
            },
            LinkError::BadAddress => Error::NotMapped { peer },
            LinkError::Forbidden => Error::Forbidden { peer },
            LinkError::Ended => self.end_error(),
        }
    }

    /// Returns the error of an access over the network.
    pub(crate) fn far_error(
        &self,
        failure: PeerOperationFailure,
        [offset, len, region]: [u64; 3],
    ) -> Error {
        use hydrant_local::GrantRefusal as Refusal;
        let refusal = match failure {
            PeerOperationFailure::Revoked => Refusal::Revoked,
            PeerOperationFailure::Expired => Refusal::Expired,
            PeerOperationFailure::OutOfBounds => Refusal::OutOfBounds,
            PeerOperationFailure::NoRights => Refusal::NotPermitted,
            PeerOperationFailure::NotRegistered => {
                return Error::NotMapped {
                    peer: self.peer.label(),
                };
            }
            PeerOperationFailure::Lost => return self.end_error(),
            PeerOperationFailure::Stopped => {
                return Error::Cancelled { done: 0, all: len };
            }
            PeerOperationFailure::Network(cause) => return Error::System(cause),
        };
        self.access_error(LinkError::Refused(refusal), [offset, len, region])
    }

    /// Asks the peer a question. Returns the promise of the answer, and whether the link has to be flushed.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if so much waits for the peer that nothing is taken; or as [`end_error`](Self::end_error).
    pub(crate) fn ask(&self, question: &[u8]) -> Result<(Arc<Promise<RegionAnswer>>, SendState)> {
        let promise = Promise::new();
        let request = self.next_question.fetch_add(1, Relaxed);
        self.questions.lock().insert(request, Arc::clone(&promise));
        if self.has_ended() {
            self.questions.lock().remove(&request);
            return Err(self.end_error());
        }
        let packet = WirePacket::Ask { request, question };
        match self.link.send(&packet, None) {
            Ok(SendState::Full) => {
                self.questions.lock().remove(&request);
                Err(Error::NoRoom {
                    peer: self.peer.label(),
                    limit: WINDOW,
                })
            }
            Ok(state) => Ok((promise, state)),
            Err(_) => {
                self.questions.lock().remove(&request);
                Err(self.end_error())
            }
        }
    }

    /// Takes an answer. Returns it if nobody waits for it any more, and the waker of a task that does.
    ///
    /// # Errors
    /// The violation, if nobody asked.
    pub(crate) fn answer(
        &self,
        request: u64,
        answer: RegionAnswer,
    ) -> Result<(Option<RegionAnswer>, Option<Waker>), LossCause> {
        let promise = self.questions.lock().remove(&request);
        let promise = promise.ok_or(LossCause::Malformed("it answers what nobody asked"))?;
        Ok((promise.keep(answer), promise.take_waker()))
    }

    /// Sends a message. Waits for room at the peer until `deadline`; with a deadline of `None` it is kept until there is
    /// room. Returns whether the link has to be flushed.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`], [`Error::NoRoom`], or as [`end_error`](Self::end_error).
    pub(crate) fn send(&self, message: &[u8], deadline: Option<Instant>) -> Result<SendState> {
        if message.len() > MAX_MESSAGE {
            return Err(Error::MessageTooLong {
                len: message.len(),
                limit: MAX_MESSAGE,
            });
        }
        let mut outbox = self.outbox.lock();
        loop {
            if self.has_ended() {
                return Err(self.end_error());
            }
            let fits = outbox.unread + message.len() + OVERHEAD <= WINDOW;
            if fits && outbox.waiting.is_empty() {
                return self.put(&mut outbox, message);
            }
            let Some(deadline) = deadline else {
                outbox.waiting.push_back(message.to_vec());
                return Ok(SendState::Sent);
            };
            if self.room.wait_until(&mut outbox, deadline).timed_out() {
                return Err(Error::NoRoom {
                    peer: self.peer.label(),
                    limit: WINDOW,
                });
            }
        }
    }

    /// Returns true if messages or answers wait to be sent.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.outbox.lock().waiting.is_empty() || self.link.has_waiting()
    }

    /// Sends a message for which the peer has room.
    fn put(&self, outbox: &mut MessageOutbox, message: &[u8]) -> Result<SendState> {
        outbox.unread += message.len() + OVERHEAD;
        let mut state = SendState::Sent;
        let mut parts = message.chunks(self.link.most_bytes()).peekable();
        let mut next = Some(parts.next().unwrap_or_default());
        while let Some(bytes) = next {
            next = parts.next();
            let packet = WirePacket::Message {
                more: next.is_some(),
                bytes,
            };
            match self.link.send(&packet, None) {
                Ok(SendState::Sent) => {}
                Ok(other) => state = other,
                Err(_) => return Err(self.end_error()),
            }
        }
        Ok(state)
    }

    /// Takes the news that the peer has read messages. Returns whether the link has to be flushed.
    ///
    /// # Errors
    /// The violation, if it has read more than there was.
    pub(crate) fn take_credit(&self, bytes: u64) -> Result<SendState, LossCause> {
        let mut outbox = self.outbox.lock();
        let left = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| outbox.unread.checked_sub(bytes));
        outbox.unread = left.ok_or(LossCause::Malformed("it has read more than was sent"))?;
        let mut state = SendState::Sent;
        while let Some(first) = outbox.waiting.pop_front() {
            if outbox.unread + first.len() + OVERHEAD > WINDOW {
                outbox.waiting.push_front(first);
                break;
            }
            match self.put(&mut outbox, &first) {
                Ok(SendState::Sent) => {}
                Ok(other) => state = other,
                Err(_) => break,
            }
        }
        drop(outbox);
        self.room.notify_all();
        Ok(state)
    }

    /// Takes a part of a message. Returns the message if it is complete.
    ///
    /// # Errors
    /// The violation, if the peer sends more than it may.
    pub(crate) fn take_part(&self, more: bool, bytes: &[u8]) -> Result<Option<Vec<u8>>, LossCause> {
        let mut inbox = self.inbox.lock();
        if inbox.partial.len() + bytes.len() > MAX_MESSAGE {
            return Err(LossCause::Malformed("a message is too long"));
        }
        inbox.partial.extend_from_slice(bytes);
        if more {
            return Ok(None);
        }
        let message = std::mem::take(&mut inbox.partial);
        inbox.unread += message.len() + OVERHEAD;
        if inbox.unread > WINDOW {
            return Err(LossCause::Malformed("it sends more messages than it may"));
        }
        Ok(Some(message))
    }

    /// Notes that the program has read a message. Returns whether the link has to be flushed.
    pub(crate) fn note_read(&self, message: usize) -> SendState {
        let mut inbox = self.inbox.lock();
        let bytes = message + OVERHEAD;
        inbox.unread -= bytes.min(inbox.unread);
        inbox.unreported += bytes as u64;
        if inbox.unreported < REPORT {
            return SendState::Sent;
        }
        let bytes = std::mem::take(&mut inbox.unreported);
        self.link
            .send(&WirePacket::Credit { bytes }, None)
            .unwrap_or(SendState::Sent)
    }
}
