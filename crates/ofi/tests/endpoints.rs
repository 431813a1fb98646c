//! Endpoints without a job in one process: sessions begin, carry data, end and begin again.

mod common;

use std::time::{Duration, Instant};

use common::{Happened, KEY, Side, finish, join, met, options, poll_for, until};
use hydrant_conduit::{Conduit, Error, Rank};
use hydrant_ofi::{ConnectFailure, ListenOptions, PeerEvent, endpoints};
use hydrant_testing::{HANG, left_out};

/// Returns true if this machine has no libfabric.
fn is_left_out() -> bool {
    match endpoints(&options().ofi) {
        Ok(_) => false,
        Err(why) => {
            left_out(why);
            true
        }
    }
}

fn ended(side: &Side, peer: Rank) -> bool {
    let is_end =
        |event: &PeerEvent| event.peer() == peer && !matches!(event, PeerEvent::Met { .. });
    side.events().iter().any(is_end)
}

#[test]
fn a_session_carries_messages_writes_and_reads() {
    if is_left_out() {
        return;
    }
    let (one, two) = (Side::on_loopback(), Side::on_loopback());
    let [there, back] = join(&one, &two);
    assert_eq!(
        one.events(),
        [PeerEvent::Met {
            peer: there,
            introduction: b"to hello".to_vec(),
            asked: true
        }]
    );
    assert_eq!(
        two.events(),
        [PeerEvent::Met {
            peer: back,
            introduction: b"hello".to_vec(),
            asked: false
        }]
    );
    let both = [&one, &two];
    for (from, to, peer) in [(&one, &two, there), (&two, &one, back)] {
        from.memory
            .fill(0, 5000, 17 + peer.0 as u8)
            .expect("in bounds");
        let posted = from.write(peer, to.lent, 100, 4000).expect("posted");
        finish(&both, from, posted).expect("written");
        let mut bytes = [0; 4002];
        to.memory.read(99, &mut bytes).expect("in bounds");
        let _edge = bytes[0];
        assert!(bytes[1..4001].iter().all(|byte| *byte == 17 + peer.0 as u8));
        to.memory.fill(9000, 100, 99).expect("in bounds");
        let posted = from.read(peer, to.lent, 9000, 100).expect("posted");
        finish(&both, from, posted).expect("read");
        let mut bytes = [0; 100];
        from.memory.read(9000, &mut bytes).expect("in bounds");
        assert_eq!(bytes, [99; 100]);
        let mut sent = 0;
        let before = to.messages();
        until(&both, "the messages", || {
            if sent < 100 && from.send(peer, sent).expect("a peer") {
                sent += 1;
            }
            to.messages() == before + 100
        });
        let numbers: Vec<u64> = (to.happened().into_iter())
            .filter_map(|it| match it {
                Happened::Message(_, args, _) => Some(args[0]),
                Happened::Event(_) => None,
            })
            .collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn an_orderly_end_follows_the_last_message() {
    if is_left_out() {
        return;
    }
    let (one, two) = (Side::on_loopback(), Side::on_loopback());
    let [there, back] = join(&one, &two);
    let both = [&one, &two];
    for number in 0..10 {
        assert!(one.send(there, number).expect("a peer"));
    }
    one.control.disconnect(there);
    until(&both, "the end", || ended(&one, there) && ended(&two, back));
    let happened = two.happened();
    assert_eq!(happened.len(), 12, "{happened:?}");
    assert_eq!(
        happened[11],
        Happened::Event(PeerEvent::Left { peer: back })
    );
    assert_eq!(one.events()[1..], [PeerEvent::Left { peer: there }]);
    assert!(matches!(one.send(there, 1), Err(Error::PeerLost(_))));
    assert!(matches!(two.send(back, 1), Err(Error::PeerLost(_))));
    // Without a release the number is not used again.
    let [again, _] = join(&one, &two);
    assert_ne!(again, there);
}

#[test]
fn sessions_begun_by_both_at_once_are_one() {
    if is_left_out() {
        return;
    }
    let (one, two) = (Side::on_loopback(), Side::on_loopback());
    let both = [&one, &two];
    for round in 0..20 {
        one.forget();
        two.forget();
        let there = one.connect(&two.control.locator());
        if round % 4 == 1 {
            poll_for(&both, Duration::from_millis(round / 4));
        }
        let back = two.connect(&one.control.locator());
        let numbers = [met(&both, &one), met(&both, &two)];
        assert_eq!(numbers, [there, back]);
        assert!(one.send(there, 1).expect("a peer") && two.send(back, 2).expect("a peer"));
        until(&both, "both messages", || {
            one.messages() == 1 && two.messages() == 1
        });
        poll_for(&both, Duration::from_millis(30));
        assert_eq!((one.events().len(), two.events().len()), (1, 1));
        // A session that is there is not made again.
        assert_eq!(one.connect(&two.control.locator()), there);
        let closes = if round % 2 == 0 {
            (&one, there)
        } else {
            (&two, back)
        };
        closes.0.control.disconnect(closes.1);
        until(&both, "the end", || ended(&one, there) && ended(&two, back));
        one.control.release(there);
        two.control.release(back);
    }
}

#[test]
fn all_connect_to_all_at_once() {
    const SIDES: usize = 6;
    if is_left_out() {
        return;
    }
    let sides: Vec<Side> = (0..SIDES).map(|_| Side::on_loopback()).collect();
    let all: Vec<&Side> = sides.iter().collect();
    let connect = |from: &Side, to: &Side| from.connect(&to.control.locator());
    let numbers: Vec<Vec<Rank>> = (all.iter())
        .map(|from| {
            let others = all.iter().filter(|to| !std::ptr::eq(**to, *from));
            others.map(|to| connect(from, to)).collect()
        })
        .collect();
    until(&all, "all sessions", || {
        sides.iter().all(|side| side.events().len() >= SIDES - 1)
    });
    poll_for(&all, Duration::from_millis(100));
    for (side, numbers) in sides.iter().zip(&numbers) {
        let mut met: Vec<Rank> = side.events().iter().map(PeerEvent::peer).collect();
        met.sort_unstable();
        let mut expected = numbers.clone();
        expected.sort_unstable();
        assert_eq!(met, expected, "one session with each: {:?}", side.events());
        for peer in numbers {
            assert!(side.send(*peer, 5).expect("a peer"));
        }
    }
    until(&all, "all messages", || {
        sides.iter().all(|side| side.messages() == SIDES - 1)
    });
}

#[test]
fn the_layer_above_declines() {
    if is_left_out() {
        return;
    }
    let (one, two) = (Side::on_loopback(), Side::on_loopback());
    let connected = one.control.connect(&two.control.locator(), &KEY, b"no");
    let there = connected.expect("a peer in reach");
    until(&[&one, &two], "the answer", || ended(&one, there));
    let why = ConnectFailure::Declined(b"not you".to_vec());
    assert_eq!(one.events(), [PeerEvent::Failed { peer: there, why }]);
    assert_eq!(two.events(), []);
    one.control.release(there);
    join(&one, &two);
}

#[test]
fn a_wrong_key_opens_nothing() {
    if is_left_out() {
        return;
    }
    let short = ListenOptions {
        connect_timeout: Duration::from_millis(500),
        ..options()
    };
    let one = Side::new(&short).expect("a provider");
    let (two, three) = (Side::on_loopback(), Side::on_loopback());
    let [there, _] = join(&three, &two);
    let connected = one
        .control
        .connect(&two.control.locator(), &[8; 16], b"hello");
    let stranger = connected.expect("an address");
    let all = [&one, &two, &three];
    until(&all, "the failure", || ended(&one, stranger));
    let events = one.events();
    assert!(
        matches!(
            &events[..],
            [PeerEvent::Failed { why: ConnectFailure::Unreachable(why), .. }] if why.contains("another key")
        ),
        "{events:?}"
    );
    assert_eq!(two.events().len(), 1, "only its own peer");
    assert!(three.send(there, 1).expect("a peer"));
    until(&all, "the message", || two.messages() == 1);
}

#[test]
fn nothing_listens_there() {
    if is_left_out() {
        return;
    }
    let one = Side::on_loopback();
    let gone = Side::on_loopback().control.locator();
    let since = Instant::now();
    let there = one.connect(&gone);
    until(&[&one], "the failure", || ended(&one, there));
    assert!(since.elapsed() < HANG);
    let events = one.events();
    assert!(
        matches!(
            &events[..],
            [PeerEvent::Failed { why: ConnectFailure::Unreachable(why), .. }] if why.contains("nothing listens")
        ),
        "{events:?}"
    );
}

#[test]
fn malformed_locators_are_refused() {
    if is_left_out() {
        return;
    }
    let one = Side::on_loopback();
    let own = one.control.locator();
    let refused = |bytes: &[u8]| {
        let error = one
            .control
            .connect(bytes, &KEY, b"")
            .expect_err("no locator");
        error.to_string()
    };
    assert!(refused(&own).contains("this endpoint"));
    assert!(refused(&own[..own.len() - 1]).contains("no locator"));
    assert!(refused(b"").contains("no locator"));
    let mut other = own.clone();
    other[3] = b'x';
    assert!(refused(&other).contains("this one"), "{}", refused(&other));
    let long = one.control.connect(&own, &KEY, &[0; 1025]);
    assert!(matches!(long, Err(Error::MessageTooLong { .. })));
}

#[test]
fn a_given_up_session_is_lost_to_both() {
    if is_left_out() {
        return;
    }
    let (one, two) = (Side::on_loopback(), Side::on_loopback());
    let both = [&one, &two];
    for _ in 0..3 {
        let [there, back] = join(&one, &two);
        let posted: Vec<_> = (0..50)
            .map(|_| {
                one.write(there, two.lent, 0, common::MEMORY)
                    .expect("posted")
            })
            .collect();
        one.control.abandon(there);
        until(&both, "the end", || ended(&one, there) && ended(&two, back));
        let lost = |events: Vec<PeerEvent>| matches!(events[..], [_, PeerEvent::Lost { .. }]);
        assert!(lost(one.events()) && lost(two.events()));
        // Nothing lands any more.
        two.memory.fill(0, common::MEMORY, 200).expect("in bounds");
        poll_for(&both, Duration::from_millis(50));
        let mut bytes = vec![0; common::MEMORY];
        two.memory.read(0, &mut bytes).expect("in bounds");
        assert!(bytes.iter().all(|byte| *byte == 200));
        for posted in posted {
            let _either = finish(&both, &one, posted);
        }
        one.control.release(there);
        two.control.release(back);
    }
}

#[test]
fn a_hundred_sessions_come_and_go() {
    if is_left_out() {
        return;
    }
    let (one, two) = (Side::on_loopback(), Side::on_loopback());
    let both = [&one, &two];
    let mut highest = Rank(0);
    for round in 0..200 {
        let [there, back] = join(&one, &two);
        highest = highest.max(there);
        assert!(one.send(there, round).expect("a peer"));
        until(&both, "the message", || two.messages() == 1);
        one.control.disconnect(there);
        until(&both, "the end", || ended(&one, there) && ended(&two, back));
        one.control.release(there);
        two.control.release(back);
    }
    assert!(highest.0 < 190, "numbers are used again: {highest}");
    assert_eq!(one.conduit.size(), 1 << 16);
}
