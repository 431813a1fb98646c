//! Messages arrive as sent, in order.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use hydrant_base::mix;

use crate::{Error, Message, OwnedMessage, Rank, ReplyPort, Sink};

use super::{
    ContractCheck, Fixture,
    log::{Got, Log},
    pattern,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "every_size",
        "every count of arguments and length of payload arrives as sent",
        sizes,
    ),
    ContractCheck::new("every_kind", "every kind and tag arrives as sent", kinds),
    ContractCheck::new(
        "too_big",
        "a request or reply above a limit is refused, with the limit",
        too_big,
    ),
    ContractCheck::new(
        "replies_in_order",
        "replies arrive as sent, in the order of the requests",
        replies,
    ),
    ContractCheck::new(
        "handled_counts",
        "requests count as handled after their replies were sent",
        handled,
    ),
    ContractCheck::new(
        "handled_when_polled",
        "if messages arrive at once, those that a poll handled are counted when it returns",
        handled_when_polled,
    ),
    ContractCheck::new(
        "drain_delivers",
        "drain delivers everything that had arrived",
        drain,
    ),
];

/// Makes message number `n` of `rank`, of a size that follows from both.
pub(super) fn numbered(me: &TeamMember<'_>, rank: Rank, n: u64) -> OwnedMessage {
    let caps = me.conduit.caps();
    let word = mix(u64::from(rank.0) << 32 | n);
    let most = if word.is_multiple_of(11) {
        caps.max_payload
    } else {
        caps.max_payload.min(64)
    };
    let payload = (word >> 8) as usize % (most + 1);
    sized(word, (word >> 4) as usize % (caps.max_args + 1), payload)
}

fn sized(seed: u64, args: usize, payload: usize) -> OwnedMessage {
    OwnedMessage {
        kind: (mix(seed ^ 1) % u64::from(Message::KINDS)) as u8,
        tag: mix(seed ^ 2) as u16,
        args: (0..args as u64).map(|n| mix(seed ^ n << 32)).collect(),
        payload: pattern::bytes(seed, payload).into(),
    }
}

