//! Atomic operations of the network.

use std::thread;

use crate::{Access, Atomic, Error, Key, Permission, Posted, Rank, Remote, Ticket, Window};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena, LentWindow, beyond},
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "atomic_results",
        "an atomic operation changes one word and returns its old value",
        results,
    )
    .atomic(),
    ContractCheck::new(
        "atomic_sums",
        "additions of all ranks to one word, its owner's among them, lose nothing",
        sums,
    )
    .atomic(),
    ContractCheck::new(
        "atomic_winner",
        "of all ranks that swap the expected value, one succeeds",
        winner,
    )
    .atomic(),
    ContractCheck::new(
        "atomic_threads",
        "a rank changes its own word from several threads while peers do",
        threads,
    )
    .atomic(),
    ContractCheck::new(
        "atomic_refused",
        "an invalid atomic operation is refused, and valid ones beside it are done once",
        refused,
    )
    .atomic(),
    ContractCheck::new(
        "atomic_misaligned",
        "a word that is not aligned is refused and not changed",
        misaligned,
    )
    .atomic(),
    ContractCheck::new(
        "atomic_to_the_lost",
        "an atomic operation on a word of a rank that is gone ends with its loss",
        lost,
    )
    .atomic(),
];

/// An operation in flight, and the word of its result. The word is leaked if nobody waits for it.
struct AtomicTransfer {
    posted: Posted,
    was: &'static mut u64,
}

impl AtomicTransfer {
    fn begin(
        me: &TeamMember<'_>,
        peer: Rank,
        word: Remote,
        operation: Atomic,
    ) -> Result<Self, Error> {
        let was = Box::leak(Box::new(0xdead));
        // SAFETY: 1. the word of the result is never freed. 2. This is no put.
        let posted = unsafe { (me.conduit).post(&Access::atomic(peer, word, operation, was))? };
        Ok(Self { posted, was })
    }

    fn ticket(&self) -> Option<Ticket> {
        match self.posted {
            Posted::Pending(ticket) => Some(ticket),
            Posted::Done => None,
        }
    }

    fn end(self, me: &TeamMember<'_>, log: &mut Log<'_>) -> Result<u64, Error> {
        if let Some(ticket) = self.ticket() {
            me.until(log, "an atomic operation", |log| {
                log.outcome(ticket).is_some()
            });
            log.outcome(ticket).expect("just seen")?;
        }
        Ok(*self.was)
    }
}

/// Posts one operation and waits for its end.
fn change(
    me: &TeamMember<'_>,
    log: &mut Log<'_>,
    peer: Rank,
    word: Remote,
    operation: Atomic,
) -> Result<u64, Error> {
    AtomicTransfer::begin(me, peer, word, operation)?.end(me, log)
}

fn results(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        for peer in [me.right(), me.rank()] {
            let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
            arena.window.fill(0, 64, 0xaa).expect("in bounds");
            arena.window.store(24, 5_u64).expect("in bounds");
            let word = beyond(arena.publish(me, log)[peer.index()], 24);
            let swap = |expected, value| Atomic::CompareSwap { expected, value };
            for (operation, was) in [
                (Atomic::Add(0), 5),
                (Atomic::Add(u64::MAX), 5),
                (Atomic::Add(u64::MAX - 3), 4),
                (Atomic::Add(1 << 32), 0),
                (swap(7, 8), 1 << 32),
                (swap(1 << 32, u64::MAX), 1 << 32),
                (swap(u64::MAX, 0x0123_4567_89ab_cdef), u64::MAX),
                (Atomic::Add(0), 0x0123_4567_89ab_cdef),
            ] {
                let found = change(me, log, peer, word, operation).expect("a word of the arena");
                assert_eq!(found, was, "{operation:?} on a word of rank {peer}");
            }
            me.meet(log);
            let mut expected = vec![0xaa; 64];
            expected[24..32].copy_from_slice(&0x0123_4567_89ab_cdef_u64.to_ne_bytes());
            assert_eq!(arena.bytes(), expected, "its neighbours are untouched");
            me.meet(log);
        }
    });
}

fn sums(fixture: &dyn Fixture) {
    let rounds = 400 / u64::from(fixture.slowness());
    each(fixture, 4.min(fixture.most_ranks()), |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let words = arena.publish(me, log);
        let ranks = u64::from(me.conduit.size());
        let mut seen = Vec::new();
        for round in 0..rounds {
            // All words of all ranks, several at once.
            let transfers: Vec<_> = (me.ranks())
                .map(|peer| {
                    let word = beyond(words[peer.index()], 8);
                    AtomicTransfer::begin(me, peer, word, Atomic::Add(round + 1))
                        .expect("in bounds")
                })
                .collect();
            for transfer in transfers {
                transfer.end(me, log).expect("in bounds");
            }
            seen.push(change(me, log, Rank(0), words[0], Atomic::Add(1)).expect("in bounds"));
        }
        assert!(seen.is_sorted(), "numbers are drawn in order");
        // All numbers were drawn, each by one rank.
        let drawn = me.gather(log, seen.iter().sum()).iter().sum::<u64>();
        let all = ranks * rounds;
        assert_eq!(drawn, all * (all - 1) / 2);
        let sum = arena.window.load::<u64>(8).expect("in bounds");
        assert_eq!(sum, ranks * rounds * (rounds + 1) / 2);
        me.meet(log);
    });
}

