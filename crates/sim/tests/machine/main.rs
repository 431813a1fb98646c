//! The cost of operations in virtual time, and faults there.

#![allow(unsafe_code)] // registers memory that need not be there

mod support;

use std::{
    panic,
    panic::AssertUnwindSafe,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Clock, Conduit, Error, Key, Local, Membership, Message, Permission, Posted, Rank,
    Remote, Sent, Sleep, Sleeper, Standing, Window, conformance::Log,
};
use hydrant_sim::{Died, Faults, Profile};
use support::{RankHandle, each, register, world};

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn near(got: f64, expected: f64, share: f64) {
    assert!(
        (got - expected).abs() <= expected * share,
        "{got} is not {expected} within {share}"
    );
}

/// The time of rank 0's writes to the last rank, after one warm-up write.
fn writing(profile: &str, len: usize) -> Duration {
    let world = world(profile, 2, 1, Faults::default());
    each(&world, |me| {
        let window = Window::private(len);
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let log = &mut Log::new();
        let since = me.conduit.now();
        if me.rank() == Rank(0) {
            me.put(log, Rank(1), places[1], &window, len, places[0].key)
                .unwrap();
        }
        let took = me.conduit.now() - since;
        me.meet();
        took
    })[0]
}

#[test]
fn a_small_write_takes_the_sum_of_its_steps() {
    for name in Profile::names() {
        let profile = Profile::named(name).unwrap();
        let (nic, link, host) = (profile.nic(), profile.link(), profile.host());
        let steps = [
            host.post,
            host.poll,
            host.poll,
            nic.send,
            nic.packet,
            nic.translate,
            link.latency,
            nic.packet,
            nic.translate,
            nic.receive,
            nic.ack,
            link.latency,
            host.poll,
            host.completion,
        ];
        let bytes =
            2.0 * 8e9 / nic.bandwidth.bytes_per_second() + 8e9 / link.bandwidth.bytes_per_second();
        let sum: f64 = steps.iter().map(|step| step.as_ns()).sum::<f64>() + bytes;
        let took = us(writing(name, 8)) * 1e3;
        // The two polls of the wait run beside the NIC.
        let beside = 2.0 * host.poll.as_ns();
        let local = if nic.early_local {
            host.poll.as_ns()
        } else {
            0.0
        };
        near(took, sum - beside, 0.01 + local / sum);
    }
    near(us(writing("myrinet-gm", 8)), 14.0, 0.1);
}

#[test]
fn long_writes_reach_the_bandwidth_of_the_slowest_stage() {
    let rate = |name| (1 << 20) as f64 / us(writing(name, 1 << 20));
    near(rate("myrinet-pm"), 108.8, 0.03);
    near(rate("connectx"), 3300.0, 0.05);
    let gm = rate("myrinet-gm");
    assert!((220.0..250.0).contains(&gm), "{gm} MB/s");
    assert!((110.0..125.0).contains(&rate("clan-via")));
}

#[test]
fn requests_and_replies_take_what_the_paper_says() {
    let world = world("myrinet-gm", 2, 1, Faults::default());
    let times = each(&world, |me| {
        let log = &mut Log::echoing();
        me.meet();
        // The first call brings the clocks of the ranks together, which meet in real time.
        let mut took = Duration::ZERO;
        for round in 1..=2 {
            let since = me.conduit.now();
            if me.rank() == Rank(0) {
                me.send(log, Rank(1), &[7], &[]);
            }
            while log.requests.len() + log.replies.len() < round {
                me.conduit.wait(Sleeper::Application, None, &mut || false);
                me.conduit.poll(log);
            }
            took = me.conduit.now() - since;
        }
        took
    });
    near(us(times[0]), 20.0, 0.1);
}

