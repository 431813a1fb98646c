//! Values with a stripe for each thread, on cache lines of its own. So writes of every operation
//! touch no line that other threads use.

use std::{
    array,
    cell::Cell,
    cmp::Reverse,
    collections::BinaryHeap,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
};

use hydrant_conduit::fork;
use parking_lot::Mutex;

/// The number of stripes. The first threads have one each; the others share the last one.
const STRIPES: usize = 32;

/// A value for each stripe.
pub(crate) struct Striped<T> {
    stripes: [PaddedStripe<T>; STRIPES],
}

/// Aligned so that no two threads write to one cache line, nor to two that processors fetch as a
/// pair.
#[repr(align(128))]
struct PaddedStripe<T>(T);

impl<T> Striped<T> {
    /// Makes a value for each stripe.
    pub(crate) fn new(mut make: impl FnMut() -> T) -> Self {
        Self {
            stripes: array::from_fn(|_| PaddedStripe(make())),
        }
    }

    /// Returns the value that only this thread writes, if the thread has a stripe;
    /// [`mine`](Self::mine) assigns one. Other threads may read it. No thread of a forked child has
    /// one, so code that uses only its own value needs no check for a child.
    #[inline(always)]
    pub(crate) fn own(&self) -> Option<&T> {
        let stripe = STRIPE.with(Cell::get);
        (stripe < STRIPES - 1).then(|| &self.stripes[stripe].0)
    }

    /// Returns the value of this thread's stripe, and whether no other thread has the stripe.
    #[inline(always)]
    pub(crate) fn mine(&self) -> (&T, bool) {
        match self.own() {
            Some(own) => (own, true),
            None => self.assigned(),
        }
    }

    #[cold]
    fn assigned(&self) -> (&T, bool) {
        let stripe = assign();
        (&self.stripes[stripe].0, stripe < STRIPES - 1)
    }

    /// Returns the value of the threads that share a stripe.
    pub(crate) fn shared(&self) -> &T {
        &self.stripes[STRIPES - 1].0
    }

    /// Returns the values of the stripes that belong or belonged to one thread.
    #[inline]
    pub(crate) fn owned(&self) -> impl Iterator<Item = &T> {
        let used = FRESH.load(Relaxed).min(STRIPES - 1);
        self.stripes[..used].iter().map(|line| &line.0)
    }

    /// Returns the values of the stripes that belong to one living thread.
    pub(crate) fn held(&self) -> impl Iterator<Item = &T> {
        let held = HELD.load(Relaxed);
        (self.stripes[..STRIPES - 1].iter().enumerate())
            .filter(move |(stripe, _)| held & 1 << stripe != 0)
            .map(|(_, line)| &line.0)
    }

    /// Returns the values of all stripes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|line| &line.0)
    }
}

/// A reference to a value that threads use for a moment each, by a [`StripedWeak`]. Each use is
/// counted in the stripe of its thread. The count of a plain `Arc` is one word that all threads
/// would write.
pub(crate) struct StripedArc<T> {
    /// A reference for each stripe, whose count is that of the uses.
    stripes: Vec<Arc<PaddedStripe<Arc<T>>>>,
}

/// A reference to a value that can be used as long as its [`StripedArc`] lives.
pub(crate) struct StripedWeak<T> {
    stripes: Arc<[Weak<PaddedStripe<Arc<T>>>]>,
}

/// A use of a value, which keeps the value alive.
pub(crate) struct InUse<T>(Arc<PaddedStripe<Arc<T>>>);

impl<T> StripedArc<T> {
    pub(crate) fn new(value: &Arc<T>) -> Self {
        Self {
            stripes: (0..STRIPES)
                .map(|_| Arc::new(PaddedStripe(Arc::clone(value))))
                .collect(),
        }
    }

    pub(crate) fn downgrade(&self) -> StripedWeak<T> {
        StripedWeak {
            stripes: self.stripes.iter().map(Arc::downgrade).collect(),
        }
    }
}

impl<T> StripedWeak<T> {
    /// Returns the value if its [`StripedArc`] lives.
    #[inline]
    pub(crate) fn upgrade(&self) -> Option<InUse<T>> {
        let stripe = STRIPE.with(Cell::get);
        let stripe = if stripe < STRIPES { stripe } else { assign() };
        self.stripes.get(stripe)?.upgrade().map(InUse)
    }
}