fn winner(fixture: &dyn Fixture) {
    let rounds = 300 / u64::from(fixture.slowness());
    each(fixture, 4.min(fixture.most_ranks()), |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let words = arena.publish(me, log);
        let owner = Rank(1 % me.conduit.size());
        let word = words[owner.index()];
        for round in 0..rounds {
            let operation = Atomic::CompareSwap {
                expected: round,
                value: round + 1,
            };
            let was = change(me, log, owner, word, operation).expect("in bounds");
            assert!(was == round || was == round + 1, "{was} in round {round}");
            let winners = me.gather(log, u64::from(was == round));
            assert_eq!(winners.iter().sum::<u64>(), 1, "round {round}: {winners:?}");
        }
    });
}

fn threads(fixture: &dyn Fixture) {
    let rounds = 600 / u64::from(fixture.slowness());
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let words = arena.publish(me, log);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _alarm = me.alarm();
                    for _ in 0..rounds {
                        let word = words[me.rank().index()];
                        let transfer = AtomicTransfer::begin(me, me.rank(), word, Atomic::Add(1));
                        let transfer = transfer.expect("in bounds");
                        assert_eq!(transfer.ticket(), None, "to oneself it is done on return");
                    }
                });
            }
            for _ in 0..rounds {
                let word = words[me.right().index()];
                change(me, log, me.right(), word, Atomic::Add(1)).expect("in bounds");
            }
        });
        me.meet(log);
        assert_eq!(arena.window.load::<u64>(0), Ok(3 * rounds));
        me.meet(log);
    });
}

fn refused(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let words = arena.publish(me, log);
        let gone = LentWindow::new(me.conduit, Window::private(64)).expect("room for an extent");
        let gone_places = me.exchange(log, gone.remote());
        gone.revoke();
        let window = Window::private(64);
        // SAFETY: 1. and 2. the window outlives the key.
        let key = unsafe { (me.conduit).register(window.as_ptr(), 64, Permission::Read) };
        let key = key.expect("room for an extent");
        let offset = window.addr() as u64;
        let read_only = me.exchange(log, Remote { key, offset });
        let mut fine = 0;
        for peer in [me.right(), me.rank()] {
            let word = words[peer.index()];
            let forged = Remote {
                key: Key(word.key.0 ^ 1),
                ..word
            };
            let segment = Remote {
                key: Key::SEGMENT,
                ..word
            };
            let places = [
                gone_places[peer.index()],
                beyond(word, 64),
                Remote {
                    offset: u64::MAX - 7,
                    ..word
                },
                read_only[peer.index()],
                forged,
                segment,
            ];
            for (number, place) in places.into_iter().enumerate() {
                // Valid operations before and after, all in flight at once.
                let begin = |at| AtomicTransfer::begin(me, peer, at, Atomic::Add(1));
                let before = [begin(word), begin(word)];
                let bad = begin(place);
                let after = [begin(word), begin(word)];
                for transfer in before.into_iter().chain(after) {
                    let transfer = transfer.expect("in bounds");
                    transfer.end(me, log).expect("in bounds");
                    fine += u64::from(peer == me.right());
                }
                match (bad.and_then(|bad| bad.end(me, log)), number) {
                    (Err(Error::Revoked { peer: of, key }), 0 | 4 | 5) => {
                        assert_eq!((of, key), (peer, place.key.0));
                    }
                    (
                        Err(Error::OutOfExtent {
                            peer: of,
                            len,
                            extent,
                            ..
                        }),
                        1 | 2,
                    ) => {
                        assert_eq!((of, len, extent), (peer, 8, 64));
                    }
                    (Err(Error::BadAddress { peer: of, len, .. }), 3) => {
                        assert_eq!((of, len), (peer, 8));
                    }
                    (other, _) => panic!("{place:?} of rank {peer}: {other:?}"),
                }
            }
        }
        me.meet(log);
        assert_eq!(
            arena.window.load::<u64>(0),
            Ok(2 * fine),
            "own and the peer's"
        );
        assert_eq!(window.load::<[u64; 8]>(0), Ok([0; 8]));
        me.meet(log);
        me.conduit.deregister(key).expect("a key in force");
    });
}

fn misaligned(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let words = arena.publish(me, log);
        for peer in [me.right(), me.rank()] {
            for aside in [1, 4, 7] {
                let word = beyond(words[peer.index()], 8 + aside);
                match change(me, log, peer, word, Atomic::Add(1)) {
                    Err(Error::Misaligned { peer: of, addr }) => {
                        assert_eq!((of, addr), (peer, word.offset));
                    }
                    other => panic!("{aside} bytes aside, of rank {peer}: {other:?}"),
                }
            }
        }
        me.meet(log);
        assert_eq!(arena.bytes(), [0; 64]);
        me.meet(log);
    });
}

fn lost(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let words = arena.publish(me, log);
        if me.rank() == Rank(1) {
            me.meet(log);
            me.conduit.leave(false);
            return;
        }
        change(me, log, Rank(1), words[1], Atomic::Add(1)).expect("in bounds");
        me.meet(log);
        me.until(log, "the end of a rank", |_| {
            me.conduit.first_lost() == Some(Rank(1))
        });
        match change(me, log, Rank(1), words[1], Atomic::Add(1)) {
            Err(Error::PeerLost(Rank(1))) => {}
            other => panic!("on a word of a lost rank: {other:?}"),
        }
        // This rank's own words are still valid.
        let own = change(me, log, Rank(0), words[0], Atomic::Add(2)).expect("in bounds");
        assert_eq!(own, 0);
    });
}
