//! Floods: no message is lost, no sender waits for ever, and memory stays bounded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use hydrant_base::mix;

use crate::{Message, OwnedMessage, Rank, Sent};

use super::{
    ContractCheck, Fixture,
    log::{Got, Log},
    messages::numbered,
    pattern,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "full_and_on",
        "a flood to a rank that does not poll gets Full, and continues when it polls",
        full,
    ),
    ContractCheck::new(
        "replies_bounded",
        "requests of a peer that takes no replies are handled only up to a bound",
        bounded,
    ),
    ContractCheck::new(
        "flood_of_replies",
        "four ranks flood each other, with the longest replies",
        flood,
    ),
    ContractCheck::new(
        "flood_all_sizes",
        "a long flood of messages of all sizes arrives in order",
        long,
    ),
];

/// More messages than any ring holds.
const MAX_MESSAGES: u64 = 1 << 20;

fn full(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        if me.rank() == Rank(1) {
            me.meet_deaf();
            let sent = me.gather(log, 0)[0];
            me.until(log, "the flood", |log| log.requests.len() as u64 >= sent);
            me.linger(log);
            assert_eq!(log.requests.len() as u64, sent);
            for (n, got) in (0..).zip(&log.requests) {
                let owned = numbered(me, Rank(0), n);
                assert_eq!(
                    *got,
                    Got::expected(Rank(0), &owned.message()),
                    "message {n}"
                );
            }
        } else {
            let mut sent = 0;
            let mut send = || {
                let owned = numbered(me, Rank(0), sent);
                let taken = me
                    .conduit
                    .send(Rank(1), &owned.message())
                    .expect("within the limits");
                sent += u64::from(taken == Sent::Yes);
                taken
            };
            let refused = (0..MAX_MESSAGES).find(|_| send() == Sent::Full);
            assert!(
                refused.is_some(),
                "{MAX_MESSAGES} messages were taken although the peer did not poll"
            );
            // There is no room for small or large messages until the other rank polls.
            me.meet_deaf();
            let mut more = 0;
            let since = std::time::Instant::now();
            // The other rank polls in `gather`, which this rank joins late.
            while more < 300 {
                me.hope("room after Full", since);
                match send() {
                    Sent::Yes => more += 1,
                    Sent::Full => {
                        me.conduit.poll(log);
                        std::thread::yield_now();
                    }
                }
            }
            me.gather(log, sent);
        }
        me.meet(log);
    });
}

fn bounded(fixture: &dyn Fixture) {
    let (polls, quiet) = (AtomicU64::new(0), AtomicBool::new(false));
    each(fixture, 2, |me| {
        let payload = vec![3; me.conduit.caps().max_payload];
        let log = &mut Log::handling(|delivery, port| {
            let reply = Message {
                kind: 2,
                tag: 0,
                args: delivery.args,
                payload: &payload,
            };
            port.reply(&reply).expect("a reply is always taken");
        });
        let mut sent = 0;
        if me.rank() == Rank(1) {
            // Sends until sends fail during many polls of the other rank while a request waits.
            // A network may take longer than that to say which requests were handled.
            let since = std::time::Instant::now();
            let mut seen = polls.load(SeqCst);
            while polls.load(SeqCst) < seen + 200 || me.conduit.handled(Rank(0)).0 >= sent {
                me.hope("the other to stop taking requests", since);
                let message = Message {
                    kind: 1,
                    tag: 0,
                    args: &[sent],
                    payload: &[],
                };
                match me
                    .conduit
                    .send(Rank(0), &message)
                    .expect("within the limits")
                {
                    Sent::Yes => {
                        sent += 1;
                        seen = polls.load(SeqCst);
                        assert!(
                            sent < MAX_MESSAGES,
                            "{sent} requests were handled although the peer took no reply"
                        );
                    }
                    Sent::Full => std::thread::yield_now(),
                }
            }
            let (handled, _) = me.conduit.handled(Rank(0));
            assert!(handled < sent, "no request waits although replies do");
            quiet.store(true, SeqCst);
        } else {
            me.until(log, "the flood to meet its end", |_| {
                polls.fetch_add(1, SeqCst);
                quiet.load(SeqCst)
            });
        }
        let all = me.gather(log, sent)[1];
        let done = |log: &mut Log<'_>| if me.rank() == Rank(1) { log.replies.len() } else { log.requests.len() } as u64;
        me.until(log, "everything that waited", |log| done(log) >= all);
        me.meet(log);
        me.linger(log);
        assert_eq!(done(log), all);
        let got = if me.rank() == Rank(1) {
            &log.replies
        } else {
            &log.requests
        };
        for (n, got) in (0..).zip(got) {
            assert_eq!(got.args, [n]);
            assert!(
                me.rank() == Rank(0) || got.payload == payload,
                "reply {n} was changed"
            );
        }
        me.meet(log);
    });
}

