//! Waits for messages and for memory.

use std::{
    cell::Cell,
    sync::atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Message, Rank, Sent, Sleeper, WakeWord};

use super::{
    ContractCheck, Fixture, GUARD,
    log::Log,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "sleep_for_messages_application",
        "no message is missed by a sleeping application",
        |f| messages(f, Sleeper::Application),
    ),
    ContractCheck::new(
        "sleep_for_messages_service",
        "no message is missed by a sleeping service thread",
        |f| messages(f, Sleeper::Service),
    ),
    ContractCheck::new(
        "sleep_for_memory",
        "no store is missed by an application that sleeps for memory",
        memory,
    ),
    ContractCheck::new(
        "sleep_side_by_side",
        "no store is missed by several threads that sleep side by side",
        side_by_side,
    ),
    ContractCheck::new(
        "sleep_for_room",
        "no room is missed by a sleeper that waits to send",
        room,
    ),
    ContractCheck::new(
        "sleep_for_reply_room_service",
        "a reply that waits for room leaves although the service thread sleeps",
        |f| room_for_reply(f, Sleeper::Service),
    ),
    ContractCheck::new(
        "sleep_for_reply_room_application",
        "a reply that waits for room leaves although the application sleeps",
        |f| room_for_reply(f, Sleeper::Application),
    ),
    ContractCheck::new(
        "sleep_after_work",
        "a thread that went back to work keeps no other asleep",
        after_work,
    ),
    ContractCheck::new(
        "sleep_not_if_ready",
        "a thread that is ready or has a message does not sleep",
        ready,
    ),
    ContractCheck::new("sleep_timeout", "sleeps end in time", timeout),
    ContractCheck::new(
        "sleep_is_idle",
        "a thread that waits for nothing sleeps instead of spinning",
        idle,
    ),
];

/// Spins for a time that differs at each call, so that the two sides interleave in every way.
fn jitter(n: u64) {
    for _ in 0..hydrant_base::mix(n) % 400 {
        std::hint::spin_loop();
    }
}

/// Hands a message back and forth, with sleeps in between.
fn messages(fixture: &dyn Fixture, sleeper: Sleeper) {
    let rounds = 4000 / u64::from(fixture.slowness());
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        for round in 0..rounds {
            let mine = round % 2 == u64::from(me.rank().0);
            if mine {
                jitter(round);
                me.send(
                    log,
                    me.right(),
                    &Message {
                        kind: 0,
                        tag: 0,
                        args: &[round],
                        payload: &[],
                    },
                );
            } else {
                while log.requests.is_empty() {
                    me.sleep(sleeper, || false);
                    me.conduit.poll(log);
                }
                assert_eq!(log.requests.pop().expect("just seen").args, [round]);
            }
        }
        me.meet(log);
    });
}

/// Hands numbers back and forth through words of the segments, one word for each pair of threads.
fn ping_pong(me: &TeamMember<'_>, word: usize, rounds: u32) {
    let (Some(mine), Some(theirs)) = (me.conduit.window(me.rank()), me.conduit.window(me.right()))
    else {
        return;
    };
    let mine = mine.atomic_u32(word * 4).expect("in bounds");
    let theirs = theirs.atomic_u32(word * 4).expect("in bounds");
    for round in 1..=rounds {
        if round % 2 == me.rank().0 {
            jitter(u64::from(round) + word as u64 * 77);
            theirs.store(round, SeqCst);
            me.conduit.notify(me.right());
        } else {
            while mine.load(SeqCst) != round {
                me.sleep(Sleeper::Memory, || mine.load(SeqCst) == round);
            }
        }
    }
}

fn memory(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        me.conduit.commit(0, 4096).expect("memory for a test");
        me.meet(log);
        // The wake word shows a sleeper for memory.
        if let (Some(wake_word), Some(theirs)) = (
            me.conduit.wake_word(me.right()),
            me.conduit.window(me.right()),
        ) {
            let mine = me.conduit.window(me.rank()).expect("the own segment");
            let flag = mine.atomic_u32(8).expect("in bounds");
            if me.rank() == Rank(0) {
                while flag.load(SeqCst) == 0 {
                    me.sleep(Sleeper::Memory, || flag.load(SeqCst) != 0);
                }
            } else {
                me.until(log, "a sleeper for memory", |_| {
                    wake_word.bits.load(SeqCst) & WakeWord::MEMORY != 0
                });
                theirs.store(8, 1_u32).expect("in bounds");
                me.conduit.notify(me.right());
            }
        }
        me.meet(log);
        ping_pong(me, 0, 6000);
        me.meet(log);
    });
}

fn side_by_side(fixture: &dyn Fixture) {
    const THREADS: usize = 3;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        me.conduit.commit(0, 4096).expect("memory for a test");
        me.meet(log);
        thread::scope(|scope| {
            for word in 0..THREADS {
                scope.spawn(move || {
                    let _alarm = me.alarm();
                    ping_pong(me, word, 6000);
                });
            }
        });
        me.meet(log);
    });
}