#[test]
fn two_senders_share_the_link_of_one_receiver() {
    let world = world("ideal", 3, 1, Faults::default());
    let times = each(&world, |me| {
        let window = Window::private(1 << 20);
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let log = &mut Log::new();
        let own = places[me.rank().index()].key;
        let mut times = Vec::new();
        for alone in [true, false] {
            let since = me.conduit.now();
            if me.rank() == Rank(1) || me.rank() == Rank(2) && !alone {
                me.put(log, Rank(0), places[0], &window, 1 << 20, own)
                    .unwrap();
            }
            times.push(us(me.conduit.now() - since));
            me.meet();
        }
        times
    });
    let (alone, shared) = (times[1][0], times[1][1].max(times[2][1]));
    near(shared, 2.0 * alone, 0.1);
}

#[test]
fn registration_costs_and_is_counted() {
    let world = world("myrinet-pm", 1, 1, Faults::default());
    each(&world, |me| {
        let window = Window::private(16 * 4096);
        let part = window.part(64, 10 * 4096).unwrap();
        let pages = (part.addr() + part.len() - 1) / 4096 - part.addr() / 4096 + 1;
        let since = me.conduit.now();
        let key = register(&me.conduit, &part, Permission::ReadWrite).unwrap();
        near(
            us(me.conduit.now() - since),
            40.0 + 7.0 * pages as f64,
            1e-6,
        );
        let statistics = me.conduit.statistics();
        let bytes = pages as u64 * 4096;
        assert_eq!(
            (statistics.registrations, statistics.registered),
            (1, bytes)
        );
        me.conduit.deregister(key).unwrap();
        let statistics = me.conduit.statistics();
        assert_eq!((statistics.deregistrations, statistics.registered), (1, 0));
        assert_eq!(statistics.registered_peak, bytes);
        near(us(statistics.registering), 40.0 + 7.0 * pages as f64, 1e-6);
        // Four megabytes and no more.
        let large = Window::private((4 << 20) + 4096);
        let error = register(&me.conduit, &large, Permission::Read).unwrap_err();
        assert!(
            matches!(error, Error::Exhausted { limit, .. } if limit == 4 << 20),
            "{error}"
        );
        // Memory that is not mapped.
        let nowhere = std::ptr::without_provenance_mut(4096);
        // SAFETY: no peer is told the key, because there is none.
        let error = unsafe { me.conduit.register(nowhere, 8, Permission::Read) }.unwrap_err();
        assert!(
            matches!(
                error,
                Error::BadAddress {
                    addr: 4096,
                    len: 8,
                    ..
                }
            ),
            "{error}"
        );
    });
}

#[test]
fn keys_are_checked_when_the_data_arrives() {
    let world = world("myrinet-gm", 2, 1, Faults::default());
    each(&world, |me| {
        let (window, read_only) = (Window::private(4096), Window::private(4096));
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let closed = me.publish(&read_only, Permission::Read, 1);
        let own = places[me.rank().index()].key;
        let log = &mut Log::new();
        if me.rank() == Rank(0) {
            window.fill(0, 4096, 9).unwrap();
            me.nap_until(Duration::from_secs(1));
            let ticket = me.post(Rank(1), places[1], &window, 64, own).unwrap();
            // Rank 1 revokes its key while the data is in flight.
            me.meet();
            let error = me.finish(log, ticket).unwrap_err();
            assert!(
                matches!(error, Error::Revoked { peer: Rank(1), .. }),
                "{error}"
            );
            let error = (me.put(log, Rank(1), closed[1], &window, 8, own)).unwrap_err();
            assert!(
                matches!(error, Error::BadAddress { peer: Rank(1), .. }),
                "{error}"
            );
            let beyond = Remote {
                offset: closed[1].offset + 4090,
                ..closed[1]
            };
            let error = (me.put(log, Rank(1), beyond, &window, 8, own)).unwrap_err();
            assert!(
                matches!(error, Error::OutOfExtent { extent: 4096, .. }),
                "{error}"
            );
            // The local side counts as well: its registration ends during a transfer.
            let lent = register(&me.conduit, &read_only, Permission::Read).unwrap();
            let ticket = me.post(Rank(1), closed[1], &read_only, 8, lent).unwrap();
            me.conduit.deregister(lent).unwrap();
            let error = me.finish(log, ticket).unwrap_err();
            assert!(
                matches!(error, Error::Revoked { peer: Rank(0), key } if key == lent.0),
                "{error}"
            );
        } else {
            me.nap_until(Duration::from_secs(1) + Duration::from_micros(1));
            me.conduit.deregister(places[1].key).unwrap();
            me.meet();
        }
        me.meet();
        if me.rank() == Rank(1) {
            assert_eq!(
                window.load::<u64>(0),
                Ok(0),
                "data landed under a revoked key"
            );
        }
    });
}

