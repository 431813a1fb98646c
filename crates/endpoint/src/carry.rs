//! The transfer of a batch, chunk by chunk, by any number of threads.

#![allow(unsafe_code)] // copies between raw ranges

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    task::{Context, Poll},
    time::Instant,
};

use hydrant_fabric::FabricPeers;
use hydrant_local::CopyStep;
use parking_lot::Mutex;

use crate::{
    Error,
    lent::OwnUse,
    link::FarLink,
    opened::FarFailure,
    plan::{BatchChunk, BatchPlan},
    promise::Promise,
    state::{EndpointCommand, EndpointState},
    workers::SharedWork,
};

/// States of a chunk.
const UNTOUCHED: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
/// The network has failed: any of its bytes may have been transferred.
const UNKNOWN: u8 = 3;

/// The most chunks that are on the network at a time. A cancel waits for these.
const IN_FLIGHT: usize = 16;

/// The fate of a part of a batch that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartState {
    /// All of it was transferred.
    Done,
    /// Some of it was transferred, or may have been.
    Partial,
    /// Nothing of it was transferred.
    Untouched,
}

/// A batch under way.
pub(crate) struct BatchCore {
    endpoint: Arc<EndpointState>,
    plan: BatchPlan,
    /// The own regions in use, until the batch is over.
    uses: Mutex<Vec<OwnUse>>,
    chunks: Vec<BatchChunk>,
    states: Box<[AtomicU8]>,
    /// The chunks that threads copy, and the next one that nobody has claimed.
    near: Box<[u32]>,
    next: AtomicUsize,
    far: FarChunks,
    /// The number of its accesses on the network.
    group: u64,
    /// The chunks that are over.
    over: AtomicUsize,
    done: AtomicU64,
    /// True once no chunk may begin any more.
    is_stopped: AtomicBool,
    /// The first cause of a stop.
    cause: Mutex<Option<Error>>,
    /// The bytes that were copied of chunks that failed.
    failed: Mutex<Vec<(usize, usize)>>,
    is_over: AtomicBool,
    promise: Arc<Promise<()>>,
}

/// The chunks that go over the network. One thread at a time hands them over.
struct FarChunks {
    chunks: Box<[u32]>,
    /// The next one. Only the thread that hands over uses it.
    next: AtomicUsize,
    in_flight: AtomicUsize,
    /// The calls to hand over since the last time when a thread did all.
    calls: AtomicUsize,
}

impl BatchCore {
    /// # Safety
    /// 1. Until the batch is over, the local memory of each step stays valid, writable for reads and readable for writes.
    ///    Nobody holds a reference to what is written.
    pub(crate) unsafe fn new(endpoint: &Arc<EndpointState>, mut plan: BatchPlan) -> Arc<Self> {
        let chunks = plan.chunks();
        let is_far = |chunk: &BatchChunk| {
            let link = &plan.remotes[chunk.remote as usize].session.link;
            link.far().is_some()
        };
        let (far, near): (Vec<u32>, Vec<u32>) =
            (0..chunks.len() as u32).partition(|index| is_far(&chunks[*index as usize]));
        let batch = Self {
            endpoint: Arc::clone(endpoint),
            uses: Mutex::new(std::mem::take(&mut plan.uses)),
            states: chunks.iter().map(|_| AtomicU8::new(UNTOUCHED)).collect(),
            chunks,
            plan,
            near: near.into(),
            next: AtomicUsize::new(0),
            far: FarChunks {
                chunks: far.into(),
                next: AtomicUsize::new(0),
                in_flight: AtomicUsize::new(0),
                calls: AtomicUsize::new(0),
            },
            group: endpoint.fresh_number(),
            over: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            cause: Mutex::default(),
            failed: Mutex::default(),
            is_over: AtomicBool::new(false),
            promise: Promise::new(),
        };
        let batch = Arc::new(batch);
        if batch.chunks.is_empty() {
            batch.come_to_end();
        }
        batch
    }

    /// Returns true if a chunk may begin. The batch is stopped once its deadline has passed.
    fn may_begin(&self) -> bool {
        if let Some(deadline) = self.plan.deadline
            && Instant::now() >= deadline
        {
            self.stop(|done, all| Error::DeadlinePassed { done, all });
        }
        !self.is_stopped.load(Acquire)
    }

    fn steps(&self, chunk: &BatchChunk) -> &[CopyStep] {
        let first = chunk.first_step as usize;
        &self.plan.steps[first..first + chunk.steps as usize]
    }

