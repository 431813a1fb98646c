//! The engine step by step, in orders that otherwise only several threads would cause.

mod ahead;
mod answers;
mod changed;
mod own;
mod taken_back;
mod transfers;
mod usage;

use super::{AccessVerdict, Engine, EngineOperation, OwnMemory};
use crate::{
    Action, Config, CostModel, Decisions, Direction, EngineMessage, Hit, OutgoingMessage,
    RegionNumber, RegisteredExtent, Run, Strategy, Use,
    table::BUCKETS,
    wire::{Grant, Granted, Move, Need},
};

const BUCKET: u64 = 4096;

fn put(id: u64, bucket: u64) -> EngineOperation {
    EngineOperation {
        id,
        peer: 1,
        direction: Direction::Put,
        local: 0x1000,
        region: RegionNumber::default(),
        remote: bucket * BUCKET,
        len: 8,
        own: OwnMemory::Persistent,
        copied: false,
    }
}

/// Carries the decisions out and grants the moves. Returns the decisions that the tests judge.
fn answer(engine: &mut Engine, mut decided: Decisions) -> Decisions {
    let mut rest = Decisions::default();
    while !decided.is_empty() {
        let mut out = Decisions::default();
        for outgoing in decided.messages {
            let EngineMessage::Move(wanted) = outgoing.message else {
                rest.messages.push(outgoing);
                continue;
            };
            let grants = wanted.needs.iter().map(|need| Grant {
                run: need.run,
                key: 7,
                writable: true,
            });
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
fn a_miss_that_held_one_side_for_a_moment_strands_no_waiter() {
    let config = Config {
        m: BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("a firehose will do");
    let mut out = Decisions::default();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!((engine.busy(), engine.firehoses(1)), (0, (1, 1)));

    // Another thread's hit holds the remote side, and looks for the local side.
    let hot = engine.hot().clone();
    let hit = hot.hit_remote(1, 100 * BUCKET, 8).expect("it is attached");
    let mut out = Decisions::default();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    assert!(out.is_empty(), "the only firehose is in use");
    // It misses, gives the remote side back and goes to the engine.
    assert!(hot.release(&hit), "somebody waits for it");
    let mut out = Decisions::default();
    engine.begin(put(3, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!(engine.busy(), 0);
}

#[test]
fn operations_in_flight_with_a_lost_peer_end() {
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
    // The hit ends after that, and no later one finds anything.
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
    // A message that was in flight has no effect.
    let late = EngineMessage::Revoke {
        id: 1,
        run: Run {
            first: 100,
            count: 1,
        },
    };
    out = Decisions::default();
    assert_eq!(
        engine.message(1, late, AccessVerdict::Fine, &mut out),
        Ok(())
    );
    assert!(out.is_empty());
    engine.audit(&[]).expect("all counts agree");
}