#[test]
fn memory_that_went_away_is_an_error_and_no_crash() {
    let world = world("connectx", 2, 1, Faults::default());
    each(&world, |me| {
        let window = Window::private(64);
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let log = &mut Log::new();
        let nowhere = Remote {
            key: Key::ANY,
            offset: 4096,
        };
        for peer in [Rank(0), Rank(1)] {
            let from = Local::unregistered(window.as_ptr());
            // SAFETY: the window outlives the operation, and nothing is mapped there.
            let posted = unsafe { (me.conduit).post(&Access::put(peer, nowhere, from, 8)) };
            let outcome = match posted {
                Ok(Posted::Pending(ticket)) => me.finish(log, ticket),
                other => other.map(drop),
            };
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, Error::BadAddress { addr: 4096, .. }),
                "{error}"
            );
        }
        drop(places);
        me.meet();
    });
}

#[test]
fn paging_costs_a_fault_for_each_new_page() {
    let world = world("myrinet-gm", 2, 1, Faults::default());
    let windows = [Window::private(1 << 16), Window::private(1 << 16)];
    let addr = windows[1].addr() as u64;
    each(&world, |me| {
        me.meet();
        let log = &mut Log::new();
        if me.rank() == Rank(0) {
            let mut put = |offset| {
                let since = me.conduit.now();
                let to = Remote {
                    key: Key::ANY,
                    offset: addr + offset,
                };
                me.put(log, Rank(1), to, &windows[0], 8, Key::ANY).unwrap();
                us(me.conduit.now() - since)
            };
            let (both, none, one) = (put(0), put(0), put(8192));
            near(none, 14.0, 0.1);
            near(one - none, 80.0, 0.01);
            near(both - none, 160.0, 0.01);
            assert_eq!(me.conduit.statistics().page_faults, 1);
        }
        me.meet();
    });
}

#[test]
fn nobody_computes_beyond_the_end_of_time() {
    // Half of what 64 bits of picoseconds hold.
    let last = Duration::from_nanos(u64::MAX / 2 / 1000);
    for profile in ["myrinet-gm", "clan-via", "connectx"] {
        let world = world(profile, 2, 1, Faults::default());
        each(&world, |me| {
            let log = &mut Log::echoing();
            for operations in [u64::MAX, u64::MAX / 3, u64::MAX, 1] {
                me.conduit.compute(operations, log);
                let now = me.conduit.now();
                let more = now.checked_sub(last);
                assert!(
                    more.is_some_and(|it| it < Duration::from_secs(1)),
                    "{now:?}"
                );
            }
            // A later event still has its time.
            me.meet();
            let since = me.conduit.now();
            if me.rank() == Rank(0) {
                me.send(log, Rank(1), &[1], &[]);
            }
            while log.requests.is_empty() && me.rank() == Rank(1) {
                me.conduit.wait(Sleeper::Application, None, &mut || false);
                me.conduit.poll(log);
            }
            assert!(me.conduit.now() > since);
            me.meet();
        });
    }
}

