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
    core::{Core, Event},
    listener::Invitation,
    pipe::{self, Pipe},
    queue::{Answer, Piece, Queue, REQUESTS},
    table::{Refusal, Span},
};
/// An operation to be done.
pub(crate) struct Operation {
    pub(crate) ticket: Ticket,
    pub(crate) way: Way,
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    /// The own extent; [`Key::ANY`] for a few bytes that go along.
    pub(crate) key: Key,
    /// A copy of these, whose source is the caller's again before there is room for them.
    pub(crate) along: Option<Box<[u8]>>,
    pub(crate) len: usize,
}

/// Own memory that the caller vouched for until the operation is complete.
#[derive(Clone, Copy)]
pub(crate) struct Local(pub(crate) *mut u8);
// SAFETY: the conduit's contract: valid until complete, whichever thread completes it.
unsafe impl Send for Local {}

/// What this rank asks of one peer.
pub(crate) struct Initiator {
    /// Whose memory it is about.
    peer: Rank,
    /// Where the peer's NIC is asked.
    queue: Mapped<Queue>,
    /// How the peer's NIC is called the first time.
    invitation: Invitation,
    /// Held by who begins an operation or takes answers.
    state: Mutex<State>,
}

struct State {
    /// None before the first operation, and after the peer is lost.
    pipes: Option<Pipes>,
    /// Operations under way, in order. Those before `asking` have all their pieces asked for.
    under_way: VecDeque<UnderWay>,
    /// The index of the first operation with pieces that were not asked for.
    asking: usize,
    /// Pieces asked for and not answered, in order.
    asked: VecDeque<Asked>,
    /// The number of the next piece to be asked for.
    next: u64,
    /// Why no operation can begin any more.
    broken: Option<Error>,
}

struct Pipes {
    /// What is written goes through it.
    out: Filled,
    /// What is read comes through it.
    back: Filled,
    /// The peer's NIC has its ends, or will have.
    called: bool,
}

/// A pipe, and how many of its pages may be in use.
struct Filled {
    pipe: Pipe,
    used: usize,
}

struct UnderWay {
    operation: Operation,
    /// Bytes asked for, and answered.
    asked: usize,
    answered: usize,
    /// Why it failed, if a piece did: nothing more is asked for then.
    failed: Option<Error>,
}

struct Asked {
    /// Where in the operation it begins, in bytes.
    at: usize,
    /// How long it is.
    bytes: usize,
}

