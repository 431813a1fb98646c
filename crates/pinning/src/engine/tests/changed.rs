//! Own memory that changes while it is registered, in use, held by peers, or being registered.

use super::*;

fn engine() -> Engine {
    Engine::new(Config::firehose_paper(0, 3)).expect("the paper's")
}

fn run(first: u64, count: u64) -> Run {
    Run { first, count }
}

/// Own memory at bucket 1 is registered by a put to the peer.
fn registered() -> Engine {
    let mut engine = engine();
    let mut out = Decisions::default();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    answer(&mut engine, out);
    assert!(hits(&engine));
    engine
}

fn hits(engine: &Engine) -> bool {
    let hot = engine.hot();
    let hit = hot.hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put);
    hit.is_some_and(|hit| {
        let _ = hot.release(&hit);
        true
    })
}

fn change(engine: &mut Engine, first: u64, count: u64) -> Decisions {
    let mut out = Decisions::default();
    engine.hot().change_begins();
    assert!(!hits(engine), "a change has begun");
    engine.changed(&[(900, run(first, count))], 1, &mut out);
    out
}

#[test]
fn changed_memory_is_registered_anew() {
    let mut engine = registered();
    let out = change(&mut engine, 0, 8);
    assert!(!hits(&engine));
    assert!(matches!(out.actions[..], [Action::Deregister { .. }]));
    assert!(!engine.hot().is_unsettled());
    let rest = answer(&mut engine, out);
    assert!(rest.is_empty(), "{rest:?}");
    let mut out = Decisions::default();
    engine.begin(put(2, 100), &mut out).expect("a peer");
    assert!(matches!(out.actions[..], [Action::Register { .. }]));
    answer(&mut engine, out);
    assert!(hits(&engine));
    // Other memory's changes leave it alone.
    let out = change(&mut engine, 2, 8);
    assert!(out.is_empty() && hits(&engine));
    engine.audit(&[]).expect("all counts agree");
}

#[test]
fn memory_in_use_goes_when_the_operation_ends_and_serves_no_other() {
    let mut engine = registered();
    let hot = engine.hot().clone();
    let hit = hot.hit(1, 100 * BUCKET, 0x1000, 8, Direction::Put);
    let hit = hit.expect("both sides are there");
    let out = change(&mut engine, 1, 1);
    assert!(out.is_empty(), "it is in use");
    assert!(!hits(&engine));
    let mut out = Decisions::default();
    assert!(hot.release(&hit), "the engine waits for it");
    engine.released(&hit.keep(), &mut out);
    assert!(matches!(out.actions[..], [Action::Deregister { .. }]));
    answer(&mut engine, out);
    engine.audit(&[]).expect("all counts agree");
}

#[test]
fn a_registration_of_memory_that_changes_meanwhile_serves_nobody() {
    let mut engine = engine();
    let mut out = Decisions::default();
    engine.begin(put(1, 100), &mut out).expect("a peer");
    let changed = change(&mut engine, 1, 1);
    assert!(changed.is_empty(), "nothing is registered yet");
    // This operation begins after the change, and waits for the same registration.
    let mut second = Decisions::default();
    engine.begin(put(2, 100), &mut second).expect("a peer");
    out.messages.extend(second.messages);
    out.actions.extend(second.actions);
    let rest = answer(&mut engine, out);
    assert!(!hits(&engine) && rest.actions.is_empty(), "{rest:?}");
    let copies = |it: &OutgoingMessage| matches!(it.message, EngineMessage::Put { .. });
    assert_eq!(
        rest.messages.iter().filter(|it| copies(it)).count(),
        2,
        "{rest:?}"
    );
    assert_eq!(engine.stats().local.registered, 0);
    engine.audit(&[]).expect("all counts agree");
}

