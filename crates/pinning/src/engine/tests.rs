//! What only several threads at a time would do, step by step.

use super::{Engine, Operation};
use crate::{
    Action, Config, Message, Registered, Run,
    wire::{Grant, Granted},
};

const BUCKET: u64 = 4096;

fn put(id: u64, bucket: u64) -> Operation {
    Operation {
        id,
        peer: 1,
        put: true,
        local: 0x1000,
        remote: bucket * BUCKET,
        len: 8,
    }
}

/// Does what was said, as far as it is done here, and grants what is asked for.
fn answer(engine: &mut Engine, mut said: Vec<Action>) {
    while !said.is_empty() {
        let mut out = Vec::new();
        for action in said {
            match action {
                Action::Send {
                    message: Message::Move(wanted),
                    ..
                } => {
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
                    let outcome = engine.message(1, granted, None, &mut out);
                    outcome.expect("it was asked for");
                }
                Action::Register { id, need, .. } => {
                    let registered = Registered {
                        run: need,
                        key: id,
                        writable: true,
                    };
                    engine.registered(id, Ok(registered), &mut out);
                }
                Action::Transfer { id, .. } => engine.transferred(id, Ok(()), &mut out),
                _ => {}
            }
        }
        said = out;
    }
}

#[test]
fn a_hit_that_found_one_side_only_is_made_up_for() {
    let config = Config {
        m: BUCKET,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("a firehose will do");
    let mut out = Vec::new();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!((engine.busy(), engine.firehoses(1)), (0, (1, 1)));

    // Another thread's hit has the far side, and looks for the near one.
    let table = engine.far(1).table().clone();
    let found = table.acquire(100).expect("it is attached");
    let mut out = Vec::new();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    assert_eq!(out, [], "the only firehose is in use");
    // It does not find it, gives the far side back and goes to the engine.
    assert!(table.release(found.slot), "somebody waits for it");
    let mut out = Vec::new();
    engine.begin(put(3, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert_eq!(engine.busy(), 0);
}

#[test]
fn what_is_under_way_with_a_peer_that_is_lost_ends() {
    let mut engine = Engine::new(Config::firehose_paper(0, 3)).expect("the paper's");
    let mut out = Vec::new();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    let hit = engine.hot().clone().hit(1, 100 * BUCKET, 0x1000, 8, true);
    let hit = hit.expect("both sides are there");
    let mut out = Vec::new();
    engine.begin(put(2, 200), &mut out).expect("a peer");
    let mut out = Vec::new();
    engine.peer_lost(1, &mut out);
    assert!(matches!(
        out[..],
        [Action::Done {
            op: 2,
            result: Err(crate::Error::PeerLost(1))
        }]
    ));
    // The hit ends after that, and finds nothing any more.
    let hot = engine.hot().clone();
    if hot.release(&hit) {
        engine.released(&hit, &mut out);
    }
    assert_eq!(hot.hit(1, 100 * BUCKET, 0x1000, 8, true), None);
    out.clear();
    engine.begin(put(3, 100), &mut out).expect("a peer once");
    assert!(matches!(
        out[..],
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
    out.clear();
    assert_eq!(engine.message(1, late, None, &mut out), Ok(()));
    assert_eq!(out, []);
    engine.audit(&[]).expect("all counts agree");
}