#[test]
fn computing_takes_time_and_messages_wait_or_interrupt() {
    for (profile, interrupted) in [("myrinet-gm", false), ("clan-via", true)] {
        let world = world(profile, 2, 1, Faults::default());
        let times = each(&world, |me| {
            let log = &mut Log::echoing();
            me.meet();
            let since = me.conduit.now();
            if me.rank() == Rank(0) {
                me.send(log, Rank(1), &[1], &[]);
                while log.replies.is_empty() {
                    me.conduit.wait(Sleeper::Application, None, &mut || false);
                    me.conduit.poll(log);
                }
            } else {
                me.conduit.compute(2_500_000, log);
                assert_eq!(log.requests.len(), 1);
            }
            us(me.conduit.now() - since)
        });
        // Ten milliseconds or so of computing, longer than any message.
        let computing = if interrupted {
            10_000.0
        } else {
            2_500_000.0 / 216.0
        };
        near(times[1], computing, 0.01);
        if interrupted {
            near(times[0], 34.6, 0.1);
        } else {
            assert!(times[0] > computing, "{times:?}");
        }
    }
}

#[test]
fn lost_packets_are_sent_again_in_order() {
    let faults = Faults {
        loss: 0.2,
        delay: Duration::from_micros(30),
        ..Faults::default()
    };
    let world = world("myrinet-gm", 3, 7, faults);
    each(&world, |me| {
        const MANY: u64 = 500;
        let log = &mut Log::new();
        let right = Rank((me.rank().0 + 1) % 3);
        let payload = vec![1; 4096];
        for n in 0..MANY {
            me.send(log, right, &[n], &payload[..(n * 997 % 4096) as usize]);
        }
        while log.requests.len() < MANY as usize {
            me.conduit.wait(Sleeper::Application, None, &mut || false);
            me.conduit.poll(log);
        }
        let numbers: Vec<u64> = log.requests.iter().map(|got| got.args[0]).collect();
        assert_eq!(numbers, (0..MANY).collect::<Vec<_>>());
        assert!(me.conduit.statistics().lost_packets > 50);
        me.meet();
    });
}

#[test]
fn a_rank_dies_and_the_others_hear_of_it() {
    let faults = Faults {
        deaths: vec![(Rank(1), Duration::from_millis(3))],
        ..Faults::default()
    };
    let world = world("ideal", 3, 1, faults);
    let outcomes = each(&world, |me| {
        if me.rank() == Rank(1) {
            let cause = panic::catch_unwind(AssertUnwindSafe(|| {
                loop {
                    me.conduit.wait(Sleeper::Application, None, &mut || false);
                }
            }));
            let died: Died = *cause.unwrap_err().downcast().unwrap();
            return died.0;
        }
        while me.conduit.standing(Rank(1)) == Standing::Present {
            me.conduit.wait(Sleeper::Application, None, &mut || false);
        }
        let now = me.conduit.now();
        assert_eq!(now, Duration::from_millis(3), "heard at {now:?}");
        assert_eq!(me.conduit.first_lost(), Some(Rank(1)));
        let message = Message {
            kind: 0,
            tag: 0,
            args: &[],
            payload: &[],
        };
        let error = me.conduit.send(Rank(1), &message).unwrap_err();
        assert!(matches!(error, Error::PeerLost(Rank(1))), "{error}");
        Rank(1)
    });
    assert_eq!(outcomes, [Rank(1); 3]);
}

/// As soon as rank 0 sees that rank 1 has ended, it checks that all of rank 1's messages have come.
fn hears_of_the_end_after_all_that_was_sent(me: &RankHandle<'_>, log: &mut Log<'_>, sent: u64) {
    while me.conduit.standing(Rank(1)) == Standing::Present {
        me.nap(Duration::from_micros(1));
    }
    while me.conduit.poll(log) > 0 {}
    let numbers: Vec<u64> = log.requests.iter().map(|got| got.args[0]).collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
}