    /// Notes that a chunk is done.
    fn note_done(&self, index: usize) {
        let steps = self.steps(&self.chunks[index]);
        let bytes: usize = steps.iter().map(|step| step.len).sum();
        self.done.fetch_add(bytes as u64, Relaxed);
        self.states[index].store(DONE, Release);
    }

    /// Notes that a chunk is over.
    fn note_over(&self) {
        if self.over.fetch_add(1, AcqRel) + 1 == self.chunks.len() {
            self.come_to_end();
        }
    }

    /// Copies a chunk.
    fn carry(&self, index: usize) {
        if !self.may_begin() {
            return;
        }
        let chunk = &self.chunks[index];
        let steps = self.steps(chunk);
        let remote = &self.plan.remotes[chunk.remote as usize];
        // SAFETY: 1. and 2. condition 1 of `new`, until the batch is over, which it is only after this chunk.
        let copied = unsafe { remote.copy(chunk.how, steps) };
        match copied {
            Ok(()) => self.note_done(index),
            Err((bytes, error)) => {
                self.done.fetch_add(bytes as u64, Relaxed);
                self.failed.lock().push((index, bytes));
                self.states[index].store(FAILED, Release);
                self.stop(|_, _| error);
            }
        }
    }

    /// Hands chunks to the network, as many as may be on it. Each one that is over calls this again.
    fn hand_over(self: &Arc<Self>) {
        let far = &self.far;
        let mut calls = far.calls.fetch_add(1, AcqRel) + 1;
        if calls > 1 {
            // The thread that hands over looks again.
            return;
        }
        loop {
            while far.in_flight.load(Acquire) < IN_FLIGHT {
                let Some(index) = far.chunks.get(far.next.load(Relaxed)) else {
                    break;
                };
                far.next.fetch_add(1, Relaxed);
                far.in_flight.fetch_add(1, AcqRel);
                self.post(*index as usize);
            }
            match (far.calls).compare_exchange(calls, 0, AcqRel, Acquire) {
                Ok(_) => return,
                Err(more) => calls = more,
            }
        }
    }

    /// Hands a chunk to the network.
    fn post(self: &Arc<Self>, index: usize) {
        if !self.may_begin() {
            return self.end_post(index, UNTOUCHED);
        }
        let chunk = &self.chunks[index];
        let batch = Arc::clone(self);
        let finish = move |outcome: Result<(), FarFailure>| match outcome {
            Ok(()) => {
                batch.note_done(index);
                batch.end_post(index, DONE);
            }
            Err(failure) => {
                batch.stop(|_, _| failure.error);
                let state = if failure.is_untouched {
                    UNTOUCHED
                } else {
                    UNKNOWN
                };
                batch.end_post(index, state);
            }
        };
        let remote = &self.plan.remotes[chunk.remote as usize];
        // SAFETY: 1. condition 1 of `new`, until the batch is over, which it is only after this chunk.
        unsafe { remote.begin_far(chunk.how, self.steps(chunk), self.group, finish) };
        // A stop may have come between the look above and the begin.
        if self.is_stopped.load(Acquire) {
            self.stop_waiting();
        }
    }

    /// Lets the chunks that wait for their owners wait no longer.
    fn stop_waiting(&self) {
        if self.far.in_flight.load(Acquire) == 0 {
            return;
        }
        let mut told: Vec<Arc<FabricPeers>> = Vec::new();
        for remote in &self.plan.remotes {
            let peers = remote.session.link.far().and_then(FarLink::peers);
            if let Some(peers) = peers
                && !told.iter().any(|other| Arc::ptr_eq(other, &peers))
            {
                peers.stop_waiting(self.group);
                told.push(peers);
            }
        }
    }

    /// Notes that the network has no part of a chunk any more.
    fn end_post(self: &Arc<Self>, index: usize, state: u8) {
        self.states[index].store(state, Release);
        self.far.in_flight.fetch_sub(1, AcqRel);
        self.note_over();
        self.hand_over();
    }

    /// Lets no chunk begin any more. The first cause counts, if anything is left to do.
    fn stop(&self, cause: impl FnOnce(u64, u64) -> Error) {
        let mut first = self.cause.lock();
        if first.is_none() && self.over.load(Acquire) < self.chunks.len() {
            *first = Some(cause(self.done.load(Relaxed), self.plan.bytes));
        }
        self.is_stopped.store(true, Release);
    }

