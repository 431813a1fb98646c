//! The processor's own atomics on one word, with the same ordering as Hydrant's.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// The processor's own fetch-and-add.
pub(crate) fn fetch_add(word: &AtomicU64, count: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        black_box(word.fetch_add(black_box(1), SeqCst));
    }
    start.elapsed()
}

/// The processor's own compare-and-swap that succeeds.
pub(crate) fn compare_swap(word: &AtomicU64, count: u64) -> Duration {
    let mut old = word.load(SeqCst);
    let start = Instant::now();
    for _ in 0..count {
        let new = old.wrapping_add(1);
        old = match word.compare_exchange(black_box(old), new, SeqCst, SeqCst) {
            Ok(_) => new,
            Err(seen) => seen,
        };
    }
    start.elapsed()
}

/// The processor's own exchange.
pub(crate) fn swap(word: &AtomicU64, count: u64) -> Duration {
    let start = Instant::now();
    for i in 0..count {
        black_box(word.swap(black_box(i), SeqCst));
    }
    start.elapsed()
}

/// The processor's own load.
pub(crate) fn load(word: &AtomicU64, count: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        black_box(black_box(word).load(SeqCst));
    }
    start.elapsed()
}

/// The processor's own store.
pub(crate) fn store(word: &AtomicU64, count: u64) -> Duration {
    let start = Instant::now();
    for i in 0..count {
        black_box(word).store(black_box(i), SeqCst);
    }
    start.elapsed()
}

/// Takes and releases a hand-written spin lock, `count` times, without contention.
pub(crate) fn spin_lock(word: &AtomicU64, count: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        let word = black_box(word);
        while word.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            std::hint::spin_loop();
        }
        word.store(0, Release);
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_atomics_change_the_word_as_named() {
        let word = AtomicU64::new(0);
        fetch_add(&word, 10);
        compare_swap(&word, 5);
        assert_eq!(word.load(SeqCst), 15);
        swap(&word, 3);
        assert_eq!(word.load(SeqCst), 2);
        word.store(0, SeqCst);
        spin_lock(&word, 3);
        assert_eq!(word.load(SeqCst), 0);
    }
}
