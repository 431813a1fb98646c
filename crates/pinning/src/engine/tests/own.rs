//! Memory held for own operations or for a transfer, and the room for it.

use super::*;
use crate::Refusal;

#[test]
fn memory_kept_for_own_operations_stays_beside_m() {
    let config = Config {
        m: BUCKET,
        maxvictim: 4 * BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    let run = |count| Run { first: 50, count };
    let mut out = Decisions::default();
    engine.keep(1, run(9), &mut out);
    let said = answer(&mut engine, out);
    assert!(matches!(
        said.actions[..],
        [Action::Pinned {
            id: 1,
            result: Err(crate::Error::PastLimit { .. })
        }]
    ));
    assert_eq!(engine.stats().local.registered, 0);
    let mut out = Decisions::default();
    engine.keep(2, run(2), &mut out);
    answer(&mut engine, out);
    for id in 1..40 {
        let mut out = Decisions::default();
        let own = EngineOperation {
            local: id * BUCKET,
            ..put(id, 100)
        };
        engine.begin(own, &mut out).expect("a peer");
        answer(&mut engine, out);
    }
    assert_eq!(engine.busy(), 0);
    let hit = engine
        .hot()
        .hit(1, 100 * BUCKET, 51 * BUCKET, 8, Direction::Put);
    assert!(hit.is_some(), "what is kept is there");
}

#[test]
fn no_request_waits_for_room_that_is_kept_for_good() {
    let config = Config {
        strategy: crate::Strategy::OnDemand { leave_pinned: true },
        m: 8 * BUCKET,
        maxvictim: 8 * BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    let mut out = Decisions::default();
    engine.keep(
        1,
        Run {
            first: 50,
            count: 2,
        },
        &mut out,
    );
    answer(&mut engine, out);
    // The peer uses all the rest, and may wait for room on its side as this rank does here.
    let run = Run {
        first: 100,
        count: 14,
    };
    let wanted = EngineMessage::Move(Move {
        id: 1,
        region: RegionNumber::default(),
        write: true,
        hold: true,
        borrow: 0,
        releases: Vec::new(),
        needs: vec![Need {
            run,
            preferred: run,
        }],
        piggyback: None,
    });
    let mut out = Decisions::default();
    (engine.message(1, wanted, AccessVerdict::Fine, &mut out)).expect("a move");
    answer(&mut engine, out);
    assert_eq!(engine.stats().local.registered, 16);
    let mut out = Decisions::default();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    let said = answer(&mut engine, out);
    let copied = |it: &OutgoingMessage| matches!(it.message, EngineMessage::Put { .. });
    assert!(said.messages.iter().any(copied), "{said:?}");
}

/// A bucket of two pages is registered for memory that lasts. An operation on it and its neighbour, with memory that may
/// go, is copied. Its other bucket is not registered for nothing.
#[test]
fn an_operation_that_may_not_share_a_bucket_registers_nothing_in_vain() {
    const WIDE: u64 = 2 * BUCKET;
    let config = Config {
        bucket: WIDE as usize,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    let at = |id, local, len, own| EngineOperation {
        local,
        len,
        own,
        remote: 100 * WIDE,
        ..put(id, 0)
    };
    let lasting = at(1, 50 * WIDE, 8, OwnMemory::Persistent);
    let mut out = Decisions::default();
    engine.begin(lasting, &mut out).expect("a peer");
    answer(&mut engine, out);
    let before = engine.stats().local;
    let passing = at(2, 51 * WIDE - 64, 128, OwnMemory::Transient);
    let mut out = Decisions::default();
    engine.begin(passing, &mut out).expect("a peer");
    let said = answer(&mut engine, out);
    let copied = |it: &OutgoingMessage| matches!(it.message, EngineMessage::Put { .. });
    assert!(said.messages.iter().any(copied), "{said:?}");
    let after = engine.stats().local;
    assert_eq!(after.registrations, before.registrations);
    // Alone, it is registered.
    let elsewhere = at(3, 61 * WIDE - 64, 128, OwnMemory::Transient);
    let mut out = Decisions::default();
    engine.begin(elsewhere, &mut out).expect("a peer");
    answer(&mut engine, out);
    assert!(engine.stats().local.registrations > after.registrations);
    engine.audit(&[]).expect("all counts agree");
}

/// Holds own memory. Returns its key, or the refusal.
fn hold_own(engine: &mut Engine, id: u64, bucket: u64) -> Option<Result<u64, crate::Error>> {
    let mut out = Decisions::default();
    (engine.hold_own(id, bucket * BUCKET + 8, 8, &mut out)).expect("an address");
    let rest = answer(engine, out);
    engine.audit(&[]).expect("all counts agree");
    rest.actions.into_iter().find_map(|action| match action {
        Action::Pinned { id: of, result } if of == id => Some(result.map(|grants| grants[0].key)),
        _ => None,
    })
}

#[test]
fn own_memory_finds_its_reserve_beside_operations_that_use_the_rest() {
    let config = Config {
        m: 2 * BUCKET,
        maxvictim: 8 * BUCKET,
        adaptive_victims: false,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("two of each will do");
    assert!(engine.reserve_for_own());
    let keep = |engine: &mut Engine, first: u64, count: u64| {
        let mut out = Decisions::default();
        engine.keep(first, Run { first, count }, &mut out);
        answer(engine, out);
    };
    keep(&mut engine, 100, 6);
    keep(&mut engine, 200, 1);
    for (id, bucket) in [(1, 50), (2, 60)] {
        hold_own(&mut engine, id, bucket)
            .expect("an answer")
            .expect("room");
    }
    let mut out = Decisions::default();
    engine.release_own(1, &mut out);
    answer(&mut engine, out);
    hold_own(&mut engine, 3, 70)
        .expect("an answer")
        .expect("room");
    let stats = engine.stats().local;
    assert_eq!(stats.registered, 8, "the seventh of the others was refused");
    assert!(stats.peak <= 10, "the limits hold");
}

#[test]
fn own_memory_is_held_for_the_own_nic_and_stays_as_a_victim() {
    let config = Config {
        m: 2 * BUCKET,
        maxvictim: 2 * BUCKET,
        adaptive_victims: false,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("two of each will do");
    fn hit_own(engine: &Engine, bucket: u64) -> Option<Hit<'_>> {
        engine.hot().hit_local(bucket * BUCKET, 8)
    }
    assert!(hit_own(&engine, 50).is_none());
    let first = hold_own(&mut engine, 1, 50)
        .expect("an answer")
        .expect("room");
    let second = hold_own(&mut engine, 2, 60)
        .expect("an answer")
        .expect("room");
    assert_ne!(first, second);
    // Both holds are in use, so there is no room for a third, and nothing waits.
    let third = hold_own(&mut engine, 3, 70).expect("an answer");
    assert!(
        matches!(third, Err(crate::Error::PastLimit { .. })),
        "{third:?}"
    );
    let mut out = Decisions::default();
    engine.release_own(1, &mut out);
    assert!(answer(&mut engine, out).is_empty());
    let hit = hit_own(&engine, 50).expect("it stays registered");
    assert_eq!(hit.local_key, first);
    engine.audit(&[hit.keep()]).expect("all counts agree");
    assert!(!engine.hot().release(&hit));
    // A victim goes when there is need.
    hold_own(&mut engine, 4, 70)
        .expect("an answer")
        .expect("room now");
    assert!(hit_own(&engine, 50).is_none());
    for id in [2, 4, 4, 5] {
        let mut out = Decisions::default();
        engine.release_own(id, &mut out);
        assert!(answer(&mut engine, out).is_empty());
    }
    engine.audit(&[]).expect("all counts agree");
    assert!(hit_own(&engine, 60).is_some_and(|hit| !engine.hot().release(&hit)));
}

/// Holds memory for a transfer. Returns its keys, or the refusal.
fn hold(
    engine: &mut Engine,
    id: u64,
    (first, count): (u64, u64),
    lasts: bool,
) -> Result<Vec<u64>, crate::Error> {
    let mut out = Decisions::default();
    let place = (first * BUCKET + 8, count * BUCKET - 16);
    (engine.hold(id, place, (Use::Write, lasts), &mut out)).expect("an address");
    let rest = answer(engine, out);
    engine.audit(&[]).expect("all counts agree");
    let held = rest.actions.into_iter().find_map(|action| match action {
        Action::Pinned { id: of, result } if of == id => Some(result),
        _ => None,
    });
    held.expect("an answer at once")
        .map(|grants| grants.iter().map(|grant| grant.key).collect())
}

#[test]
fn memory_is_held_for_a_transfer_and_stays_only_if_it_lasts() {
    let config = Config {
        m: 2 * BUCKET,
        maxvictim: 4 * BUCKET,
        adaptive_victims: false,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("two of each will do");
    let let_go = |engine: &mut Engine, id: u64| {
        let mut out = Decisions::default();
        engine.release_own(id, &mut out);
        answer(engine, out);
        engine.audit(&[]).expect("all counts agree");
    };
    let is_registered = |engine: &Engine, bucket| engine.hot().is_registered(bucket * BUCKET, 8);
    assert_eq!(hold(&mut engine, 1, (50, 2), false).expect("room").len(), 1);
    assert!(is_registered(&engine, 51));
    // The neighbour shares the last bucket, which stays under its key.
    assert_eq!(hold(&mut engine, 2, (51, 2), false).expect("room").len(), 2);
    let refused = hold(&mut engine, 3, (60, 2), false);
    assert!(matches!(refused, Err(crate::Error::PastLimit { .. })));
    let_go(&mut engine, 1);
    assert!(!is_registered(&engine, 50), "nobody finds it any more");
    assert_eq!(
        engine.stats().local.registered,
        3,
        "the neighbour has a part of it"
    );
    let_go(&mut engine, 2);
    assert_eq!(engine.stats().local.registered, 0);
    let_go(&mut engine, 2);
    // Persistent memory stays as a victim, which goes when there is need.
    assert_eq!(hold(&mut engine, 4, (70, 4), true).expect("room").len(), 1);
    let_go(&mut engine, 4);
    assert!(is_registered(&engine, 70) && is_registered(&engine, 73));
    assert_eq!(hold(&mut engine, 5, (80, 3), false).expect("room").len(), 1);
    assert!(!is_registered(&engine, 70));
    let_go(&mut engine, 5);
    assert_eq!(engine.stats().local.registered, 0);
}

#[test]
fn persistent_memory_does_not_stay_under_a_strategy_that_keeps_nothing() {
    for leave_pinned in [false, true] {
        let config = Config {
            strategy: Strategy::OnDemand { leave_pinned },
            ..Config::firehose_paper(0, 2)
        };
        let mut engine = Engine::new(config).expect("the paper's");
        assert_eq!(hold(&mut engine, 1, (50, 2), true).expect("room").len(), 1);
        let mut out = Decisions::default();
        engine.release_own(1, &mut out);
        answer(&mut engine, out);
        engine.audit(&[]).expect("all counts agree");
        let stays = if leave_pinned { 2 } else { 0 };
        assert_eq!(engine.stats().local.registered, stays);
    }
}

#[test]
fn much_memory_is_pinned_in_chunks_all_of_it_or_none() {
    let config = Config {
        chunk: 3 * BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    let run = Run {
        first: 50,
        count: 10,
    };
    for fails in [Some(1), None] {
        let mut out = Decisions::default();
        engine.pin(1, run, &mut out);
        let mut runs = Vec::new();
        for action in std::mem::take(&mut out.actions) {
            let Action::Register { id, preferred, .. } = action else {
                panic!("{action:?}");
            };
            // A driver leaves out what follows a refusal, by a refusal of its own.
            let got = match fails {
                Some(failed) if runs.len() == failed => Err(Refusal::NotMapped),
                Some(failed) if runs.len() > failed => Err(Refusal::Limit),
                _ => Ok(RegisteredExtent {
                    run: preferred,
                    key: id,
                    writable: true,
                }),
            };
            runs.push((preferred.first, preferred.count));
            engine.registered(id, got, &mut out);
        }
        assert_eq!(runs, [(50, 3), (53, 3), (56, 3), (59, 1)]);
        let said = answer(&mut engine, out);
        let pinned = said.actions.into_iter().find_map(|action| match action {
            Action::Pinned { result, .. } => Some(result),
            _ => None,
        });
        match (fails, pinned.expect("an answer")) {
            (Some(_), Err(crate::Error::Unreachable { why, .. })) => {
                assert_eq!(why, Refusal::NotMapped);
                assert_eq!(engine.stats().local.registered, 0);
            }
            (None, Ok(grants)) => {
                assert_eq!(grants.len(), 4);
                assert_eq!(engine.stats().local.registered, 10);
            }
            other => panic!("{other:?}"),
        }
        engine.audit(&[]).expect("all counts agree");
    }
}
