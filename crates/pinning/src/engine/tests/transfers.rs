//! The data of operations: inline, copied, or transferred in chunks.

use super::*;

#[test]
fn transient_memory_is_registered_for_the_operation_alone() {
    let mut engine = Engine::new(Config::firehose_paper(0, 2)).expect("the paper's");
    let registered = |engine: &Engine| engine.stats().local.registered;
    for id in 1..4 {
        let mut out = Decisions::default();
        let transient = EngineOperation {
            own: OwnMemory::Transient,
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
fn inline_data_needs_no_registration() {
    let mut engine = Engine::new(Config::firehose_paper(0, 2)).expect("the paper's");
    let mut out = Decisions::default();
    let inline = EngineOperation {
        own: OwnMemory::Inline,
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

/// The transfer has one part, or two where the peer's extents have a seam. Only the last part
/// completes the put locally.
#[test]
fn only_the_last_inline_transfer_completes_the_put_locally() {
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
        (OwnMemory::Inline, &[7][..], &[Some(1)][..]),
        (OwnMemory::Inline, &[7, 8], &[None, Some(1)]),
        (OwnMemory::Persistent, &[7], &[None]),
    ] {
        let config = Config {
            strategy: crate::Strategy::Rendezvous { unpin: true },
            ..Config::firehose_paper(0, 2)
        };
        let mut engine = Engine::new(config).expect("the paper's");
        let mut out = Decisions::default();
        let across = EngineOperation {
            own,
            remote: 101 * BUCKET - 8,
            len: 8 + 8 * (extents.len() as u64 - 1),
            ..put(1, 100)
        };
        engine.begin(across, &mut out).expect("a peer");
        let mut last = Vec::new();
        while !out.is_empty() {
            let decided = std::mem::take(&mut out);
            for OutgoingMessage { message, .. } in decided.messages {
                let EngineMessage::Move(wanted) = message else {
                    continue;
                };
                let grants = wanted.needs.iter().flat_map(|need| keys(extents)(need.run));
                let granted = EngineMessage::Granted(Granted {
                    id: wanted.id,
                    last: true,
                    grants: grants.collect(),
                    ..Granted::default()
                });
                let outcome = engine.message(1, granted, AccessVerdict::Fine, &mut out);
                outcome.expect("it was asked for");
            }
            for action in decided.actions {
                match action {
                    Action::Register { id, need, .. } => {
                        let registered = RegisteredExtent {
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
fn only_the_last_chunk_of_a_put_completes_it_locally() {
    let config = Config {
        strategy: crate::Strategy::Bounce,
        ..Config::firehose_paper(0, 2)
    };
    for direction in [Direction::Put, Direction::Get] {
        let mut engine = Engine::new(config.clone()).expect("the paper's");
        let mut out = Decisions::default();
        let long = EngineOperation {
            direction,
            len: 1 << 20,
            ..put(7, 100)
        };
        engine.begin(long, &mut out).expect("a peer");
        let (mut sent, mut last) = (0, Vec::new());
        while !out.messages.is_empty() {
            let first = out.messages.remove(0);
            let answer = match first.message {
                EngineMessage::Put { id, len, .. } => {
                    sent += len;
                    EngineMessage::Stored { id, refused: None }
                }
                EngineMessage::Get { id, len, .. } => {
                    sent += len;
                    let refused = None;
                    EngineMessage::Fetched {
                        id,
                        refused,
                        len,
                        room: 0,
                    }
                }
                other => panic!("{other:?}"),
            };
            last.extend(first.last_of.map(|op| (op, sent)));
            (engine.message(1, answer, AccessVerdict::Fine, &mut out)).expect("an answer");
        }
        assert_eq!((sent, engine.busy()), (1 << 20, 0));
        match direction {
            Direction::Put => assert_eq!(last, [(7, 1 << 20)]),
            Direction::Get => assert!(last.is_empty(), "{last:?}"),
        }
    }
}

#[test]
fn a_copy_is_not_cut_like_a_registered_transfer() {
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
            let long = EngineOperation {
                len: 16 * BUCKET,
                copied,
                ..put(1, 100)
            };
            engine.begin(long, &mut out).expect("a peer");
            for _ in 0..answers {
                let Some(first) = out.messages.pop() else {
                    break;
                };
                if let EngineMessage::Put { id, .. } = first.message {
                    let stored = EngineMessage::Stored { id, refused: None };
                    (engine.message(1, stored, AccessVerdict::Fine, &mut out)).expect("an answer");
                }
            }
            (engine.stats().pieces, engine.busy())
        };
        assert_eq!(pieces(true, 100), (1, 0));
        assert!(pieces(false, 0).0 > 1);
    }
}

/// Takes the first message of the decisions out.
fn message(said: &mut Decisions) -> EngineMessage {
    said.messages.remove(0).message
}

#[test]
fn piggybacked_data_waits_for_no_registration() {
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

    // The owner is told to register, and answers the piggybacked put before it has registered.
    let mut said = Decisions::default();
    let outcome = owner.message(0, wanted, AccessVerdict::Fine, &mut said);
    outcome.expect("a move");
    let first = message(&mut said);
    let &[Action::Register { id, need, .. }] = &said.actions[..] else {
        panic!("one registration: {said:?}");
    };
    let outcome = asker.message(1, first.clone(), AccessVerdict::Fine, &mut out);
    outcome.expect("an answer");
    assert_eq!(
        out.actions,
        [Action::Done {
            op: 1,
            result: Ok(())
        }]
    );
    assert_eq!(asker.busy(), 0);

    // The grants come after that.
    let mut said = Decisions::default();
    let registered = RegisteredExtent {
        run: need,
        key: 7,
        writable: true,
    };
    owner.registered(id, Ok(registered), &mut said);
    let last = message(&mut said);
    assert!(matches!(&last, EngineMessage::Granted(it) if it.last && it.piggyback.is_none()));
    out = Decisions::default();
    let outcome = asker.message(1, last, AccessVerdict::Fine, &mut out);
    outcome.expect("the rest of the answer");
    assert!(out.is_empty());
    assert_eq!(asker.firehoses(1).0, 1);
    let again = asker.message(1, first, AccessVerdict::Fine, &mut Decisions::default());
    assert!(again.is_err(), "the move is over");
    asker.audit(&[]).expect("all counts agree");
    owner.audit(&[]).expect("all counts agree");
}
