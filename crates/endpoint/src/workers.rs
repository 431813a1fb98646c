//! Threads that copy, so that callers need not.

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};

/// The most threads.
const MOST: usize = 8;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this thread is one of an endpoint's, which runs code of users now and then.
pub(crate) fn mark_own_thread() {
    IS_OWN.set(true);
}

/// Returns true in a thread of an endpoint. It must not wait for the end of such a thread.
pub(crate) fn is_own_thread() -> bool {
    IS_OWN.get()
}

/// Work that any number of threads do together.
pub(crate) trait SharedWork: Send + Sync {
    /// Returns how many threads can do something at once.
    fn chunks(&self) -> usize;

    /// Does chunks of the work until all are claimed.
    fn help(self: Arc<Self>);

    /// Ends the work, because the endpoint is closed.
    fn close(self: Arc<Self>);

    /// Ends the work, because its deadline has passed.
    fn expire(&self);
}

/// A few threads, which are started when there is work for them.
pub(crate) struct Workers {
    state: Mutex<WorkerState>,
    work: Condvar,
    most: usize,
}

struct WorkerState {
    queue: VecDeque<Arc<dyn SharedWork>>,
    threads: Vec<JoinHandle<()>>,
    sleeping: usize,
    is_over: bool,
}

impl Workers {
    pub(crate) fn new() -> Arc<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self {
            state: Mutex::new(WorkerState {
                queue: VecDeque::new(),
                threads: Vec::new(),
                sleeping: 0,
                is_over: false,
            }),
            work: Condvar::new(),
            most: processors.min(MOST),
        })
    }

    /// Hands a batch to the threads. Returns `false` if there are none, and none can be started.
    pub(crate) fn submit(self: &Arc<Self>, batch: Arc<dyn SharedWork>) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        let wanted = batch.chunks().min(self.most);
        // A new thread looks at the queue before it sleeps.
        let mut available = state.sleeping;
        while available < wanted && state.threads.len() < self.most {
            let workers = Arc::clone(self);
            let started = thread::Builder::new()
                .name("hydrant-copy".to_owned())
                .stack_size(128 << 10)
                .spawn(move || workers.run());
            match started {
                Ok(thread) => state.threads.push(thread),
                Err(cause) => {
                    tracing::warn!(%cause, "no thread to copy");
                    break;
                }
            }
            available += 1;
        }
        if state.threads.is_empty() {
            return false;
        }
        state.queue.push_back(batch);
        drop(state);
        if wanted > 1 {
            self.work.notify_all();
        } else {
            self.work.notify_one();
        }
        true
    }

    fn run(&self) {
        mark_own_thread();
        loop {
            let batch = {
                let mut state = self.state.lock();
                loop {
                    if state.is_over {
                        return;
                    }
                    if let Some(batch) = state.queue.front() {
                        break Arc::clone(batch);
                    }
                    state.sleeping += 1;
                    self.work.wait(&mut state);
                    state.sleeping -= 1;
                }
            };
            Arc::clone(&batch).help();
            // Every chunk has been claimed.
            let mut state = self.state.lock();
            state.queue.retain(|other| !Arc::ptr_eq(other, &batch));
        }
    }

    /// Cancels what waits, and ends the threads.
    pub(crate) fn end(&self) {
        let (queue, threads) = {
            let mut state = self.state.lock();
            state.is_over = true;
            let queue = std::mem::take(&mut state.queue);
            (queue, std::mem::take(&mut state.threads))
        };
        self.work.notify_all();
        for batch in queue {
            batch.close();
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}
