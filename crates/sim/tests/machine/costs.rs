//! The cost of operations.

#![allow(unsafe_code)] // registers memory that is not there

use std::time::Duration;

use hydrant_conduit::{
    Clock, Conduit, Error, Key, Permission, Rank, Remote, Sleep, Sleeper, Window, conformance::Log,
};
use hydrant_sim::{Faults, Profile};

use crate::{
    near,
    support::{each, register, world},
    us,
};

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
