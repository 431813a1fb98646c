//! Wrong answers of a peer, and answers to nothing.

use super::*;

/// Makes an engine that has begun a get. Returns it with the message that it sent.
fn asking(config: Config) -> (Engine, EngineMessage) {
    let mut engine = Engine::new(config).expect("a firehose will do");
    let mut out = Decisions::default();
    let get = EngineOperation {
        direction: Direction::Get,
        ..put(1, 100)
    };
    engine.begin(get, &mut out).expect("a peer");
    let sent = out.messages.remove(0);
    (engine, sent.message)
}

/// Returns true if the only operation ended because of a wrong answer.
fn ends_badly(engine: &mut Engine, answer: EngineMessage) -> bool {
    let mut out = Decisions::default();
    let outcome = engine.message(1, answer, AccessVerdict::Fine, &mut out);
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
fn an_operation_fails_when_its_answer_is_wrong() {
    let paper = || Config::firehose_paper(0, 2);
    let (mut engine, asked) = asking(Config {
        reads: true,
        ..paper()
    });
    let EngineMessage::Move(wanted) = asked else {
        panic!("{asked:?}");
    };
    let elsewhere = EngineMessage::Granted(Granted {
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
    let EngineMessage::Get { id, .. } = asked else {
        panic!("{asked:?}");
    };
    let too_long = EngineMessage::Fetched {
        id,
        refused: None,
        len: 9,
        room: 0,
    };
    assert!(ends_badly(&mut engine, too_long));
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
        EngineMessage::Stored { id: 9, refused },
        EngineMessage::Pulled {
            id: 9,
            refused,
            registered: false,
        },
        EngineMessage::Fetched {
            id: 9,
            refused,
            len: 8,
            room: 0,
        },
        EngineMessage::Granted(Granted {
            id: 9,
            ..Granted::default()
        }),
        EngineMessage::Revoked {
            id: 9,
            runs: Vec::new(),
        },
        EngineMessage::Release {
            runs: runs(),
            unpin: false,
        },
    ];
    for (faults, message) in (1..).zip(messages) {
        let mut out = Decisions::default();
        let outcome = engine.message(1, message, AccessVerdict::Fine, &mut out);
        let is_named = matches!(outcome, Err(crate::Error::Malformed { peer: 1, .. }));
        assert!(is_named, "{outcome:?}");
        assert!(out.is_empty(), "{out:?}");
        assert_eq!(engine.stats().faults, faults);
    }
    engine.audit(&[]).expect("all counts agree");
}

/// The driver reports an event without a cause. A debug build stops there, and another build goes
/// on.
#[test]
fn impossible_states_are_counted_and_named() {
    let mut engine = Engine::new(Config::firehose_paper(0, 2)).expect("the paper's");
    assert_eq!((engine.impossible(), engine.stats().impossible), (None, 0));
    for count in 1..=2 {
        let report = || engine.deregistered(77, &mut Decisions::default());
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(report)).is_err();
        assert_eq!(stopped, cfg!(debug_assertions));
        assert_eq!(engine.stats().impossible, count);
    }
    let said = engine.impossible().expect("it met something").to_string();
    assert!(said.contains("2 times"), "{said}");
    assert!(
        said.contains("a deregistration ended that was not begun"),
        "{said}"
    );
    assert!(said.contains("register.rs:"), "{said}");
    assert!(engine.audit(&[]).is_ok());
}
