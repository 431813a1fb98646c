//! Tasks of the job's own: futures that whoever polls drives, as a handler is run.
//!
//! A task is polled when it was woken, by the thread that polls next, which is the one that woke it
//! if that was what a message did. As in a handler nothing waits in there; what it awaits wakes it.
//!
//! Among the tasks are asynchronous functions, gets of arguments that no message takes (`message::large`), long
//! two-sided messages, and ends of loans that a handler began.

use std::{
    collections::VecDeque,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{Progress, backlog::Backlog, in_handler};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of a rank.
#[derive(Default)]
pub(super) struct Spawned {
    /// Those that have not ended, by number, so that they go with the job.
    all: FxHashMap<u64, Arc<Task>>,
    /// Those that were woken, in that order.
    ready: VecDeque<Arc<Task>>,
    next: u64,
    /// The job is over: there are none any more.
    closed: bool,
}

struct Task {
    number: u64,
    /// None when it has ended.
    work: Mutex<Option<Work>>,
    /// It is among those that are ready.
    queued: AtomicBool,
    progress: Weak<Progress>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, AcqRel) {
            return;
        }
        let Some(progress) = self.progress.upgrade() else {
            return;
        };
        let mut spawned = progress.spawned.lock();
        if spawned.closed {
            return;
        }
        spawned.ready.push_back(self);
        // With the lock held, so that it says what the last who looked has found.
        progress.set_backlog(Backlog::Tasks, true);
        drop(spawned);
        progress.look_after_task();
    }
}

impl Progress {
    /// Has a task run from the next poll on. When the job is over it does not run at all.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut spawned = self.spawned.lock();
        if spawned.closed {
            return;
        }
        let number = spawned.next;
        spawned.next += 1;
        let task = Arc::new(Task {
            number,
            work: Mutex::new(Some(Box::pin(work))),
            queued: AtomicBool::new(false),
            progress: self.weak(),
        });
        spawned.all.insert(number, Arc::clone(&task));
        drop(spawned);
        task.wake();
    }

    /// Returns whether all tasks have ended.
    pub(super) fn has_no_task(&self) -> bool {
        self.spawned.lock().all.is_empty()
    }

    /// Returns whether a task runs, or is to run.
    pub(super) fn has_busy_task(&self) -> bool {
        let spawned = self.spawned.lock();
        (spawned.all.values()).any(|task| task.queued.load(Acquire) || task.work.is_locked())
    }

    /// Polls the tasks that were woken before this began. Not in a handler.
    pub(super) fn run_tasks(&self) {
        let mut ready = std::mem::take(&mut self.spawned.lock().ready);
        for task in ready.drain(..) {
            if task.run() {
                self.spawned.lock().all.remove(&task.number);
            }
        }
        let spawned = self.spawned.lock();
        self.set_backlog(Backlog::Tasks, !spawned.ready.is_empty());
    }

    /// The job is over: what has not ended never will.
    pub(crate) fn drop_tasks(&self) {
        let mut spawned = self.spawned.lock();
        spawned.closed = true;
        let all = std::mem::take(&mut spawned.all);
        let ready = std::mem::take(&mut spawned.ready);
        self.set_backlog(Backlog::Tasks, false);
        drop(spawned);
        for task in all.into_values() {
            task.end();
        }
        drop(ready);
    }
}

impl Task {
    /// Polls it: whether it has ended.
    fn run(self: &Arc<Self>) -> bool {
        // Before it is polled, so that who wakes it from here on has it polled again.
        self.queued.store(false, Release);
        let waker = Waker::from(Arc::clone(self));
        let mut work = self.work.lock();
        let Some(future) = work.as_mut() else {
            return true;
        };
        let polled = panic::catch_unwind(AssertUnwindSafe(|| {
            in_handler(|| future.as_mut().poll(&mut Context::from_waker(&waker)))
        }));
        if let Ok(Poll::Pending) = polled {
            return false;
        }
        // Under the lock under which it was polled: a thread that waits for that, because the task was woken meanwhile,
        // is not to poll it again.
        let over = work.take();
        drop(work);
        if let Err(cause) = polled {
            tracing::error!(number = self.number, "a task panicked");
            // Dropping that may panic, too.
            std::mem::forget(cause);
        }
        self.let_go(over);
        true
    }

    /// Ends it before its end.
    fn end(&self) {
        let work = self.work.lock().take();
        self.let_go(work);
    }

    /// Drops what it did: a user's destructors may run there.
    fn let_go(&self, work: Option<Work>) {
        let dropped = panic::catch_unwind(AssertUnwindSafe(|| in_handler(|| drop(work))));
        if let Err(cause) = dropped {
            tracing::error!(number = self.number, "a task panicked when it was dropped");
            std::mem::forget(cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicU64, Ordering::SeqCst},
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{ConduitKind, Job};

    /// A task that is woken in the poll that completes it is queued again, and another thread may take it from there
    /// while that poll goes on.
    #[test]
    fn what_is_over_is_not_polled_again() {
        const TASKS: u64 = 2000;
        let (again, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (again, ended) = (&again, &ended);
        let builder = Job::builder().unwrap().conduit(ConduitKind::Smp);
        let ends = builder.service(false).run_local(1, |job| {
            thread::scope(|threads| {
                let poll = || {
                    while ended.load(SeqCst) < TASKS {
                        job.poll();
                    }
                };
                (0..3).for_each(|_| _ = threads.spawn(poll));
                for number in 0..TASKS {
                    let (again, over) = (Arc::clone(again), Arc::clone(ended));
                    let mut is_over = false;
                    job.core().progress.spawn(poll_fn(move |context| {
                        again.fetch_add(u64::from(is_over), SeqCst);
                        is_over = true;
                        context.waker().wake_by_ref();
                        let begun = Instant::now();
                        while begun.elapsed() < Duration::from_micros(20) {}
                        over.fetch_add(1, SeqCst);
                        Poll::Ready(())
                    }));
                    while ended.load(SeqCst) <= number {
                        job.poll();
                    }
                }
            });
            Ok(())
        });
        ends.into_iter().for_each(|end| end.unwrap());
        assert_eq!(again.load(SeqCst), 0);
    }
}