    /// Ends the batch: all chunks are over.
    fn come_to_end(&self) {
        let mut cause = self.cause.lock();
        if cause.is_none()
            && let Some((endpoint, session, message)) = &self.plan.message
        {
            match session.send(message, None) {
                Ok(sent) => endpoint.after_send(session, sent),
                Err(error) => *cause = Some(error),
            }
        }
        drop(cause);
        self.is_over.store(true, Release);
        // A handle that is forgotten must not hold up the revocation of a region.
        self.uses.lock().clear();
        let _ = self.promise.keep(());
        if let Some(waker) = self.promise.take_waker() {
            self.endpoint.wake(waker);
        }
    }

    /// Stops the batch, and waits until nothing of it lands any more.
    fn cancel(self: &Arc<Self>) {
        if !self.is_over.load(Acquire) {
            self.stop(|done, all| Error::Cancelled { done, all });
            self.stop_waiting();
            self.work();
            self.wait();
        }
    }

    /// Lends this thread's time to the network if the batch is on it: for a while, or once.
    fn poll_network(&self, for_a_while: bool) {
        if self.far.in_flight.load(Acquire) == 0 || self.is_over.load(Acquire) {
            return;
        }
        if let Some(peers) = self.endpoint.far.peers() {
            if for_a_while {
                peers.poll_for_a_while(|| self.is_over.load(Acquire));
            } else {
                peers.poll_once();
            }
        }
    }

    /// Waits until the batch is over.
    fn wait(&self) {
        self.poll_network(true);
        while !self.is_over.load(Acquire) {
            let _ = self.promise.wait(None);
            // Another waiter may have taken the value, and nobody else waits for this one.
            let _ = self.promise.keep(());
        }
    }

    fn result(self: &Arc<Self>) -> Result<(), BatchFailure> {
        match &*self.cause.lock() {
            None => Ok(()),
            Some(cause) => Err(BatchFailure {
                cause: cause.clone(),
                batch: Arc::clone(self),
            }),
        }
    }

    /// Hands the batch to the workers, or copies here if it is short or there are none.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn start(self: &Arc<Self>, inline: u64) -> crate::Result<()> {
        self.endpoint.check_open()?;
        self.watch_deadline();
        if self.near.is_empty() {
            self.hand_over();
        } else if self.plan.bytes <= inline || !self.endpoint.workers.submit(Arc::clone(self) as _)
        {
            self.work();
        }
        Ok(())
    }

    /// Copies here, with the workers if it is long, and waits for the end.
    pub(crate) fn run(self: &Arc<Self>) -> Result<(), BatchFailure> {
        if self.near.len() > 1 {
            // Without workers this thread copies all.
            let _ = self.endpoint.workers.submit(Arc::clone(self) as _);
        }
        self.watch_deadline();
        self.work();
        self.wait();
        self.result()
    }

    /// Has the endpoint's thread stop chunks on the network at the deadline. Others are short.
    fn watch_deadline(self: &Arc<Self>) {
        if let Some(deadline) = self.plan.deadline
            && !self.far.chunks.is_empty()
        {
            let batch: Weak<Self> = Arc::downgrade(self);
            let command = EndpointCommand::Expire(deadline, batch);
            self.endpoint.commands.push(command);
        }
    }

    /// Carries one chunk, if one waits. Returns whether it did.
    fn help_once(&self) -> bool {
        let index = self.next.fetch_add(1, AcqRel);
        let Some(index) = self.near.get(index) else {
            // Keeps the counter from wrapping around.
            self.next.store(self.near.len(), Relaxed);
            return false;
        };
        self.carry(*index as usize);
        self.note_over();
        true
    }

    /// Hands everything over, and copies what nobody has claimed.
    fn work(self: &Arc<Self>) {
        if !self.far.chunks.is_empty() {
            self.hand_over();
        }
        while self.help_once() {}
    }

    /// Returns the fate of a part.
    fn part(&self, index: usize) -> Option<PartState> {
        let part = self.plan.parts.get(index)?;
        let (mut any, mut all) = (false, true);
        let steps = part.first_step..part.first_step + part.steps;
        let first =
            (self.chunks).partition_point(|chunk| chunk.first_step + chunk.steps <= steps.start);
        for at in first..self.chunks.len() {
            let chunk = self.chunks[at];
            if chunk.first_step >= steps.end {
                break;
            }
            let both =
                chunk.first_step.max(steps.start)..(chunk.first_step + chunk.steps).min(steps.end);
            match self.states[at].load(Acquire) {
                DONE => any = true,
                UNTOUCHED => all = false,
                UNKNOWN => (any, all) = (true, false),
                _ => {
                    let failed = self.failed.lock();
                    let copied = (failed.iter()).find(|(index, _)| *index == at);
                    let copied = copied.map_or(0, |(_, bytes)| *bytes);
                    let bytes_to = |step: u32| -> usize {
                        let steps = chunk.first_step as usize..step as usize;
                        self.plan.steps[steps].iter().map(|step| step.len).sum()
                    };
                    any |= bytes_to(both.start) < copied;
                    all &= bytes_to(both.end) <= copied;
                }
            }
        }
        Some(match (any, all) {
            (_, true) => PartState::Done,
            (true, false) => PartState::Partial,
            (false, false) => PartState::Untouched,
        })
    }
}

