//! How a sleeping rank is woken.
//!
//! Every rank has a notify word. A thread that goes to sleep sets its bit (it *arms* the word),
//! looks once more whether there is something to do, and waits on the word as a futex.
//! Whoever gave a rank something to do notifies it: looks at its word afterwards and, if it is
//! armed, clears the bit and wakes the sleepers.
//!
//! "Store, then look" on one side and "arm, then look" on the other need a full fence each,
//! or both could miss. The sleeper pays for both: `membarrier` makes every running thread of
//! the job pass a fence, so the other side needs none and a message costs one load of a line
//! that nobody writes while things flow. Where there is no `membarrier`, sleeps are short.
//!
//! Where there is, they are not for ever either. Linux (seen on 6.18) leaves a processor out of the
//! barrier if it idled with the memory of the process still loaded when the process registered for
//! such barriers, and has run no other program since: it compares what it loads with what is loaded,
//! finds the same, and does not look at the registration. A waker on such a processor may look at the
//! word before its store can be seen, and then its notification is lost. It is next to never, but
//! nothing else would end the sleep; so each ends [after a while](LONG) by itself.
//!
//! The barrier takes longer than all else that the answer to a message takes, and a rank that computes
//! sleeps in its service thread after each of them. Whoever wakes that thread has it run on the own core, if
//! no other is idle, and waits for the core as long as it runs. So it sleeps at once where it was woken
//! from its core, [shortly](RETURN) and without the barrier, and only then as described.

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

/// The service thread sleeps until a message comes.
const SERVICE: u32 = 1;
/// Application threads sleep until a message comes.
const APPLICATION: u32 = WakeWord::APPLICATION;
/// Application threads that sleep also wait for a peer to take messages out of a ring. (4 is the
/// contract's [`WakeWord::MEMORY`].)
const ROOM: u32 = 8;
/// So does the service thread. It has a bit of its own: a wake of application threads takes back
/// what they asked for, and must not take back what the service thread asked for and sleeps on.
const SERVICE_ROOM: u32 = 16;
/// The bits that say who sleeps; those above count wakes, so that a sleeper that was woken
/// before it slept sees another word than it expects, whoever armed the word again since.
const SLEEPERS: u32 = OF_SERVICE | OF_APPLICATION;
/// Those of the service thread, and those of application threads: what one asks for is taken back
/// only with a wake of who asked for it.
const OF_SERVICE: u32 = SERVICE | SERVICE_ROOM;
const OF_APPLICATION: u32 = APPLICATION | WakeWord::MEMORY | ROOM;
/// One wake.
const WAKE: u32 = SLEEPERS + 1;
/// Which sleepers a wake is for, when it is for all.
const EVERYONE: u32 = u32::MAX;

/// A sleep of the service thread without a barrier ends after this, though all but surely nothing was missed: for
/// longer than a tick of the system, which costs no timer of its own.
const RETURN: Duration = Duration::from_millis(5);
/// Sleeps end after this where nobody can be sure to be woken.
const SHORT: Duration = Duration::from_millis(1);
/// Sleeps end after this where that is all but sure: so seldom that an idle rank costs nothing that
/// can be measured.
const LONG: Duration = Duration::from_secs(1);

/// Who sleeps, as bits of the notify word.
#[derive(Clone, Copy)]
pub(crate) enum Armed {
    /// Woken by messages, if no application thread sleeps.
    Service,
    /// Woken by messages and by who stored what it waits for, before the service thread.
    Application,
    /// As `Application`, and by any store.
    Memory,
    /// Woken by [`wake`] alone.
    Nothing,
}

/// What a sleeper does about notifications by processors that have not executed a fence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// It has all of them execute one.
    Now,
    /// It looks again soon.
    Later,
    /// Not every rank has [`enroll`]ed.
    Never,
}

/// Takes part in the asymmetric fence; whether that worked.
pub(crate) fn enroll() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Called after a message was published: wakes whoever sleeps for it. `from`: where the service
/// thread finds [from which core](woken_here) it was woken.
#[inline]
pub(crate) fn message<'a>(word: &AtomicU32, from: impl FnOnce() -> &'a AtomicU32) {
    if asks(word, SLEEPERS) {
        message_armed(word, from());
    }
}

/// Called after a store that somebody may wait for: wakes application threads.
#[inline]
pub(crate) fn store(word: &AtomicU32) {
    if asks(word, APPLICATION) {
        store_armed(word);
    }
}

