//! Taking messages of one kind: only those, no more than wanted, and in order with the deliveries
//! of polls.

use hydrant_base::mix;

use crate::{OwnedMessage, Rank};

use super::{
    ContractCheck, Fixture,
    log::{Got, Log},
    messages::numbered,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[ContractCheck::new(
    "takes_one_kind",
    "messages taken by their kind and messages delivered by polls arrive once, and in order",
    takes,
)];

/// The number of messages of each sender.
const MESSAGES: u64 = 600;
/// The kind that is taken.
const KIND: u8 = 9;

fn message(me: &TeamMember<'_>, rank: Rank, n: u64) -> OwnedMessage {
    OwnedMessage {
        kind: match mix(n) % 3 {
            0 => KIND - 1,
            _ => KIND,
        },
        ..numbered(me, rank, n)
    }
}

fn takes(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        if me.rank() != Rank(0) {
            for n in 0..MESSAGES {
                me.send(log, Rank(0), &message(me, me.rank(), n).message());
            }
        } else {
            // Each poll delivers some as well.
            let mut looks = 0;
            me.until(log, "every message", |log| {
                looks += 1;
                let mut wanted = looks / 2 % 4;
                while wanted > 0 {
                    let before = wanted;
                    me.conduit.take(KIND, &mut |delivery| {
                        assert!(wanted > 0, "more than was wanted");
                        assert_eq!(delivery.kind, KIND);
                        log.requests.push(Got::from(delivery));
                        wanted -= 1;
                        wanted > 0
                    });
                    if wanted == before {
                        break;
                    }
                }
                let of = (looks % 3 > 0).then_some(Rank(looks % 3));
                me.conduit.poll_past(KIND, of, log);
                log.requests.len() as u64 >= 2 * MESSAGES
            });
            for peer in [1, 2].map(Rank) {
                let expected = (0..MESSAGES).map(|n| message(me, peer, n));
                let expected: Vec<Got> = expected
                    .map(|owned| Got::expected(peer, &owned.message()))
                    .collect();
                let got = log.requests_of(peer).into_iter().cloned();
                assert_eq!(got.collect::<Vec<_>>(), expected, "of {peer}");
            }
            assert!(log.malformed.is_empty());
        }
        me.meet(log);
        me.linger(log);
    });
}
