//! Lost packets, deaths and busy ranks.

use std::{
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

use hydrant_conduit::{
    Clock, Conduit, Error, Membership, Message, Rank, Sleep, Sleeper, Standing, conformance::Log,
};
use hydrant_sim::{Died, Faults, Profile};

use crate::support::{RankHandle, each, world};

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
fn impossible_worlds_are_refused() {
    use hydrant_sim::{SimOptions, World};
    let with = |ranks, faults| {
        let profile = Profile::named("ideal").unwrap();
        let options = SimOptions {
            faults,
            ..SimOptions::default()
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
