//! Tasks that wait until something is so that messages, or other threads of the rank, make so.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::{Context, Poll, Waker},
};

use super::Progress;

/// A future that ends when `done` said so, which is asked again whenever something has arrived. For
/// [tasks of the job's own](super::spawned).
pub(crate) struct Until<F> {
    progress: Arc<Progress>,
    done: F,
    /// It is counted among the tasks that wait.
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

    /// Something has arrived, or has become so otherwise.
    #[inline]
    pub(crate) fn wake_hopeful(&self) {
        if self.has_hopeful.load(SeqCst) {
            self.wake_each_hopeful();
        }
    }

    #[cold]
    fn wake_each_hopeful(&self) {
        let mut hopeful = self.hopeful.lock();
        self.has_hopeful.store(false, SeqCst);
        let woken = mem::take(&mut *hopeful);
        drop(hopeful);
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
            let mut hopeful = this.progress.hopeful.lock();
            hopeful.push(context.waker().clone());
            this.progress.has_hopeful.store(true, SeqCst);
        }
        // Or it came to be so before that was said.
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
