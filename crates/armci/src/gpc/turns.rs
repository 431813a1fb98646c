//! Turns: tasks that messages bring run in threads of their own, one at a time.

use std::{cell::RefCell, collections::VecDeque, sync::Arc, thread, time::Duration};

use hydrant_conduit::fork::CreatorProcess;
use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

type ProcedureTask = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The turns that this thread runs tasks of.
    static HERE: RefCell<Option<Arc<SharedTurns>>> = const { RefCell::new(None) };
}

/// Runs tasks one at a time, until it is dropped.
pub(super) struct ProcedureTurns(Arc<SharedTurns>);

#[derive(Default)]
struct SharedTurns {
    state: Mutex<ProcedureTurnState>,
    changed: Condvar,
    /// The processors of the thread that made this value. Procedures run on these. The thread that
    /// submits a task may be the service thread, which has other processors.
    cpus: Option<CpuSet>,
    /// The process that the threads belong to.
    origin: Option<CreatorProcess>,
}

#[derive(Default)]
struct ProcedureTurnState {
    /// Tasks that wait for their first turn.
    tasks: VecDeque<ProcedureTask>,
    /// True while a thread has the turn.
    taken: bool,
    /// The number of threads that wait for a task, or were started for one.
    idle: usize,
    /// True once no more tasks come.
    over: bool,
}

impl ProcedureTurns {
    pub(super) fn new() -> Self {
        Self(Arc::new(SharedTurns {
            origin: Some(CreatorProcess::here()),
            cpus: sched_getaffinity(None).ok(),
            ..SharedTurns::default()
        }))
    }

    /// Queues a task, which runs when its turn comes.
    pub(super) fn submit(&self, task: ProcedureTask) {
        let mut state = self.0.state.lock();
        state.tasks.push_back(task);
        self.0.wake_or_spawn(&mut state);
    }
}

impl Drop for ProcedureTurns {
    fn drop(&mut self) {
        if !self.0.origin.is_some_and(CreatorProcess::is_here) {
            // A forked child lacks the threads.
            return;
        }
        let mut state = self.0.state.lock();
        state.over = true;
        self.0.changed.notify_all();
    }
}

impl SharedTurns {
    /// Wakes the waiting threads. Starts a thread if a task waits, nobody has the turn and no thread is idle.
    fn wake_or_spawn(self: &Arc<Self>, state: &mut ProcedureTurnState) {
        self.changed.notify_all();
        if !state.taken && !state.tasks.is_empty() && state.idle == 0 {
            let here = Arc::clone(self);
            // If the system has no thread now, it may have one at the next call. The task stays
            // queued.
            match thread::Builder::new().spawn(move || here.run_tasks()) {
                Ok(_) => state.idle += 1,
                Err(cause) => tracing::warn!("no thread to run a procedure: {cause}"),
            }
        }
    }

    fn run_tasks(self: Arc<Self>) {
        HERE.set(Some(Arc::clone(&self)));
        if let Some(cpus) = &self.cpus {
            // If these processors are no longer allowed, the thread runs on others, only slower.
            let _ = sched_setaffinity(None, cpus);
        }
        let mut state = self.state.lock();
        while !state.over {
            let task = if state.taken {
                None
            } else {
                state.tasks.pop_front()
            };
            let Some(task) = task else {
                self.changed.wait(&mut state);
                continue;
            };
            state.taken = true;
            state.idle -= 1;
            drop(state);
            task();
            state = self.state.lock();
            state.idle += 1;
            state.taken = false;
            self.changed.notify_all();
        }
    }
}

/// Takes the turn again when dropped.
struct RetakeTurn(Arc<SharedTurns>);

impl Drop for RetakeTurn {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        while state.taken {
            self.0.changed.wait(&mut state);
        }
        state.taken = true;
    }
}

/// Does something that may have to wait for other tasks. If this thread has the turn, it releases
/// the turn meanwhile.
pub(super) fn out_of_turn<R>(act: impl FnOnce() -> R) -> R {
    let Some(here) = HERE.with_borrow(Option::clone) else {
        return act();
    };
    let mut state = here.state.lock();
    state.taken = false;
    here.wake_or_spawn(&mut state);
    drop(state);
    let _retake = RetakeTurn(here);
    act()
}

/// Releases the turn for `time`, and takes it again. Returns `false` if no more tasks come.
pub(super) fn sleep(time: Duration) -> bool {
    out_of_turn(|| thread::sleep(time));
    !HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.state.lock().over))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    };

    use super::*;

    #[test]
    fn one_task_runs_at_a_time_and_others_run_while_it_waits() {
        let turns = Arc::new(ProcedureTurns::new());
        let (running, (done, ended)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        for _ in 0..50 {
            let (here, running, done) = (Arc::clone(&turns), Arc::clone(&running), done.clone());
            turns.submit(Box::new(move || {
                assert_eq!(running.fetch_add(1, SeqCst), 0);
                let (inner, waits) = mpsc::channel();
                running.fetch_sub(1, SeqCst);
                out_of_turn(|| {
                    here.submit(Box::new(move || inner.send(()).expect("it waits")));
                    waits.recv().expect("an inner task");
                });
                assert_eq!(running.fetch_add(1, SeqCst), 0);
                running.fetch_sub(1, SeqCst);
                done.send(()).expect("the test waits");
            }));
        }
        drop(done);
        assert_eq!(ended.iter().count(), 50);
    }

    #[test]
    fn procedures_run_on_the_processors_of_the_process_and_not_of_the_submitter() {
        let turns = ProcedureTurns::new();
        let own = sched_getaffinity(None).expect("a thread has some");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| own.is_set(*cpu));
        let (done, ended) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut one = CpuSet::new();
                one.set(first.expect("it has one"));
                sched_setaffinity(None, &one).expect("one of its own");
                turns.submit(Box::new(move || {
                    let cpus = sched_getaffinity(None).expect("a thread has some");
                    done.send(cpus).expect("the test waits");
                }));
            });
        });
        assert_eq!(ended.recv().expect("it runs"), own);
    }
}
