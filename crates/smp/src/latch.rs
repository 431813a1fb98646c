//! A lock that is held for a few nanoseconds.
//!
//! It takes one locked instruction to lock and a plain store to unlock. The standard mutex needs
//! two locked instructions. A holder may lose its core, so a waiter yields.

#![allow(unsafe_code)] // a lock hands out exclusive access

use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::Backoff;

/// The number of spins between two yields, because a latch is held for a few nanoseconds.
const SPINS: u32 = 63;

/// A value that one thread at a time may use, briefly.
pub struct Latch<T> {
    /// True while a thread holds the latch.
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the guard is the only access to the value, and there is one guard at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

/// Exclusive access to the value. It ends when this is dropped.
pub struct LatchGuard<'a, T>(&'a Latch<T>);

impl<T> Latch<T> {
    /// Makes an unlocked latch.
    pub fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the guard, or `None` if another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        // The closure makes the guard lazily: a guard that is made and dropped would unlock the
        // latch.
        (!self.taken.load(Relaxed) && !self.taken.swap(true, Acquire)).then(|| LatchGuard(self))
    }

    /// Waits for the guard.
    #[inline]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_patiently(),
        }
    }

    #[cold]
    fn lock_patiently(&self) -> LatchGuard<'_, T> {
        let mut backoff = Backoff::new(SPINS, 1);
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            backoff.pause_awake();
        }
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, and it is borrowed.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_at_a_time() {
        let latch = Latch::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| *latch.lock() += 1));
            }
        });
        let held = latch.lock();
        assert_eq!(*held, 200_000);
        assert!(latch.try_lock().is_none());
        drop(held);
        assert!(latch.try_lock().is_some());
    }
}
