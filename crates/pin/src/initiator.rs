//! The side that writes and reads: its NIC, as far as that concerns one peer.
//!
//! An operation goes in pieces. A write's piece goes into the pipe first and is asked for then,
//! so that it is all there or was never asked for, whenever its rank dies; a read's piece is in
//! the pipe when it is answered. Whoever calls does what can be done now; when there is no room
//! for more, the NIC's thread goes on as room comes.

#![allow(unsafe_code)] // hands memory on to the pipe

use std::{
    collections::VecDeque,
    os::fd::AsFd,
    sync::atomic::{
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use hydrant_conduit::{Error, Key, Rank, Remote, Ticket};
use hydrant_smp::upon::{Mapped, Way};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    core::{OperationEvent, PinCore},
    listener::NicInvitation,
    pipe::{self, Pipe},
    queue::{AccessPiece, AccessQueue, PieceAnswer, REQUESTS},
    table::{AccessRefusal, Span},
};
/// An operation to be done.
pub(crate) struct PinOperation {
    pub(crate) ticket: Ticket,
    pub(crate) way: Way,
    pub(crate) remote: Remote,
    pub(crate) local: LocalMemory,
    /// The own extent; [`Key::ANY`] for a few bytes that go along.
    pub(crate) key: Key,
    /// A copy of these, whose source is the caller's again before there is room for them.
    pub(crate) inline_data: Option<Box<[u8]>>,
    pub(crate) len: usize,
}

/// Own memory that the caller vouched for until the operation is complete.
#[derive(Clone, Copy)]
pub(crate) struct LocalMemory(pub(crate) *mut u8);
// SAFETY: the conduit's contract: valid until complete, whichever thread completes it.
unsafe impl Send for LocalMemory {}

/// What this rank asks of one peer.
pub(crate) struct PipeInitiator {
    /// Whose memory it is about.
    peer: Rank,
    /// Where the peer's NIC is asked.
    queue: Mapped<AccessQueue>,
    /// How the peer's NIC is called the first time.
    invitation: NicInvitation,
    /// Held by who begins an operation or takes answers.
    state: Mutex<InitiatorState>,
}

struct InitiatorState {
    /// None before the first operation, and after the peer is lost.
    pipes: Option<PeerPipes>,
    /// Operations under way, in order. Those before `next_to_ask` have all their pieces asked for.
    in_flight: VecDeque<OperationInFlight>,
    /// The index of the first operation with pieces that were not asked for.
    next_to_ask: usize,
    /// Pieces asked for and not answered, in order.
    asked: VecDeque<PieceInFlight>,
    /// The number of the next piece to be asked for.
    next: u64,
    /// Why no operation can begin any more.
    broken: Option<Error>,
}

struct PeerPipes {
    /// What is written goes through it.
    out: MeteredPipe,
    /// What is read comes through it.
    back: MeteredPipe,
    /// The peer's NIC has its ends, or will have.
    called: bool,
}

/// A pipe, and how many of its pages may be in use.
struct MeteredPipe {
    pipe: Pipe,
    used: usize,
}

struct OperationInFlight {
    operation: PinOperation,
    /// Bytes asked for, and answered.
    asked: usize,
    answered: usize,
    /// Why it failed, if a piece did: nothing more is asked for then.
    failed: Option<Error>,
}

struct PieceInFlight {
    /// Where in the operation it begins, in bytes.
    at: usize,
    /// How long it is.
    bytes: usize,
}

impl PipeInitiator {
    pub(crate) fn new(peer: Rank, queue: Mapped<AccessQueue>, invitation: NicInvitation) -> Self {
        Self {
            peer,
            queue,
            invitation,
            state: Mutex::new(InitiatorState {
                pipes: None,
                in_flight: VecDeque::new(),
                next_to_ask: 0,
                asked: VecDeque::new(),
                next: 0,
                broken: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, InitiatorState> {
        self.state.lock()
    }

    /// Begins an operation; [`advance`](Self::advance) does it.
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
            asked: 0,
            answered: 0,
            failed: None,
        });
        Ok(())
    }

    /// Takes answers and asks for more; whether there was anything to do.
    pub(crate) fn advance(&self, core: &PinCore) -> bool {
        let mut state = self.state();
        let mut events = Vec::new();
        let mut moved = false;
        loop {
            // A peer's NIC looks no longer after a rank that has ended, though threads of it live.
            let lost = core.check_both_alive(self.peer).err();
            // What the peer did before it ended still counts.
            let done = self.advance_once(core, &mut state, &mut events, &mut moved, lost);
            if let Err(broken) = done {
                state.end(broken.clone(), &mut events);
                state.pipes = None;
                state.broken = Some(broken);
            }
            let more = state.next_to_ask < state.in_flight.len();
            self.queue.more.store(u64::from(more), Relaxed);
            core.held_up.set(self.peer, more);
            // Between the look and the word that there is more, an answer may have come.
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
        // With the lock held, so that what happened to an operation is kept in order.
        core.keep_events(events);
        moved
    }

    /// Whether [`advance`](Self::advance) would find something.
    pub(crate) fn can_advance(&self, core: &PinCore) -> bool {
        let state = self.state();
        self.is_answered(&state)
            || !state.in_flight.is_empty() && core.check_both_alive(self.peer).is_err()
    }

    fn is_answered(&self, state: &InitiatorState) -> bool {
        !state.asked.is_empty()
            && self
                .queue
                .is_answered(state.next - state.asked.len() as u64)
    }

    /// # Errors
    /// What makes further operations with this peer impossible.
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

    /// Takes the answer to the oldest piece, if it came.
    fn take_answer(
        &self,
        core: &PinCore,
        state: &mut InitiatorState,
        events: &mut Vec<OperationEvent>,
    ) -> Result<bool, Error> {
        let Some(piece) = state.asked.front() else {
            return Ok(false);
        };
        let number = state.next - state.asked.len() as u64;
        let Some(answer) = self.queue.read_answer(number) else {
            return Ok(false);
        };
        let &PieceInFlight { at, bytes } = piece;
        state.asked.pop_front();
        let (Some(current), Some(pipes)) = (state.in_flight.front_mut(), &mut state.pipes) else {
            return Err(Error::Malformed {
                peer: self.peer,
                what: "an answer to a question that was not asked",
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
        if way == Way::In && answer == PieceAnswer::Done {
            current.land(core, &pipes.back.pipe, at, bytes)?;
        }
        current.answered += bytes;
        if let Err(error) = outcome {
            current.failed.get_or_insert(error);
        }
        let over = current.asked == len || current.failed.is_some();
        if over
            && current.answered == current.asked
            && let Some(ended) = state.in_flight.pop_front()
        {
            state.next_to_ask = state.next_to_ask.saturating_sub(1);
            events.push(ended.end());
        }
        Ok(true)
    }

    /// Asks for the next piece, if there is one and room for it.
    fn request_next(
        &self,
        core: &PinCore,
        state: &mut InitiatorState,
        events: &mut Vec<OperationEvent>,
    ) -> Result<bool, Error> {
        let index = state.next_to_ask;
        let (Some(current), Some(pipes)) = (state.in_flight.get_mut(index), &mut state.pipes)
        else {
            return Ok(false);
        };
        if current.failed.is_some() || !pipes.call(&self.invitation, core.rank())? {
            return Ok(false); // it ends with its last answer; or the peer takes no call now
        }
        let PinOperation {
            way, remote, len, ..
        } = current.operation;
        let filled = pipes.to(way);
        let at = current.asked;
        let bytes = filled.pipe.piece().min(len - at);
        let pages = pipe::pages(bytes);
        if state.asked.len() == REQUESTS || filled.used + pages > filled.pipe.pages() {
            return Ok(false);
        }
        if way == Way::Out {
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
        current.asked += bytes;
        let last = current.asked == len;
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
            state.next_to_ask += 1;
            if way == Way::Out {
                events.push(OperationEvent::Local(current.operation.ticket));
            }
        }
        self.queue.request(state.next, &piece);
        state.next += 1;
        state.asked.push_back(PieceInFlight { at, bytes });
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
        self.next_to_ask = 0;
        self.asked.clear();
    }
}

impl PeerPipes {
    fn to(&mut self, way: Way) -> &mut MeteredPipe {
        match way {
            Way::Out => &mut self.out,
            Way::In => &mut self.back,
        }
    }

    /// Gives the peer's NIC its ends; `false` if that could not be now: its listener is full, or
    /// gone, of which the peer's standing will tell.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if this process has no descriptor left to call with.
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
    /// The part of own memory that a piece is about.
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
        // SAFETY: the part is borrowed, and as long.
        let filled = unsafe { pipe.fill(part.as_ptr(), bytes) };
        if filled {
            Ok(())
        } else {
            Err(AccessRefusal::BadAddress)
        }
    }

    /// Moves a piece of a read out of the pipe, where it goes, or away.
    ///
    /// # Errors
    /// What leaves the pipe in doubt.
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

    /// Its own memory was refused.
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
