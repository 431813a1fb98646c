//! Much own memory at once: registered in chunks, by several threads, within a time limit.
//!
//! The engine cuts the memory into chunks ([`Config::chunk`](hydrant_pinning::Config::chunk)) and decides on all of them
//! in one step. Each thread takes the next chunk and registers it, which makes its pages resident near the thread's
//! processor. Once a chunk failed or the time is over, the others are refused, so that the engine gives up those that are
//! registered.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{RegistrationCaps, memory::PAGE};
use hydrant_pinning::{Action, Decisions, Engine, Refusal, RegisteredExtent, Run};
use hydrant_smp::upon::available_memory;
use parking_lot::Mutex;

use super::{Registration, drive::Todo};
use crate::{Error, Result, Settings, counters::Count};

/// The most threads, unless the settings say more.
const MOST_THREADS: usize = 4;

/// The least bytes of a segment that are committed at once. Each time, the conduit asks what memory there is.
const LEAST_COMMITTED: usize = 4 << 20;

/// How much memory is registered at once.
#[derive(Clone, Copy)]
pub(super) struct BulkSettings {
    pub(super) threads: usize,
    /// The bytes of a chunk, as they were set.
    chunk: usize,
    /// The time limit, if there is one.
    pub(super) timeout: Option<Duration>,
}

impl BulkSettings {
    /// The settings of this rank, whose processors are those of the calling thread.
    pub(super) fn new(settings: &Settings) -> Self {
        let usual = || thread::available_parallelism().map_or(1, |own| own.get().min(MOST_THREADS));
        let timeout = settings.register_timeout;
        Self {
            threads: settings.register_threads.unwrap_or_else(usual),
            chunk: settings.register_chunk,
            timeout: (!timeout.is_zero()).then_some(timeout),
        }
    }
}

/// Returns the bytes of a chunk. In virtual time one call registers as much as the NIC takes, as in the papers.
pub(super) fn chunk(settings: &Settings, registration: &RegistrationCaps) -> u64 {
    if registration.follows_mapping {
        registration.max_extent as u64
    } else {
        settings.register_chunk.min(registration.max_extent) as u64
    }
}

/// A registration that the engine decided on.
struct Chunk {
    id: u64,
    need: Run,
    preferred: Run,
}

/// The chunks of one step, and how far the threads are.
struct Bulk {
    chunks: Vec<Chunk>,
    /// The index of the next chunk to register.
    next: AtomicUsize,
    /// True once a chunk failed.
    failed: AtomicBool,
    /// True once a chunk was left out because the time was over.
    late: AtomicBool,
    /// The bytes registered so far.
    registered: AtomicU64,
    until: Option<Instant>,
}

impl Registration {
    /// As [`step`](Self::step), for a decision to register `wanted` bytes. Several threads register.
    ///
    /// # Errors
    /// [`Error::RegistrationTimeout`]: the engine was told that the rest is refused.
    pub(super) fn step_in_bulk(
        &self,
        wanted: u64,
        tell: impl FnOnce(&mut Engine, &mut Decisions),
    ) -> Result<()> {
        let timeout = self.bulk.timeout;
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.progress.tally.add(Count::BulkBytes, wanted);
        let mut todo = Todo::new();
        self.call_engine(&mut todo, tell);
        let mut chunks = Vec::new();
        // Deregistrations that make room come first.
        while let Some(action) = todo.actions.pop_front() {
            match action {
                Action::Register {
                    id,
                    need,
                    preferred,
                } => chunks.push(Chunk {
                    id,
                    need,
                    preferred,
                }),
                action => self.perform(action, &mut todo, &[], &mut 0),
            }
        }
        todo.leave();
        let bulk = Bulk {
            chunks,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            late: AtomicBool::new(false),
            registered: AtomicU64::new(0),
            // In virtual time the clock of the machine says nothing.
            until: until.filter(|_| !self.progress.virtual_time),
        };
        self.by_threads(bulk.chunks.len(), &|| self.register_chunks(&bulk));
        let registered = bulk.registered.into_inner();
        let left = wanted.saturating_sub(registered);
        self.progress.tally.add(Count::BulkLeftBytes, left);
        if bulk.late.into_inner() {
            return Err(Error::RegistrationTimeout {
                rank: self.progress.rank,
                registered,
                wanted,
                seconds: timeout.map_or(0, |timeout| timeout.as_secs()),
            });
        }
        Ok(())
    }