impl<T> Clone for StripedWeak<T> {
    fn clone(&self) -> Self {
        Self {
            stripes: Arc::clone(&self.stripes),
        }
    }
}

impl<T> Deref for InUse<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0.0
    }
}

/// Gives this thread a stripe: the shared one if no other is free.
#[cold]
fn assign() -> usize {
    if fork::is_child() {
        // A thread that the child lacks may hold the lock of the numbers.
        STRIPE.with(|cell| cell.set(STRIPES - 1));
        return STRIPES - 1;
    }
    let hold = HOLD.try_with(|hold| hold.0).unwrap_or(usize::MAX);
    let stripe = hold.min(STRIPES - 1);
    STRIPE.with(|cell| cell.set(stripe));
    stripe
}

/// Numbers that no living thread holds, the smallest first. From the number of the shared stripe
/// on, numbers stand for that stripe. A thread keeps its number.
static RETURNED: Mutex<BinaryHeap<Reverse<usize>>> = Mutex::new(BinaryHeap::new());
/// The smallest number that was never given out.
static FRESH: AtomicUsize = AtomicUsize::new(0);

/// One bit for each stripe that belongs to one living thread.
static HELD: AtomicU32 = AtomicU32::new(0);

/// The number of a thread, returned when the thread ends.
struct Hold(usize);

impl Hold {
    fn take() -> Self {
        let returned = RETURNED.lock().pop();
        let number = returned.map_or_else(|| FRESH.fetch_add(1, Relaxed), |Reverse(number)| number);
        if number < STRIPES - 1 {
            HELD.fetch_or(1 << number, Relaxed);
        }
        Self(number)
    }
}

/// Takes the stripe from a child's thread before `fork` returns there. Called before a job begins.
pub(crate) fn share_in_children() {
    fork::in_child(|| STRIPE.with(|cell| cell.set(STRIPES - 1)));
}

impl Drop for Hold {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        // Destructors that run after this one must not write to a stripe that another thread may
        // have by then.
        let _ = STRIPE.try_with(|stripe| stripe.set(STRIPES - 1));
        if self.0 < STRIPES - 1 {
            HELD.fetch_and(!(1 << self.0), Relaxed);
        }
        RETURNED.lock().push(Reverse(self.0));
    }
}

thread_local! {
    /// The stripe of the thread; `usize::MAX` before it has one.
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    static HOLD: Hold = Hold::take();
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_value_is_gone_with_its_owner_and_the_last_use() {
        let value = Arc::new(5);
        let owner = StripedArc::new(&value);
        let weak = owner.downgrade();
        // Taken first. Otherwise this thread would get the stripe that the other thread returned.
        let here = weak.upgrade().expect("the owner lives");
        let elsewhere = thread::scope(|scope| scope.spawn(|| weak.upgrade()).join());
        let elsewhere = elsewhere.expect("no panic").expect("the owner lives");
        drop(owner);
        drop(here);
        assert!(weak.upgrade().is_none());
        assert_eq!(Arc::strong_count(&value), 2, "in use elsewhere");
        assert_eq!(**elsewhere, 5);
        drop(elsewhere);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_stripe_belongs_to_at_most_one_living_thread() {
        let striped = Striped::new(|| AtomicUsize::new(0));
        let barrier = std::sync::Barrier::new(STRIPES + 8);
        thread::scope(|scope| {
            for _ in 0..STRIPES + 8 {
                scope.spawn(|| {
                    let (mine, alone) = striped.mine();
                    let before = mine.fetch_add(1, Relaxed);
                    assert!(!alone || before == 0);
                    barrier.wait();
                });
            }
        });
        // A thread that starts after many have ended gets a stripe of its own again, in whatever
        // order they ended.
        let comes = || {
            let (_, alone) = thread::scope(|scope| {
                let late = scope.spawn(|| striped.mine());
                late.join().expect("no panic")
            });
            // Threads of other tests may hold the other stripes for a while.
            thread::sleep(std::time::Duration::from_millis(1));
            alone
        };
        assert!((0..10_000).any(|_| comes()));
        let all: usize = striped.iter().map(|count| count.load(Relaxed)).sum();
        assert_eq!(all, STRIPES + 8);
    }
}
