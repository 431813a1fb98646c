//! Turns of tasks that would take from each other what each of them needs.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// One task at a time has the turn; the others wait in the order in which they came.
#[derive(Default)]
pub(super) struct Turns(Mutex<State>);

#[derive(Default)]
struct State {
    taken: bool,
    waiting: BTreeMap<u64, Waker>,
    /// The number of the next that waits.
    next: u64,
}

/// The turn, until this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

/// A task that waits for the turn.
pub(super) struct Take<'a> {
    turns: &'a Turns,
    /// Its number, once it has waited.
    number: Option<u64>,
}

impl Turns {
    pub(super) fn take(&self) -> Take<'_> {
        Take {
            turns: self,
            number: None,
        }
    }

    /// Wakes who is next, if nobody has the turn.
    fn pass(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let next = match state.taken {
            true => None,
            false => state.waiting.pop_first(),
        };
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

impl<'a> Future for Take<'a> {
    type Output = Turn<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn<'a>> {
        let waker = context.waker().clone();
        let mut state = self.turns.0.lock();
        if !state.taken {
            state.taken = true;
            if let Some(number) = self.number {
                state.waiting.remove(&number);
            }
            drop(state);
            self.number = None;
            return Poll::Ready(Turn(self.turns));
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
            // It may have been woken for the turn.
            let mut state = self.turns.0.lock();
            state.waiting.remove(&number);
            self.turns.pass(state);
        }
    }
}

impl Drop for Turn<'_> {
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
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn one_after_the_other_in_order() {
        let turns = Turns::default();
        let counts = [(); 3].map(|()| Arc::new(Counts::default()));
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
            Poll::Pending => panic!("nobody has it"),
        };
        // A task that is polled again waits no less long, and once.
        for _ in 0..2 {
            assert_eq!(poll(&mut second, 1), None);
            assert_eq!(poll(&mut third, 2), None);
        }
        drop(held);
        assert_eq!(woken(), [0, 1, 0]);
        // Who was woken for it and is gone hands it on.
        drop(second);
        assert_eq!(woken(), [0, 1, 1]);
        assert_eq!(poll(&mut third, 2), Some(()));
        assert_eq!(woken(), [0, 1, 1]);
        let mut last = pin!(turns.take());
        let polled = last.as_mut().poll(&mut Context::from_waker(&wakers[0]));
        assert!(matches!(polled, Poll::Ready(_)));
    }
}