#[test]
fn the_news_of_an_end_does_not_overtake_what_was_sent() {
    for orderly in [true, false] {
        let world = world("myrinet-gm", 2, 1, Faults::default());
        each(&world, |me| {
            let log = &mut Log::new();
            if me.rank() == Rank(0) {
                hears_of_the_end_after_all_that_was_sent(me, log, 3);
            } else {
                for n in 0..3 {
                    me.send(log, Rank(0), &[n], &[1; 4096]);
                }
                me.conduit.leave(orderly);
            }
        });
    }
}

#[test]
fn messages_sent_before_a_death_arrive() {
    let faults = Faults {
        deaths: vec![(Rank(1), Duration::from_millis(3))],
        loss: 0.2,
        ..Faults::default()
    };
    let world = world("myrinet-gm", 2, 1, faults);
    each(&world, |me| {
        let log = &mut Log::new();
        if me.rank() == Rank(0) {
            hears_of_the_end_after_all_that_was_sent(me, log, 3);
            return;
        }
        let died = panic::catch_unwind(AssertUnwindSafe(|| {
            // The rank dies a moment after sending, so that nothing has arrived by then.
            me.nap_until(Duration::from_micros(2990));
            for n in 0..3 {
                me.send(log, Rank(0), &[n], &[1; 64]);
            }
            loop {
                me.conduit.wait(Sleeper::Application, None, &mut || false);
            }
        }));
        assert!(died.unwrap_err().is::<Died>());
    });
}

#[test]
fn a_busy_rank_answers_when_it_is_done() {
    let faults = Faults {
        busy: vec![(Rank(1), Duration::from_millis(1), Duration::from_millis(9))],
        ..Faults::default()
    };
    let world = world("ideal", 2, 1, faults);
    let times = each(&world, |me| {
        let log = &mut Log::echoing();
        me.meet();
        if me.rank() == Rank(0) {
            me.nap(Duration::from_millis(2));
            me.send(log, Rank(1), &[1], &[]);
        }
        while log.requests.len() + log.replies.len() < 1 {
            me.conduit.wait(Sleeper::Application, None, &mut || false);
            me.conduit.poll(log);
        }
        me.conduit.now()
    });
    let answered = times[0].as_micros();
    assert!(
        (9_000..9_010).contains(&answered),
        "answered at {answered} us"
    );
}

#[test]
fn a_deadlock_report_names_each_rank_and_its_wait() {
    let world = world("ideal", 2, 1, Faults::default());
    let texts = each(&world, |me: &RankHandle<'_>| {
        let sleeper = [Sleeper::Application, Sleeper::Room][me.rank().index()];
        let cause = panic::catch_unwind(AssertUnwindSafe(|| {
            me.conduit.wait(sleeper, None, &mut || false);
        }));
        *cause.unwrap_err().downcast::<String>().unwrap()
    });
    assert!(texts[0].contains("the program deadlocks"), "{texts:?}");
    assert!(texts[0].contains("rank 0"), "{texts:?}");
    assert!(
        texts[0].contains("rank 0 since 50ns: it waits for a message"),
        "{texts:?}"
    );
    assert!(
        texts[0].contains("rank 1 since 50ns: it waits for room"),
        "{texts:?}"
    );
}

#[test]
fn a_thread_that_blocks_outside_loses_its_turn() {
    let world = world("ideal", 1, 1, Faults::default());
    each(&world, |me| {
        me.nap(Duration::from_micros(1));
        // The thread that has the turn waits for one that needs it.
        std::thread::scope(|scope| {
            let child = scope.spawn(|| me.nap(Duration::from_micros(5)));
            child.join().unwrap();
        });
        let message = Message {
            kind: 0,
            tag: 0,
            args: &[],
            payload: &[],
        };
        assert_eq!(me.conduit.send(Rank(0), &message).unwrap(), Sent::Yes);
    });
}

