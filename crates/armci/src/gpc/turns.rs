//! Turns of those who run in threads of their own, one at a time, as messages ask for them.

use std::{cell::RefCell, collections::VecDeque, sync::Arc, thread, time::Duration};

use hydrant_conduit::fork::Origin;
use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

type Task = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Whose turn this thread has.
    static HERE: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Gives turns, until it is dropped.
pub(super) struct Turns(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The processors of the thread that set this up: procedures compute there. The thread that gives them their
    /// turn may be the one that serves peers, which has others.
    cpus: Option<CpuSet>,
    /// The process whose threads they are.
    origin: Option<Origin>,
}

#[derive(Default)]
struct State {
    /// Those that wait for their first turn.
    tasks: VecDeque<Task>,
    /// Whether somebody has the turn.
    taken: bool,
    /// Threads that wait for a task, or were begun for one.
    idle: usize,
    /// Nobody gives tasks any more.
    over: bool,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            origin: Some(Origin::here()),
            cpus: sched_getaffinity(None).ok(),
            ..Shared::default()
        }))
    }

    /// Has a task run when it is its turn.
    pub(super) fn give(&self, task: Task) {
        let mut state = self.0.state.lock();
        state.tasks.push_back(task);
        self.0.see_to_threads(&mut state);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if !self.0.origin.is_some_and(Origin::is_here) {
            // A forked child lacks the threads.
            return;
        }
        let mut state = self.0.state.lock();
        state.over = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Has a thread take the next task, if there is one and nobody has the turn: one that is idle, or
    /// another.
    fn see_to_threads(self: &Arc<Self>, state: &mut State) {
        self.changed.notify_all();
        if !state.taken && !state.tasks.is_empty() && state.idle == 0 {
            let here = Arc::clone(self);
            // A system that has no more threads may have one when this is looked at the next time: the
            // task stays where it is.
            match thread::Builder::new().spawn(move || here.run_tasks()) {
                Ok(_) => state.idle += 1,
                Err(cause) => tracing::warn!("no thread to run a procedure: {cause}"),
            }
        }
    }

    fn run_tasks(self: Arc<Self>) {
        HERE.set(Some(Arc::clone(&self)));
        if let Some(cpus) = &self.cpus {
            // Where they are not to be had any more, it is only slower.
            let _ = sched_setaffinity(None, cpus);
        }
        let mut state = self.state.lock();
        while !state.over {
            let task = match state.taken {
                true => None,
                false => state.tasks.pop_front(),
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

/// Takes the turn again when it is dropped.
struct Back(Arc<Shared>);

impl Drop for Back {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        while state.taken {
            self.0.changed.wait(&mut state);
        }
        state.taken = true;
    }
}

/// Does something that may take until others had their turn: who has it gives it up meanwhile.
pub(super) fn out_of_turn<R>(act: impl FnOnce() -> R) -> R {
    let Some(here) = HERE.with_borrow(Option::clone) else {
        return act();
    };
    let mut state = here.state.lock();
    state.taken = false;
    here.see_to_threads(&mut state);
    drop(state);
    let _back = Back(here);
    act()
}

/// Who has the turn gives it up for so long, and takes it again: `false` if nobody gives tasks any more.
pub(super) fn rest(time: Duration) -> bool {
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
    fn one_at_a_time_and_others_while_one_waits() {
        let turns = Arc::new(Turns::new());
        let (running, (done, ended)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        for _ in 0..50 {
            let (here, running, done) = (Arc::clone(&turns), Arc::clone(&running), done.clone());
            turns.give(Box::new(move || {
                assert_eq!(running.fetch_add(1, SeqCst), 0);
                let (inner, waits) = mpsc::channel();
                running.fetch_sub(1, SeqCst);
                out_of_turn(|| {
                    here.give(Box::new(move || inner.send(()).expect("it waits")));
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
    fn procedures_run_where_the_process_does_whoever_gives_them_their_turn() {
        let turns = Turns::new();
        let own = sched_getaffinity(None).expect("a thread has some");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| own.is_set(*cpu));
        let (done, ended) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut one = CpuSet::new();
                one.set(first.expect("it has one"));
                sched_setaffinity(None, &one).expect("one of its own");
                turns.give(Box::new(move || {
                    let cpus = sched_getaffinity(None).expect("a thread has some");
                    done.send(cpus).expect("the test waits");
                }));
            });
        });
        assert_eq!(ended.recv().expect("it runs"), own);
    }
}
