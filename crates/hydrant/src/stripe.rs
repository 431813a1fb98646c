//! Memory that the threads of a rank do not share: a stripe for each, on lines of its own. So what
//! every operation writes is written where no other thread looks at it meanwhile.

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

/// Stripes there are. The first threads have one each; the rest share the last one.
const STRIPES: usize = 32;

/// A value for each stripe.
pub(crate) struct Striped<T> {
    stripes: [Line<T>; STRIPES],
}

/// Aligned so that no two threads write to one line, nor to two that processors fetch as a pair.
#[repr(align(128))]
struct Line<T>(T);

impl<T> Striped<T> {
    /// A value for each stripe.
    pub(crate) fn new(mut make: impl FnMut() -> T) -> Self {
        Self {
            stripes: array::from_fn(|_| Line(make())),
        }
    }

    /// The value that this thread alone writes, if it is known to have one; [`mine`](Self::mine)
    /// sees to that. Others may read it. No thread of a forked child has one, so code that uses only its own value
    /// needs no check for a child.
    #[inline(always)]
    pub(crate) fn own(&self) -> Option<&T> {
        let stripe = STRIPE.with(Cell::get);
        (stripe < STRIPES - 1).then(|| &self.stripes[stripe].0)
    }

    /// The value of this thread's stripe, and whether it has the stripe for itself.
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

    /// The value of the threads that have no stripe for themselves.
    pub(crate) fn shared(&self) -> &T {
        &self.stripes[STRIPES - 1].0
    }

    /// The values of the stripes that some thread has, or has had, for itself.
    #[inline]
    pub(crate) fn owned(&self) -> impl Iterator<Item = &T> {
        let used = FRESH.load(Relaxed).min(STRIPES - 1);
        self.stripes[..used].iter().map(|line| &line.0)
    }

    /// The indices of the stripes that living threads have for themselves.
    pub(crate) fn held(&self) -> impl Iterator<Item = &T> {
        let held = HELD.load(Relaxed);
        (self.stripes[..STRIPES - 1].iter().enumerate())
            .filter(move |(stripe, _)| held & 1 << stripe != 0)
            .map(|(_, line)| &line.0)
    }

    /// The values of all stripes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|line| &line.0)
    }
}

/// A reference to a value that threads use for a moment each, by a [`StripedWeak`]. A moment's use
/// is counted in the stripe of its thread: the count of an `Arc` is one word, which all threads
/// would write.
pub(crate) struct StripedArc<T> {
    /// A reference for each stripe, whose count is that of the uses.
    stripes: Vec<Arc<Line<Arc<T>>>>,
}

/// A way to a value for as long as its [`StripedArc`] lives.
pub(crate) struct StripedWeak<T> {
    stripes: Arc<[Weak<Line<Arc<T>>>]>,
}

/// A use of a value, which lives until this is dropped.
pub(crate) struct InUse<T>(Arc<Line<Arc<T>>>);

impl<T> StripedArc<T> {
    pub(crate) fn new(value: &Arc<T>) -> Self {
        Self {
            stripes: (0..STRIPES)
                .map(|_| Arc::new(Line(Arc::clone(value))))
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
    /// The value, if its [`StripedArc`] lives.
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

/// Gives this thread a stripe, the shared one if there are no others.
#[cold]
fn assign() -> usize {
    if fork::is_child() {
        // In a child, the lock of the numbers may be held by a thread that the child lacks.
        STRIPE.with(|cell| cell.set(STRIPES - 1));
        return STRIPES - 1;
    }
    let hold = HOLD.try_with(|hold| hold.0).unwrap_or(usize::MAX);
    let stripe = hold.min(STRIPES - 1);
    STRIPE.with(|cell| cell.set(stripe));
    stripe
}

/// Numbers that no living thread holds. The smallest is given out first: those from the number of
/// the shared stripe on are no thread's own, and a thread keeps what it gets.
static RETURNED: Mutex<BinaryHeap<Reverse<usize>>> = Mutex::new(BinaryHeap::new());
/// The smallest number that was never given out.
static FRESH: AtomicUsize = AtomicUsize::new(0);

/// One bit for each stripe that a living thread has for itself.
static HELD: AtomicU32 = AtomicU32::new(0);

/// A thread's right to its stripe, given back when it ends.
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
        // Destructors that run after this one must not write to a stripe given away.
        let _ = STRIPE.try_with(|stripe| stripe.set(STRIPES - 1));
        if self.0 < STRIPES - 1 {
            HELD.fetch_and(!(1 << self.0), Relaxed);
        }
        RETURNED.lock().push(Reverse(self.0));
    }
}

thread_local! {
    /// The thread's stripe; `usize::MAX` before it has one.
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
        // First, or this thread would get the stripe that the other has given back.
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
    fn no_two_living_threads_have_one_stripe_for_themselves() {
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
        // Whoever comes when many have gone has one again, whichever of them went last.
        let comes = || {
            let (_, alone) = thread::scope(|scope| {
                let late = scope.spawn(|| striped.mine());
                late.join().expect("no panic")
            });
            // Threads of other tests may have the others for a while.
            thread::sleep(std::time::Duration::from_millis(1));
            alone
        };
        assert!((0..10_000).any(|_| comes()));
        let all: usize = striped.iter().map(|count| count.load(Relaxed)).sum();
        assert_eq!(all, STRIPES + 8);
    }
}
