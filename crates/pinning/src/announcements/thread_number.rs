//! Small numbers of threads: each thread has its own, and a number returns when its thread ends.

#[cfg(not(loom))]
pub(super) use numbered::current;

/// The number of threads that have a number at once.
pub(super) const MAX_THREADS: u32 = 1024;

#[cfg(not(loom))]
mod numbered {
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::sync::{Mutex, PoisonError};

    use super::MAX_THREADS;

    /// This thread has not asked for a number yet.
    const UNASKED: u32 = u32::MAX;
    /// This thread has none: too many have one, or it is ending.
    const NONE: u32 = u32::MAX - 1;

    /// The numbers that no thread has.
    struct FreeNumbers {
        returned: BinaryHeap<Reverse<u32>>,
        /// The lowest number that no thread ever had.
        next: u32,
    }

    static FREE: Mutex<FreeNumbers> = Mutex::new(FreeNumbers {
        returned: BinaryHeap::new(),
        next: 0,
    });

    thread_local! {
        // It needs no destructor, so a look at it is one load.
        static NUMBER: Cell<u32> = const { Cell::new(UNASKED) };
        static OWNED: OwnedNumber = OwnedNumber(take());
    }

    /// Returns a number when its thread ends.
    struct OwnedNumber(Option<u32>);

    impl Drop for OwnedNumber {
        fn drop(&mut self) {
            // Destructors that run later must not use a number that another thread may have.
            NUMBER.set(NONE);
            if let Some(number) = self.0 {
                let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
                free.returned.push(Reverse(number));
            }
        }
    }

    fn take() -> Option<u32> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Reverse(number)) = free.returned.pop() {
            return Some(number);
        }
        let number = free.next;
        (number < MAX_THREADS).then(|| {
            free.next += 1;
            number
        })
    }

    /// The number of the calling thread, unless it has none.
    #[inline(always)]
    pub(in super::super) fn current() -> Option<u32> {
        match NUMBER.get() {
            number if number < MAX_THREADS => Some(number),
            UNASKED => ask(),
            _ => None,
        }
    }

    #[cold]
    fn ask() -> Option<u32> {
        let owned = OWNED.try_with(|it| it.0).ok().flatten();
        NUMBER.set(owned.unwrap_or(NONE));
        owned
    }
}

#[cfg(loom)]
pub(super) fn current() -> Option<u32> {
    use crate::sync::{AtomicU32, Ordering};

    loom::lazy_static! {
        static ref NEXT: AtomicU32 = AtomicU32::new(0);
    }
    loom::thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    Some(NUMBER.with(|number| *number))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_at_once_have_different_numbers() {
        let own = current().unwrap();
        assert_eq!(current(), Some(own));
        thread::scope(|scope| {
            let others = [(); 3].map(|()| {
                scope.spawn(|| {
                    let number = current().unwrap();
                    assert_eq!(current(), Some(number));
                    number
                })
            });
            for other in others {
                assert_ne!(other.join().unwrap(), own);
            }
        });
    }
}
