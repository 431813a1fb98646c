//! What only several threads at a time would do, step by step.

mod ahead;

use super::{Engine, Operation, Own, Verdict};
use crate::{
    Action, Config, CostModel, Decisions, Direction, Hit, Message, Outgoing, Region, Registered,
    Run, Strategy, Use,
    table::BUCKETS,
    wire::{Grant, Granted, Move, Need},
};

const BUCKET: u64 = 4096;

fn put(id: u64, bucket: u64) -> Operation {
    Operation {
        id,
        peer: 1,
        direction: Direction::Put,
        local: 0x1000,
        region: Region::default(),
        remote: bucket * BUCKET,
        len: 8,
        own: Own::Persistent,
        copied: false,
    }
}

/// Does what was decided, as far as it is done here, and grants what is asked for: the rest.
fn answer(engine: &mut Engine, mut decided: Decisions) -> Decisions {
    let mut rest = Decisions::default();
    while !decided.is_empty() {
        let mut out = Decisions::default();
        for outgoing in decided.messages {
            let Message::Move(wanted) = outgoing.message else {
                rest.messages.push(outgoing);
                continue;
            };
            let grants = wanted.needs.iter().map(|need| Grant {
                run: need.run,
                key: 7,
                writable: true,
            });
            let granted = Message::Granted(Granted {
                id: wanted.id,
                last: true,
                grants: grants.collect(),
                ..Granted::default()
            });
            let outcome = engine.message(1, granted, Verdict::Fine, &mut out);
            outcome.expect("it was asked for");
        }
        for action in decided.actions {
            match action {
                Action::Register { id, need, .. } => {
                    let registered = Registered {
                        run: need,
                        key: id,
                        writable: true,
                    };
                    engine.registered(id, Ok(registered), &mut out);
                }
                Action::Transfer { id, .. } => engine.transferred(id, Ok(()), &mut out),
                Action::Deregister { id, .. } => engine.deregistered(id, &mut out),
                left @ (Action::Land { .. }
                | Action::Done { .. }
                | Action::Pinned { .. }
                | Action::Revoked { .. }) => rest.actions.push(left),
            }
        }
        decided = out;
    }
    rest
}