/// A peer's request waits for a deregistration when the memory changes again. The pages may still go after the news, so
/// nothing may be registered for the request then.
#[test]
fn a_request_that_waits_while_memory_changes_is_refused() {
    let mut engine = registered();
    let going = change(&mut engine, 1, 1);
    let wanted = EngineMessage::Move(Move {
        id: 1,
        hold: true,
        needs: vec![Need {
            run: run(1, 1),
            preferred: run(1, 1),
        }],
        ..Move::default()
    });
    let mut out = Decisions::default();
    (engine.message(2, wanted, AccessVerdict::Fine, &mut out)).expect("a move");
    assert!(out.is_empty(), "it waits for the deregistration: {out:?}");
    let changed = change(&mut engine, 1, 1);
    let is_refused = |it: &OutgoingMessage| match &it.message {
        EngineMessage::Granted(granted) => it.to == 2 && granted.grants.is_empty(),
        _ => false,
    };
    assert!(changed.messages.iter().any(is_refused), "{changed:?}");
    let rest = answer(&mut engine, going);
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(engine.stats().local.registered, 0);
    engine.audit(&[]).expect("all counts agree");
}

/// A peer's request waits for what another's registration brings along, when the memory changes. Nobody judges the request
/// again, so nothing may be registered for it.
#[test]
fn a_request_that_waits_for_another_ones_registration_is_refused() {
    let mut engine = engine();
    let mut begun = Decisions::default();
    for (peer, need, preferred) in [(1, run(1, 1), run(1, 4)), (2, run(3, 1), run(3, 1))] {
        let wanted = EngineMessage::Move(Move {
            id: 1,
            hold: true,
            needs: vec![Need {
                run: need,
                preferred,
            }],
            ..Move::default()
        });
        (engine.message(peer, wanted, AccessVerdict::Fine, &mut begun)).expect("a move");
    }
    assert!(
        matches!(begun.actions[..], [Action::Register { .. }]),
        "{begun:?}"
    );
    change(&mut engine, 3, 1);
    let rest = answer(&mut engine, begun);
    assert!(rest.actions.is_empty(), "{rest:?}");
    let refused = rest.messages.iter().filter(|it| match &it.message {
        EngineMessage::Granted(granted) => granted.grants.is_empty(),
        _ => false,
    });
    assert_eq!(refused.count(), 2, "{rest:?}");
    assert_eq!(engine.stats().local.registered, 0);
    engine.audit(&[]).expect("all counts agree");
}

#[test]
fn peers_answer_before_the_change_is_settled() {
    let mut engine = engine();
    let wanted = EngineMessage::Move(Move {
        id: 1,
        hold: true,
        needs: vec![Need {
            run: run(50, 2),
            preferred: run(50, 2),
        }],
        ..Move::default()
    });
    for peer in [1, 2] {
        let mut out = Decisions::default();
        (engine.message(peer, wanted.clone(), AccessVerdict::Fine, &mut out)).expect("a move");
        answer(&mut engine, out);
    }
    let out = change(&mut engine, 51, 1);
    let asked = |peer: u32| {
        let mut asked = out.messages.iter().filter(|it| it.to == peer);
        asked.any(|it| matches!(it.message, EngineMessage::Revoke { id: 900, .. }))
    };
    assert!(asked(1) && asked(2) && out.actions.is_empty(), "{out:?}");
    let hot = engine.hot().clone();
    assert!(hot.is_unsettled() && !hot.has_changes());
    let mut out = Decisions::default();
    let revoked = EngineMessage::Revoked {
        id: 900,
        runs: vec![run(50, 2)],
    };
    (engine.message(1, revoked, AccessVerdict::Fine, &mut out)).expect("it was asked");
    assert!(hot.is_unsettled(), "the other peer has not answered");
    engine.peer_lost(2, &mut out);
    assert!(!hot.is_unsettled(), "a lost peer is not waited for");
    let rest = answer(&mut engine, out);
    assert!(
        rest.actions.is_empty(),
        "nobody asked for the end: {rest:?}"
    );
    assert_eq!(engine.stats().local.registered, 0);
    engine.audit(&[]).expect("all counts agree");
}
