//! The use of registered memory, by the bucket.

use super::*;
use crate::BucketUsage;

fn engine() -> Engine {
    Engine::new(Config::firehose_paper(0, 3)).expect("the paper's")
}

fn step(engine: &mut Engine, tell: impl FnOnce(&mut Engine, &mut Decisions)) {
    let mut out = Decisions::default();
    tell(engine, &mut out);
    answer(engine, out);
}

/// The counts of dead, permanent, peers' and used buckets and of victims.
fn counts(engine: &Engine) -> [u64; 5] {
    let usage = engine.usage();
    let BucketUsage {
        registered,
        dead,
        permanent,
        peers,
        in_use,
        victims,
        changing,
        ..
    } = usage;
    let all = dead + permanent + peers + in_use + victims + changing;
    assert_eq!(registered, all, "{usage:?}");
    assert_eq!(registered, engine.stats().local.registered);
    [dead, permanent, peers, in_use, victims]
}

fn moved(first: u64, count: u64) -> EngineMessage {
    let run = Run { first, count };
    EngineMessage::Move(Move {
        id: 1,
        hold: true,
        needs: vec![Need {
            run,
            preferred: run,
        }],
        ..Move::default()
    })
}

#[test]
fn a_bucket_is_in_use_then_a_victim_then_dead_until_its_operation_ends() {
    let mut engine = engine();
    assert_eq!(counts(&engine), [0; 5]);
    step(&mut engine, |engine, out| {
        engine.begin(put(1, 100), out).expect("a peer");
    });
    assert_eq!(counts(&engine), [0, 0, 0, 0, 1]);
    let there = engine.usage().firehoses;
    assert_eq!(there.len(), 1);
    assert_eq!(
        (there[0].peer, there[0].held_here, there[0].held_there),
        (1, 0, 1)
    );
    let hot = engine.hot().clone();
    let hit = hot.hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put);
    let hit = hit.expect("both sides are there");
    assert_eq!(counts(&engine), [0, 0, 0, 1, 0]);
    hot.change_begins();
    let run = Run { first: 1, count: 1 };
    step(&mut engine, |engine, out| {
        engine.changed(&[(900, run)], 1, out);
    });
    assert_eq!(counts(&engine), [1, 0, 0, 0, 0]);
    assert_eq!(engine.stats().revocations, 1);
    assert!(hot.release(&hit), "the engine waits for it");
    step(&mut engine, |engine, out| engine.released(&hit.keep(), out));
    assert_eq!(counts(&engine), [0; 5]);
}

#[test]
fn operations_without_an_announcement_count_too() {
    let mut engine = engine();
    step(&mut engine, |engine, out| {
        engine.begin(put(1, 100), out).expect("a peer");
    });
    let hot = engine.hot().clone();
    let hit = || hot.hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put);
    // More than a thread announces.
    let kept: Vec<_> = (0..200).map(|_| hit().expect("a hit").keep()).collect();
    let (last, others) = kept.split_last().expect("some");
    others.iter().for_each(|hit| _ = hot.release_kept(hit));
    assert_eq!(counts(&engine), [0, 0, 0, 1, 0], "the last is counted");
    let _ = hot.release_kept(last);
    assert_eq!(counts(&engine), [0, 0, 0, 0, 1]);
}

#[test]
fn buckets_of_peers_and_permanent_ones_are_apart() {
    let mut engine = engine();
    for (peer, first, count) in [(2, 50, 4), (1, 50, 4), (1, 60, 2)] {
        step(&mut engine, |engine, out| {
            let outcome = engine.message(peer, moved(first, count), AccessVerdict::Fine, out);
            outcome.expect("a move");
        });
    }
    // Two peers hold the same four buckets.
    assert_eq!(counts(&engine), [0, 0, 6, 0, 0]);
    let here: Vec<_> = (engine.usage().firehoses.iter())
        .map(|it| (it.peer, it.held_here, it.held_there))
        .collect();
    assert_eq!(here, [(1, 6, 0), (2, 4, 0)]);
    let run = Run {
        first: 200,
        count: 3,
    };
    step(&mut engine, |engine, out| engine.keep(7, run, out));
    assert_eq!(counts(&engine), [0, 3, 6, 0, 0]);
    // The memory of one extent is taken back. Its holders have not answered.
    let mut out = Decisions::default();
    let run = Run {
        first: 60,
        count: 1,
    };
    engine.revoke(8, run, &mut out);
    assert_eq!(counts(&engine), [2, 3, 4, 0, 0]);
    engine.peer_lost(1, &mut out);
    answer(&mut engine, out);
    assert_eq!(counts(&engine), [0, 3, 4, 0, 0]);
    engine.audit(&[]).expect("all counts agree");
}