impl Initiator {
    pub(crate) fn new(peer: Rank, queue: Mapped<Queue>, invitation: Invitation) -> Self {
        Self {
            peer,
            queue,
            invitation,
            state: Mutex::new(State {
                pipes: None,
                under_way: VecDeque::new(),
                asking: 0,
                asked: VecDeque::new(),
                next: 0,
                broken: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Begins an operation; [`advance`](Self::advance) does it.
    pub(crate) fn begin(&self, core: &Core, operation: Operation) -> Result<(), Error> {
        let mut state = self.state();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        if state.pipes.is_none() {
            state.pipes = Some(Pipes {
                out: Filled::new()?,
                back: Filled::new()?,
                called: false,
            });
        }
        core.begun(self.peer);
        state.under_way.push_back(UnderWay {
            operation,
            asked: 0,
            answered: 0,
            failed: None,
        });
        Ok(())
    }

    /// Takes answers and asks for more; whether there was anything to do.
    pub(crate) fn advance(&self, core: &Core) -> bool {
        let mut state = self.state();
        let mut events = Vec::new();
        let mut moved = false;
        loop {
            // A peer's NIC looks no longer after a rank that has ended, though threads of it live.
            let lost = core.both_alive(self.peer).err();
            // What the peer did before it ended still counts.
            let done = self.go_on(core, &mut state, &mut events, &mut moved, lost);
            if let Err(broken) = done {
                state.end(broken.clone(), &mut events);
                state.pipes = None;
                state.broken = Some(broken);
            }
            let more = state.asking < state.under_way.len();
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
        if state.under_way.is_empty() {
            core.busy.set(self.peer, false);
        }
        moved |= !events.is_empty();
        // With the lock held, so that what happened to an operation is kept in order.
        core.keep(events);
        moved
    }

    /// Whether [`advance`](Self::advance) would find something.
    pub(crate) fn has_news(&self, core: &Core) -> bool {
        let state = self.state();
        self.is_answered(&state)
            || !state.under_way.is_empty() && core.both_alive(self.peer).is_err()
    }

    fn is_answered(&self, state: &State) -> bool {
        !state.asked.is_empty()
            && self
                .queue
                .is_answered(state.next - state.asked.len() as u64)
    }

    /// # Errors
    /// What makes further operations with this peer impossible.
    fn go_on(
        &self,
        core: &Core,
        state: &mut State,
        events: &mut Vec<Event>,
        moved: &mut bool,
        lost: Option<Error>,
    ) -> Result<(), Error> {
        while self.take_answer(core, state, events)? {
            *moved = true;
        }
        if let Some(lost) = lost {
            return Err(lost);
        }
        while self.ask(core, state, events)? {
            *moved = true;
        }
        Ok(())
    }

    /// Takes the answer to the oldest piece, if it came.
    fn take_answer(
        &self,
        core: &Core,
        state: &mut State,
        events: &mut Vec<Event>,
    ) -> Result<bool, Error> {
        let Some(piece) = state.asked.front() else {
            return Ok(false);
        };
        let number = state.next - state.asked.len() as u64;
        let Some(answer) = self.queue.answered(number) else {
            return Ok(false);
        };
        let &Asked { at, bytes } = piece;
        state.asked.pop_front();
        let (Some(current), Some(pipes)) = (state.under_way.front_mut(), &mut state.pipes) else {
            return Err(Error::Malformed {
                peer: self.peer,
                what: "an answer to a question that was not asked",
            });
        };
        let Operation {
            way, remote, len, ..
        } = current.operation;
        pipes.to(way).used -= pipe::pages(bytes);
        let outcome: Result<(), Refusal> = answer.into();
        let outcome = outcome
            .map_err(|refusal| refusal.error(self.peer, remote.key, remote.offset, len as u64));
        if matches!(answer, Answer::Broken | Answer::NoDescriptors(_)) {
            return outcome.map(|()| true);
        }
        if way == Way::In && answer == Answer::Done {
            current.land(core, &pipes.back.pipe, at, bytes)?;
        }
        current.answered += bytes;
        if let Err(error) = outcome {
            current.failed.get_or_insert(error);
        }
        let over = current.asked == len || current.failed.is_some();
        if over
            && current.answered == current.asked
            && let Some(ended) = state.under_way.pop_front()
        {
            state.asking = state.asking.saturating_sub(1);
            events.push(ended.end());
        }
        Ok(true)
    }

    /// Asks for the next piece, if there is one and room for it.
    fn ask(&self, core: &Core, state: &mut State, events: &mut Vec<Event>) -> Result<bool, Error> {
        let index = state.asking;
        let (Some(current), Some(pipes)) = (state.under_way.get_mut(index), &mut state.pipes)
        else {
            return Ok(false);
        };
        if current.failed.is_some() || !pipes.call(&self.invitation, core.rank())? {
            return Ok(false); // it ends with its last answer; or the peer takes no call now
        }
        let Operation {
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
                Err(Refusal::Broken(cause)) => {
                    return Err(Error::system("moving data through io_uring", cause));
                }
                Err(refusal) => {
                    current.fail(core.rank(), refusal);
                    if current.answered == at
                        && let Some(ended) = state.under_way.remove(index)
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
        let piece = Piece {
            way,
            last,
            key: remote.key.0,
            offset: remote.offset,
            len: len as u64,
            at: at as u64,
            bytes,
        };
        if last {
            state.asking += 1;
            if way == Way::Out {
                events.push(Event::Local(current.operation.ticket));
            }
        }
        self.queue.ask(state.next, &piece);
        state.next += 1;
        state.asked.push_back(Asked { at, bytes });
        core.wake_nic(self.peer);
        Ok(true)
    }
}

impl State {
    /// Ends every operation.
    fn end(&mut self, cause: Error, events: &mut Vec<Event>) {
        for mut ended in self.under_way.drain(..) {
            ended.failed.get_or_insert_with(|| cause.clone());
            events.push(ended.end());
        }
        self.asking = 0;
        self.asked.clear();
    }
}

impl Pipes {
    fn to(&mut self, way: Way) -> &mut Filled {
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
    fn call(&mut self, invitation: &Invitation, me: Rank) -> Result<bool, Error> {
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

impl Filled {
    fn new() -> Result<Self, Error> {
        let pipe = Pipe::new()?;
        Ok(Self { pipe, used: 0 })
    }
}

impl UnderWay {
    /// The part of own memory that a piece is about.
    fn span(&self, at: usize, bytes: usize) -> Span {
        let Operation { local, len, .. } = &self.operation;
        Span::whole(local.0.addr() as u64, *len).part(at, bytes)
    }

    /// Moves a piece of a write into the pipe.
    fn load(&self, core: &Core, pipe: &Pipe, at: usize, bytes: usize) -> Result<(), Refusal> {
        let Operation { key, along, .. } = &self.operation;
        let Some(along) = along else {
            return core.table.push(*key, self.span(at, bytes), &pipe.ends);
        };
        let Some(part) = along.get(at..at + bytes) else {
            return Err(Refusal::BadAddress);
        };
        // SAFETY: the part is borrowed, and as long.
        let filled = unsafe { pipe.fill(part.as_ptr(), bytes) };
        if filled {
            Ok(())
        } else {
            Err(Refusal::BadAddress)
        }
    }

    /// Moves a piece of a read out of the pipe, where it goes, or away.
    ///
    /// # Errors
    /// What leaves the pipe in doubt.
    fn land(&mut self, core: &Core, pipe: &Pipe, at: usize, bytes: usize) -> Result<(), Error> {
        if self.failed.is_none() {
            let span = self.span(at, bytes);
            match core.table.pull(self.operation.key, span, &pipe.ends) {
                Ok(()) => return Ok(()),
                Err(Refusal::Broken(cause)) => {
                    return Err(Error::system("moving data through io_uring", cause));
                }
                Err(refusal) => self.fail(core.rank(), refusal),
            }
        }
        pipe::discard(&pipe.ends, bytes);
        Ok(())
    }

    /// Its own memory was refused.
    fn fail(&mut self, me: Rank, refusal: Refusal) {
        let Operation {
            local, key, len, ..
        } = &self.operation;
        let error = refusal.error(me, *key, local.0.addr() as u64, *len as u64);
        self.failed.get_or_insert(error);
    }

    fn end(self) -> Event {
        let result = self.failed.map_or(Ok(()), Err);
        Event::Complete(self.operation.ticket, result)
    }
}
