//! A word in shared memory on which one thread sleeps, for conduits on top of this one.
//!
//! The sleeper says so in the word, looks once more whether there is something to do, and waits on
//! it as a futex. Who gave it something to do looks at the word afterwards, with a full fence
//! between: this is for threads that are woken seldom, unlike those that [`notify`](crate::notify)
//! is for.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use rustix::thread::{Timespec, futex};

/// What the word holds while the thread sleeps; else it holds 0.
const ASLEEP: u32 = 1;

/// Wakes the thread if it sleeps. Called after what it is to see was stored.
#[inline]
pub fn wake(word: &AtomicU32) {
    fence(SeqCst);
    if word.load(Relaxed) == ASLEEP && word.swap(0, SeqCst) == ASLEEP {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

/// Sleeps until woken or until the time is over, or not at all if `ready` says so. One thread
/// sleeps on a word.
pub fn sleep(word: &AtomicU32, time: Option<Timespec>, ready: &mut dyn FnMut() -> bool) {
    word.store(ASLEEP, SeqCst);
    fence(SeqCst);
    if !ready() {
        // An error means woken, or that the word changed: both are reasons to look again.
        let _ = futex::wait(word, futex::Flags::empty(), ASLEEP, time.as_ref());
    }
    word.store(0, SeqCst);
}
