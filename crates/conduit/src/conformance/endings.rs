//! Ranks that end, in good order or not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use crate::{Conduit, Error, Message, Rank, Sent, Sleeper, Standing, Window};

use super::{
    ContractCheck, Fixture,
    log::{Got, Log},
    memory::{AddressKind, Arena, LentWindow},
    team::{TeamMember, each, each_of, start},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "standings",
        "a peer that ends has left or is lost, and each change is counted once",
        standings,
    ),
    ContractCheck::new(
        "end_wakes_service",
        "a peer's end wakes the service thread",
        |f| wakes(f, Sleeper::Service),
    ),
    ContractCheck::new(
        "end_wakes_application",
        "a peer's end wakes an application",
        |f| wakes(f, Sleeper::Application),
    ),
    ContractCheck::new(
        "comes_to_its_end",
        "a peer whose program has come to its end still takes part, and its announcement wakes waiters",
        comes_to_its_end,
    ),
    ContractCheck::new(
        "ended_refuses",
        "nothing can be sent to, written to or read from an ended peer",
        refuses,
    ),
    ContractCheck::new(
        "ended_pending",
        "operations in flight with a peer that ends are ended",
        pending,
    ),
    ContractCheck::new(
        "sent_before_the_end",
        "messages that a peer sent before it left are delivered",
        before,
    ),
    ContractCheck::new(
        "stuck_at_the_end",
        "requests of a peer that left before it took the replies are delivered",
        stuck,
    ),
    ContractCheck::new(
        "others_continue",
        "the others continue when one is lost",
        others_continue,
    ),
];

fn standings(fixture: &dyn Fixture) {
    let mut conduits = start(fixture, 4);
    let (dropped, lost, left) = (Rank(3), Rank(2), Rank(1));
    let seen = |conduits: &[Arc<dyn Conduit>], expected: [Standing; 4], changes: u64| {
        each_of(fixture, conduits, |me| {
            me.until(&mut Log::new(), "the news", |_| {
                me.ranks()
                    .all(|peer| me.conduit.standing(peer) == expected[peer.index()])
            });
            assert_eq!(me.conduit.changes(), changes, "seen by rank {}", me.rank());
        });
    };
    use Standing::{Left, Lost, Present};
    let before = conduits[0].changes();
    conduits[left.index()].leave(true);
    seen(&conduits, [Present, Left, Present, Present], before + 1);
    conduits[lost.index()].leave(false);
    seen(&conduits, [Present, Left, Lost, Present], before + 2);
    assert_eq!(conduits.pop().map(|gone| gone.rank()), Some(dropped));
    seen(&conduits, [Present, Left, Lost, Lost], before + 3);
    // A rank that has ended cannot end again in another way.
    conduits[left.index()].leave(false);
    conduits[lost.index()].leave(true);
    conduits.truncate(1);
    seen(&conduits, [Present, Left, Lost, Lost], before + 3);
}

fn wakes(fixture: &dyn Fixture, sleeper: Sleeper) {
    for orderly in [true, false] {
        for round in 0..10 {
            let asleep = AtomicU32::new(0);
            each(fixture, 3, |me| {
                let before = me.conduit.changes();
                me.meet(&mut Log::new());
                if me.rank() == Rank(2) {
                    while asleep.load(SeqCst) < 2 {
                        me.breathe();
                    }
                    // The others sometimes sleep by then, and are sometimes about to.
                    thread::sleep(std::time::Duration::from_micros(50 * round));
                    me.conduit.leave(orderly);
                } else {
                    asleep.fetch_add(1, SeqCst);
                    while me.conduit.standing(Rank(2)) == Standing::Present {
                        me.sleep(sleeper, || me.conduit.changes() != before);
                    }
                }
            });
        }
    }
}