/// Rank 0 works in real time while it has the turn, and rank 1 wants the turn.
fn has_the_turn(outside: impl Fn() + Sync) {
    let world = world("ideal", 2, 1, Faults::default());
    let done = AtomicBool::new(false);
    each(&world, |me| {
        let first = me.rank() == Rank(0);
        me.nap_until(Duration::from_millis(if first { 1 } else { 2 }));
        if first {
            outside();
            done.store(true, SeqCst);
        } else {
            assert!(done.load(SeqCst), "rank 0 lost its turn");
        }
        me.meet();
    });
}

#[test]
fn a_thread_that_waits_for_a_working_thread_keeps_its_turn() {
    has_the_turn(|| {
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let held = lock.lock().unwrap();
            let child = scope.spawn(|| drop(lock.lock()));
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            drop(held);
            child.join().unwrap();
            let worker = scope.spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(300) {
                    std::hint::spin_loop();
                }
            });
            worker.join().unwrap();
        });
    });
}

#[test]
fn a_thread_that_sleeps_in_real_time_keeps_its_turn() {
    has_the_turn(|| std::thread::sleep(Duration::from_millis(300)));
}

#[test]
fn nobody_begins_without_a_rank_that_is_late() {
    let world = world("ideal", 2, 1, Faults::default());
    let late = AtomicBool::new(false);
    each(&world, |me| {
        if me.rank() == Rank(1) {
            std::thread::sleep(Duration::from_secs(4));
            late.store(true, SeqCst);
        }
        me.nap(Duration::from_micros(1));
        assert!(late.load(SeqCst), "rank {} began", me.rank());
    });
}

#[test]
fn a_rank_that_ends_before_it_called_is_not_waited_for() {
    let world = world("ideal", 2, 1, Faults::default());
    let (here, gone) = (world.conduit(Rank(0)), world.conduit(Rank(1)));
    drop(gone);
    here.wait(Sleeper::Nap, Some(Duration::from_micros(1)), &mut || false);
    assert_eq!(here.standing(Rank(1)), Standing::Lost);
    here.leave(true);
}

#[test]
fn operations_begun_before_leaving_complete() {
    let world = world("connectx", 2, 1, Faults::default());
    each(&world, |me| {
        let window = Window::private(1 << 20);
        let places = me.publish(&window, Permission::ReadWrite, 0);
        if me.rank() == Rank(1) {
            me.nap(Duration::from_millis(10));
            return;
        }
        let own = places[0].key;
        let write = me.post(Rank(1), places[1], &window, 1 << 20, own).unwrap();
        let (addr, key) = (window.as_ptr(), own);
        let access = Access::get(Rank(1), places[1], Local { addr, key }, 1 << 20);
        // SAFETY: the window stays until both operations are complete.
        let read = unsafe { me.conduit.post(&access) };
        let Ok(Posted::Pending(read)) = read else {
            panic!("{read:?}");
        };
        me.conduit.leave(true);
        let log = &mut Log::new();
        // They complete, with any outcome.
        let _ = me.finish(log, write);
        let error = me.finish(log, read).unwrap_err();
        assert!(matches!(error, Error::PeerLost(Rank(0))), "{error}");
    });
}

#[test]
fn impossible_worlds_are_refused() {
    use hydrant_sim::{Options, World};
    let with = |ranks, faults| {
        let profile = Profile::named("ideal").unwrap();
        let options = Options {
            faults,
            ..Options::default()
        };
        World::new(profile, ranks, options).unwrap_err().to_string()
    };
    assert!(with(0, Faults::default()).contains("0 ranks"));
    let loss = Faults {
        loss: 1.0,
        ..Faults::default()
    };
    assert!(with(1, loss).contains("cannot be simulated"));
    let deaths = Faults {
        deaths: vec![(Rank(4), Duration::ZERO)],
        ..Faults::default()
    };
    assert!(with(4, deaths).contains("rank 4"));
}