    /// Registers one chunk after the other until none is left.
    fn register_chunks(&self, bulk: &Bulk) {
        while let Some(chunk) = bulk.chunks.get(bulk.next.fetch_add(1, Relaxed)) {
            let mut todo = Todo::new();
            todo.actions.push_back(Action::Register {
                id: chunk.id,
                need: chunk.need,
                preferred: chunk.preferred,
            });
            let mut registered = 0;
            while let Some(action) = todo.actions.pop_front() {
                match action {
                    // The engine may try again, when it has evicted something.
                    Action::Register {
                        id,
                        need,
                        preferred,
                    } if id == chunk.id => {
                        let result = self.register_chunk(bulk, need, preferred);
                        registered = result.map_or(0, |got| self.bytes_of(got.run).unsigned_abs());
                        self.call_engine(&mut todo, |engine, out| {
                            engine.registered(id, result, out);
                        });
                    }
                    action => self.perform(action, &mut todo, &[], &mut 0),
                }
            }
            todo.leave();
            bulk.registered.fetch_add(registered, Relaxed);
            (self.progress.tally).add(Count::BulkRegisteredBytes, registered);
            if registered == 0 {
                bulk.failed.store(true, Relaxed);
            }
            // The engine may have ended operations, too.
            self.progress.wake_sleepers();
        }
    }

    /// Registers one chunk, unless another failed or the time is over.
    fn register_chunk(
        &self,
        bulk: &Bulk,
        need: Run,
        preferred: Run,
    ) -> Result<RegisteredExtent, Refusal> {
        if bulk.failed.load(Relaxed) {
            return Err(Refusal::Limit);
        }
        if bulk.until.is_some_and(|until| Instant::now() >= until) {
            bulk.late.store(true, Relaxed);
            return Err(Refusal::Limit);
        }
        let got = self.register(need, preferred)?;
        self.record_change(self.bytes_of(got.run));
        Ok(got)
    }

    /// Gives memory to a part of the own segment, as [`commit`](hydrant_conduit::Segments::commit) does. Several threads
    /// make the pages resident where there are many.
    ///
    /// # Errors
    /// The conduit's. A part of the memory may be committed then.
    pub(crate) fn commit(&self, offset: usize, len: usize) -> Result<(), hydrant_conduit::Error> {
        let conduit = self.progress.conduit();
        let chunk = self.bulk.chunk.max(LEAST_COMMITTED).next_multiple_of(PAGE);
        let parts = len.div_ceil(chunk);
        // The check is made for the whole first, so that the failure of a part is rare.
        if parts < 2 || len as u64 > available_memory() {
            return conduit.commit(offset, len);
        }
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        self.by_threads(parts, &|| {
            loop {
                let start = chunk * next.fetch_add(1, Relaxed);
                if start >= len || failed.lock().is_some() {
                    break;
                }
                if let Err(cause) = conduit.commit(offset + start, chunk.min(len - start)) {
                    *failed.lock() = Some(cause);
                }
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Runs `work` by this thread and others, `most` at most.
    fn by_threads(&self, most: usize, work: &(impl Fn() + Sync)) {
        // In virtual time only threads of the ranks take turns.
        let threads = match self.progress.virtual_time {
            true => 1,
            false => self.bulk.threads.min(most),
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                let thread = thread::Builder::new().name("hydrant-register".to_owned());
                if let Err(cause) = thread.spawn_scoped(scope, work) {
                    tracing::debug!(%cause, "memory is registered by fewer threads");
                    break;
                }
            }
            work();
        });
    }
}
