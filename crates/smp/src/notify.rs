//! Wakes sleeping ranks.
//!
//! Every rank has a notify word. A thread that goes to sleep sets its bit (it *arms* the word),
//! checks once more for work, and waits on the word as a futex. A thread that gave a rank work
//! notifies it. It reads the word after its store. If the word is armed, the thread clears the bit
//! and wakes the sleepers.
//!
//! "Store, then load" on one side and "arm, then load" on the other need a full fence each, or both
//! may miss the other. The sleeper pays for both. `membarrier` makes every running thread of the
//! job pass a fence, so the other side needs none. A message then costs one load of a line that
//! nobody writes while messages flow. Without `membarrier`, sleeps are short.
//!
//! Even with `membarrier`, sleeps are bounded. Linux (seen on 6.18) may leave a processor out of
//! the barrier. This happens if the processor idled with the process's memory loaded when the
//! process registered for the barrier, and has run no other program since. The kernel then finds
//! the same memory loaded again and does not look at the registration. A waker on such a processor
//! may read the word before its store is visible, and its notification is lost. That is very rare,
//! but nothing else would end the sleep. So each sleep ends [after a while](LONG) by itself.
//!
//! The barrier takes longer than the rest of the answer to a message. A rank that computes sleeps
//! in its service thread after each message. If no other core is idle, a waker's core runs the
//! woken thread, and the waker waits as long. A service thread that was woken from its own core
//! therefore sleeps at once, [shortly](RETURN) and without the barrier. Only after that does it
//! sleep as described.

use std::{
    num::NonZeroU32,
    sync::atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
        compiler_fence, fence,
    },
    time::Duration,
};

use hydrant_conduit::WakeWord;
use rustix::{
    thread::{MembarrierCommand, futex, membarrier, sched_getcpu},
    time::{ClockId, Timespec, clock_gettime},
};

/// The service thread sleeps until a message arrives.
const SERVICE: u32 = 1;
/// Application threads sleep until a message arrives.
const APPLICATION: u32 = WakeWord::APPLICATION;
/// Sleeping application threads also wait for a peer to take messages out of a ring. (4 is the
/// contract's [`WakeWord::MEMORY`].)
const ROOM: u32 = 8;
/// The service thread also waits for room. It has a bit of its own: a wake of application threads
/// clears their bits, but must not clear the bit of a service thread that sleeps on.
const SERVICE_ROOM: u32 = 16;
/// The bits of the sleepers. The bits above them count wakes. A sleeper that was woken before it
/// slept therefore finds another word than it expects, even if the word was armed again since.
const SLEEPERS: u32 = OF_SERVICE | OF_APPLICATION;
/// The bits of the service thread, and those of application threads. A wake clears only the bits of
/// the threads that it wakes.
const OF_SERVICE: u32 = SERVICE | SERVICE_ROOM;
const OF_APPLICATION: u32 = APPLICATION | WakeWord::MEMORY | ROOM;
/// The count of one wake.
const WAKE: u32 = SLEEPERS + 1;
/// The futex bits of a wake for all sleepers.
const EVERYONE: u32 = u32::MAX;

/// The longest sleep of the service thread without a barrier, in which a notification is lost only
/// in rare cases. It is longer than a tick of the system, and costs no timer of its own.
const RETURN: Duration = Duration::from_millis(5);
/// The longest sleep if wakes are not reliable.
const SHORT: Duration = Duration::from_millis(1);
/// The longest sleep if wakes are nearly always reliable. It is so long that an idle rank costs
/// nothing measurable.
const LONG: Duration = Duration::from_secs(1);

/// The kinds of sleepers, by their bits of the notify word.
#[derive(Clone, Copy)]
pub(crate) enum SleepKind {
    /// Woken by messages, if no application thread sleeps.
    Service,
    /// Woken by messages and by the stores it waits for, before the service thread.
    Application,
    /// Like `Application`, and by any store.
    Memory,
    /// Woken by [`wake`] alone.
    Nothing,
}

/// A sleeper's protection against notifiers on processors that have not executed a fence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// The sleeper makes all processors execute a fence.
    Now,
    /// The sleeper checks again soon.
    Later,
    /// No fence, because not every rank has [`enroll`]ed.
    Never,
}

/// Registers for the asymmetric fence. Returns true on success.
pub(crate) fn enroll() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Notifies the sleepers of a published message. `from` is the word in which the service thread
/// finds [its waker's core](woken_here).
#[inline]
pub(crate) fn message<'a>(word: &AtomicU32, from: impl FnOnce() -> &'a AtomicU32) {
    if is_armed(word, SLEEPERS) {
        message_armed(word, from());
    }
}

