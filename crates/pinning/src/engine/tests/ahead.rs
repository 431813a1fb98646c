//! Firehoses that are moved ahead of need: those that stay, and those that do not.

use super::*;
use crate::{Attached, Detached, Refusal, Strategy};

/// Makes an engine of two ranks under the strategy `foresight`.
fn foreseeing(m: u64) -> Engine {
    let config = Config {
        strategy: Strategy::Foresight,
        m: m * BUCKET,
        maxvictim: 8 * BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    Engine::new(config).expect("limits that can be")
}

fn place(first: u64, count: u64) -> (u64, u64) {
    (first * BUCKET, count * BUCKET)
}

/// Asks for firehoses ahead of a put. Returns their state, and the move that was sent, if any.
fn attach(engine: &mut Engine, first: u64, count: u64) -> (Attached, Option<Move>) {
    let mut out = Decisions::default();
    let there = (1, RegionNumber::default());
    let attached = engine.attach(there, place(first, count), Direction::Put, &mut out);
    let mut moves = out.messages.into_iter().map(|it| match it.message {
        EngineMessage::Move(wanted) => wanted,
        other => panic!("{other:?}"),
    });
    (attached.expect("a peer"), moves.next())
}

/// Answers a move: so many buckets from its first on are granted, and the rest is refused.
fn grant(engine: &mut Engine, wanted: Option<Move>, granted: u64) -> Decisions {
    let wanted = wanted.expect("a move was sent");
    let need = wanted.needs[0].run;
    let rest = Run {
        first: need.first + granted,
        count: need.count - granted,
    };
    let grants = Grant {
        run: Run {
            count: granted,
            ..need
        },
        key: 7,
        writable: true,
    };
    let answer = Granted {
        id: wanted.id,
        last: true,
        grants: (granted > 0).then_some(grants).into_iter().collect(),
        refused: (rest.count > 0)
            .then_some((rest, Refusal::Limit))
            .into_iter()
            .collect(),
        ..Granted::default()
    };
    let mut out = Decisions::default();
    let outcome = engine.message(
        1,
        EngineMessage::Granted(answer),
        AccessVerdict::Fine,
        &mut out,
    );
    outcome.expect("it was asked for");
    engine.audit(&[]).expect("all counts agree");
    out
}

/// The number of buckets that are given back.
fn released(out: &Decisions) -> u64 {
    let runs = out.messages.iter().flat_map(|it| match &it.message {
        EngineMessage::Release { runs, .. } => &runs[..],
        _ => &[],
    });
    runs.map(|run| run.count).sum()
}

fn detach(engine: &mut Engine, first: u64, count: u64) -> (Detached, u64) {
    let mut out = Decisions::default();
    let outcome = engine.detach(1, place(first, count), &mut out);
    (outcome.expect("a peer"), released(&out))
}

fn attached(engine: &mut Engine, first: u64, count: u64) -> Attached {
    engine.attached(1, place(first, count), Direction::Put)
}

#[test]
fn a_part_of_what_was_foreseen_is_not_kept() {
    let mut engine = foreseeing(100);
    let (_, wanted) = attach(&mut engine, 100, 4);
    let out = grant(&mut engine, wanted, 2);
    assert_eq!(attached(&mut engine, 100, 4), Attached::No);
    assert_eq!((engine.firehoses(1).0, released(&out)), (0, 2));
}

#[test]
fn a_part_that_was_there_before_stays() {
    let mut engine = foreseeing(100);
    let (_, wanted) = attach(&mut engine, 100, 1);
    grant(&mut engine, wanted, 1);
    let (_, wanted) = attach(&mut engine, 100, 4);
    grant(&mut engine, wanted, 2);
    assert_eq!(attached(&mut engine, 100, 4), Attached::No);
    assert_eq!(attached(&mut engine, 100, 1), Attached::All);
    assert_eq!(engine.firehoses(1).0, 1);
}

#[test]
fn a_part_that_another_move_brought_is_not_kept_either() {
    for last_fails in [true, false] {
        let mut engine = foreseeing(100);
        let (_, first) = attach(&mut engine, 100, 2);
        let (both, second) = attach(&mut engine, 100, 4);
        assert_eq!(both, Attached::Coming);
        // The failed move leaves the other's buckets without use, whichever comes first.
        match last_fails {
            true => {
                grant(&mut engine, second, 2);
                assert_eq!(attached(&mut engine, 100, 4), Attached::Coming);
                grant(&mut engine, first, 0);
            }
            false => {
                grant(&mut engine, first, 0);
                grant(&mut engine, second, 2);
            }
        }
        assert_eq!(attached(&mut engine, 100, 4), Attached::No);
        assert_eq!(engine.firehoses(1).0, 0);
    }
}

#[test]
fn firehoses_in_flight_are_given_back_when_they_come() {
    let mut engine = foreseeing(100);
    let (_, wanted) = attach(&mut engine, 100, 4);
    assert_eq!(detach(&mut engine, 100, 4), (Detached::Coming, 0));
    let out = grant(&mut engine, wanted, 4);
    assert_eq!((engine.firehoses(1).0, released(&out)), (0, 4));

    // A new expectation keeps the buckets, if it names them all. Else they would never be given
    // back.
    for (again, stays) in [(4, 4), (2, 0)] {
        let (_, wanted) = attach(&mut engine, 100, 4);
        detach(&mut engine, 100, 4);
        assert_eq!(attach(&mut engine, 100, again), (Attached::Coming, None));
        grant(&mut engine, wanted, 4);
        assert_eq!(engine.firehoses(1).0, stays);
        detach(&mut engine, 100, again);
        assert_eq!(engine.firehoses(1).0, 0);
    }
}

/// Begins a put to two attached buckets. Returns its transfer, which is in flight.
fn begin_put(engine: &mut Engine) -> u64 {
    let mut out = Decisions::default();
    let both = EngineOperation {
        len: 2 * BUCKET,
        ..put(1, 100)
    };
    engine.begin(both, &mut out).expect("a peer");
    let Some(Action::Register { id, need, .. }) = out.actions.pop() else {
        panic!("own memory is registered for it");
    };
    let registered = RegisteredExtent {
        run: need,
        key: 9,
        writable: true,
    };
    let mut out = Decisions::default();
    engine.registered(id, Ok(registered), &mut out);
    let Some(Action::Transfer { id, .. }) = out.actions.pop() else {
        panic!("both sides are there");
    };
    id
}

#[test]
fn leaving_firehoses_leave_though_a_wider_attach_found_no_room() {
    let mut engine = foreseeing(4);
    let (_, wanted) = attach(&mut engine, 100, 2);
    grant(&mut engine, wanted, 2);
    let transfer = begin_put(&mut engine);
    assert_eq!(detach(&mut engine, 100, 2), (Detached::WhenUnused, 0));
    assert_eq!(attach(&mut engine, 100, 6), (Attached::No, None));
    let mut out = Decisions::default();
    engine.transferred(transfer, Ok(()), &mut out);
    assert_eq!((engine.firehoses(1).0, released(&out)), (0, 2));
}

#[test]
fn leaving_firehoses_leave_though_a_wider_move_was_refused() {
    let mut engine = foreseeing(100);
    let (_, wanted) = attach(&mut engine, 100, 2);
    grant(&mut engine, wanted, 2);
    let transfer = begin_put(&mut engine);
    detach(&mut engine, 100, 2);
    let (_, more) = attach(&mut engine, 100, 6);
    assert_eq!(released(&grant(&mut engine, more, 0)), 0, "it is in use");
    let mut out = Decisions::default();
    engine.transferred(transfer, Ok(()), &mut out);
    assert_eq!((engine.firehoses(1).0, released(&out)), (0, 2));
}
