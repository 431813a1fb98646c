//! The ranks of a job, their capabilities, and the clock.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::{Message, Rank, Standing};

use super::{
    ContractCheck, Fixture,
    log::{Got, Log},
    pattern,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new("ranks_1", "a job of one speaks to itself", |f| {
        every_pair(f, 1)
    }),
    ContractCheck::new("ranks_2", "two ranks speak, each to each", |f| {
        every_pair(f, 2)
    }),
    ContractCheck::new("ranks_3", "three ranks speak, each to each", |f| {
        every_pair(f, 3)
    }),
    ContractCheck::new("ranks_8", "eight ranks speak, each to each", |f| {
        every_pair(f, 8)
    }),
    ContractCheck::new("ranks_70", "more ranks than the bits of a word", |f| {
        every_pair(f, 70)
    }),
    ContractCheck::new(
        "caps_agree",
        "all ranks have the same capabilities and limits, except the ranks of their hosts",
        caps_agree,
    ),
    ContractCheck::new("clock", "the clock never goes back, and advances", clock),
    ContractCheck::new(
        "published",
        "the ranks that share memory with a rank see the number that it published, and no other",
        published,
    ),
    ContractCheck::new(
        "all_present",
        "all ranks take part from the start",
        all_present,
    ),
];

fn published(fixture: &dyn Fixture) {
    each(fixture, 3.min(fixture.most_ranks()), |me| {
        let seen = |peer: Rank| me.conduit.published(peer);
        let ranks = (0..me.conduit.size()).map(Rank);
        // Other ranks may have published already.
        let own = seen(me.rank());
        assert!(own.is_none_or(|it| it == 0), "{own:?}");
        me.conduit.publish(u64::from(me.rank().0) + 7);
        me.meet(&mut Log::new());
        for peer in ranks.clone() {
            let expected = u64::from(peer.0) + 7;
            assert!(seen(peer).is_none_or(|it| it == expected), "{peer}");
        }
        me.meet(&mut Log::new());
        me.conduit.publish(u64::MAX);
        me.meet(&mut Log::new());
        for peer in ranks {
            assert!(seen(peer).is_none_or(|it| it == u64::MAX), "{peer}");
        }
        assert_eq!(seen(Rank(me.conduit.size())), None);
        me.meet(&mut Log::new());
    });
}

/// Every rank sends every rank, itself included, a few requests and gets each back.
fn every_pair(fixture: &dyn Fixture, ranks: u32) {
    const EACH: u64 = 3;
    let ranks = ranks.min(fixture.most_ranks());
    each(fixture, ranks, |me| {
        let log = &mut Log::echoing();
        let len = me.conduit.caps().max_payload.min(100);
        let payload = |from: Rank, to: Rank, n| {
            pattern::bytes(u64::from(from.0) << 32 | u64::from(to.0) << 8 | n, len)
        };
        for n in 0..EACH {
            for peer in me.ranks() {
                let payload = payload(me.rank(), peer, n);
                me.send(log, peer, &numbered(n, &payload));
            }
        }
        let all = EACH as usize * ranks as usize;
        me.until(log, "every message", |log| {
            log.requests.len() >= all && log.replies.len() >= all
        });
        me.meet(log);
        me.linger(log);
        for peer in me.ranks() {
            let requests = log.requests_of(peer);
            let replies: Vec<&Got> = log.replies.iter().filter(|got| got.from == peer).collect();
            for n in 0..EACH {
                let sent = payload(peer, me.rank(), n);
                assert_eq!(
                    *requests[n as usize],
                    Got::expected(peer, &numbered(n, &sent))
                );
                let sent = payload(me.rank(), peer, n);
                assert_eq!(
                    *replies[n as usize],
                    Got::expected(peer, &numbered(n, &sent))
                );
            }
            assert_eq!(
                (requests.len(), replies.len()),
                (EACH as usize, EACH as usize)
            );
        }
        assert!(log.malformed.is_empty(), "{:?}", log.malformed);
    });
}

fn numbered<'a>(n: u64, payload: &'a [u8]) -> Message<'a> {
    Message {
        kind: 1,
        tag: n as u16,
        args: &[],
        payload,
    }
}

fn caps_agree(fixture: &dyn Fixture) {
    let said = Mutex::new(HashSet::new());
    each(fixture, 3, |me| {
        assert_eq!(me.conduit.size(), 3);
        let caps = me.conduit.caps();
        assert!(
            caps.max_args > 0 && caps.max_payload > 0 && caps.segment > 0,
            "{caps:?}"
        );
        // Hosts may have different numbers of ranks.
        let common = crate::Caps {
            host_ranks: 1,
            ..caps.clone()
        };
        said.lock().insert(format!("{common:?}"));
        me.meet(&mut Log::new());
    });
    let said = said.into_inner();
    assert_eq!(said.len(), 1, "{said:#?}");
}

fn clock(fixture: &dyn Fixture) {
    each(fixture, 2, |me: &TeamMember<'_>| {
        let first = me.conduit.now();
        let mut last = first;
        me.until(&mut Log::new(), "the clock to go on", |_| {
            let now = me.conduit.now();
            assert!(now >= last, "the clock went back from {last:?} to {now:?}");
            last = now;
            now - first > std::time::Duration::from_millis(5)
        });
        me.meet(&mut Log::new());
    });
}

fn all_present(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        for peer in me.ranks() {
            assert_eq!(me.conduit.standing(peer), Standing::Present);
        }
        let before = me.conduit.changes();
        me.meet(&mut Log::new());
        assert_eq!(me.conduit.changes(), before, "nothing changed");
        me.meet(&mut Log::new());
    });
}