/// Notifies the application threads of a store that they may wait for.
#[inline]
pub(crate) fn store(word: &AtomicU32) {
    if is_armed(word, APPLICATION) {
        store_armed(word);
    }
}

/// Notifies the threads that sleep for room, after messages were taken from a ring. Application
/// threads and the service thread each wait for room of their own.
#[inline]
pub(crate) fn room(word: &AtomicU32) {
    compiler_fence(SeqCst);
    if word.load(Relaxed) & (ROOM | SERVICE_ROOM) != 0 {
        room_armed(word);
    }
}

#[cold]
fn room_armed(word: &AtomicU32) {
    let armed = word.load(SeqCst);
    if armed & ROOM != 0 {
        wake_application(word);
    }
    if armed & SERVICE_ROOM != 0 {
        wake_service(word);
    }
}

/// Returns true if a thread sleeps that has set one of these bits.
#[inline]
fn is_armed(word: &AtomicU32, bits: u32) -> bool {
    // The processor may still reorder. The sleeper's membarrier handles that.
    compiler_fence(SeqCst);
    word.load(Relaxed) & bits != 0
}

#[cold]
fn message_armed(word: &AtomicU32, from: &AtomicU32) {
    if !woke_application(word) && word.load(SeqCst) & SERVICE != 0 {
        from.store(core(), Relaxed);
        wake_service(word);
    }
}

#[cold]
fn store_armed(word: &AtomicU32) {
    if !woke_application(word) && word.load(SeqCst) & SERVICE != 0 {
        wake_service(word);
    }
}

/// Wakes application threads, and returns true if any slept. The bit may be of a thread that went
/// back to work. Then the service thread is next.
fn woke_application(word: &AtomicU32) -> bool {
    word.load(SeqCst) & APPLICATION != 0 && wake_application(word) > 0
}

/// Returns the core of the calling thread, counted from 1.
fn core() -> u32 {
    sched_getcpu() as u32 + 1
}

/// Returns true if the calling service thread was woken from the core on which it runs, since its
/// last call.
pub(crate) fn woken_here(from: &AtomicU32) -> bool {
    from.load(Relaxed) != 0 && from.swap(0, Relaxed) == core()
}

/// Returns the number of threads that slept.
fn wake_application(word: &AtomicU32) -> usize {
    disarm(word, OF_APPLICATION);
    wake_bits(word, APPLICATION)
}

fn wake_service(word: &AtomicU32) {
    disarm(word, OF_SERVICE);
    wake_bits(word, SERVICE);
}

/// Wakes every sleeper.
pub(crate) fn wake(word: &AtomicU32) {
    disarm(word, SLEEPERS);
    wake_bits(word, EVERYONE);
}

/// Clears bits and counts a wake.
fn disarm(word: &AtomicU32, bits: u32) {
    let disarmed = |old: u32| Some((old & !bits).wrapping_add(WAKE));
    let _ = word.fetch_update(SeqCst, SeqCst, disarmed);
}

/// Returns the number of threads that slept.
fn wake_bits(word: &AtomicU32, bits: u32) -> usize {
    NonZeroU32::new(bits).map_or(0, |bits| {
        futex::wake_bitset(word, futex::Flags::empty(), i32::MAX as u32, bits).unwrap_or(0)
    })
}

