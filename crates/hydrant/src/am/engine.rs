//! The handlers of a rank, and what it waits for.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::HandlerContext;
use crate::{Error, Job, Result, collective::Operation, progress};

/// Most handlers of a job.
const MAX_HANDLERS: usize = 1024;
/// Failures kept for [`Job::am_quiet`]; later ones only count.
const MAX_FAILURES: usize = 64;

pub(super) type HandlerFn = Box<dyn Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync>;

/// Names a handler on every rank. Made by [`Job::handler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handler {
    pub(super) number: u16,
    pub(super) job: u64,
}

impl Handler {
    /// The handler's number: handlers are counted from zero, alike on every rank.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// What a rank knows of active messages.
pub(crate) struct Engine {
    handlers: Box<[OnceLock<HandlerFn>]>,
    pub(super) calls: Calls,
    failures: Mutex<VecDeque<Error>>,
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            handlers: (0..MAX_HANDLERS).map(|_| OnceLock::new()).collect(),
            calls: Calls::default(),
            failures: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn handler(&self, number: u16) -> Option<&HandlerFn> {
        self.handlers.get(usize::from(number))?.get()
    }

    /// The number of the next handler. It is used up by one that all ranks registered: one that
    /// is refused may be refused on some of them alone.
    fn next_number(&self) -> Result<u16> {
        let free = self.handlers.iter().position(|slot| slot.get().is_none());
        free.map(|number| number as u16)
            .ok_or(Error::TooManyHandlers {
                limit: MAX_HANDLERS,
            })
    }

    fn register(&self, number: u16, handler: HandlerFn) -> Result<()> {
        let slot = self.handlers.get(usize::from(number));
        slot.and_then(|slot| slot.set(handler).ok())
            .ok_or(Error::TooManyHandlers {
                limit: MAX_HANDLERS,
            })
    }

    /// Keeps a failure for the next [`Job::am_quiet`].
    pub(super) fn fail(&self, error: Error) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < MAX_FAILURES {
            failures.push_back(error);
        }
    }

    pub(super) fn failure(&self) -> Option<Error> {
        (self.failures.lock().unwrap_or_else(PoisonError::into_inner)).pop_front()
    }
}

impl Job {
    /// Registers a handler for requests and replies. Collective: every rank registers the
    /// same handlers in the same order, and when this returns every rank has it.
    ///
    /// The handler gets its [context](HandlerContext), the arguments and the payload. It may
    /// reply and may use memory directly, but not wait.
    ///
    /// # Errors
    /// [`Error::TooManyHandlers`], [`Error::CollectiveMismatch`], [`Error::PeerLost`].
    pub fn handler(
        &self,
        handler: impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static,
    ) -> Result<Handler> {
        progress::may_wait("handler")?;
        let core = self.core();
        let affair = self.world().affair(Operation::Handler)?;
        let number = core.am.next_number()?;
        let numbers = affair.all_gather(&u64::from(number))?;
        for (rank, other) in self.ranks().zip(numbers) {
            if other != u64::from(number) {
                return Err(Error::CollectiveMismatch {
                    operation: "handler",
                    rank,
                    theirs: format!("registers handler number {other}"),
                    own: core.rank,
                    ours: format!("registers handler number {number}"),
                });
            }
        }
        core.am.register(number, Box::new(handler))?;
        // Only now may a peer send to it.
        affair.barrier()?;
        Ok(Handler {
            number,
            job: core.id,
        })
    }
}

/// Remote calls that wait for their results.
#[derive(Default)]
pub(super) struct Calls {
    open: Mutex<HashMap<u64, Option<Result<Vec<u8>>>>>,
    next: AtomicU64,
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Option<Result<Vec<u8>>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) -> u64 {
        let id = self.next.fetch_add(1, Relaxed);
        self.open().insert(id, None);
        id
    }

    /// A result came; `false` if nobody waits for it.
    pub(super) fn end(&self, id: u64, result: Result<Vec<u8>>) -> bool {
        match self.open().get_mut(&id) {
            Some(slot) => {
                *slot = Some(result);
                true
            }
            None => false,
        }
    }

    pub(super) fn take(&self, id: u64) -> Option<Result<Vec<u8>>> {
        let mut open = self.open();
        let result = open.get_mut(&id)?.take()?;
        open.remove(&id);
        Some(result)
    }

    pub(super) fn forget(&self, id: u64) {
        self.open().remove(&id);
    }
}
