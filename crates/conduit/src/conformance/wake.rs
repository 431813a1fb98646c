//! Wakes of sleeping ranks.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
    time::Instant,
};

use crate::{Rank, Sleeper};

use super::{
    ContractCheck, Fixture,
    log::Log,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "wake_service",
        "wake ends the service thread's sleep",
        |f| one(f, Sleeper::Service),
    ),
    ContractCheck::new("wake_nap", "wake ends a nap", |f| one(f, Sleeper::Nap)),
    ContractCheck::new(
        "wake_application",
        "wake ends an application's sleep",
        |f| one(f, Sleeper::Application),
    ),
    ContractCheck::new(
        "wake_before_sleep",
        "a wake during a sleeper's call of `ready` is not lost",
        before_sleep,
    ),
    ContractCheck::new("wake_all", "one wake ends every sleep, of every kind", all),
    ContractCheck::new("wake_oneself", "a rank wakes its own sleepers", oneself),
];

/// Sleeps once. `asked` grows when the others may know of the sleep.
fn sleep_once(me: &TeamMember<'_>, sleeper: Sleeper, asked: &AtomicU32) {
    let mut first = true;
    me.sleep(sleeper, || {
        if first {
            asked.fetch_add(1, SeqCst);
        }
        first = false;
        false
    });
    // A sleep may end before it begins: something woke the rank, and `ready` was not called.
    if first {
        asked.fetch_add(1, SeqCst);
    }
}

/// Waits for a count without polling, which might take long.
fn reach(me: &TeamMember<'_>, count: &AtomicU32, least: u32) {
    let since = Instant::now();
    while count.load(SeqCst) < least {
        me.hope("a sleeper", since);
        me.breathe();
    }
}

/// Wakes a rank while its `ready` is called. The rank must not sleep then.
fn before_sleep(fixture: &dyn Fixture) {
    let (asked, woken) = (AtomicU32::new(0), AtomicU32::new(0));
    each(fixture, 2, |me| {
        let sleepers = [
            Sleeper::Service,
            Sleeper::Nap,
            Sleeper::Application,
            Sleeper::Room,
        ];
        for (round, sleeper) in (1..).zip(sleepers) {
            if me.rank() == Rank(0) {
                let mut first = true;
                while first {
                    me.sleep(sleeper, || {
                        if first {
                            asked.store(round, SeqCst);
                            reach(me, &woken, round);
                            first = false;
                        }
                        false
                    });
                }
            } else {
                reach(me, &asked, round);
                me.conduit.wake(Rank(0));
                woken.store(round, SeqCst);
            }
            me.meet(&mut Log::new());
        }
    });
}

fn one(fixture: &dyn Fixture, sleeper: Sleeper) {
    let rounds = 3000 / fixture.slowness();
    let (asked, woken) = (AtomicU32::new(0), AtomicU32::new(0));
    each(fixture, 2, |me| {
        for round in 1..=rounds {
            if me.rank() == Rank(0) {
                sleep_once(me, sleeper, &asked);
                // A sleep may end early. The one wake is still for this round.
                woken.fetch_add(1, SeqCst);
                reach(me, &woken, round * 2);
            } else {
                reach(me, &asked, round);
                for _ in 0..round % 97 {
                    std::hint::spin_loop();
                }
                me.conduit.wake(Rank(0));
                woken.fetch_add(1, SeqCst);
                reach(me, &woken, round * 2);
            }
        }
        me.meet(&mut Log::new());
    });
}

fn all(fixture: &dyn Fixture) {
    let rounds = 500 / fixture.slowness();
    const SLEEPERS: [Sleeper; 6] = [
        Sleeper::Service,
        Sleeper::Nap,
        Sleeper::Application,
        Sleeper::Application,
        Sleeper::Nap,
        Sleeper::Room,
    ];
    let (asked, woken) = (AtomicU32::new(0), AtomicU32::new(0));
    let each_round = SLEEPERS.len() as u32;
    each(fixture, 2, |me| {
        if me.rank() == Rank(0) {
            thread::scope(|scope| {
                for sleeper in SLEEPERS {
                    let (asked, woken) = (&asked, &woken);
                    scope.spawn(move || {
                        let _alarm = me.alarm();
                        for round in 1..=rounds {
                            sleep_once(me, sleeper, asked);
                            woken.fetch_add(1, SeqCst);
                            reach(me, woken, round * each_round);
                        }
                    });
                }
            });
        } else {
            for round in 1..=rounds {
                reach(me, &asked, round * each_round);
                me.conduit.wake(Rank(0));
                reach(me, &woken, round * each_round);
            }
        }
        me.meet(&mut Log::new());
    });
}

fn oneself(fixture: &dyn Fixture) {
    let rounds = 300 / fixture.slowness();
    each(fixture, 1, |me| {
        for sleeper in [
            Sleeper::Service,
            Sleeper::Nap,
            Sleeper::Application,
            Sleeper::Room,
        ] {
            let asked = AtomicU32::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _alarm = me.alarm();
                    for round in 1..=rounds {
                        reach(me, &asked, round);
                        me.conduit.wake(Rank(0));
                    }
                });
                for _ in 0..rounds {
                    sleep_once(me, sleeper, &asked);
                }
            });
        }
    });
}
