//! One send or receive under way, and its two ends: the source may be used again, and all is over.

#![allow(unsafe_code)] // hands the address of a buffer to other threads

use std::{
    any::Any,
    mem,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::Waker,
};

use parking_lot::Mutex;

use crate::{
    Error, Rank, Result,
    progress::{Progress, taken},
    uses::Use,
};

/// What is known of a message: who sent it, its tag and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) bytes: usize,
}

impl Status {
    /// Who sent it.
    pub fn source(&self) -> Rank {
        self.source
    }

    /// Its tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its elements, if it is so many of this type.
    pub fn count<T>(&self) -> Option<usize> {
        match size_of::<T>() {
            0 => None,
            size => (self.bytes.is_multiple_of(size)).then_some(self.bytes / size),
        }
    }
}

/// Memory of a send or a receive, which is there until its [`Request`] has ended.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) at: *mut u8,
    pub(super) len: usize,
}

// SAFETY: it is an address and a length; whoever uses the memory says why it may.
unsafe impl Send for Buffer {}

/// A send or a receive under way, shared by who asks for it and who does it.
pub(super) struct Request {
    /// It is over. Set once, with its state locked; who waits looks at that alone.
    over: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The source may be used again.
    left: bool,
    end: End,
    /// A task to be woken at the end.
    asker: Option<Waker>,
    /// The buffer, if nobody else keeps it.
    kept: Option<Box<dyn Any + Send>>,
    /// The use of memory that it is, to be told at its end.
    used: Option<Use>,
    /// Counts the request among those in flight, until its end.
    counted: Option<Counted>,
}

/// The number of sends in flight, and of receives whose messages have arrived.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Arc<AtomicUsize>);

/// One of them, until this is dropped.
struct Counted(UnderWay);

impl UnderWay {
    fn count(&self) -> Counted {
        self.0.fetch_add(1, Relaxed);
        Counted(self.clone())
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.load(Acquire) == 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Release);
    }
}

enum End {
    Open,
    Ended(Result<Status>),
    Told,
}

impl Request {
    pub(super) fn new() -> Self {
        Self {
            over: AtomicBool::new(false),
            state: Mutex::new(State {
                left: false,
                end: End::Open,
                asker: None,
                kept: None,
                used: None,
                counted: None,
            }),
        }
    }

    /// Counts the request among a rank's requests in flight from now on.
    pub(super) fn is_under_way(&self, among: &UnderWay) {
        let mut state = self.state.lock();
        if matches!(state.end, End::Open) && state.counted.is_none() {
            state.counted = Some(among.count());
        }
    }

    /// It is a use of memory that is told at its end.
    pub(super) fn uses(&self, used: Use) {
        self.state.lock().used = Some(used);
    }

    /// It is none after all: its data goes another way.
    pub(super) fn forget_use(&self) {
        self.state.lock().used = None;
    }

    /// The use of memory that it was, once, if it went well.
    pub(super) fn take_use(&self) -> Option<Use> {
        let mut state = self.state.lock();
        let used = state.used.take();
        used.filter(|_| matches!(state.end, End::Ended(Ok(_))))
    }

    /// The source of a send may be used again.
    pub(super) fn leave(&self) {
        self.state.lock().left = true;
    }

    /// It is over, and its buffer is its owner's again. The first end counts.
    pub(super) fn end(&self, progress: &Progress, end: Result<Status>) {
        let mut state = self.state.lock();
        if !matches!(state.end, End::Open) {
            return;
        }
        state.left = true;
        state.end = End::Ended(end);
        // What was done with the buffer was done before.
        self.over.store(true, Release);
        let (asker, kept) = (state.asker.take(), state.kept.take());
        let counted = state.counted.take();
        // What wakers and buffers do is the program's affair.
        drop(state);
        drop(kept);
        if let Some(waker) = asker {
            progress.wake_task(waker);
        }
        // Other threads see the count at zero only after the request is over.
        drop(counted);
        progress.wake_sleepers();
    }

    pub(super) fn has_left(&self) -> bool {
        self.state.lock().left
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// How it ended, if that is known and was not told.
    pub(super) fn tell(&self) -> Result<Status> {
        let mut state = self.state.lock();
        match mem::replace(&mut state.end, End::Told) {
            End::Ended(end) => end,
            End::Told => Err(taken()),
            End::Open => {
                state.end = End::Open;
                Err(taken())
            }
        }
    }

    /// How it ended, unless that was told.
    pub(super) fn tell_if_untold(&self) -> Result<()> {
        let mut state = self.state.lock();
        match mem::replace(&mut state.end, End::Told) {
            End::Ended(end) => end.map(drop),
            End::Told => Ok(()),
            End::Open => {
                state.end = End::Open;
                Err(taken())
            }
        }
    }

    /// Whether its end was told.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.state.lock().end, End::Told)
    }

    /// Whether it went well, and nobody was told.
    pub(super) fn is_good(&self) -> bool {
        matches!(self.state.lock().end, End::Ended(Ok(_)))
    }

    /// Has a task woken at the end: whether it will be.
    pub(super) fn wake_at_end(&self, progress: &Progress, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.state.lock();
        if !matches!(state.end, End::Open) {
            return false;
        }
        let before = state.asker.replace(waker);
        drop(state);
        if before.is_none() {
            progress.task_begins();
        }
        true
    }

    /// Keeps the buffer until the end, because its owner is gone; and wakes nobody any more.
    pub(super) fn keep(&self, progress: &Progress, buffer: Box<dyn Any + Send>) {
        let mut state = self.state.lock();
        let asker = state.asker.take();
        let over = match state.end {
            End::Open => {
                state.kept = Some(buffer);
                None
            }
            End::Ended(_) | End::Told => Some(buffer),
        };
        drop(state);
        if asker.is_some() {
            progress.task_ends();
        }
        drop((asker, over));
    }
}

/// Ends a request, at the latest when it is dropped: then the job is over.
pub(super) struct Ending {
    request: Arc<Request>,
    progress: Arc<Progress>,
}

impl Ending {
    pub(super) fn new(request: Arc<Request>, progress: &Arc<Progress>) -> Self {
        Self {
            request,
            progress: Arc::clone(progress),
        }
    }

    /// Somebody else ends it.
    pub(super) fn forget(mut self) {
        self.request = Arc::new(Request::new());
    }

    pub(super) fn end(self, end: Result<Status>) {
        self.request.end(&self.progress, end);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Nothing happens if it has ended.
        self.request.end(&self.progress, Err(Error::JobOver));
    }
}