/// Sleeps until notified or until `timeout`. Does not sleep if `ready` returns true after the word
/// is armed. May end early. With `room`, a peer that takes messages out of a ring also notifies
/// this thread.
pub(crate) fn sleep(
    word: &AtomicU32,
    armed: SleepKind,
    timeout: Option<Duration>,
    room: bool,
    barrier: Barrier,
    ready: &mut dyn FnMut() -> bool,
) {
    let (bits, class) = match armed {
        SleepKind::Service => (SERVICE, SERVICE),
        SleepKind::Application => (APPLICATION, APPLICATION),
        SleepKind::Memory => (APPLICATION | WakeWord::MEMORY, APPLICATION),
        SleepKind::Nothing => (0, SERVICE),
    };
    let bits = match armed {
        SleepKind::Service if room => bits | SERVICE_ROOM,
        SleepKind::Application | SleepKind::Memory if room => bits | ROOM,
        _ => bits,
    };
    let expected = word.fetch_or(bits, SeqCst) | bits;
    let most = match barrier {
        // Only `wake` ends a nap, and it needs no fence of the sleeper.
        _ if bits == 0 => None,
        Barrier::Later => Some(RETURN),
        Barrier::Now if membarrier(MembarrierCommand::GlobalExpedited).is_ok() => Some(LONG),
        Barrier::Now | Barrier::Never => Some(SHORT),
    };
    fence(SeqCst);
    // A bit that stays set only costs the next notifier a needless wake.
    if ready() {
        return;
    }
    let timeout = match (timeout, most) {
        (Some(timeout), Some(most)) => Some(timeout.min(most)),
        (timeout, most) => timeout.or(most),
    };
    let deadline = timeout.and_then(|timeout| {
        let now = clock_gettime(ClockId::Monotonic);
        now.checked_add(Timespec::try_from(timeout).ok()?)
    });
    let class = NonZeroU32::new(class).unwrap_or(NonZeroU32::MIN);
    // An error means a wake, a timeout, or a changed word. After any of them the caller checks
    // again.
    let _ = futex::wait_bitset(
        word,
        futex::Flags::empty(),
        expected,
        deadline.as_ref(),
        class,
    );
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    /// A word that the service thread does not read.
    static NOBODY: AtomicU32 = AtomicU32::new(0);

    fn enrolled() -> Barrier {
        if enroll() {
            Barrier::Now
        } else {
            Barrier::Never
        }
    }

    /// Hands a token back and forth through sleeps. A lost wake would make the test hang.
    #[test]
    fn no_wake_is_lost() {
        let barrier = enrolled();
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let turns = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        const ROUNDS: u32 = 20_000;
        thread::scope(|scope| {
            for me in 0..2 {
                let (words, turns) = (Arc::clone(&words), Arc::clone(&turns));
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let expected = if me == 0 { round - 1 } else { round };
                        let mut arrived = || turns[me].load(Relaxed) >= expected;
                        while !arrived() {
                            sleep(
                                &words[me],
                                SleepKind::Application,
                                None,
                                false,
                                barrier,
                                &mut arrived,
                            );
                        }
                        turns[1 - me].store(round, Relaxed);
                        message(&words[1 - me], || &NOBODY);
                    }
                });
            }
        });
    }

    /// A notification may be lost if the system's barrier leaves a processor out.
    #[test]
    fn every_sleep_ends() {
        let word = AtomicU32::new(0);
        let barrier = enrolled();
        for armed in [
            SleepKind::Service,
            SleepKind::Application,
            SleepKind::Memory,
        ] {
            sleep(&word, armed, None, false, barrier, &mut || false);
        }
    }

    /// Returns true if a message woke only the application thread, provided that both had time to
    /// fall asleep.
    fn woke_the_application_alone() -> bool {
        let word = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(SeqCst) & APPLICATION == 0 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(10));
                let long = Some(Duration::from_millis(200));
                sleep(
                    &word,
                    SleepKind::Service,
                    long,
                    false,
                    Barrier::Now,
                    &mut || false,
                );
            });
            sleep(
                &word,
                SleepKind::Application,
                None,
                false,
                Barrier::Now,
                &mut || {
                    scope.spawn(|| {
                        while word.load(SeqCst) & SERVICE == 0 {
                            thread::yield_now();
                        }
                        thread::sleep(Duration::from_millis(20));
                        message(&word, || &NOBODY);
                    });
                    false
                },
            );
        });
        word.load(SeqCst) & SERVICE != 0
    }

    /// On a busy machine a thread may not sleep yet. Then both are woken.
    #[test]
    fn messages_wake_the_application_first() {
        assert!((0..50).any(|_| woke_the_application_alone()));
    }

    /// The service thread sleeps until there is room. Meanwhile application threads sleep, are
    /// woken by messages, and may wait for room themselves.
    #[test]
    fn the_service_thread_is_woken_for_room_after_application_threads_were_woken() {
        let barrier = enrolled();
        for application in [false, true] {
            let word = AtomicU32::new(0);
            let room = AtomicU32::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut there = || room.load(SeqCst) != 0;
                    while !there() {
                        sleep(&word, SleepKind::Service, None, true, barrier, &mut there);
                    }
                });
                let arm_of = |bit| {
                    while word.load(SeqCst) & bit == 0 {
                        thread::yield_now();
                    }
                };
                arm_of(SERVICE);
                scope.spawn(|| {
                    sleep(
                        &word,
                        SleepKind::Application,
                        None,
                        application,
                        barrier,
                        &mut || false,
                    );
                });
                arm_of(APPLICATION);
                // The message must wake the application thread, and only that.
                thread::sleep(Duration::from_millis(20));
                message(&word, || &NOBODY);
                room.store(1, SeqCst);
                super::room(&word);
            });
        }
    }
}
