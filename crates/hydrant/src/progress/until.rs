//! Tasks that wait for a condition, which messages or other threads of the rank make true.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::{Context, Poll, Waker},
};

use super::Progress;

/// A future that is ready once `done` returns true. `done` is called again whenever something has
/// arrived. For the [job's own tasks](super::spawned).
pub(crate) struct Until<F> {
    progress: Arc<Progress>,
    done: F,
    /// True once this is counted among the tasks that wait.
    counted: bool,
}

impl Progress {
    pub(crate) fn until<F: FnMut() -> bool>(self: &Arc<Self>, done: F) -> Until<F> {
        Until {
            progress: Arc::clone(self),
            done,
            counted: false,
        }
    }

    /// Wakes the tasks that wait for a condition, because something has arrived or changed.
    #[inline]
    pub(crate) fn wake_condition_waiters(&self) {
        if self.has_condition_waiters.load(SeqCst) {
            self.wake_each_condition_waiter();
        }
    }

    #[cold]
    fn wake_each_condition_waiter(&self) {
        let mut waiters = self.condition_waiters.lock();
        self.has_condition_waiters.store(false, SeqCst);
        let woken = mem::take(&mut *waiters);
        drop(waiters);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl<F: FnMut() -> bool + Unpin> Future for Until<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if (this.done)() {
            return Poll::Ready(());
        }
        {
            let mut waiters = this.progress.condition_waiters.lock();
            waiters.push(context.waker().clone());
            this.progress.has_condition_waiters.store(true, SeqCst);
        }
        // The condition may have become true before the waker was registered.
        if (this.done)() {
            return Poll::Ready(());
        }
        if !mem::replace(&mut this.counted, true) {
            this.progress.task_begins();
        }
        Poll::Pending
    }
}

impl<F> Drop for Until<F> {
    fn drop(&mut self) {
        if self.counted {
            self.progress.task_ends();
        }
    }
}
