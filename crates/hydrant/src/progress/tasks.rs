//! Tasks that wait for the end of an operation. None of their threads polls meanwhile, so that the
//! service thread does, whatever the application does: it sleeps as who waits itself.

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
    /// A task waits from now on, until [`task_ends`](Self::task_ends).
    pub(crate) fn task_begins(&self) {
        self.tasks.fetch_add(1, SeqCst);
        // Then it looks whether the service thread sleeps; that one looks for tasks after it said so.
        fence(SeqCst);
        if self.ignores_tasks.load(Relaxed) {
            self.conduit.wake(self.rank);
        }
    }

    pub(crate) fn task_ends(&self) {
        self.tasks.fetch_sub(1, SeqCst);
    }

    /// Wakes a task that waited. What a waker does is the program's affair: it may not wait in there,
    /// for it is called in the midst of whatever thread polls, and a panic stays in it.
    #[cold]
    pub(crate) fn wake_task(&self, waker: Waker) {
        self.task_ends();
        wake(waker);
    }

    /// Has a task be woken when a peer ends, or the job is over, too, until
    /// [`unwatch`](Self::unwatch). `id` is a number that no other watcher has.
    pub(crate) fn watch(&self, id: u64, waker: &Waker) {
        let waker = waker.clone();
        let before = self.watchers.lock().insert(id, waker);
        // What that does is the program's affair: nothing is locked.
        drop(before);
    }

    pub(crate) fn unwatch(&self, id: u64) {
        let before = self.watchers.lock().remove(&id);
        drop(before);
    }

    /// A peer has ended, or the job is over.
    pub(super) fn wake_watchers(&self) {
        let watchers = std::mem::take(&mut *self.watchers.lock());
        watchers.into_values().for_each(wake);
    }

    /// Whether a task waits. A task that ends as it begins may be counted off before it is counted,
    /// which is over in a moment.
    #[inline]
    pub(super) fn has_tasks(&self) -> bool {
        self.tasks.load(Relaxed) != 0
    }

    /// The service thread sleeps, and not as who waits for an operation.
    pub(super) fn ignore_tasks(&self, ignores: bool) {
        self.ignores_tasks.store(ignores, Relaxed);
        fence(SeqCst);
    }

    /// Whether peers answer whatever their programs do, as far as this rank knows: as it does itself,
    /// by its service thread. In virtual time nobody waits for what only that would bring.
    pub(crate) fn peers_answer(&self) -> bool {
        self.served || self.virtual_time
    }

    /// Called where a task is not over that is polled: has it be polled again unless somebody looks after messages
    /// meanwhile. That is the service thread, or whoever polls it: as one of the [job's own](super::spawned), or by
    /// [`wait_for`].
    pub(crate) fn poll_again_unless_looked_after(&self, context: &Context<'_>) {
        let waker = context.waker();
        let is_looked_after = self.served && !self.is_stopped()
            || may_wait("a look").is_err()
            || WAITS_FOR.get() == (waker.data(), ptr::from_ref(self));
        if !is_looked_after {
            waker.wake_by_ref();
        }
    }
}

/// Wakes a task. What a waker does is the program's affair: it may not wait in there, for it is
/// called in the midst of whatever thread polls, and a panic stays in it.
pub(crate) fn wake(waker: Waker) {
    let woken = panic::catch_unwind(AssertUnwindSafe(|| in_handler(|| waker.wake())));
    if let Err(cause) = woken {
        tracing::error!("a waker panicked");
        // Dropping that may panic, too.
        std::mem::forget(cause);
    }
}

thread_local! {
    /// What this thread waits for: what the waker stands for that it polls with, and whose messages it looks after.
    /// Whatever has another waker may be polled by somebody in between who only sleeps.
    static WAITS_FOR: Cell<(*const (), *const Progress)> = const { Cell::new((ptr::null(), ptr::null())) };
}

/// This thread waits for something until this is dropped.
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
struct Waiting {
    progress: Arc<Progress>,
    /// The future is to be polled.
    woken: AtomicBool,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        self.progress.wake_sleepers();
    }
}

/// Waits for a future, looking after messages meanwhile.
///
/// # Errors
/// As [`Job::wait_for`](crate::Job::wait_for).
pub(crate) fn wait_for<F: Future>(progress: &Arc<Progress>, future: F) -> Result<F::Output> {
    progress.may_wait("wait_for")?;
    let waiting = Arc::new(Waiting {
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
            // Who is always woken while it is polled, by itself perhaps, would never wait.
            progress.look_round();
            continue;
        }
        let mut is_over = false;
        progress.wait(On::Nobody, For::Message, || {
            is_over = progress.is_closed();
            is_over || woken()
        })?;
        // Work of Hydrant has ended by then, and reports its result.
        if is_over {
            return match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => Ok(output),
                Poll::Pending => Err(Error::JobOver),
            };
        }
    }
}

/// The result of an operation is asked for twice.
pub(crate) fn taken() -> Error {
    Error::OutOfTurn {
        what: "the end of an operation",
        why: "its result was taken before",
    }
}
