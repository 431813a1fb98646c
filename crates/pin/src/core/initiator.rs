//! The initiator's side of the operations on one peer.
//!
//! An operation is split into pieces. A piece of a write goes into the pipe before it is requested.
//! So a piece was moved whole or never requested, whenever its rank dies. A piece of a read is in
//! the pipe when the peer answers. The calling thread does what can be done now. When there is no
//! room for more, the NIC thread continues as room becomes free.

#![allow(unsafe_code)] // passes memory to the pipe

use std::{
    collections::VecDeque,
    os::fd::AsFd,
    sync::atomic::{
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use hydrant_conduit::{Error, Key, Rank, Remote, Ticket};
use hydrant_smp::upon::{CopyDirection, MappedValue};
use parking_lot::{Mutex, MutexGuard};

use super::{OperationEvent, PinCore};
use crate::{
    listener::NicInvitation,
    pipe::{self, Pipe},
    queue::{AccessPiece, AccessQueue, PieceAnswer, REQUESTS},
    table::{AccessRefusal, Span},
};
/// An operation on a peer.
pub(crate) struct PinOperation {
    pub(crate) ticket: Ticket,
    pub(crate) way: CopyDirection,
    pub(crate) remote: Remote,
    pub(crate) local: LocalMemory,
    /// The key of the local extent, or [`Key::ANY`] for inline data.
    pub(crate) key: Key,
    /// A copy of the inline data, so that the caller may reuse the source before there is room in
    /// the pipe.
    pub(crate) inline_data: Option<Box<[u8]>>,
    pub(crate) len: usize,
}

/// Local memory that the caller vouched for until the operation is complete.
#[derive(Clone, Copy)]
pub(crate) struct LocalMemory(pub(crate) *mut u8);
// SAFETY: the memory stays valid until the operation is complete, whichever thread completes it
// (condition 1 of `Conduit::post`).
unsafe impl Send for LocalMemory {}

/// The operations of this rank on one peer.
pub(crate) struct PipeInitiator {
    /// The peer whose memory is accessed.
    peer: Rank,
    /// The queue of requests to the peer's NIC.
    queue: MappedValue<AccessQueue>,
    /// The address to which the pipes are sent on first use.
    invitation: NicInvitation,
    /// Locked by a thread that begins an operation or takes answers.
    state: Mutex<InitiatorState>,
}

struct InitiatorState {
    /// `None` before the first operation, and after the peer is lost.
    pipes: Option<PeerPipes>,
    /// Operations in flight, in order. Those before `next_to_request` have requested all their pieces.
    in_flight: VecDeque<OperationInFlight>,
    /// The index of the first operation with pieces to request.
    next_to_request: usize,
    /// Pieces requested and not answered, in order.
    requested: VecDeque<PieceInFlight>,
    /// The number of the next piece to request.
    next: u64,
    /// The error that prevents further operations.
    broken: Option<Error>,
}

struct PeerPipes {
    /// The pipe for data of writes.
    out: MeteredPipe,
    /// The pipe for data of reads.
    back: MeteredPipe,
    /// True if the peer's NIC was sent its ends.
    called: bool,
}

/// A pipe, and the number of its pages that may be in use.
struct MeteredPipe {
    pipe: Pipe,
    used: usize,
}

struct OperationInFlight {
    operation: PinOperation,
    /// Bytes that were requested.
    requested: usize,
    /// Bytes that were answered.
    answered: usize,
    /// The error of a piece that failed. No further piece is requested then.
    failed: Option<Error>,
}

struct PieceInFlight {
    /// The offset of the piece in the operation, in bytes.
    at: usize,
    /// Its length in bytes.
    bytes: usize,
}

impl PipeInitiator {
    pub(crate) fn new(
        peer: Rank,
        queue: MappedValue<AccessQueue>,
        invitation: NicInvitation,
    ) -> Self {
        Self {
            peer,
            queue,
            invitation,
            state: Mutex::new(InitiatorState {
                pipes: None,
                in_flight: VecDeque::new(),
                next_to_request: 0,
                requested: VecDeque::new(),
                next: 0,
                broken: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, InitiatorState> {
        self.state.lock()
    }

    /// Begins an operation. [`advance`](Self::advance) then moves its data.
    pub(crate) fn begin(&self, core: &PinCore, operation: PinOperation) -> Result<(), Error> {
        let mut state = self.state();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        if state.pipes.is_none() {
            state.pipes = Some(PeerPipes {
                out: MeteredPipe::new()?,
                back: MeteredPipe::new()?,
                called: false,
            });
        }
        core.note_begun(self.peer);
        state.in_flight.push_back(OperationInFlight {
            operation,
            requested: 0,
            answered: 0,
            failed: None,
        });
        Ok(())
    }

    /// Takes answers and requests more pieces. Returns whether there was progress.
    pub(crate) fn advance(&self, core: &PinCore) -> bool {
        let mut state = self.state();
        let mut events = Vec::new();
        let mut moved = false;
        loop {
            // A peer's NIC no longer serves a rank that has ended, though threads of that rank
            // still run.
            let lost = core.check_both_alive(self.peer).err();
            // Answers from before the peer's end still count.
            let done = self.advance_once(core, &mut state, &mut events, &mut moved, lost);
            if let Err(broken) = done {
                state.end(broken.clone(), &mut events);
                state.pipes = None;
                state.broken = Some(broken);
            }
            let more = state.next_to_request < state.in_flight.len();
            self.queue.more.store(u64::from(more), Relaxed);
            core.held_up.set(self.peer, more);
            // An answer may have come between the last check and the store to `more`.
            if more {
                fence(SeqCst);
            }
            if !(more && self.is_answered(&state)) {
                break;
            }
        }
        if state.in_flight.is_empty() {
            core.busy.set(self.peer, false);
        }
        moved |= !events.is_empty();
        // The lock is held, so that the events of an operation are stored in order.
        core.keep_events(events);
        moved
    }

    /// Returns whether [`advance`](Self::advance) would make progress.
    pub(crate) fn can_advance(&self, core: &PinCore) -> bool {
        let state = self.state();
        self.is_answered(&state)
            || !state.in_flight.is_empty() && core.check_both_alive(self.peer).is_err()
    }

    fn is_answered(&self, state: &InitiatorState) -> bool {
        !state.requested.is_empty()
            && self
                .queue
                .is_answered(state.next - state.requested.len() as u64)
    }

    /// Takes all answers, then requests all pieces for which there is room.
    ///
    /// # Errors
    /// An error that makes further operations on this peer impossible.
    fn advance_once(
        &self,
        core: &PinCore,
        state: &mut InitiatorState,
        events: &mut Vec<OperationEvent>,
        moved: &mut bool,
        lost: Option<Error>,
    ) -> Result<(), Error> {
        while self.take_answer(core, state, events)? {
            *moved = true;
        }
        if let Some(lost) = lost {
            return Err(lost);
        }
        while self.request_next(core, state, events)? {
            *moved = true;
        }
        Ok(())
    }

    /// Takes the answer to the oldest piece. Returns whether there was one.
    fn take_answer(
        &self,
        core: &PinCore,
        state: &mut InitiatorState,
        events: &mut Vec<OperationEvent>,
    ) -> Result<bool, Error> {
        let Some(piece) = state.requested.front() else {
            return Ok(false);
        };
        let number = state.next - state.requested.len() as u64;
        let Some(answer) = self.queue.read_answer(number) else {
            return Ok(false);
        };
        let &PieceInFlight { at, bytes } = piece;
        state.requested.pop_front();
        let (Some(current), Some(pipes)) = (state.in_flight.front_mut(), &mut state.pipes) else {
            return Err(Error::Malformed {
                peer: self.peer,
                what: "an answer to a piece that was not requested",
            });
        };
        let PinOperation {
            way, remote, len, ..
        } = current.operation;
        pipes.to(way).used -= pipe::pages(bytes);
        let outcome: Result<(), AccessRefusal> = answer.into();
        let outcome = outcome
            .map_err(|refusal| refusal.error(self.peer, remote.key, remote.offset, len as u64));
        if matches!(answer, PieceAnswer::Broken | PieceAnswer::NoDescriptors(_)) {
            return outcome.map(|()| true);
        }
        if way == CopyDirection::In && answer == PieceAnswer::Done {
            current.land(core, &pipes.back.pipe, at, bytes)?;
        }
        current.answered += bytes;
        if let Err(error) = outcome {
            current.failed.get_or_insert(error);
        }
        let is_over = current.requested == len || current.failed.is_some();
        if is_over
            && current.answered == current.requested
            && let Some(ended) = state.in_flight.pop_front()
        {
            state.next_to_request = state.next_to_request.saturating_sub(1);
            events.push(ended.end());
        }
        Ok(true)
    }

    /// Requests the next piece, if there is one and room for it. Returns whether there was
    /// progress.
    fn request_next(
        &self,
        core: &PinCore,
        state: &mut InitiatorState,
        events: &mut Vec<OperationEvent>,
    ) -> Result<bool, Error> {
        let index = state.next_to_request;
        let (Some(current), Some(pipes)) = (state.in_flight.get_mut(index), &mut state.pipes)
        else {
            return Ok(false);
        };
        if current.failed.is_some() || !pipes.call(&self.invitation, core.rank())? {
            return Ok(false); // the operation ends with its last answer, or the peer takes no call now
        }
        let PinOperation {
            way, remote, len, ..
        } = current.operation;
        let filled = pipes.to(way);
        let at = current.requested;
        let bytes = filled.pipe.piece().min(len - at);
        let pages = pipe::pages(bytes);
        if state.requested.len() == REQUESTS || filled.used + pages > filled.pipe.pages() {
            return Ok(false);
        }
        if way == CopyDirection::Out {
            match current.load(core, &filled.pipe, at, bytes) {
                Ok(()) => {}
                Err(AccessRefusal::Broken(cause)) => {
                    return Err(Error::system("moving data through io_uring", cause));
                }
                Err(refusal) => {
                    current.fail(core.rank(), refusal);
                    if current.answered == at
                        && let Some(ended) = state.in_flight.remove(index)
                    {
                        events.push(ended.end());
                    }
                    return Ok(true);
                }
            }
        }
        filled.used += pages;
        current.requested += bytes;
        let last = current.requested == len;
        let piece = AccessPiece {
            way,
            last,
            key: remote.key.0,
            offset: remote.offset,
            len: len as u64,
            at: at as u64,
            bytes,
        };
        if last {
            state.next_to_request += 1;
            if way == CopyDirection::Out {
                events.push(OperationEvent::Local(current.operation.ticket));
            }
        }
        self.queue.request(state.next, &piece);
        state.next += 1;
        state.requested.push_back(PieceInFlight { at, bytes });
        core.wake_nic(self.peer);
        Ok(true)
    }
}

impl InitiatorState {
    /// Ends every operation.
    fn end(&mut self, cause: Error, events: &mut Vec<OperationEvent>) {
        for mut ended in self.in_flight.drain(..) {
            ended.failed.get_or_insert_with(|| cause.clone());
            events.push(ended.end());
        }
        self.next_to_request = 0;
        self.requested.clear();
    }
}

impl PeerPipes {
    fn to(&mut self, way: CopyDirection) -> &mut MeteredPipe {
        match way {
            CopyDirection::Out => &mut self.out,
            CopyDirection::In => &mut self.back,
        }
    }

    /// Sends the peer's NIC its ends of the pipes. Returns `false` if that is not possible now.
    /// Then the listener is full, or the peer is gone, which its standing shows.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if this process has no free descriptor.
    fn call(&mut self, invitation: &NicInvitation, me: Rank) -> Result<bool, Error> {
        if !self.called {
            let (out, back) = (&self.out.pipe, &self.back.pipe);
            match invitation.call(me, [out.ends.as_fd(), back.ends.as_fd()]) {
                Ok(()) => self.called = true,
                Err(cause) if cause.raw_os_error() == Some(libc::EMFILE) => {
                    return Err(Error::system("calling a peer's NIC", cause));
                }
                Err(_) => {}
            }
        }
        Ok(self.called)
    }
}

impl MeteredPipe {
    fn new() -> Result<Self, Error> {
        let pipe = Pipe::new()?;
        Ok(Self { pipe, used: 0 })
    }
}

impl OperationInFlight {
    /// The local memory of a piece.
    fn span(&self, at: usize, bytes: usize) -> Span {
        let PinOperation { local, len, .. } = &self.operation;
        Span::whole(local.0.addr() as u64, *len).part(at, bytes)
    }

    /// Moves a piece of a write into the pipe.
    fn load(
        &self,
        core: &PinCore,
        pipe: &Pipe,
        at: usize,
        bytes: usize,
    ) -> Result<(), AccessRefusal> {
        let PinOperation {
            key, inline_data, ..
        } = &self.operation;
        let Some(inline_data) = inline_data else {
            return core.table.push(*key, self.span(at, bytes), &pipe.ends);
        };
        let Some(part) = inline_data.get(at..at + bytes) else {
            return Err(AccessRefusal::BadAddress);
        };
        // SAFETY: `part` is borrowed and `bytes` long.
        let filled = unsafe { pipe.fill(part.as_ptr(), bytes) };
        if filled {
            Ok(())
        } else {
            Err(AccessRefusal::BadAddress)
        }
    }

    /// Moves a piece of a read out of the pipe to its destination, or discards it if the operation
    /// failed.
    ///
    /// # Errors
    /// An error that leaves unknown data in the pipe.
    fn land(&mut self, core: &PinCore, pipe: &Pipe, at: usize, bytes: usize) -> Result<(), Error> {
        if self.failed.is_none() {
            let span = self.span(at, bytes);
            match core.table.pull(self.operation.key, span, &pipe.ends) {
                Ok(()) => return Ok(()),
                Err(AccessRefusal::Broken(cause)) => {
                    return Err(Error::system("moving data through io_uring", cause));
                }
                Err(refusal) => self.fail(core.rank(), refusal),
            }
        }
        pipe::discard(&pipe.ends, bytes);
        Ok(())
    }

    /// Fails the operation, because its local memory was refused.
    fn fail(&mut self, me: Rank, refusal: AccessRefusal) {
        let PinOperation {
            local, key, len, ..
        } = &self.operation;
        let error = refusal.error(me, *key, local.0.addr() as u64, *len as u64);
        self.failed.get_or_insert(error);
    }

    fn end(self) -> OperationEvent {
        let result = self.failed.map_or(Ok(()), Err);
        OperationEvent::Complete(self.operation.ticket, result)
    }
}
