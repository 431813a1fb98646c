//! A value that one thread will give and another waits for.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// Returns the time so far from now on. One beyond the range of the clock is far enough away.
pub(crate) fn deadline(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience)
        .unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

/// A value that comes once.
pub(crate) struct Promise<T> {
    state: Mutex<PromiseState<T>>,
    kept: Condvar,
}

struct PromiseState<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// True if nobody waits any more.
    is_abandoned: bool,
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(PromiseState {
                value: None,
                waker: None,
                is_abandoned: false,
            }),
            kept: Condvar::new(),
        })
    }

    /// Gives the value. Returns it if nobody waits any more. Tasks are not woken.
    pub(crate) fn keep(&self, value: T) -> Option<T> {
        let mut state = self.state.lock();
        if state.is_abandoned {
            return Some(value);
        }
        state.value = Some(value);
        drop(state);
        self.kept.notify_all();
        None
    }

    /// Returns the waker of the task that waits, once the value is there.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        self.state.lock().waker.take()
    }

    /// Waits for the value until `deadline`, and no more after that. A value that comes later is given back to the one
    /// who keeps the promise.
    pub(crate) fn wait_or_abandon(&self, deadline: Instant) -> Option<T> {
        self.wait(Some(deadline)).or_else(|| self.abandon())
    }

    /// Waits no more. Returns a value that is there. A later one is given back to the one who keeps the promise.
    pub(crate) fn abandon(&self) -> Option<T> {
        let mut state = self.state.lock();
        state.is_abandoned = true;
        state.value.take()
    }

    /// Waits for the value, at most until `deadline`.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(value) = state.value.take() {
                return Some(value);
            }
            match deadline {
                None => self.kept.wait(&mut state),
                Some(deadline) => {
                    if self.kept.wait_until(&mut state, deadline).timed_out() {
                        return state.value.take();
                    }
                }
            }
        }
    }

    /// Returns whether the value is there.
    pub(crate) fn is_kept(&self) -> bool {
        self.state.lock().value.is_some()
    }

    /// Takes the value, or has the task woken once it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<T> {
        // Wakers are of the user, whose code does not run under the lock.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        let outcome = match state.value.take() {
            Some(value) => (Poll::Ready(value), Some(waker)),
            None => (Poll::Pending, state.waker.replace(waker)),
        };
        drop(state);
        outcome.0
    }
}
