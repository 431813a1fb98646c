//! Limits on the state that a peer's dishonest messages can cause in an engine.

use hydrant_pinning::{
    AccessVerdict, Config, Decisions, Direction, Engine, EngineMessage, EngineOperation, Error,
    OwnMemory, Refusal, RegionNumber, Run,
    wire::{Grant, Granted, Move, Need, PullDestination},
};

const PAGE: u64 = 4096;

fn engine() -> Engine {
    Engine::new(Config::firehose_paper(0, 2)).expect("the paper's")
}

fn run(first: u64, count: u64) -> Run {
    Run { first, count }
}

fn is_malformed(engine: &mut Engine, message: EngineMessage) -> bool {
    let mut out = Decisions::default();
    let outcome = engine.message(1, message, AccessVerdict::Fine, &mut out);
    matches!(outcome, Err(Error::Malformed { peer: 1, .. }))
}

fn wish(needs: &[(Run, Run)]) -> EngineMessage {
    let needs = needs.iter().map(|(run, preferred)| Need {
        run: *run,
        preferred: *preferred,
    });
    EngineMessage::Move(Move {
        id: 1,
        write: true,
        hold: true,
        needs: needs.collect(),
        ..Move::default()
    })
}

#[test]
fn a_bucket_that_is_counted_once_is_not_attached_twice() {
    let (narrow, wide) = (run(7, 1), run(0, 64));
    assert!(is_malformed(
        &mut engine(),
        wish(&[(run(0, 1), wide), (narrow, narrow)])
    ));
    assert!(is_malformed(
        &mut engine(),
        wish(&[(narrow, narrow), (run(3, 1), run(3, 1))])
    ));
    let apart = wish(&[(narrow, narrow), (run(8, 1), run(8, 9))]);
    assert!(!is_malformed(&mut engine(), apart));
}

#[test]
fn an_answer_in_parts_without_end_is_malformed() {
    let mut engine = engine();
    let operation = EngineOperation {
        id: 1,
        peer: 1,
        direction: Direction::Put,
        local: PAGE,
        region: RegionNumber::default(),
        remote: 100 * PAGE,
        len: 8,
        own: OwnMemory::Persistent,
        copied: false,
    };
    let mut out = Decisions::default();
    engine.begin(operation, &mut out).expect("a peer");
    let asked = out.messages.iter().find_map(|it| match &it.message {
        EngineMessage::Move(wanted) => Some(wanted.id),
        _ => None,
    });
    let part = EngineMessage::Granted(Granted {
        id: asked.expect("a move"),
        last: false,
        refused: vec![(run(100, 1), Refusal::Limit)],
        ..Granted::default()
    });
    assert!(!is_malformed(&mut engine, part.clone()));
    assert!(is_malformed(&mut engine, part));
}

#[test]
fn too_many_pulls_at_once_are_refused() {
    let mut engine = engine();
    let mut refused = 0;
    for id in 0..5_000 {
        let pull = EngineMessage::Pull {
            id,
            region: RegionNumber::default(),
            from: PAGE,
            to: vec![PullDestination {
                key: 1,
                addr: PAGE,
                len: 8,
            }],
        };
        let mut out = Decisions::default();
        let outcome = engine.message(1, pull, AccessVerdict::Fine, &mut out);
        outcome.expect("an honest rank may ask so much");
        // The pulled memory is never registered here.
        let answer = EngineMessage::Pulled {
            id,
            refused: Some(Refusal::Limit),
            registered: false,
        };
        refused += (out.messages.iter())
            .filter(|it| it.message == answer)
            .count();
    }
    assert!(refused > 3_000, "{refused}");
    assert!(engine.entries() < 5_000, "{}", engine.entries());
}

#[test]
fn static_registrations_of_missing_buckets_are_refused() {
    let mut engine = engine();
    let grant = |run| Grant {
        run,
        key: 1,
        writable: true,
    };
    for wrong in [run(0, 1 << 39), run(u64::MAX, 2), run(5, 0)] {
        let outcome = engine.add_static(1, &[grant(wrong)], 16);
        assert!(matches!(outcome, Err(Error::Malformed { .. })), "{wrong:?}");
    }
    assert_eq!(engine.add_static(1, &[grant(run(5, 16))], 16), Ok(()));
}