fn comes_to_its_end(fixture: &dyn Fixture) {
    for come in [true, false, true] {
        let asleep = AtomicU32::new(0);
        each(fixture, 3, |me| {
            let log = &mut Log::echoing();
            if !come {
                me.conduit.come_to_end(true);
                me.until(log, "the ends of all", |_| {
                    me.ranks().all(|peer| me.conduit.has_come_to_end(peer))
                });
            }
            me.meet(log);
            let before = me.conduit.endings();
            me.meet(log);
            if me.rank() == Rank(2) {
                while asleep.load(SeqCst) < 2 {
                    me.breathe();
                }
                me.conduit.come_to_end(come);
                // The same announcement again has no effect.
                me.conduit.come_to_end(come);
            } else {
                asleep.fetch_add(1, SeqCst);
                while me.conduit.has_come_to_end(Rank(2)) != come {
                    if come {
                        me.sleep(Sleeper::Application, || me.conduit.endings() != before);
                    } else {
                        me.breathe();
                    }
                }
            }
            assert_eq!(me.conduit.standing(Rank(2)), Standing::Present);
            // The rank answers as before.
            if me.rank() != Rank(2) {
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[5],
                    payload: &[],
                };
                me.send(log, Rank(2), &message);
                me.until(log, "a reply", |log| !log.replies.is_empty());
            }
            me.meet(log);
            for peer in [Rank(0), Rank(1)] {
                assert_eq!(me.conduit.has_come_to_end(peer), !come);
            }
        });
    }
}

fn is_lost<T>(outcome: Result<T, Error>, peer: Rank) {
    match outcome {
        Err(Error::PeerLost(rank)) => assert_eq!(rank, peer),
        Err(other) => panic!("not PeerLost: {other}"),
        Ok(_) => panic!("rank {peer} has ended and was reached"),
    }
}

fn refuses(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        // The memory outlives the rank's part, as in a process that hangs.
        let lent = LentWindow::new(me.conduit, Window::private(64)).expect("room for an extent");
        let arenas: Vec<Arena<'_>> = (AddressKind::of(me.conduit)
            .filter(|place| *place != AddressKind::Anywhere))
        .map(|place| Arena::new(me.conduit, place, 64))
        .collect();
        let places: Vec<_> = arenas.iter().map(|arena| arena.publish(me, log)).collect();
        if me.rank() != Rank(0) {
            me.conduit.leave(me.rank() == Rank(1));
        }
        me.meet(log);
        if me.rank() == Rank(0) {
            for peer in [Rank(1), Rank(2)] {
                me.until(log, "the end", |_| {
                    me.conduit.standing(peer) != Standing::Present
                });
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[],
                    payload: &[],
                };
                is_lost(me.conduit.send(peer, &message), peer);
                for remotes in &places {
                    is_lost(me.put(log, peer, remotes[peer.index()], &[1; 8]), peer);
                    if me.reads() {
                        is_lost(me.get(log, peer, remotes[peer.index()], 8), peer);
                    }
                }
            }
            // A revocation does not wait for dead ranks.
            lent.revoke();
        }
        me.meet(log);
    });
}

fn pending(fixture: &dyn Fixture) {
    for orderly in [true, false] {
        each(fixture, 2, |me| {
            let log = &mut Log::new();
            let arena = Arena::new(me.conduit, AddressKind::Extent, 1 << 16);
            let to = arena.publish(me, log)[1];
            if me.rank() == Rank(1) {
                // This rank does not poll.
                me.meet_deaf();
                me.conduit.leave(orderly);
                me.meet_deaf();
                return;
            }
            let mut transfers = Vec::new();
            for _ in 0..10 {
                transfers.push(
                    me.post_write(Rank(1), to, &[1; 1 << 16])
                        .expect("within the extent"),
                );
                if me.reads() {
                    transfers.push(
                        me.post_read(Rank(1), to, 1 << 16)
                            .expect("within the extent"),
                    );
                }
            }
            me.meet_deaf();
            for transfer in transfers {
                match me.land(log, transfer) {
                    Ok(_) => {}
                    lost => is_lost(lost, Rank(1)),
                }
            }
            me.linger(log);
            let ended = log.ended.len();
            log.ended.sort_by_key(|(ticket, _)| ticket.0);
            log.ended.dedup_by_key(|(ticket, _)| ticket.0);
            assert_eq!(log.ended.len(), ended, "an operation ended twice");
            me.meet_deaf();
        });
    }
}

