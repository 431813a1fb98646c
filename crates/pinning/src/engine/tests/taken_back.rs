//! Memory that is taken back while it is registered or widened, and extents at the end of the
//! address space.

use super::*;

#[test]
fn a_pin_beside_a_revocation_does_not_pin_the_revoked_memory() {
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
    // The second run has the last bucket of the first, and registers one more.
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
    // After the peer has forgotten the run, it goes, and may be pinned.
    let mut out = Decisions::default();
    let revoked = EngineMessage::Revoked {
        id: 3,
        runs: Vec::new(),
    };
    (engine.message(1, revoked, AccessVerdict::Fine, &mut out)).expect("it was asked");
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
fn a_run_that_waits_for_its_registration_is_not_registered_after_a_revocation() {
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
    // The run shares the last bucket, so that all four buckets go first.
    let mut out = Decisions::default();
    let wanted = EngineMessage::Move(Move {
        id: 1,
        hold: true,
        needs: vec![Need {
            run: run(103, 5),
            preferred: run(103, 5),
        }],
        ..Move::default()
    });
    (engine.message(1, wanted, AccessVerdict::Fine, &mut out)).expect("a move");
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
        EngineMessage::Granted(granted) => Some(granted),
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
fn widened_extents_end_with_the_address_space() {
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
            let operation = EngineOperation {
                direction: Direction::Get,
                len: BUCKET,
                ..put(id, BUCKETS - 9 + id)
            };
            engine.begin(operation, &mut out).expect("an address");
            for outgoing in out.messages {
                let EngineMessage::Move(wanted) = outgoing.message else {
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
