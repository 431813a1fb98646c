//! Requests: each is one send or receive in flight. Its source becomes free, and later it ends.

#![allow(unsafe_code)] // sends the address of a buffer to other threads

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
    progress::{Progress, already_taken},
    uses::MemoryUse,
};

/// The status of a message: its sender, tag and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) bytes: usize,
}

impl Status {
    /// Returns the sender of the message.
    pub fn source(&self) -> Rank {
        self.source
    }

    /// Returns the tag of the message.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the bytes of the message.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of elements of type `T`, if the message is a whole number of them.
    pub fn count<T>(&self) -> Option<usize> {
        match size_of::<T>() {
            0 => None,
            size => (self.bytes.is_multiple_of(size)).then_some(self.bytes / size),
        }
    }
}

/// Memory of a send or a receive, which stays until the [`MessageRequest`] has ended.
#[derive(Clone, Copy)]
pub(super) struct RawBuffer {
    pub(super) at: *mut u8,
    pub(super) len: usize,
}

// SAFETY: A buffer is an address and a length. The code that uses the memory says why it may.
unsafe impl Send for RawBuffer {}

/// A send or a receive in flight, shared by its owner and the threads that work on it.
pub(super) struct MessageRequest {
    /// The request is over. Set once, with the state locked. A waiter reads this alone.
    over: AtomicBool,
    state: Mutex<RequestState>,
}

struct RequestState {
    /// The source is free.
    source_free: bool,
    end: RequestEnd,
    /// The task to wake at the end.
    waker: Option<Waker>,
    /// The buffer, if its owner is gone.
    buffer: Option<Box<dyn Any + Send>>,
    /// The use of memory to record at the end.
    used: Option<MemoryUse>,
    /// Counts the request as in flight, until its end.
    counted: Option<CountedRequest>,
}

/// The number of sends in flight, and of receives whose messages have arrived.
#[derive(Clone, Default)]
pub(super) struct InFlightCount(Arc<AtomicUsize>);

/// One counted request, until this is dropped.
struct CountedRequest(InFlightCount);

impl InFlightCount {
    fn count(&self) -> CountedRequest {
        self.0.fetch_add(1, Relaxed);
        CountedRequest(self.clone())
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.load(Acquire) == 0
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Release);
    }
}

enum RequestEnd {
    Open,
    Ended(Result<Status>),
    Taken,
}

impl MessageRequest {
    pub(super) fn new() -> Self {
        Self {
            over: AtomicBool::new(false),
            state: Mutex::new(RequestState {
                source_free: false,
                end: RequestEnd::Open,
                waker: None,
                buffer: None,
                used: None,
                counted: None,
            }),
        }
    }

    /// Counts the request as in flight from now on.
    pub(super) fn count_in(&self, among: &InFlightCount) {
        let mut state = self.state.lock();
        if matches!(state.end, RequestEnd::Open) && state.counted.is_none() {
            state.counted = Some(among.count());
        }
    }

    /// Sets the use of memory to record at the end.
    pub(super) fn set_use(&self, used: MemoryUse) {
        self.state.lock().used = Some(used);
    }

    /// Drops the use, because the data takes another route.
    pub(super) fn forget_use(&self) {
        self.state.lock().used = None;
    }

    /// Takes the use of memory, if the request has succeeded.
    pub(super) fn take_use(&self) -> Option<MemoryUse> {
        let mut state = self.state.lock();
        let used = state.used.take();
        used.filter(|_| matches!(state.end, RequestEnd::Ended(Ok(_))))
    }

    /// Marks the source of a send as free.
    pub(super) fn mark_source_free(&self) {
        self.state.lock().source_free = true;
    }

    /// Ends the request, and returns the buffer to its owner. Later ends are ignored.
    pub(super) fn end(&self, progress: &Progress, end: Result<Status>) {
        let mut state = self.state.lock();
        if !matches!(state.end, RequestEnd::Open) {
            return;
        }
        state.source_free = true;
        state.end = RequestEnd::Ended(end);
        // All accesses to the buffer come before this store.
        self.over.store(true, Release);
        let (waker, buffer) = (state.waker.take(), state.buffer.take());
        let counted = state.counted.take();
        // Wakers and buffers run code of the program, so no lock is held.
        drop(state);
        drop(buffer);
        if let Some(waker) = waker {
            progress.wake_task(waker);
        }
        // Other threads see the count at zero only after the request is over.
        drop(counted);
        progress.wake_sleepers();
    }

    pub(super) fn is_source_free(&self) -> bool {
        self.state.lock().source_free
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Takes the result, if the request has ended and the result was not taken.
    pub(super) fn take_result(&self) -> Result<Status> {
        let mut state = self.state.lock();
        match mem::replace(&mut state.end, RequestEnd::Taken) {
            RequestEnd::Ended(end) => end,
            RequestEnd::Taken => Err(already_taken()),
            RequestEnd::Open => {
                state.end = RequestEnd::Open;
                Err(already_taken())
            }
        }
    }

    /// Takes the failure, if the result was not taken.
    pub(super) fn take_failure(&self) -> Result<()> {
        let mut state = self.state.lock();
        match mem::replace(&mut state.end, RequestEnd::Taken) {
            RequestEnd::Ended(end) => end.map(drop),
            RequestEnd::Taken => Ok(()),
            RequestEnd::Open => {
                state.end = RequestEnd::Open;
                Err(already_taken())
            }
        }
    }

    /// Returns whether the result was taken.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.state.lock().end, RequestEnd::Taken)
    }

    /// Returns whether the request has succeeded and its result was not taken.
    pub(super) fn has_succeeded(&self) -> bool {
        matches!(self.state.lock().end, RequestEnd::Ended(Ok(_)))
    }

    /// Has the end wake a task. Returns `false` if the request is over.
    pub(super) fn wake_at_end(&self, progress: &Progress, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.state.lock();
        if !matches!(state.end, RequestEnd::Open) {
            return false;
        }
        let before = state.waker.replace(waker);
        drop(state);
        if before.is_none() {
            progress.task_begins();
        }
        true
    }

    /// Keeps the buffer until the end, because its owner is gone. Wakes no task any more.
    pub(super) fn keep_buffer(&self, progress: &Progress, buffer: Box<dyn Any + Send>) {
        let mut state = self.state.lock();
        let waker = state.waker.take();
        let over = match state.end {
            RequestEnd::Open => {
                state.buffer = Some(buffer);
                None
            }
            RequestEnd::Ended(_) | RequestEnd::Taken => Some(buffer),
        };
        drop(state);
        if waker.is_some() {
            progress.task_ends();
        }
        drop((waker, over));
    }
}

/// Ends a request, at the latest when this is dropped because the job is over.
pub(super) struct EndGuard {
    request: Arc<MessageRequest>,
    progress: Arc<Progress>,
}

impl EndGuard {
    pub(super) fn new(request: Arc<MessageRequest>, progress: &Arc<Progress>) -> Self {
        Self {
            request,
            progress: Arc::clone(progress),
        }
    }

    /// Leaves the end to somebody else.
    pub(super) fn forget(mut self) {
        self.request = Arc::new(MessageRequest::new());
    }

    pub(super) fn end(self, end: Result<Status>) {
        self.request.end(&self.progress, end);
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        // If the request has ended, this has no effect.
        self.request.end(&self.progress, Err(Error::JobOver));
    }
}
