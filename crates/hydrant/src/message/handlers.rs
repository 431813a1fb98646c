//! The handlers of a rank, and how its requests failed.

use std::{
    collections::VecDeque,
    fmt,
    panic::Location,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{
    Calls, HandlerContext,
    large::{Large, Later, Lent, Rendezvous},
};
use crate::{Error, Rank, Result, progress::Progress};

/// Most handlers of a job.
const MAX_HANDLERS: usize = 1024;
/// Failures kept for [`Job::am_quiet`](crate::Job::am_quiet); later ones only count.
const MAX_FAILURES: usize = 64;

pub(crate) type HandlerFn = Box<dyn Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync>;

/// Names a handler on every rank. Made by [`Job::handler`](crate::Job::handler).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handler {
    pub(crate) number: u16,
    pub(crate) job: u64,
}

impl Handler {
    /// The handler's number: handlers are counted from zero, alike on every rank.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// The Rust name of a handler or a function, and where it was registered.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) called: &'static str,
    pub(crate) site: &'static Location<'static>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (self.site.file(), self.site.line());
        write!(f, "`{}` of {file}:{line}", self.called)
    }
}

/// What a rank knows of active messages.
pub(crate) struct Messages {
    /// By number; each set once, by every rank.
    handlers: Box<[OnceLock<HandlerFn>]>,
    /// The names, for errors; by number.
    names: Mutex<Vec<Name>>,
    /// What this rank asked others and waits for.
    pub(super) calls: Arc<Calls>,
    /// Arguments and results that no message takes.
    large: Arc<Large>,
    /// How plain requests failed, until that is asked for.
    failures: Mutex<VecDeque<Error>>,
}

impl Messages {
    pub(crate) fn new(rendezvous: Box<dyn Rendezvous>) -> Self {
        Self {
            handlers: (0..MAX_HANDLERS).map(|_| OnceLock::new()).collect(),
            names: Mutex::default(),
            calls: Arc::default(),
            large: Arc::new(Large::new(rendezvous)),
            failures: Mutex::default(),
        }
    }

    /// What this rank asked others and waits for.
    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Arguments and results that no message takes.
    pub(super) fn large(&self) -> &Arc<Large> {
        &self.large
    }

    /// Lends the argument of a call.
    pub(crate) fn lend(&self, argument: Vec<u8>) -> Later<Result<(u64, Lent)>> {
        self.large.rendezvous.lend(argument)
    }

    /// The job is over: nothing is lent any more.
    pub(crate) fn close(&self) {
        self.calls.close();
        self.large.close();
    }

    #[inline]
    pub(super) fn handler(&self, number: u16) -> Option<&HandlerFn> {
        self.handlers.get(usize::from(number))?.get()
    }

    /// The number of the next handler. It is used up by one that all ranks registered: one that
    /// is refused may be refused on some of them alone.
    ///
    /// # Errors
    /// [`Error::TooManyHandlers`].
    pub(crate) fn next_number(&self) -> Result<u16> {
        let free = self.handlers.iter().position(|slot| slot.get().is_none());
        free.map(|number| number as u16)
            .ok_or(Error::TooManyHandlers {
                limit: MAX_HANDLERS,
            })
    }

    /// The name of a handler here, by its number: all ranks register the same ones.
    pub(super) fn name(&self, number: u16) -> String {
        let names = self.names.lock();
        let name = names.get(usize::from(number));
        name.map_or_else(|| "a function unknown here".to_owned(), Name::to_string)
    }

    /// Sets the handlers of successive numbers.
    ///
    /// # Errors
    /// [`Error::TooManyHandlers`].
    pub(crate) fn register(&self, number: u16, name: Name, handler: HandlerFn) -> Result<()> {
        self.names.lock().push(name);
        let slot = self.handlers.get(usize::from(number));
        slot.and_then(|slot| slot.set(handler).ok())
            .ok_or(Error::TooManyHandlers {
                limit: MAX_HANDLERS,
            })
    }

    /// Handles an answer of `from`, as [`Calls::end`], and keeps the failure of a one-way call.
    pub(crate) fn end_call(
        &self,
        progress: &Progress,
        from: Rank,
        id: u64,
        answer: Result<Vec<u8>>,
    ) -> bool {
        let answer = match answer {
            Err(cause) if self.calls.is_one_way(from, id) => {
                // Before any thread can see that the call is over.
                self.fail(cause);
                Ok(Vec::new())
            }
            answer => answer,
        };
        self.calls.end(progress, from, id, answer)
    }

    /// Keeps a failure for the next [`Job::am_quiet`](crate::Job::am_quiet).
    pub(super) fn fail(&self, error: Error) {
        let mut failures = self.failures.lock();
        if failures.len() < MAX_FAILURES {
            failures.push_back(error);
        }
    }

    /// The first failure that was not asked for yet.
    pub(crate) fn failure(&self) -> Option<Error> {
        (self.failures.lock()).pop_front()
    }
}
