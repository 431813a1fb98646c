//! Waits for several operations: for all, or for the first that ends (UPC++, `when_all`).

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;

/// Returns a future of the results of all `operations`, in their order, each with its own outcome.
/// It takes any futures that may be moved, such as [`GetHandle`](crate::GetHandle) and
/// [`Operation`](crate::Operation), on any executor.
///
/// ```
/// # fn main() -> hydrant::Result<()> {
/// # hydrant::run(|job| {
/// let field = job.alloc::<u64>(4)?;
/// let parts = (0..4).map(|at| field.get_nb(job.right(), at, 1));
/// let parts = parts.collect::<hydrant::Result<Vec<_>>>()?;
/// for part in job.wait_for(hydrant::when_all(parts))? {
///     assert_eq!(part?, [0]);
/// }
/// # Ok(())
/// # })
/// # }
/// ```
pub fn when_all<F: Future + Unpin>(operations: impl IntoIterator<Item = F>) -> WhenAll<F> {
    let parts = WokenParts::new(operations);
    WhenAll {
        results: parts.futures.iter().map(|_| None).collect(),
        left: parts.futures.len(),
        parts,
    }
}

/// Returns a future of the first of `operations` that ends. It gives the index of that operation,
/// its result, and the other operations in their order. The others go on.
///
/// # Panics
/// If there are no operations.
pub fn when_any<F: Future + Unpin>(operations: impl IntoIterator<Item = F>) -> WhenAny<F> {
    let parts = WokenParts::new(operations);
    assert!(!parts.futures.is_empty(), "when_any of no operations");
    WhenAny { parts }
}

/// The future that [`when_all`] returns.
#[must_use = "futures do nothing unless they are polled"]
pub struct WhenAll<F: Future> {
    parts: WokenParts<F>,
    results: Vec<Option<F::Output>>,
    /// The number of futures that have not ended.
    left: usize,
}

/// The future that [`when_any`] returns.
#[must_use = "futures do nothing unless they are polled"]
pub struct WhenAny<F: Future> {
    parts: WokenParts<F>,
}

// Results are moved, and the futures may be moved.
impl<F: Future + Unpin> Unpin for WhenAll<F> {}

impl<F: Future + Unpin> Future for WhenAll<F> {
    type Output = Vec<F::Output>;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        while this.left > 0 {
            let Poll::Ready((part, result)) = this.parts.poll_next(context) else {
                return Poll::Pending;
            };
            this.results[part] = Some(result);
            this.left -= 1;
        }
        let results = mem::take(&mut this.results).into_iter();
        let taken = |result: Option<_>| result.expect("it is polled until it is ready, once");
        Poll::Ready(results.map(taken).collect())
    }
}

impl<F: Future + Unpin> Future for WhenAny<F> {
    type Output = (usize, F::Output, Vec<F>);

    /// Never ready again once it was.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let parts = &mut self.get_mut().parts;
        parts.poll_next(context).map(|(part, result)| {
            let others = mem::take(&mut parts.futures).into_iter().flatten();
            (part, result, others.collect())
        })
    }
}

/// Futures of which only the woken ones are polled.
struct WokenParts<F> {
    /// `None` where a future has ended.
    futures: Vec<Option<F>>,
    wakers: Vec<Waker>,
    woken: Arc<WakeList>,
}

/// The woken futures, and the task that polls all.
struct WakeList {
    parts: Mutex<Vec<usize>>,
    /// The waker of the task that polls all.
    whole: Mutex<Option<Arc<Waker>>>,
}

/// Wakes the task for one future.
struct PartWaker {
    woken: Arc<WakeList>,
    part: usize,
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.parts.lock().push(self.part);
        // A waker is user code, as is its clone, so no lock is held. The task is woken for each
        // future: an executor may forget a wake as soon as it polls for another one.
        let whole = self.woken.whole.lock().clone();
        if let Some(whole) = whole {
            whole.wake_by_ref();
        }
    }
}

impl<F: Future + Unpin> WokenParts<F> {
    fn new(futures: impl IntoIterator<Item = F>) -> Self {
        let futures: Vec<_> = futures.into_iter().map(Some).collect();
        let woken = Arc::new(WakeList {
            // In reverse, so that the first is polled first.
            parts: Mutex::new((0..futures.len()).rev().collect()),
            whole: Mutex::new(None),
        });
        let waker = |part| {
            let woken = Arc::clone(&woken);
            Waker::from(Arc::new(PartWaker { woken, part }))
        };
        Self {
            wakers: (0..futures.len()).map(waker).collect(),
            futures,
            woken,
        }
    }

    /// Polls woken futures until one has ended. Returns its index and its result.
    fn poll_next(&mut self, context: &Context<'_>) -> Poll<(usize, F::Output)> {
        let waker = Arc::new(context.waker().clone());
        let before = self.woken.whole.lock().replace(waker);
        drop(before);
        // Futures that are woken meanwhile, perhaps by these polls, wait for the next poll. They
        // have woken the task.
        let mut woken = mem::take(&mut *self.woken.parts.lock());
        while let Some(part) = woken.pop() {
            // Futures that have ended or were handed out are skipped.
            let Some(Some(future)) = self.futures.get_mut(part) else {
                continue;
            };
            let mut context = Context::from_waker(&self.wakers[part]);
            if let Poll::Ready(result) = Pin::new(future).poll(&mut context) {
                self.futures[part] = None;
                self.woken.parts.lock().append(&mut woken);
                return Poll::Ready((part, result));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;

    /// Ready at the poll with this number. Wakes itself until then.
    struct Times(u32);

    impl Future for Times {
        type Output = u32;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
            self.0 -= 1;
            if self.0 == 0 {
                return Poll::Ready(7);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn when_all_ends_with_the_last_and_keeps_the_order() {
        let mut all = when_all([Times(9), Times(1), Times(2)]);
        assert!(poll(&mut all).is_pending());
        let ended = (0..9).map(|_| poll(&mut all)).find(Poll::is_ready);
        assert_eq!(ended, Some(Poll::Ready(vec![7; 3])));
        let mut order = when_all((0..5).map(ready));
        assert_eq!(poll(&mut order), Poll::Ready(vec![0, 1, 2, 3, 4]));
        let mut none = when_all(Vec::<Ready<u8>>::new());
        assert_eq!(poll(&mut none), Poll::Ready(vec![]));
    }

    #[test]
    fn when_any_ends_with_the_first_and_returns_the_others() {
        let mut any = when_any([Times(3), Times(2), Times(9)]);
        assert!(poll(&mut any).is_pending());
        let Poll::Ready((which, result, others)) = poll(&mut any) else {
            panic!("the second has ended");
        };
        assert_eq!((which, result), (1, 7));
        assert!(others.len() == 2 && others[0].0 < others[1].0);
        // The others were handed out, and have woken the task.
        assert!(poll(&mut any).is_pending());
    }
}