/// Sends until there is no more room, without polling. Returns the number of messages.
fn send_all(me: &TeamMember<'_>, peer: Rank) -> u64 {
    let mut sent = 0;
    while sent < 2000 {
        let message = Message {
            kind: 4,
            tag: 9,
            args: &[sent],
            payload: &[1, 2, 3],
        };
        if me
            .conduit
            .send(peer, &message)
            .expect("a peer that takes part")
            == Sent::Full
        {
            break;
        }
        sent += 1;
    }
    sent
}

/// Fails unless these are the requests of [`send_all`].
fn expect_all(me: &TeamMember<'_>, log: &mut Log<'_>, from: Rank, sent: u64) {
    me.until(log, "what was sent before the end", |log| {
        log.requests.len() as u64 >= sent
    });
    me.linger(log);
    let expected: Vec<Got> = (0..sent)
        .map(|n| {
            Got::expected(
                from,
                &Message {
                    kind: 4,
                    tag: 9,
                    args: &[n],
                    payload: &[1, 2, 3],
                },
            )
        })
        .collect();
    assert!(
        log.requests == expected,
        "{} requests of {sent}",
        log.requests.len()
    );
}

fn before(fixture: &dyn Fixture) {
    let sent = AtomicU32::new(0);
    each(fixture, 2, |me| {
        if me.rank() == Rank(1) {
            sent.store(send_all(me, Rank(0)) as u32, SeqCst);
            me.conduit.leave(true);
            me.meet_deaf();
        } else {
            me.meet_deaf();
            expect_all(me, &mut Log::new(), Rank(1), u64::from(sent.load(SeqCst)));
        }
    });
}

fn stuck(fixture: &dyn Fixture) {
    let sent = AtomicU32::new(0);
    each(fixture, 2, |me| {
        let payload = vec![7; me.conduit.caps().max_payload];
        if me.rank() == Rank(1) {
            sent.store(send_all(me, Rank(0)) as u32, SeqCst);
            me.meet_deaf();
            me.meet_deaf();
            me.conduit.leave(true);
            me.meet_deaf();
        } else {
            let log = &mut Log::handling(|_, port| {
                let reply = Message {
                    kind: 0,
                    tag: 0,
                    args: &[],
                    payload: &payload,
                };
                port.reply(&reply).expect("a reply is always taken");
            });
            me.meet_deaf();
            // Until replies are stuck.
            me.linger(log);
            me.meet_deaf();
            me.meet_deaf();
            expect_all(me, log, Rank(1), u64::from(sent.load(SeqCst)));
        }
    });
}

fn others_continue(fixture: &dyn Fixture) {
    let mut conduits = start(fixture, 4);
    drop(conduits.pop());
    each_of(fixture, &conduits, |me| {
        // Only the remaining ranks meet.
        let log = &mut Log::echoing();
        me.until(log, "the news", |_| {
            me.conduit.standing(Rank(3)) == Standing::Lost
        });
        for place in AddressKind::of(me.conduit) {
            let arena = Arena::new(me.conduit, place, 64);
            let remotes = arena.publish(me, log);
            let right = Rank((me.rank().0 + 1) % 3);
            me.put(log, right, remotes[right.index()], &[me.rank().0 as u8; 64])
                .expect("within the arena");
            me.meet(log);
            assert_eq!(arena.bytes(), [((me.rank().0 + 2) % 3) as u8; 64]);
            for _ in 0..300 {
                me.send(
                    log,
                    right,
                    &Message {
                        kind: 0,
                        tag: 0,
                        args: &[5],
                        payload: &[6],
                    },
                );
            }
            me.meet(log);
        }
        let all = 300 * AddressKind::of(me.conduit).count();
        me.until(log, "replies", |log| {
            log.replies.len() >= all && log.requests.len() >= all
        });
        assert_eq!((log.replies.len(), log.requests.len()), (all, all));
        me.meet(log);
    });
}
