//! Tasks that wait for a completion. No thread of theirs polls, so the service thread does,
//! whatever the application does. It sleeps in the same way as a waiting application thread.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    pin::pin,
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    task::{Context, Poll, Wake, Waker},
};

use super::{For, On, Progress, in_handler, may_wait};
use crate::{Error, Result};

impl Progress {
    /// Counts a task that waits, until [`task_ends`](Self::task_ends).
    pub(crate) fn task_begins(&self) {
        self.tasks.fetch_add(1, SeqCst);
        // Then checks whether the service thread sleeps. That thread checks for tasks after it has
        // set the flag.
        fence(SeqCst);
        if self.ignores_tasks.load(Relaxed) {
            self.conduit.wake(self.rank);
        }
    }

    pub(crate) fn task_ends(&self) {
        self.tasks.fetch_sub(1, SeqCst);
    }

    /// Wakes a task that waited. See [`wake`].
    #[cold]
    pub(crate) fn wake_task(&self, waker: Waker) {
        self.task_ends();
        wake(waker);
    }

    /// Registers a waker to be called also when a peer ends or the job is over, until
    /// [`unwatch`](Self::unwatch). `id` is a number that no other watcher has.
    pub(crate) fn watch(&self, id: u64, waker: &Waker) {
        let waker = waker.clone();
        let before = self.watchers.lock().insert(id, waker);
        // The drop of a waker is user code, so no lock is held.
        drop(before);
    }

    pub(crate) fn unwatch(&self, id: u64) {
        let before = self.watchers.lock().remove(&id);
        drop(before);
    }

    /// Wakes the watchers, because a peer has ended or the job is over.
    pub(super) fn wake_watchers(&self) {
        let watchers = std::mem::take(&mut *self.watchers.lock());
        watchers.into_values().for_each(wake);
    }

    /// Returns whether a task waits. A task that ends as it begins may be subtracted before it is
    /// added, so the count may be wrong for a moment.
    #[inline]
    pub(super) fn has_tasks(&self) -> bool {
        self.tasks.load(Relaxed) != 0
    }

    /// Notes whether the service thread sleeps and ignores completions of tasks.
    pub(super) fn ignore_tasks(&self, ignores: bool) {
        self.ignores_tasks.store(ignores, Relaxed);
        fence(SeqCst);
    }

    /// Returns whether peers are expected to answer while their programs compute. This rank assumes
    /// of them what holds for itself: it has a service thread. In virtual time nobody waits for a
    /// message that only a service thread would answer.
    pub(crate) fn peers_answer(&self) -> bool {
        self.served || self.virtual_time
    }

    /// Called in the poll of a task that is still pending. Wakes the task again, unless messages
    /// are handled without it. The service thread does that, and so does the thread that polls the
    /// task, as one of the [job's own](super::spawned) or by [`wait_for`].
    pub(crate) fn poll_again_unless_served(&self, context: &Context<'_>) {
        let waker = context.waker();
        let is_looked_after = self.served && !self.is_stopped()
            || may_wait("a look").is_err()
            || WAITS_FOR.get() == (waker.data(), ptr::from_ref(self));
        if !is_looked_after {
            waker.wake_by_ref();
        }
    }
}

/// Wakes a task. A waker is user code, called within whatever thread polls. So it may not wait, and
/// its panic is caught here.
pub(crate) fn wake(waker: Waker) {
    let woken = panic::catch_unwind(AssertUnwindSafe(|| in_handler(|| waker.wake())));
    if let Err(cause) = woken {
        tracing::error!("a waker panicked");
        // The drop of the payload may panic too.
        std::mem::forget(cause);
    }
}

thread_local! {
    /// The waker that this thread polls with while it waits, and the rank whose messages it
    /// handles. A future with another waker may be polled by an executor in between, which sleeps
    /// without polling the rank.
    static WAITS_FOR: Cell<(*const (), *const Progress)> = const { Cell::new((ptr::null(), ptr::null())) };
}

/// Sets [`WAITS_FOR`] until this is dropped.
struct WaitsFor {
    before: (*const (), *const Progress),
}

impl WaitsFor {
    fn begin(waker: &Waker, progress: &Progress) -> Self {
        let before = WAITS_FOR.replace((waker.data(), ptr::from_ref(progress)));
        Self { before }
    }
}

impl Drop for WaitsFor {
    fn drop(&mut self) {
        WAITS_FOR.set(self.before);
    }
}

/// A thread that waits for a future.
struct FutureWaiter {
    progress: Arc<Progress>,
    /// True if the future is to be polled.
    woken: AtomicBool,
}

impl Wake for FutureWaiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        self.progress.wake_sleepers();
    }
}

/// Waits for a future, and handles messages meanwhile.
///
/// # Errors
/// As [`Job::wait_for`](crate::Job::wait_for).
pub(crate) fn wait_for<F: Future>(progress: &Arc<Progress>, future: F) -> Result<F::Output> {
    progress.may_wait("wait_for")?;
    let waiting = Arc::new(FutureWaiter {
        progress: Arc::clone(progress),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&waiting));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let _waits_for = WaitsFor::begin(&waker, progress);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        let woken = || waiting.woken.swap(false, SeqCst);
        if woken() {
            // A future that wakes itself in each poll would otherwise keep this thread from ever
            // polling.
            progress.make_progress();
            continue;
        }
        let mut is_over = false;
        progress.wait(On::Nobody, For::Message, || {
            is_over = progress.is_closed();
            is_over || woken()
        })?;
        // Futures of Hydrant have ended by then, and return their results.
        if is_over {
            return match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => Ok(output),
                Poll::Pending => Err(Error::JobOver),
            };
        }
    }
}

/// Returns the error for a result that is asked for twice.
pub(crate) fn already_taken() -> Error {
    Error::OutOfTurn {
        what: "the end of an operation",
        why: "its result was taken before",
    }
}