/// Sends messages to the right, and compares those from the left.
fn pass(fixture: &dyn Fixture, messages: impl Fn(&TeamMember<'_>) -> Vec<OwnedMessage> + Sync) {
    for ranks in [1, 2] {
        each(fixture, ranks, |me| {
            let log = &mut Log::new();
            let messages = messages(me);
            for owned in &messages {
                me.send(log, me.right(), &owned.message());
            }
            me.until(log, "every message", |log| {
                log.requests.len() >= messages.len()
            });
            me.meet(log);
            me.linger(log);
            for (n, (got, owned)) in log.requests.iter().zip(&messages).enumerate() {
                assert_eq!(
                    *got,
                    Got::expected(me.left(), &owned.message()),
                    "message {n}"
                );
            }
            assert_eq!(
                log.requests.len(),
                messages.len(),
                "more arrived than was sent"
            );
            assert!(log.replies.is_empty() && log.malformed.is_empty());
        });
    }
}

fn sizes(fixture: &dyn Fixture) {
    pass(fixture, |me| {
        let caps = me.conduit.caps();
        let most = caps.max_payload;
        let lengths = (0..most.min(130)).chain([most / 2, most - 1, most, most, 1, most, 0]);
        (lengths.enumerate())
            .flat_map(|(n, len)| {
                let counts = if n % 16 == 0 {
                    0..=caps.max_args
                } else {
                    n % (caps.max_args + 1)..=n % (caps.max_args + 1)
                };
                counts.map(move |args| sized((n * 64 + args) as u64, args, len))
            })
            .collect()
    });
}

fn kinds(fixture: &dyn Fixture) {
    pass(fixture, |me| {
        let most = me.conduit.caps().max_args;
        let mut messages = Vec::new();
        for kind in 0..Message::KINDS {
            for tag in [0, 1, 255, 256, 0x8000, u16::MAX] {
                for word in [0, 1, u64::MAX] {
                    messages.push(OwnedMessage {
                        kind,
                        tag,
                        args: vec![word; most].into(),
                        payload: vec![kind; 9].into(),
                    });
                }
            }
        }
        messages
    });
}

fn too_big(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let caps = me.conduit.caps();
        let (args, payload) = (vec![1; caps.max_args + 1], vec![1; caps.max_payload + 1]);
        let fits = Message {
            kind: 0,
            tag: 0,
            args: &args[1..],
            payload: &payload[1..],
        };
        let too_many = Message {
            args: &args,
            ..fits
        };
        let too_long = Message {
            payload: &payload,
            ..fits
        };
        let check = |outcome: [Result<(), Error>; 2]| match outcome {
            [
                Err(Error::TooManyArgs { count, limit: most }),
                Err(Error::MessageTooLong { len, limit }),
            ] => {
                assert_eq!((count, most), (args.len(), caps.max_args));
                assert_eq!((len, limit), (payload.len(), caps.max_payload));
            }
            other => panic!("{other:?}"),
        };
        let log = &mut Log::handling(|_, port| {
            check([port.reply(&too_many), port.reply(&too_long)]);
            port.reply(&fits).expect("a reply within the limits");
        });
        check([
            me.conduit.send(me.right(), &too_many).map(drop),
            me.conduit.send(me.right(), &too_long).map(drop),
        ]);
        me.send(log, me.right(), &fits);
        me.until(log, "the message that fits", |log| {
            !log.requests.is_empty() && !log.replies.is_empty()
        });
        me.meet(log);
        me.linger(log);
        assert_eq!(log.requests, [Got::expected(me.left(), &fits)]);
        assert_eq!(log.replies, [Got::expected(me.right(), &fits)]);
    });
}

fn replies(fixture: &dyn Fixture) {
    const MANY: u64 = 500;
    each(fixture, 2, |me| {
        let log = &mut Log::echoing();
        for n in 0..MANY {
            me.send(log, me.right(), &numbered(me, me.rank(), n).message());
        }
        me.until(log, "every reply", |log| log.replies.len() as u64 >= MANY);
        me.meet(log);
        me.linger(log);
        assert_eq!(
            (log.requests.len(), log.replies.len()),
            (MANY as usize, MANY as usize)
        );
        for n in 0..MANY {
            let mine = numbered(me, me.rank(), n);
            let theirs = numbered(me, me.left(), n);
            assert_eq!(
                log.replies[n as usize],
                Got::expected(me.right(), &mine.message())
            );
            assert_eq!(
                log.requests[n as usize],
                Got::expected(me.left(), &theirs.message())
            );
        }
    });
}

/// A sink that sends the longest replies.
struct Heavy<'a> {
    payload: &'a [u8],
    replies: u64,
}

impl Sink for Heavy<'_> {
    fn request(&mut self, delivery: crate::Delivery<'_>, port: &mut dyn ReplyPort) {
        let message = Message {
            kind: 0,
            tag: 0,
            args: delivery.args,
            payload: self.payload,
        };
        port.reply(&message).expect("a reply within the limits");
    }
    fn reply(&mut self, delivery: crate::Delivery<'_>) {
        assert_eq!(delivery.args, [self.replies], "replies out of order");
        self.replies += 1;
    }
    fn local(&mut self, _: crate::Ticket) {}
    fn complete(&mut self, _: crate::Ticket, _: Result<(), Error>) {}
    fn malformed(&mut self, error: Error) {
        panic!("{error}");
    }
}

