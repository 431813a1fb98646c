//! The handlers of a rank, and the failures of its requests.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{
    Calls, HandlerContext, HandlerName,
    large::{BoxedFuture, Large, LoanGuard, Rendezvous},
    late::LateReplies,
};
use crate::{Error, Rank, Result, progress::Progress};

/// Most handlers of a job.
const MAX_HANDLERS: usize = 1024;
/// Failures kept for [`Job::am_quiet`](crate::Job::am_quiet). Later failures are dropped.
const MAX_FAILURES: usize = 64;

pub(crate) type HandlerFn = Box<dyn Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync>;

/// The state of a rank's active messages.
pub(crate) struct Messages {
    /// The handlers by number. Every rank sets each once.
    handlers: Box<[OnceLock<HandlerFn>]>,
    /// The names by number, for errors.
    names: Mutex<Vec<HandlerName>>,
    /// The calls of this rank to others.
    pub(super) calls: Arc<Calls>,
    /// Arguments and results that exceed a message.
    large: Arc<Large>,
    /// Failures of plain requests, until [`Job::am_quiet`](crate::Job::am_quiet) takes them.
    failures: Mutex<VecDeque<Error>>,
    /// Replies that follow other messages.
    late: LateReplies,
}

impl Messages {
    pub(crate) fn new(rendezvous: Box<dyn Rendezvous>) -> Self {
        Self {
            handlers: (0..MAX_HANDLERS).map(|_| OnceLock::new()).collect(),
            names: Mutex::default(),
            calls: Arc::default(),
            large: Arc::new(Large::new(rendezvous)),
            failures: Mutex::default(),
            late: LateReplies::default(),
        }
    }

    /// Returns the calls of this rank to others.
    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Returns the arguments and results that exceed a message.
    pub(super) fn large(&self) -> &Arc<Large> {
        &self.large
    }

    /// Returns the replies that follow other messages.
    pub(super) fn late(&self) -> &LateReplies {
        &self.late
    }

    /// Waits until every request that this rank has sent so far was handled, and its reply, too.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn wait_until_replied(&self, progress: &Progress) -> Result<()> {
        progress.wait_all_handled()?;
        // Replies and announcements of late ones were sent before their requests counted as handled.
        progress.drain();
        self.late.wait(progress)
    }

    /// Lends the argument of a call.
    pub(crate) fn lend(&self, argument: Vec<u8>) -> BoxedFuture<Result<(u64, LoanGuard)>> {
        self.large.rendezvous.lend(argument)
    }

    /// Ends all loans, because the job is over.
    pub(crate) fn close(&self) {
        self.calls.close();
        self.large.close();
    }

    #[inline]
    pub(super) fn handler(&self, number: u16) -> Option<&HandlerFn> {
        self.handlers.get(usize::from(number))?.get()
    }

    /// Returns the number of the next handler. The number is free until all ranks have registered
    /// the handler, because some ranks alone may refuse it.
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

    /// Returns the name of a handler by its number. All ranks register the same handlers.
    pub(super) fn name(&self, number: u16) -> String {
        let names = self.names.lock();
        let name = names.get(usize::from(number));
        name.map_or_else(
            || "a function unknown here".to_owned(),
            HandlerName::to_string,
        )
    }

    /// Registers the next handler.
    ///
    /// # Errors
    /// [`Error::TooManyHandlers`].
    pub(crate) fn register(
        &self,
        number: u16,
        name: HandlerName,
        handler: HandlerFn,
    ) -> Result<()> {
        self.names.lock().push(name);
        let slot = self.handlers.get(usize::from(number));
        slot.and_then(|slot| slot.set(handler).ok())
            .ok_or(Error::TooManyHandlers {
                limit: MAX_HANDLERS,
            })
    }

    /// Returns whether a handler with this number was registered here.
    pub(crate) fn is_registered(&self, number: u16) -> bool {
        self.handler(number).is_some()
    }

    /// Ends a call of this rank, as [`Calls::end`], and keeps the failure of a one-way call.
    pub(crate) fn end_call(
        &self,
        progress: &Progress,
        from: Rank,
        id: u64,
        answer: Result<Vec<u8>>,
    ) -> bool {
        let answer = match answer {
            Err(cause) if self.calls.is_one_way(from, id) => {
                // No thread may see the end of the call before its failure.
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

    /// Takes the first failure.
    pub(crate) fn failure(&self) -> Option<Error> {
        (self.failures.lock()).pop_front()
    }
}
