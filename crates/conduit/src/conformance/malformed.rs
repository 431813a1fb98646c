//! Peers that break the rules.

use crate::{Error, Message, Rank};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena},
    team::each,
};

pub(super) const CHECKS: &[ContractCheck] = &[ContractCheck::new(
    "malformed",
    "a malformed message is reported with its sender, not delivered, and harms no other rank",
    malformed,
)];

fn malformed(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        let log = &mut Log::echoing();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let to = arena.publish(me, log)[0];
        let tried = me.rank() == Rank(1) && fixture.misbehave(me.conduit, Rank(0));
        let tried = me.gather(log, u64::from(tried))[1] == 1;
        if me.rank() == Rank(0) && tried {
            me.until(log, "a report", |log| !log.malformed.is_empty());
            for error in &log.malformed {
                assert!(
                    matches!(error, Error::Malformed { peer: Rank(1), .. }),
                    "{error}"
                );
            }
            assert!(
                log.requests.is_empty() && log.replies.is_empty(),
                "it was delivered"
            );
        }
        me.meet(log);
        if me.rank() == Rank(2) {
            let message = Message {
                kind: 0,
                tag: 0,
                args: &[1],
                payload: &[2],
            };
            for _ in 0..100 {
                me.send(log, Rank(0), &message);
            }
            me.put(log, Rank(0), to, &[8; 64])
                .expect("within the extent");
            me.until(log, "the replies", |log| log.replies.len() == 100);
        }
        me.meet(log);
        if me.rank() == Rank(0) {
            assert_eq!(log.requests_of(Rank(2)).len(), 100);
            assert_eq!(arena.bytes(), [8; 64]);
        }
        me.meet(log);
    });
}