/// Called after messages were taken from a ring: wakes whoever sleeps for the room, which may be
/// application threads and the service thread, each for room of its own.
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

/// Whether somebody sleeps who asks for it by one of these bits.
#[inline]
fn asks(word: &AtomicU32, bits: u32) -> bool {
    // The processor may still reorder; the sleeper's membarrier sees to that.
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

/// Whether application threads slept. The bit may be of one that went back to work: then the service is
/// next.
fn woke_application(word: &AtomicU32) -> bool {
    word.load(SeqCst) & APPLICATION != 0 && wake_application(word) > 0
}

/// The core of the calling thread, counted from 1.
fn core() -> u32 {
    sched_getcpu() as u32 + 1
}

/// Whether the service thread, which calls, was woken from the core that it runs on, since it asked last.
pub(crate) fn woken_here(from: &AtomicU32) -> bool {
    from.load(Relaxed) != 0 && from.swap(0, Relaxed) == core()
}

/// How many slept.
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

/// How many slept.
fn wake_bits(word: &AtomicU32, bits: u32) -> usize {
    NonZeroU32::new(bits).map_or(0, |bits| {
        futex::wake_bitset(word, futex::Flags::empty(), i32::MAX as u32, bits).unwrap_or(0)
    })
}

/// Sleeps until notified, until `timeout`, or not at all if `ready` says so once the word is
/// armed. May end early. `room`: also notified when a peer takes messages out of a ring.
pub(crate) fn sleep(
    word: &AtomicU32,
    armed: Armed,
    timeout: Option<Duration>,
    room: bool,
    barrier: Barrier,
    ready: &mut dyn FnMut() -> bool,
) {
    let (bits, class) = match armed {
        Armed::Service => (SERVICE, SERVICE),
        Armed::Application => (APPLICATION, APPLICATION),
        Armed::Memory => (APPLICATION | WakeWord::MEMORY, APPLICATION),
        Armed::Nothing => (0, SERVICE),
    };
    let bits = match armed {
        Armed::Service if room => bits | SERVICE_ROOM,
        Armed::Application | Armed::Memory if room => bits | ROOM,
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
    // A bit that stays set after "ready" only costs the next who notifies a needless wake.
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
    // An error means woken, late, or that the word changed: all are reasons to look again.
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

    /// Where the service thread does not look.
    static NOBODY: AtomicU32 = AtomicU32::new(0);

    fn enrolled() -> Barrier {
        match enroll() {
            true => Barrier::Now,
            false => Barrier::Never,
        }
    }

    /// Hands a token back and forth through sleeps; a lost wake would hang it.
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
                                Armed::Application,
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

    /// A notification may be lost where the system's barrier leaves a processor out.
    #[test]
    fn nobody_sleeps_for_ever() {
        let word = AtomicU32::new(0);
        let barrier = enrolled();
        for armed in [Armed::Service, Armed::Application, Armed::Memory] {
            sleep(&word, armed, None, false, barrier, &mut || false);
        }
    }

    /// Whether a message woke the application alone, given that both had time to fall asleep.
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
                    Armed::Service,
                    long,
                    false,
                    Barrier::Now,
                    &mut || false,
                );
            });
            sleep(
                &word,
                Armed::Application,
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

    /// On a busy machine a thread may not have slept yet, and then both are woken.
    #[test]
    fn messages_wake_the_application_first() {
        assert!((0..50).any(|_| woke_the_application_alone()));
    }

    /// The service thread sleeps until there is room; application threads come and go meanwhile,
    /// are woken by messages, and may wait for room themselves.
    #[test]
    fn the_service_is_told_of_room_whoever_is_woken_meanwhile() {
        let barrier = enrolled();
        for application in [false, true] {
            let word = AtomicU32::new(0);
            let room = AtomicU32::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut there = || room.load(SeqCst) != 0;
                    while !there() {
                        sleep(&word, Armed::Service, None, true, barrier, &mut there);
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
                        Armed::Application,
                        None,
                        application,
                        barrier,
                        &mut || false,
                    );
                });
                arm_of(APPLICATION);
                // Until it is the application that is woken, and it alone.
                thread::sleep(Duration::from_millis(20));
                message(&word, || &NOBODY);
                room.store(1, SeqCst);
                super::room(&word);
            });
        }
    }
}
