//! The job's own tasks: futures that polls run, as they run handlers.
//!
//! A woken task is run by the thread that polls next. If a message woke the task, that is the
//! thread which handled the message. As in a handler, nothing waits in a task; what a task awaits
//! wakes it.
//!
//! Among the tasks are asynchronous functions, gets of arguments that are too long for a message
//! (`message::large`), long two-sided messages, and ends of loans that a handler began.

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

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of a rank.
#[derive(Default)]
pub(super) struct Spawned {
    /// The tasks that have not ended, by number. They are dropped with the job.
    all: FxHashMap<u64, Arc<SpawnedTask>>,
    /// The tasks that were woken, in that order.
    ready: VecDeque<Arc<SpawnedTask>>,
    next: u64,
    /// True once the job is over, and there are no more tasks.
    closed: bool,
}

struct SpawnedTask {
    number: u64,
    /// `None` once the task has ended.
    work: Mutex<Option<TaskFuture>>,
    /// True while the task is in `ready`.
    queued: AtomicBool,
    progress: Weak<Progress>,
}

impl Wake for SpawnedTask {
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
        // Set with the lock held, so that the bit matches the queue.
        progress.set_backlog(Backlog::Tasks, true);
        drop(spawned);
        progress.wake_for_task();
    }
}

impl Progress {
    /// Runs a task from the next poll on. Does nothing if the job is over.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut spawned = self.spawned.lock();
        if spawned.closed {
            return;
        }
        let number = spawned.next;
        spawned.next += 1;
        let task = Arc::new(SpawnedTask {
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

    /// Returns whether a task runs or is ready.
    pub(super) fn has_busy_task(&self) -> bool {
        let spawned = self.spawned.lock();
        (spawned.all.values()).any(|task| task.queued.load(Acquire) || task.work.is_locked())
    }

    /// Runs the tasks that were woken before this call. Not for handlers.
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

    /// Drops all tasks, because the job is over.
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

impl SpawnedTask {
    /// Polls the task. Returns whether it has ended.
    fn run(self: &Arc<Self>) -> bool {
        // Cleared before the poll, so that a wake from here on queues the task again.
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
        // Taken under the lock of the poll. Another thread may wait for the lock because the task
        // was woken meanwhile, and must not poll it again.
        let over = work.take();
        drop(work);
        if let Err(cause) = polled {
            tracing::error!(number = self.number, "a task panicked");
            // The drop of the payload may panic too.
            std::mem::forget(cause);
        }
        self.let_go(over);
        true
    }

    /// Ends the task before it is done.
    fn end(&self) {
        let work = self.work.lock().take();
        self.let_go(work);
    }

    /// Drops the future, which may run a user's destructors.
    fn let_go(&self, work: Option<TaskFuture>) {
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

    /// A task that is woken in the poll that completes it is queued again. Another thread may take
    /// it from the queue while that poll goes on.
    #[test]
    fn an_ended_task_is_not_polled_again() {
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
