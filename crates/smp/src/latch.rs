//! A lock for a few nanoseconds.
//!
//! One locked instruction to take and a plain store to give back, where the standard mutex
//! has two locked ones. A holder may lose its core while it holds, so waiting yields.

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

/// Looks, with a spin after each, between two yields: a latch is held for a few nanoseconds.
const SPINS: u32 = 63;

/// A value that one thread at a time may use, briefly.
pub struct Latch<T> {
    /// Whether somebody has it.
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the guard is the only way to the value, and there is one guard at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

/// The right to the value; ends when dropped.
pub struct Guard<'a, T>(&'a Latch<T>);

impl<T> Latch<T> {
    /// Makes one that nobody has.
    pub fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// The guard, unless somebody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Lazily: a guard that is made and dropped would give the latch away.
        (!self.taken.load(Relaxed) && !self.taken.swap(true, Acquire)).then(|| Guard(self))
    }

    /// The guard, when nobody else has it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_patiently(),
        }
    }

    #[cold]
    fn lock_patiently(&self) -> Guard<'_, T> {
        let mut backoff = Backoff::new(SPINS, 1);
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            backoff.pause_awake();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, and it is borrowed.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
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
