//! A word in shared memory on which one thread sleeps, for conduits on top of this one.
//!
//! The sleeper stores to the word, checks once more for work, and waits on the word as a futex. A
//! thread that gave it work reads the word afterwards, with a full fence in between. This suits
//! threads that are rarely woken. [`notify`](crate::notify) suits the others.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use rustix::thread::{Timespec, futex};

/// The word's value while the thread sleeps. Otherwise it is 0.
const ASLEEP: u32 = 1;

/// Wakes the thread if it sleeps. Called after the stores that the thread is to see.
#[inline]
pub fn wake(word: &AtomicU32) {
    fence(SeqCst);
    if word.load(Relaxed) == ASLEEP && word.swap(0, SeqCst) == ASLEEP {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

/// Sleeps until woken or until `time` has passed. Does not sleep if `ready` returns true. One
/// thread at a time sleeps on a word.
pub fn sleep(word: &AtomicU32, time: Option<Timespec>, ready: &mut dyn FnMut() -> bool) {
    word.store(ASLEEP, SeqCst);
    fence(SeqCst);
    if !ready() {
        // An error means a wake or a changed word. After either the caller checks again.
        let _ = futex::wait(word, futex::Flags::empty(), ASLEEP, time.as_ref());
    }
    word.store(0, SeqCst);
}