fn after_work(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        for round in 0..20_u64 {
            if me.rank() == Rank(0) {
                // An application thread that waited, in one of three ways, and computes now.
                let millisecond = Some(Duration::from_millis(1));
                match round % 3 {
                    0 => me
                        .conduit
                        .wait(Sleeper::Application, millisecond, &mut || true),
                    1 => me
                        .conduit
                        .wait(Sleeper::Application, millisecond, &mut || false),
                    _ => me.conduit.wait(Sleeper::Nap, millisecond, &mut || false),
                }
                me.meet(log);
                while log.requests.is_empty() {
                    me.sleep(Sleeper::Service, || false);
                    me.conduit.poll(log);
                }
                assert_eq!(log.requests.pop().expect("just seen").args, [round]);
            } else {
                me.meet(log);
                // Time for the other rank to fall asleep.
                thread::sleep(Duration::from_millis(2));
                me.send(
                    log,
                    Rank(0),
                    &Message {
                        kind: 0,
                        tag: 0,
                        args: &[round],
                        payload: &[],
                    },
                );
            }
        }
        me.meet(log);
    });
}

/// Sends so much that there is never room, and sleeps until there is.
fn room(fixture: &dyn Fixture) {
    const MANY: u64 = 3000;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let payload = vec![1; me.conduit.caps().max_payload];
        for n in 0..MANY {
            if me.rank() == Rank(0) {
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[n],
                    payload: &payload,
                };
                let sent = Cell::new(false);
                let try_send = || {
                    if !sent.get() {
                        let taken = me.conduit.send(Rank(1), &message);
                        sent.set(taken.expect("within the limits") == Sent::Yes);
                    }
                    sent.get()
                };
                while !try_send() {
                    me.sleep(Sleeper::Room, try_send);
                    me.conduit.poll(log);
                }
            } else {
                while log.requests.is_empty() {
                    me.conduit.poll(log);
                }
                assert_eq!(log.requests.remove(0).args, [n]);
                jitter(n);
            }
        }
        me.meet(log);
    });
}

/// Rank 0 sleeps whenever it has nothing to do, even while its replies wait for room.
fn room_for_reply(fixture: &dyn Fixture, sleeper: Sleeper) {
    const MANY: usize = 2000;
    each(fixture, 2, |me| {
        let payload = vec![2; me.conduit.caps().max_payload];
        let log = &mut Log::handling(|_, port| {
            let reply = Message {
                kind: 0,
                tag: 0,
                args: &[],
                payload: &payload,
            };
            port.reply(&reply).expect("a reply is always taken");
        });
        if me.rank() == Rank(0) {
            while log.requests.len() < MANY {
                if log.requests.len() % 16 < 4 {
                    // Room that comes between a check and a sleep counts, too.
                    thread::sleep(Duration::from_millis(1));
                }
                me.sleep(sleeper, || false);
                me.conduit.poll(log);
            }
        } else {
            let mut sent = 0;
            let since = Instant::now();
            while log.replies.len() < MANY {
                me.hope("the replies", since);
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[],
                    payload: &[],
                };
                // Sends as many as there is room for, so that the next notification is of room.
                while sent < MANY
                    && me
                        .conduit
                        .send(Rank(0), &message)
                        .expect("within the limits")
                        == Sent::Yes
                {
                    sent += 1;
                }
                jitter(log.replies.len() as u64);
                me.conduit.poll(log);
            }
        }
        me.meet(log);
    });
}

fn ready(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        for sleeper in [
            Sleeper::Service,
            Sleeper::Nap,
            Sleeper::Application,
            Sleeper::Room,
        ] {
            let asked = Cell::new(0);
            me.sleep(sleeper, || {
                asked.set(asked.get() + 1);
                true
            });
            assert!(
                asked.get() > 0,
                "{sleeper:?} was not asked whether it is ready"
            );
            me.conduit.wait(sleeper, Some(Duration::MAX), &mut || true);
            me.conduit.wait(sleeper, None, &mut || true);
        }
        for sleeper in [Sleeper::Service, Sleeper::Application] {
            me.meet(log);
            me.send(
                log,
                me.right(),
                &Message {
                    kind: 0,
                    tag: 0,
                    args: &[],
                    payload: &[],
                },
            );
            while log.requests.is_empty() {
                me.sleep(sleeper, || false);
                me.conduit.poll(log);
            }
            log.requests.clear();
            me.meet(log);
        }
    });
}

fn timeout(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        for sleeper in [
            Sleeper::Service,
            Sleeper::Nap,
            Sleeper::Application,
            Sleeper::Room,
        ] {
            for millis in [0, 1, 20] {
                let since = Instant::now();
                me.conduit
                    .wait(sleeper, Some(Duration::from_millis(millis)), &mut || false);
                assert!(
                    since.elapsed() < GUARD / 2,
                    "{sleeper:?} slept for {:?}",
                    since.elapsed()
                );
            }
        }
        me.meet(&mut Log::new());
    });
}

fn idle(fixture: &dyn Fixture) {
    /// With sleeps of a millisecond, which the slowest conduit may make of longer ones, there are
    /// two hundred returns. A spinning rank returns a hundred times as often.
    const MAX_RETURNS: u32 = 4000;
    let returns = AtomicU32::new(0);
    each(fixture, 2, |me| {
        for sleeper in [
            Sleeper::Service,
            Sleeper::Nap,
            Sleeper::Application,
            Sleeper::Room,
        ] {
            returns.store(0, SeqCst);
            me.meet_deaf();
            let until = me.conduit.now() + Duration::from_millis(200);
            while me.conduit.now() < until {
                let left = until.saturating_sub(me.conduit.now());
                me.conduit.wait(sleeper, Some(left), &mut || false);
                returns.fetch_add(1, Relaxed);
            }
            me.meet_deaf();
            let returns = returns.load(Relaxed);
            assert!(
                returns < MAX_RETURNS,
                "{sleeper:?} returned {returns} times with nothing to do"
            );
            me.meet_deaf();
        }
        me.meet(&mut Log::new());
    });
}
