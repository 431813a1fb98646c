//! Own memory that is registered in the background, before its first use: chunk by chunk, by a few threads that end when
//! nothing is left to register.
//!
//! A thread first makes the pages of a chunk resident, and then has the engine register it. Until then the engine knows
//! nothing of the chunk. So an operation on it takes the ordinary way, and waits for pages of its own at most. An operation on the
//! chunk that is being registered waits for that one call. Nothing holds the memory afterwards: the rules of victims
//! apply.
//!
//! The registration of a request ends early where M is reached, where the system refuses more, at the time limit, and when the
//! memory is freed or lent no more.

#![allow(unsafe_code)] // asks the system for pages of own memory

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    thread::JoinHandle,
    time::Instant,
};

use hydrant_conduit::memory::Place;
use hydrant_pinning::Run;
use parking_lot::Mutex;

use super::{Registration, foreseen::Foreseen};
use crate::{
    Result,
    counters::Count,
    progress::{For, On, Progress},
};

/// The requests that wait for threads, and the threads.
#[derive(Default)]
pub(super) struct BulkQueue(Mutex<BulkState>);

#[derive(Default)]
struct BulkState {
    /// Requests that are not over, the oldest first.
    requests: VecDeque<Arc<BulkRequest>>,
    /// The threads that look for chunks.
    working: usize,
    /// The threads that were started, and are not joined yet.
    threads: Vec<JoinHandle<()>>,
    /// True at the end of the job.
    is_stopped: bool,
}

/// Memory to register, and how far that is.
struct BulkRequest {
    run: Run,
    /// The buckets of a chunk.
    chunk: u64,
    /// The bytes of a bucket.
    bucket: u64,
    until: Option<Instant>,
    /// The buckets that threads have taken; more than there are, once nothing is left.
    taken: AtomicU64,
    /// The buckets that are registered.
    registered: AtomicU64,
    /// The buckets that are left unregistered.
    left: AtomicU64,
}

/// Own memory that is being registered in the background. The registration goes on if this is dropped.
#[must_use = "it tells how far the registration is"]
pub struct BulkRegistration {
    progress: Arc<Progress>,
    request: Arc<BulkRequest>,
}

impl BulkRegistration {
    /// Makes the handle of memory that is not registered at all.
    pub(crate) fn nothing(progress: &Arc<Progress>) -> Self {
        let none = Run { first: 0, count: 0 };
        Self {
            progress: Arc::clone(progress),
            request: Arc::new(BulkRequest::new(none, 1, 1, None)),
        }
    }

    /// Returns the bytes to register, in whole buckets; 0 where memory is not registered.
    pub fn bytes(&self) -> u64 {
        self.request.run.count * self.request.bucket
    }

    /// Returns the bytes that were registered so far.
    pub fn registered(&self) -> u64 {
        self.request.registered.load(Acquire) * self.request.bucket
    }

    /// Returns the bytes that are left unregistered: a limit was reached, the time was over, or the memory was freed. They
    /// are registered or copied when they are used.
    pub fn left(&self) -> u64 {
        self.request.left.load(Acquire) * self.request.bucket
    }

    /// Returns whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.request.is_over()
    }

    /// Waits until nothing is left to do. Returns the bytes that were registered.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler); [`Error::JobOver`](crate::Error::JobOver) if this rank left;
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn wait(&self) -> Result<u64> {
        self.progress.check_origin()?;
        self.progress.may_wait("wait")?;
        let is_over = || self.request.is_over();
        self.progress.wait(On::Nobody, For::Message, is_over)?;
        Ok(self.registered())
    }
}

impl BulkRequest {
    fn new(run: Run, chunk: u64, bucket: u64, until: Option<Instant>) -> Self {
        Self {
            run,
            chunk,
            bucket,
            until,
            taken: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    /// Takes the next chunk.
    fn take(&self) -> Option<Run> {
        let at = self.taken.fetch_add(self.chunk, AcqRel);
        (at < self.run.count).then(|| Run {
            first: self.run.first + at,
            count: self.chunk.min(self.run.count - at),
        })
    }

    /// Takes all that is left. Returns the number of buckets.
    fn take_rest(&self) -> u64 {
        let at = self.taken.swap(self.run.count, AcqRel);
        self.run.count.saturating_sub(at)
    }

    fn is_over(&self) -> bool {
        self.registered.load(Acquire) + self.left.load(Acquire) >= self.run.count
    }
}

impl Registration {
    /// Asks for own memory to be registered. Returns the request, and the number of threads that the caller starts for
    /// [`register_waiting`](Self::register_waiting).
    pub(crate) fn ask_in_background(&self, addr: u64, len: u64) -> (BulkRegistration, usize) {
        let run = self.whole_own_buckets(addr, len);
        let settings = &self.bulk;
        let until = settings
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout))
            .filter(|_| !self.progress.virtual_time);
        let bucket = self.geometry.bucket();
        let request = Arc::new(BulkRequest::new(run, self.limits.chunk, bucket, until));
        let handle = BulkRegistration {
            progress: Arc::clone(&self.progress),
            request: Arc::clone(&request),
        };
        (self.progress.tally).add(Count::BulkBytes, run.count * bucket);
        let threads = {
            let mut state = self.background.0.lock();
            if state.is_stopped {
                drop(state);
                self.leave_rest(&request);
                return (handle, 0);
            }
            state.threads.retain(|thread| !thread.is_finished());
            state.requests.retain(|request| !request.is_over());
            state.requests.push_back(request);
            let chunks = run.count.div_ceil(self.limits.chunk);
            let most = settings.threads.min(chunks as usize);
            // In virtual time no thread runs beside the ranks.
            let threads = match self.progress.virtual_time {
                true => 1,
                false => most.saturating_sub(state.working),
            };
            state.working += threads;
            threads
        };
        if self.progress.virtual_time {
            self.register_waiting();
            return (handle, 0);
        }
        (handle, threads)
    }

