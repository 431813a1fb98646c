//! Turns for tasks that would otherwise take from each other the memory that each needs.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// Grants a turn to one task at a time. Other tasks wait in the order of their arrival.
#[derive(Default)]
pub(super) struct TaskTurns(Mutex<TurnState>);

#[derive(Default)]
struct TurnState {
    taken: bool,
    waiting: BTreeMap<u64, Waker>,
    /// The number of the next waiter.
    next: u64,
}

/// A turn, until this is dropped.
pub(super) struct TaskTurn<'a>(&'a TaskTurns);

/// A task that waits for its turn.
pub(super) struct Take<'a> {
    turns: &'a TaskTurns,
    /// The number of the waiter, once the task has waited.
    number: Option<u64>,
}

impl TaskTurns {
    pub(super) fn take(&self) -> Take<'_> {
        Take {
            turns: self,
            number: None,
        }
    }

    /// Wakes the next waiter, if no task has the turn.
    fn pass(&self, mut state: parking_lot::MutexGuard<'_, TurnState>) {
        let next = if state.taken {
            None
        } else {
            state.waiting.pop_first()
        };
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

impl<'a> Future for Take<'a> {
    type Output = TaskTurn<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TaskTurn<'a>> {
        let waker = context.waker().clone();
        let mut state = self.turns.0.lock();
        if !state.taken {
            state.taken = true;
            if let Some(number) = self.number {
                state.waiting.remove(&number);
            }
            drop(state);
            self.number = None;
            return Poll::Ready(TaskTurn(self.turns));
        }
        let number = self.number.unwrap_or(state.next);
        state.next = state.next.max(number + 1);
        state.waiting.insert(number, waker);
        drop(state);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // The task may have been woken for the turn.
            let mut state = self.turns.0.lock();
            state.waiting.remove(&number);
            self.turns.pass(state);
        }
    }
}

impl Drop for TaskTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.taken = false;
        self.0.pass(state);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn tasks_take_turns_in_the_order_of_their_arrival() {
        let turns = TaskTurns::default();
        let counts = [(); 3].map(|()| Arc::new(WakeCount::default()));
        let wakers = counts
            .each_ref()
            .map(|count| Waker::from(Arc::clone(count)));
        let woken = || counts.each_ref().map(|count| count.0.load(SeqCst));
        let [mut first, mut second, mut third] = [(); 3].map(|()| Box::pin(turns.take()));
        let poll = |take: &mut Pin<Box<Take<'_>>>, by: usize| {
            let polled = take.as_mut().poll(&mut Context::from_waker(&wakers[by]));
            matches!(polled, Poll::Ready(_)).then_some(())
        };
        let held = match first.as_mut().poll(&mut Context::from_waker(&wakers[0])) {
            Poll::Ready(turn) => turn,
            Poll::Pending => panic!("the turn is free"),
        };
        // A second poll neither changes a waiter's place nor adds one.
        for _ in 0..2 {
            assert_eq!(poll(&mut second, 1), None);
            assert_eq!(poll(&mut third, 2), None);
        }
        drop(held);
        assert_eq!(woken(), [0, 1, 0]);
        // A woken waiter that is dropped passes the turn on.
        drop(second);
        assert_eq!(woken(), [0, 1, 1]);
        assert_eq!(poll(&mut third, 2), Some(()));
        assert_eq!(woken(), [0, 1, 1]);
        let mut last = pin!(turns.take());
        let polled = last.as_mut().poll(&mut Context::from_waker(&wakers[0]));
        assert!(matches!(polled, Poll::Ready(_)));
    }
}
