//! One seed has one result, and no effect precedes its cause.

mod support;

use std::time::Duration;

use hydrant_base::mix;
use hydrant_conduit::{
    Clock, Conduit, Message, Permission, Rank, Segments, Sent, Sleep, Sleeper,
    conformance::{Got, Log},
};
use hydrant_sim::{Faults, Statistics};
use support::{each, world};

const RANKS: u32 = 8;

/// The record of a run: its digest, and for each rank its end time, its data and its statistics.
type RunRecord = (u64, Vec<(Duration, u64, Statistics)>);

/// Eight ranks carry out random operations.
fn run(profile: &str, seed: u64, faults: Faults) -> RunRecord {
    let world = world(profile, RANKS, seed, faults);
    let ranks = each(&world, |me| {
        // The data lies in the segment, which begins at a page. The number of pages that heap
        // memory touches may differ from run to run.
        let segment = me.conduit.window(me.rank()).unwrap();
        let window = segment.part(0, 64 << 10).unwrap();
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let own = places[me.rank().index()].key;
        let log = &mut Log::echoing();
        let mut word = u64::from(me.rank().0) + 1;
        let mut sent = 0;
        let mut tickets = Vec::new();
        for _ in 0..400 {
            word = mix(word);
            let peer = Rank((word >> 8) as u32 % RANKS);
            match word % 8 {
                0..3 => {
                    let message = Message {
                        kind: 0,
                        tag: 0,
                        args: &[word],
                        payload: &[5; 1000][..word as usize % 1000],
                    };
                    let taken = me.conduit.send(peer, &message).unwrap();
                    sent += usize::from(taken == Sent::Yes);
                }
                3..6 => {
                    let len = (word >> 20) as usize % 20_000;
                    let to = places[peer.index()];
                    tickets.push(me.post(peer, to, &window, len, own).unwrap());
                }
                6 => me.conduit.compute(word % 10_000, log),
                _ => {
                    me.conduit.poll(log);
                    let time = Duration::from_nanos(word % 20_000);
                    (me.conduit).wait(Sleeper::Service, Some(time), &mut || false);
                }
            }
        }
        for ticket in tickets {
            me.finish(log, ticket).unwrap();
        }
        while log.replies.len() < sent {
            me.conduit.poll(log);
            me.nap(Duration::from_micros(3));
        }
        let mut hash = 0;
        for got in log.requests.iter().chain(&log.replies) {
            hash = mix(hash ^ got.args[0] ^ u64::from(got.from.0));
        }
        // Wait until all requests of all ranks are answered.
        let until = me.conduit.now() + Duration::from_millis(50);
        while me.conduit.now() < until {
            me.conduit.poll(log);
            me.nap(Duration::from_micros(20));
        }
        (me.conduit.now(), hash, me.conduit.statistics())
    });
    (world.digest(), ranks)
}

fn lossy() -> Faults {
    Faults {
        loss: 0.05,
        delay: Duration::from_micros(5),
        ..Faults::default()
    }
}

#[test]
fn the_same_seed_has_the_same_result() {
    for profile in ["ideal", "myrinet-gm", "clan-via"] {
        let first = run(profile, 42, Faults::default());
        assert_eq!(first, run(profile, 42, Faults::default()), "{profile}");
        let first = run(profile, 42, lossy());
        assert_eq!(first, run(profile, 42, lossy()), "{profile}, lossy");
    }
}

#[test]
fn another_seed_has_another_result_where_there_is_chance() {
    let first = run("myrinet-gm", 1, lossy());
    assert_ne!(first.0, run("myrinet-gm", 2, lossy()).0);
    // Without chance the seed does not matter.
    let first = run("myrinet-gm", 1, Faults::default());
    assert_eq!(first, run("myrinet-gm", 2, Faults::default()));
}

#[test]
fn no_message_arrives_before_it_was_sent() {
    for profile in ["ideal", "myrinet-gm", "connectx"] {
        let world = world(profile, 4, 3, lossy());
        let least = Duration::from_nanos(world.profile().link().latency.0 / 1000);
        each(&world, |me| {
            let log = &mut Log::new();
            for n in 0..200_u64 {
                let peer = Rank((me.rank().0 + 1 + n as u32 % 3) % 4);
                let now = me.conduit.now().as_nanos() as u64;
                me.send(log, peer, &[now], &[]);
                me.conduit.poll(log);
                let arrived = me.conduit.now().as_nanos() as u64;
                for Got { from, args, .. } in log.requests.drain(..) {
                    let earliest = args[0] + least.as_nanos() as u64;
                    assert!(arrived >= earliest, "{from}: {arrived} before {earliest}");
                }
                me.nap(Duration::from_nanos(mix(n) % 3000));
            }
            let until = me.conduit.now() + Duration::from_millis(100);
            while me.conduit.now() < until {
                me.conduit.poll(log);
                me.nap(Duration::from_micros(50));
            }
        });
    }
}