impl SharedWork for BatchCore {
    fn chunks(&self) -> usize {
        self.near.len()
    }

    fn help(self: Arc<Self>) {
        self.work();
    }

    fn close(self: Arc<Self>) {
        self.stop(|_, _| Error::Closed);
        self.work();
    }

    fn expire(&self) {
        if !self.may_begin() {
            self.stop_waiting();
        }
    }
}

/// A batch under way. It is awaited as a future, or by [`wait`](Self::wait).
///
/// A handle that is dropped cancels the batch.
#[must_use = "a batch whose handle is dropped is cancelled"]
pub struct BatchHandle {
    batch: Option<Arc<BatchCore>>,
}

impl BatchHandle {
    pub(crate) fn new(batch: Arc<BatchCore>) -> Self {
        Self { batch: Some(batch) }
    }

    /// Makes the handle of a batch without parts.
    pub(crate) fn empty() -> Self {
        Self { batch: None }
    }

    /// Returns whether the batch is over. Then [`wait`](Self::wait) returns at once.
    pub fn is_over(&self) -> bool {
        (self.batch.as_ref()).is_none_or(|batch| batch.is_over.load(Acquire))
    }

    /// Copies at most 1 MiB in this thread, if some waits for a worker. Returns whether the batch is over. A program that
    /// polls lends its time so.
    pub fn help(&self) -> bool {
        let Some(batch) = &self.batch else {
            return true;
        };
        if !batch.is_over.load(Acquire) && batch.endpoint.check_origin().is_ok() {
            batch.help_once();
            batch.poll_network(false);
        }
        batch.is_over.load(Acquire)
    }

    /// Waits until the batch is over. This thread copies, too.
    ///
    /// # Errors
    /// [`BatchFailure`].
    pub fn wait(mut self) -> Result<(), BatchFailure> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        batch.work();
        batch.wait();
        batch.result()
    }

    /// Stops the batch. When this returns, nothing of it lands any more. A batch that was over before keeps its result.
    ///
    /// # Errors
    /// [`BatchFailure`], with [`Error::Cancelled`] unless the batch was over.
    pub fn cancel(mut self) -> Result<(), BatchFailure> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        batch.cancel();
        batch.result()
    }
}

impl Future for BatchHandle {
    type Output = Result<(), BatchFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(batch) = &self.batch else {
            return Poll::Ready(Ok(()));
        };
        if !batch.is_over.load(Acquire) && batch.promise.poll(context).is_pending() {
            return Poll::Pending;
        }
        let result = batch.result();
        self.batch = None;
        Poll::Ready(result)
    }
}

impl Drop for BatchHandle {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take()
            && batch.endpoint.check_origin().is_ok()
        {
            batch.cancel();
        }
    }
}

impl fmt::Debug for BatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchHandle(is over: {})", self.is_over())
    }
}

/// The failure of a batch: the first cause, and the fate of each part. Nothing of the batch lands any more.
#[derive(Clone)]
pub struct BatchFailure {
    cause: Error,
    batch: Arc<BatchCore>,
}

impl BatchFailure {
    /// Returns the first cause.
    pub fn cause(&self) -> &Error {
        &self.cause
    }

    /// Returns the number of parts of the batch.
    pub fn parts(&self) -> usize {
        self.batch.plan.parts.len()
    }

    /// Returns the fate of the part with this index, in the order in which they were added; `None` if there is none.
    pub fn part(&self, index: usize) -> Option<PartState> {
        self.batch.part(index)
    }
}

impl fmt::Display for BatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl fmt::Debug for BatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl std::error::Error for BatchFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<BatchFailure> for Error {
    fn from(failure: BatchFailure) -> Self {
        failure.cause
    }
}