/// Every rank sends to every rank, itself included, and polls only now and then.
fn flood(fixture: &dyn Fixture) {
    const EACH: u64 = 250;
    each(fixture, 4, |me| {
        let most = me.conduit.caps().max_payload;
        let payload = |from: Rank, to: Rank, n: u64| {
            pattern::bytes(n << 32 | u64::from(from.0) << 8 | u64::from(to.0), most)
        };
        let here = me.rank();
        let log = &mut Log::handling(move |delivery, port| {
            let n = delivery.args[0];
            let payload = payload(here, delivery.from, n);
            let reply = Message {
                kind: 3,
                tag: n as u16,
                args: &[n],
                payload: &payload,
            };
            port.reply(&reply).expect("a reply is always taken");
        });
        let mut sent = [0; 4];
        me.until(log, "room for the whole flood", |_| {
            for peer in me.ranks() {
                let n = &mut sent[peer.index()];
                for _ in 0..20 {
                    if *n == EACH {
                        break;
                    }
                    let request = payload(me.rank(), peer, *n);
                    let message = Message {
                        kind: 1,
                        tag: 0,
                        args: &[*n],
                        payload: &request,
                    };
                    match me.conduit.send(peer, &message).expect("within the limits") {
                        Sent::Yes => *n += 1,
                        Sent::Full => break,
                    }
                }
            }
            sent.iter().all(|n| *n == EACH)
        });
        let all = 4 * EACH as usize;
        me.until(log, "the whole flood", |log| {
            log.requests.len() >= all && log.replies.len() >= all
        });
        me.meet(log);
        me.linger(log);
        for peer in me.ranks() {
            for got in [&log.requests, &log.replies] {
                let of_peer: Vec<&Got> = got.iter().filter(|got| got.from == peer).collect();
                assert_eq!(of_peer.len() as u64, EACH);
                for (n, got) in (0..EACH).zip(of_peer) {
                    assert_eq!(got.args, [n], "out of order from {peer}");
                    assert!(
                        got.payload == payload(peer, me.rank(), n),
                        "message {n} of {peer}"
                    );
                }
            }
            assert_eq!(me.conduit.handled(peer), (EACH, EACH));
        }
    });
}

/// Enough messages to fill every ring many times, and more than 2^16.
fn long(fixture: &dyn Fixture) {
    const MANY: u64 = 100_000;
    each(fixture, 2, |me: &TeamMember<'_>| {
        struct Compare<'a, 'b> {
            me: &'a TeamMember<'b>,
            next: u64,
        }
        impl crate::Sink for Compare<'_, '_> {
            fn request(&mut self, delivery: crate::Delivery<'_>, _: &mut dyn crate::ReplyPort) {
                let expected = short(self.me.left(), self.next);
                assert_eq!(
                    Got::from(&delivery),
                    Got::expected(self.me.left(), &expected.message())
                );
                self.next += 1;
            }
            fn reply(&mut self, delivery: crate::Delivery<'_>) {
                panic!("no rank sent {delivery:?}");
            }
            fn local(&mut self, _: crate::Ticket) {}
            fn complete(&mut self, _: crate::Ticket, _: Result<(), crate::Error>) {}
            fn malformed(&mut self, error: crate::Error) {
                panic!("{error}");
            }
        }
        fn short(from: Rank, n: u64) -> OwnedMessage {
            let word = mix(n ^ u64::from(from.0) << 40);
            OwnedMessage {
                kind: (word % 12) as u8,
                tag: (word >> 8) as u16,
                args: vec![word; (n % 5) as usize].into(),
                payload: vec![n as u8; (word >> 32) as usize % 40].into(),
            }
        }
        let sink = &mut Compare { me, next: 0 };
        for n in 0..MANY {
            me.send(sink, me.right(), &short(me.rank(), n).message());
        }
        me.until(sink, "the whole flood", |sink| sink.next == MANY);
        me.meet(sink);
        me.linger(sink);
        assert_eq!(sink.next, MANY);
    });
}