#[test]
fn a_hit_that_found_one_side_only_is_made_up_for() {
    let config = Config {
        m: BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("a firehose will do");
    let mut out = Decisions::default();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!((engine.busy(), engine.firehoses(1)), (0, (1, 1)));

    // Another thread's hit has the remote side, and looks for the local one.
    let hot = engine.hot().clone();
    let hit = hot.hit_remote(1, 100 * BUCKET, 8).expect("it is attached");
    let mut out = Decisions::default();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    assert!(out.is_empty(), "the only firehose is in use");
    // It does not find it, gives the remote side back and goes to the engine.
    assert!(hot.release(&hit), "somebody waits for it");
    let mut out = Decisions::default();
    engine.begin(put(3, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!(engine.busy(), 0);
}

#[test]
fn what_is_under_way_with_a_peer_that_is_lost_ends() {
    let mut engine = Engine::new(Config::firehose_paper(0, 3)).expect("the paper's");
    let mut out = Decisions::default();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    let hot = engine.hot().clone();
    let hit = hot.hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put);
    let hit = hit.expect("both sides are there");
    let mut out = Decisions::default();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    let mut out = Decisions::default();
    engine.peer_lost(1, &mut out);
    assert!(matches!(
        out.actions[..],
        [Action::Done {
            op: 2,
            result: Err(crate::Error::PeerLost(1))
        }]
    ));
    // The hit ends after that, and finds nothing any more.
    if hot.release(&hit) {
        engine.released(&hit.keep(), &mut out);
    }
    assert!(
        hot.hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put)
            .is_none()
    );
    out = Decisions::default();
    engine.begin(put(3, 100), &mut out).expect("a peer once");
    assert!(matches!(
        out.actions[..],
        [Action::Done {
            op: 3,
            result: Err(crate::Error::PeerLost(1))
        }]
    ));
    // A message that was on its way says nothing.
    let late = Message::Revoke {
        id: 1,
        run: Run {
            first: 100,
            count: 1,
        },
    };
    out = Decisions::default();
    assert_eq!(engine.message(1, late, Verdict::Fine, &mut out), Ok(()));
    assert!(out.is_empty());
    engine.audit(&[]).expect("all counts agree");
}

/// An engine that has begun a get, and the message that it sent.
fn asking(config: Config) -> (Engine, Message) {
    let mut engine = Engine::new(config).expect("a firehose will do");
    let mut out = Decisions::default();
    let get = Operation {
        direction: Direction::Get,
        ..put(1, 100)
    };
    engine.begin(get, &mut out).expect("a peer");
    let sent = out.messages.remove(0);
    (engine, sent.message)
}

/// Whether the only operation ended for an answer that was wrong.
fn ends_badly(engine: &mut Engine, answer: Message) -> bool {
    let mut out = Decisions::default();
    let outcome = engine.message(1, answer, Verdict::Fine, &mut out);
    let is_wrong = |result: &Result<(), crate::Error>| {
        matches!(result, Err(crate::Error::Malformed { peer: 1, .. }))
    };
    let ended = out.actions.iter().any(|action| match action {
        Action::Done { op: 1, result } => is_wrong(result),
        _ => false,
    });
    let counted = engine.stats().faults == 1;
    is_wrong(&outcome) && counted && ended && engine.busy() == 0 && engine.audit(&[]).is_ok()
}

#[test]
fn what_a_wrong_answer_was_to_answer_fails() {
    let paper = || Config::firehose_paper(0, 2);
    let (mut engine, asked) = asking(Config {
        reads: true,
        ..paper()
    });
    let Message::Move(wanted) = asked else {
        panic!("{asked:?}");
    };
    let elsewhere = Message::Granted(Granted {
        id: wanted.id,
        last: true,
        grants: vec![Grant {
            run: Run { first: 5, count: 1 },
            key: 7,
            writable: true,
        }],
        ..Granted::default()
    });
    assert!(ends_badly(&mut engine, elsewhere));
    let (mut engine, asked) = asking(Config {
        strategy: crate::Strategy::Bounce,
        ..paper()
    });
    let Message::Get { id, .. } = asked else {
        panic!("{asked:?}");
    };
    let too_long = Message::Fetched {
        id,
        refused: None,
        len: 9,
        room: 0,
    };
    assert!(ends_badly(&mut engine, too_long));
}

#[test]
fn transient_memory_is_registered_for_the_operation_alone() {
    let mut engine = Engine::new(Config::firehose_paper(0, 2)).expect("the paper's");
    let registered = |engine: &Engine| engine.stats().local.registered;
    for id in 1..4 {
        let mut out = Decisions::default();
        let transient = Operation {
            own: Own::Transient,
            ..put(id, 100)
        };
        engine.begin(transient, &mut out).expect("a peer");
        assert_eq!(registered(&engine), 1);
        answer(&mut engine, out);
        assert_eq!((engine.busy(), registered(&engine)), (0, 0));
        assert!(
            engine
                .hot()
                .hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put)
                .is_none()
        );
    }
    assert_eq!(engine.stats().local.registrations, 3);
}