fn handled(fixture: &dyn Fixture) {
    const MANY: u64 = 40;
    let at_once = fixture.arrives_at_once();
    each(fixture, 2, |me| {
        let payload = vec![8; me.conduit.caps().max_payload];
        let sink = &mut Heavy {
            payload: &payload,
            replies: 0,
        };
        assert_eq!(me.conduit.handled(me.right()), (0, 0));
        me.meet_deaf();
        if me.rank() == Rank(0) {
            let mut sent = 0;
            while sent < MANY {
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[sent],
                    payload: &[],
                };
                let taken = me.conduit.send(me.right(), &message);
                if taken.expect("within the limits") == crate::Sent::Full {
                    break;
                }
                sent += 1;
            }
            assert_eq!(
                me.conduit.handled(me.right()),
                (0, sent),
                "the peer does not poll yet"
            );
            me.meet_deaf();
            // This rank reads only the counters, until it must take the replies.
            let mut last = 0;
            me.until(sink, "every request to be handled", |sink| {
                let (handled, all) = me.conduit.handled(me.right());
                assert_eq!(all, sent);
                assert!(
                    (last..=all).contains(&handled),
                    "{handled} of {all} after {last}"
                );
                last = handled;
                if at_once {
                    me.conduit.drain(sink);
                    assert!(
                        sink.replies >= handled,
                        "handled {handled}, replied {}",
                        sink.replies
                    );
                }
                handled == sent
            });
            me.until(sink, "every reply", |sink| sink.replies == sent);
        } else {
            me.meet_deaf();
        }
        me.meet(sink);
        assert_eq!(
            me.conduit.handled(me.left()).1,
            if me.rank() == Rank(0) {
                sink.replies
            } else {
                0
            }
        );
    });
}

fn handled_when_polled(fixture: &dyn Fixture) {
    if !fixture.arrives_at_once() {
        return;
    }
    let sent = AtomicU64::new(0);
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let mut polled = 0;
        for count in [1, 2, 7, 8, 15, 16, 17, 31, 32, 33] {
            if me.rank() == Rank(0) {
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[count],
                    payload: &[],
                };
                let taken = (0..count)
                    .map(|_| me.conduit.send(me.right(), &message))
                    .take_while(|taken| !matches!(taken, Ok(crate::Sent::Full)))
                    .inspect(|taken| assert!(taken.is_ok(), "{taken:?}"));
                sent.fetch_add(taken.count() as u64, SeqCst);
            }
            me.meet_deaf();
            // As few polls as there are messages to handle.
            while me.rank() != Rank(0) && polled < sent.load(SeqCst) {
                polled += me.conduit.poll(log) as u64;
            }
            me.meet_deaf();
            if me.rank() == Rank(0) {
                let sent = sent.load(SeqCst);
                assert_eq!(me.conduit.handled(me.right()), (sent, sent), "{count} more");
            }
            me.meet_deaf();
        }
    });
}

fn drain(fixture: &dyn Fixture) {
    let at_once = fixture.arrives_at_once();
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        let mut sent = 0;
        if me.rank() != Rank(0) {
            while sent < 1000 {
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[sent],
                    payload: &[1],
                };
                let taken = me.conduit.send(Rank(0), &message);
                if taken.expect("within the limits") == crate::Sent::Full {
                    break;
                }
                sent += 1;
            }
            assert!(sent > 0, "no room for a single message");
        }
        me.meet_deaf();
        if me.rank() == Rank(0) && at_once {
            me.conduit.drain(log);
        }
        let arrived = log.requests.len() as u64;
        let sent = me.gather(log, sent);
        let all: u64 = sent.iter().sum();
        if me.rank() == Rank(0) {
            assert!(
                !at_once || arrived == all,
                "drain delivered {arrived} of {all}"
            );
            me.until(log, "every message", |log| log.requests.len() as u64 >= all);
            for peer in 1..3 {
                let got: Vec<u64> = log
                    .requests_of(Rank(peer))
                    .iter()
                    .map(|got| got.args[0])
                    .collect();
                assert_eq!(got, (0..sent[peer as usize]).collect::<Vec<_>>());
            }
        }
        me.meet(log);
    });
}