    /// Keeps a thread, which is joined at the end of the job.
    pub(crate) fn keep_thread(&self, thread: JoinHandle<()>) {
        self.background.0.lock().threads.push(thread);
    }

    /// Registers chunks until none waits. One call for each thread that was asked for.
    pub(crate) fn register_waiting(&self) {
        while let Some((request, chunk)) = self.next_chunk() {
            let is_late = request.until.is_some_and(|until| Instant::now() >= until);
            let is_registered = !is_late && {
                // Memory that is freed meanwhile loses these pages again, or is not there.
                self.make_resident(chunk);
                self.register_ahead(chunk)
            };
            let (count, buckets) = match is_registered {
                true => (Count::BulkRegisteredBytes, &request.registered),
                false => (Count::BulkLeftBytes, &request.left),
            };
            self.progress.tally.add(count, chunk.count * request.bucket);
            buckets.fetch_add(chunk.count, Release);
            if !is_registered {
                // The next chunk would fare no better.
                self.leave_rest(&request);
            }
            self.progress.wake_sleepers();
        }
    }

    /// Stops all requests on memory that is about to be taken back.
    pub(super) fn leave_unregistered(&self, run: Run) {
        let of_run = self.requests_of(run);
        of_run.iter().for_each(|request| self.leave_rest(request));
    }

    /// Returns whether a thread makes or registers memory of a run.
    pub(super) fn is_in_the_background(&self, run: Run) -> bool {
        self.requests_of(run)
            .iter()
            .any(|request| !request.is_over())
    }

    fn requests_of(&self, run: Run) -> Vec<Arc<BulkRequest>> {
        let state = self.background.0.lock();
        let all = state.requests.iter();
        all.filter(|request| request.run.overlaps(run))
            .cloned()
            .collect()
    }

    /// Ends the threads, and all requests.
    pub(crate) fn stop_background(&self) {
        let (requests, threads) = {
            let mut state = self.background.0.lock();
            state.is_stopped = true;
            (
                std::mem::take(&mut state.requests),
                std::mem::take(&mut state.threads),
            )
        };
        requests.iter().for_each(|request| self.leave_rest(request));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!(rank = %self.progress.rank, "a thread that registers memory panicked");
            }
        }
    }

    /// Returns the address of the own segment.
    ///
    /// # Errors
    /// The launcher's.
    pub(crate) fn own_segment(&self) -> Result<u64> {
        self.segments.of(self.progress.rank)
    }

    /// Takes the next chunk of the oldest request. Returns nothing if none waits: the thread ends.
    fn next_chunk(&self) -> Option<(Arc<BulkRequest>, Run)> {
        let mut state = self.background.0.lock();
        state.requests.retain(|request| !request.is_over());
        for request in &state.requests {
            if let Some(chunk) = request.take() {
                return Some((Arc::clone(request), chunk));
            }
        }
        state.working -= 1;
        None
    }

    fn leave_rest(&self, request: &BulkRequest) {
        let rest = request.take_rest();
        (self.progress.tally).add(Count::BulkLeftBytes, rest * request.bucket);
        request.left.fetch_add(rest, Release);
        self.progress.wake_sleepers();
    }

    /// Registers a chunk, if there is room for it. Returns whether it is registered.
    fn register_ahead(&self, chunk: Run) -> bool {
        let addr = self.geometry.address_of(chunk.first);
        let len = self.geometry.address_of(chunk.end()) - addr;
        loop {
            let judged = self.lent.ends();
            let outcome = self.register_early(addr, len, |engine, id, out| {
                engine.register_ahead(id, addr, len, out) == Ok(true)
            });
            match outcome {
                Foreseen::Registered => return true,
                // Memory was withdrawn meanwhile, which may be any.
                Foreseen::Refused if self.lent.ends() != judged => {}
                Foreseen::Refused => return false,
                // Another thread registers a part of it, or is about to deregister one.
                Foreseen::InFlight(id) => return self.until_held(id).is_ok(),
            }
        }
    }

    /// Makes the pages of a run resident, near this thread's processor. Pages that are resident stay
    /// where they are.
    fn make_resident(&self, run: Run) {
        if self.progress.virtual_time {
            return;
        }
        let start = self.geometry.address_of(run.first);
        let end = self.geometry.address_of(run.end());
        // SAFETY: nothing is stored through this place.
        let place = unsafe { Place::new(start, end - start) };
        // Pages that cannot be had are refused by the registration, with the reason.
        let _ = place.make_resident();
    }

    /// Returns the buckets of own memory. A bucket of several pages that others share is left out.
    fn whole_own_buckets(&self, addr: u64, len: u64) -> Run {
        let geometry = self.geometry;
        let Ok(mut run) = geometry.span(addr, len) else {
            return Run { first: 0, count: 0 };
        };
        if self.shares_buckets() && run.count > 0 {
            let end = match geometry.address_of(run.end()) == addr + len {
                true => run.end(),
                false => run.end() - 1,
            };
            run.first += u64::from(geometry.address_of(run.first) != addr);
            run.count = end.saturating_sub(run.first);
        }
        run
    }
}