#[test]
fn what_the_nic_takes_along_needs_no_registration() {
    let mut engine = Engine::new(Config::firehose_paper(0, 2)).expect("the paper's");
    let mut out = Decisions::default();
    let inline = Operation {
        own: Own::Inline,
        ..put(1, 100)
    };
    engine.begin(inline, &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!(engine.busy(), 0);
    let hot = engine.hot().clone();
    let hit = hot
        .hit_remote(1, 100 * BUCKET, 8)
        .expect("a firehose is there");
    engine.audit(&[hit.keep()]).expect("all counts agree");
    assert!(!hot.release(&hit), "nobody waits for it");
    assert_eq!(engine.stats().local.registrations, 0);
}

/// In one part or, where the peer's extents have a seam, in two: the last one says so.
#[test]
fn the_last_transfer_of_what_goes_along_says_so_and_no_other_does() {
    let keys = |extents: &'static [u64]| {
        move |need: Run| {
            let parts = extents.iter().enumerate();
            let grants = parts.map(|(at, key)| Grant {
                run: Run {
                    first: need.first + at as u64,
                    count: if extents.len() == 1 { need.count } else { 1 },
                },
                key: *key,
                writable: true,
            });
            grants.collect::<Vec<_>>()
        }
    };
    for (own, extents, expected) in [
        (Own::Inline, &[7][..], &[Some(1)][..]),
        (Own::Inline, &[7, 8], &[None, Some(1)]),
        (Own::Persistent, &[7], &[None]),
    ] {
        let config = Config {
            strategy: crate::Strategy::Rendezvous { unpin: true },
            ..Config::firehose_paper(0, 2)
        };
        let mut engine = Engine::new(config).expect("the paper's");
        let mut out = Decisions::default();
        let across = Operation {
            own,
            remote: 101 * BUCKET - 8,
            len: 8 + 8 * (extents.len() as u64 - 1),
            ..put(1, 100)
        };
        engine.begin(across, &mut out).expect("a peer");
        let mut last = Vec::new();
        while !out.is_empty() {
            let decided = std::mem::take(&mut out);
            for Outgoing { message, .. } in decided.messages {
                let Message::Move(wanted) = message else {
                    continue;
                };
                let grants = wanted.needs.iter().flat_map(|need| keys(extents)(need.run));
                let granted = Message::Granted(Granted {
                    id: wanted.id,
                    last: true,
                    grants: grants.collect(),
                    ..Granted::default()
                });
                let outcome = engine.message(1, granted, Verdict::Fine, &mut out);
                outcome.expect("it was asked for");
            }
            for action in decided.actions {
                match action {
                    Action::Register { id, need, .. } => {
                        let registered = Registered {
                            run: need,
                            key: id,
                            writable: true,
                        };
                        engine.registered(id, Ok(registered), &mut out);
                    }
                    Action::Transfer { last_of, .. } => last.push(last_of),
                    _ => {}
                }
            }
        }
        assert_eq!(last, expected, "{own:?}, {extents:?}");
    }
}

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
        let own = Operation {
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
fn nobody_waits_for_room_that_is_kept_for_good() {
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
    // The peer uses all else, and may wait for room at its side as this rank does here.
    let run = Run {
        first: 100,
        count: 14,
    };
    let wanted = Message::Move(Move {
        id: 1,
        region: Region::default(),
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
    (engine.message(1, wanted, Verdict::Fine, &mut out)).expect("a move");
    answer(&mut engine, out);
    assert_eq!(engine.stats().local.registered, 16);
    let mut out = Decisions::default();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    let said = answer(&mut engine, out);
    let copied = |it: &Outgoing| matches!(it.message, Message::Put { .. });
    assert!(said.messages.iter().any(copied), "{said:?}");
}

#[test]
fn the_last_chunk_of_a_put_says_so_and_no_get_s_does() {
    let config = Config {
        strategy: crate::Strategy::Bounce,
        ..Config::firehose_paper(0, 2)
    };
    for direction in [Direction::Put, Direction::Get] {
        let mut engine = Engine::new(config.clone()).expect("the paper's");
        let mut out = Decisions::default();
        let long = Operation {
            direction,
            len: 1 << 20,
            ..put(7, 100)
        };
        engine.begin(long, &mut out).expect("a peer");
        let (mut sent, mut last) = (0, Vec::new());
        while !out.messages.is_empty() {
            let first = out.messages.remove(0);
            let answer = match first.message {
                Message::Put { id, len, .. } => {
                    sent += len;
                    Message::Stored { id, refused: None }
                }
                Message::Get { id, len, .. } => {
                    sent += len;
                    let refused = None;
                    Message::Fetched {
                        id,
                        refused,
                        len,
                        room: 0,
                    }
                }
                other => panic!("{other:?}"),
            };
            last.extend(first.last_of.map(|op| (op, sent)));
            (engine.message(1, answer, Verdict::Fine, &mut out)).expect("an answer");
        }
        assert_eq!((sent, engine.busy()), (1 << 20, 0));
        match direction {
            Direction::Put => assert_eq!(last, [(7, 1 << 20)]),
            Direction::Get => assert!(last.is_empty(), "{last:?}"),
        }
    }
}

#[test]
fn what_is_copied_is_not_cut_as_what_is_registered_is() {
    for strategy in [crate::Strategy::Firehose, crate::Strategy::Auto] {
        let config = Config {
            strategy,
            m: 8 * BUCKET,
            maxvictim: 4 * BUCKET,
            ..Config::firehose_paper(0, 2)
        };
        let pieces = |copied, answers: usize| {
            let mut engine = Engine::new(config.clone()).expect("firehoses will do");
            let mut out = Decisions::default();
            let long = Operation {
                len: 16 * BUCKET,
                copied,
                ..put(1, 100)
            };
            engine.begin(long, &mut out).expect("a peer");
            for _ in 0..answers {
                let Some(first) = out.messages.pop() else {
                    break;
                };
                if let Message::Put { id, .. } = first.message {
                    let stored = Message::Stored { id, refused: None };
                    (engine.message(1, stored, Verdict::Fine, &mut out)).expect("an answer");
                }
            }
            (engine.stats().pieces, engine.busy())
        };
        assert_eq!(pieces(true, 100), (1, 0));
        assert!(pieces(false, 0).0 > 1);
    }
}

/// The first message that was decided on, which is taken out.
fn message(said: &mut Decisions) -> Message {
    said.messages.remove(0).message
}

#[test]
fn who_rides_waits_for_no_registration() {
    let engine = |rank| {
        let config = Config {
            piggyback: 64,
            ..Config::firehose_paper(rank, 2)
        };
        Engine::new(config).expect("the paper's")
    };
    let (mut asker, mut owner) = (engine(0), engine(1));
    let mut out = Decisions::default();
    asker.begin(put(1, 100), &mut out).expect("a peer");
    let wanted = message(&mut out);

    // The owner is told to register, and answers the piggybacked put before it has.
    let mut said = Decisions::default();
    let outcome = owner.message(0, wanted, Verdict::Fine, &mut said);
    outcome.expect("a move");
    let first = message(&mut said);
    let &[Action::Register { id, need, .. }] = &said.actions[..] else {
        panic!("one registration: {said:?}");
    };
    let outcome = asker.message(1, first.clone(), Verdict::Fine, &mut out);
    outcome.expect("an answer");
    assert_eq!(
        out.actions,
        [Action::Done {
            op: 1,
            result: Ok(())
        }]
    );
    assert_eq!(asker.busy(), 0);

    // What was registered comes after that.
    let mut said = Decisions::default();
    let registered = Registered {
        run: need,
        key: 7,
        writable: true,
    };
    owner.registered(id, Ok(registered), &mut said);
    let last = message(&mut said);
    assert!(matches!(&last, Message::Granted(it) if it.last && it.piggyback.is_none()));
    out = Decisions::default();
    let outcome = asker.message(1, last, Verdict::Fine, &mut out);
    outcome.expect("the rest of the answer");
    assert!(out.is_empty());
    assert_eq!(asker.firehoses(1).0, 1);
    let again = asker.message(1, first, Verdict::Fine, &mut Decisions::default());
    assert!(again.is_err(), "the move is over");
    asker.audit(&[]).expect("all counts agree");
    owner.audit(&[]).expect("all counts agree");
}

/// What became of a hold of own memory: its key.
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
fn own_memory_finds_room_beside_operations_that_have_all_of_theirs() {
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
    // Both are held: there is no room for a third, and nothing waits.
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

/// What became of a hold for a transfer: its keys.
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
    // Its neighbour shares the last bucket, which stays under the key that it has.
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
    // What lasts stays as a victim, which goes when there is need.
    assert_eq!(hold(&mut engine, 4, (70, 4), true).expect("room").len(), 1);
    let_go(&mut engine, 4);
    assert!(is_registered(&engine, 70) && is_registered(&engine, 73));
    assert_eq!(hold(&mut engine, 5, (80, 3), false).expect("room").len(), 1);
    assert!(!is_registered(&engine, 70));
    let_go(&mut engine, 5);
    assert_eq!(engine.stats().local.registered, 0);
}

#[test]
fn what_lasts_does_not_stay_where_nothing_does() {
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
fn an_answer_to_nothing_is_a_fault_of_the_peer() {
    let mut engine = Engine::new(Config::firehose_paper(0, 2)).expect("the paper's");
    let refused = None;
    let runs = || {
        vec![Run {
            first: 100,
            count: 1,
        }]
    };
    let messages = [
        Message::Stored { id: 9, refused },
        Message::Pulled {
            id: 9,
            refused,
            registered: false,
        },
        Message::Fetched {
            id: 9,
            refused,
            len: 8,
            room: 0,
        },
        Message::Granted(Granted {
            id: 9,
            ..Granted::default()
        }),
        Message::Revoked {
            id: 9,
            runs: Vec::new(),
        },
        Message::Release {
            runs: runs(),
            unpin: false,
        },
    ];
    for (faults, message) in (1..).zip(messages) {
        let mut out = Decisions::default();
        let outcome = engine.message(1, message, Verdict::Fine, &mut out);
        let is_named = matches!(outcome, Err(crate::Error::Malformed { peer: 1, .. }));
        assert!(is_named, "{outcome:?}");
        assert!(out.is_empty(), "{out:?}");
        assert_eq!(engine.stats().faults, faults);
    }
    engine.audit(&[]).expect("all counts agree");
}

#[test]
fn what_is_taken_back_while_more_is_pinned_beside_it_is_not_pinned_with_that() {
    let config = Config {
        strategy: Strategy::PinEverything,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    let run = |first, count| Run { first, count };
    let mut out = Decisions::default();
    engine.pin(1, run(100, 3), &mut out);
    answer(&mut engine, out);
    let mut out = Decisions::default();
    // It has the last bucket of the first, and registers one more.
    engine.pin(2, run(102, 2), &mut out);
    let mut going = Decisions::default();
    engine.revoke(3, run(100, 3), &mut going);
    assert_eq!(going.messages.len(), 1, "the peer forgets the first");
    let rest = answer(&mut engine, out);
    let pinned = (rest.actions.iter()).find_map(|action| match action {
        Action::Pinned { id: 2, result } => Some(result),
        _ => None,
    });
    let refused = matches!(pinned, Some(Err(crate::Error::PastLimit { .. })));
    assert!(
        refused,
        "{pinned:?}: the peer would be told of it once more"
    );
    // When it has forgotten that, it goes, and may be pinned.
    let mut out = Decisions::default();
    let revoked = Message::Revoked {
        id: 3,
        runs: Vec::new(),
    };
    (engine.message(1, revoked, Verdict::Fine, &mut out)).expect("it was asked");
    let rest = answer(&mut engine, out);
    assert_eq!(rest.actions, [Action::Revoked { id: 3 }]);
    let mut out = Decisions::default();
    engine.pin(4, run(102, 2), &mut out);
    let rest = answer(&mut engine, out);
    let pinned = |action: &Action| {
        matches!(
            action,
            Action::Pinned {
                id: 4,
                result: Ok(_)
            }
        )
    };
    assert!(rest.actions.iter().any(pinned), "{:?}", rest.actions);
}

#[test]
fn what_waits_to_be_registered_as_a_whole_is_not_registered_after_it_was_taken_back() {
    let config = Config {
        strategy: Strategy::Firehose,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    engine.keep_within(6 * BUCKET);
    let run = |first, count| Run { first, count };
    let mut out = Decisions::default();
    (engine.foresee(1, 100 * BUCKET, 4 * BUCKET, &mut out)).expect("an address");
    answer(&mut engine, out);
    // It shares the last bucket, so that all four go first.
    let mut out = Decisions::default();
    let wanted = Message::Move(Move {
        id: 1,
        hold: true,
        needs: vec![Need {
            run: run(103, 5),
            preferred: run(103, 5),
        }],
        ..Move::default()
    });
    (engine.message(1, wanted, Verdict::Fine, &mut out)).expect("a move");
    let [Action::Deregister { id, .. }] = out.actions[..] else {
        panic!("{:?}", out.actions)
    };
    let mut going = Decisions::default();
    engine.revoke(2, run(106, 2), &mut going);
    assert!(
        going.is_empty(),
        "the move is about to register it: {going:?}"
    );
    let mut out = Decisions::default();
    engine.deregistered(id, &mut out);
    let rest = answer(&mut engine, out);
    let granted = (rest.messages.iter()).find_map(|sent| match &sent.message {
        Message::Granted(granted) => Some(granted),
        _ => None,
    });
    assert!(
        granted.is_some_and(|it| it.grants.is_empty()),
        "{granted:?}"
    );
    assert_eq!(rest.actions, [Action::Revoked { id: 2 }]);
    engine.audit(&[]).expect("all counts agree");
}

#[test]
fn what_is_widened_ends_where_addresses_do() {
    for strategy in [Strategy::Firehose, Strategy::Auto] {
        let cost = CostModel {
            per_op_ns: 39_800.0,
            per_page_ns: 181.0,
        };
        let config = Config {
            reads: true,
            widening: true,
            strategy,
            cost,
            ..Config::firehose_paper(0, 2)
        };
        let mut engine = Engine::new(config).expect("limits that can be");
        let mut widest = 0;
        for id in 1..=8 {
            let mut out = Decisions::default();
            let operation = Operation {
                direction: Direction::Get,
                len: BUCKET,
                ..put(id, BUCKETS - 9 + id)
            };
            engine.begin(operation, &mut out).expect("an address");
            for outgoing in out.messages {
                let Message::Move(wanted) = outgoing.message else {
                    continue;
                };
                for Need { run, preferred } in wanted.needs {
                    assert!(preferred.end() <= BUCKETS, "{strategy:?}: {preferred:?}");
                    widest = widest.max(preferred.count - run.count);
                }
            }
        }
        assert!(widest > 0 || strategy == Strategy::Auto, "nothing widened");
    }
}
