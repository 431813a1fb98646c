//! Keys: the access they permit, and their end.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Instant,
};

use parking_lot::Mutex;

use crate::{Error, Key, Rank, Remote, Standing, Window};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena, LentWindow, bytes_of},
    pattern::assert_same,
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "out_of_extent",
        "an access that leaves its extent is refused, and the error has the limits",
        outside,
    ),
    ContractCheck::new(
        "bad_address",
        "an address that is not mapped, or read-only, is refused",
        bad_address,
    )
    .any_address(),
    ContractCheck::new(
        "revoked",
        "a revoked key permits no access any more",
        revoked,
    ),
    ContractCheck::new(
        "forged",
        "a key that was never granted permits no access",
        forged,
    ),
    ContractCheck::new("deregister_twice", "a key is revoked once", twice),
    ContractCheck::new(
        "exhausted",
        "the last extent is an error, and revoked ones can be granted again",
        exhausted,
    ),
    ContractCheck::new(
        "nothing_lands_late",
        "no peer accesses memory after deregister returned",
        hammer,
    ),
    ContractCheck::new(
        "nothing_of_the_lost_lands_late",
        "a lost rank whose threads live accesses nothing after deregister returned",
        lost_at_work,
    ),
];

fn outside(fixture: &dyn Fixture) {
    const BEFORE: usize = 64;
    const LEN: usize = 3000;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let whole = Window::private(2 * BEFORE + LEN);
        let part = whole.part(BEFORE, LEN).expect("a part");
        let lent = LentWindow::new(me.conduit, part).expect("room for an extent");
        let Remote { key, offset: start } = me.exchange(log, lent.remote())[me.right().index()];
        let segment = me.conduit.caps().segment;
        let end = start + LEN as u64;
        let places = [
            (key, start, LEN + 1, LEN),
            (key, end, 1, LEN),
            (key, end - 7, 8, LEN),
            (key, start + 1, LEN, LEN),
            (key, u64::MAX, 1, LEN),
            (key, u64::MAX - 3, 8, LEN),
            (key, start.wrapping_sub(BEFORE as u64), 8, LEN),
            (Key::SEGMENT, segment as u64, 1, segment),
            (Key::SEGMENT, segment as u64 - 3, 4, segment),
            (Key::SEGMENT, u64::MAX - 1, 4, segment),
        ];
        for (key, offset, len, extent) in places {
            let remote = Remote { key, offset };
            if key == Key::SEGMENT && me.conduit.caps().registration.is_some() {
                continue; // reaches nothing
            }
            let wrote = me.put(log, me.right(), remote, &vec![0xbb; len]);
            let read = || me.get(log, me.right(), remote, len).map(drop);
            for outcome in [wrote].into_iter().chain(me.reads().then(read)) {
                match outcome {
                    Err(Error::OutOfExtent {
                        peer,
                        offset: at,
                        len: bytes,
                        extent: limit,
                    }) => {
                        assert_eq!((peer, at, bytes), (me.right(), offset, len as u64));
                        assert_eq!(limit, extent as u64, "the limit in the error");
                    }
                    other => panic!("{len} bytes at {offset} of {key:?}: {other:?}"),
                }
            }
        }
        me.meet(log);
        let bytes = bytes_of(&whole);
        let untouched = [0; BEFORE];
        assert_same(
            &bytes[..BEFORE],
            &untouched,
            format_args!("before the extent"),
        );
        assert_same(
            &bytes[BEFORE + LEN..],
            &untouched,
            format_args!("behind the extent"),
        );
        // An access up to the very end is within the extent.
        let last = Remote {
            key,
            offset: end - 8,
        };
        me.put(log, me.right(), last, &[9; 8])
            .expect("within the extent");
        me.meet(log);
        assert_eq!(bytes_of(&lent.window)[LEN - 8..], [9; 8]);
        me.meet(log);
    });
}

fn bad_address(fixture: &dyn Fixture) {
    static READ_ONLY: [u8; 64] = [0x11; 64];
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let most = me.conduit.caps().max_payload;
        let read_only = READ_ONLY.as_ptr().addr() as u64;
        for (addr, len) in [
            (8, 8),
            (8, 3 * most + 1),
            (1 << 63, 8),
            (u64::MAX - 3, 8),
            (read_only, 64),
        ] {
            let remote = Remote {
                key: Key::ANY,
                offset: addr,
            };
            let wrote = me.put(log, me.right(), remote, &vec![1; len]);
            let mut read = (me.reads()).then(|| me.get(log, me.right(), remote, len).map(drop));
            if addr == read_only
                && let Some(read) = read.take()
            {
                read.expect("a constant can be read");
            }
            for outcome in [Some(wrote), read].into_iter().flatten() {
                match outcome {
                    Err(Error::BadAddress {
                        peer,
                        addr: at,
                        len: bytes,
                    }) => {
                        assert_eq!((peer, at, bytes), (me.right(), addr, len as u64));
                    }
                    other => panic!("{len} bytes at {addr:#x}: {other:?}"),
                }
            }
        }
        // Later operations succeed as before.
        let arena = Arena::new(me.conduit, AddressKind::Anywhere, 64);
        let to = arena.publish(me, log)[me.right().index()];
        me.put(log, me.right(), to, &[5; 64])
            .expect("within the arena");
        me.meet(log);
        assert_eq!(arena.bytes(), [5; 64]);
        me.meet(log);
    });
}

/// Fails unless a write and a read under `key` are refused.
fn refused(me: &TeamMember<'_>, log: &mut Log<'_>, peer: Rank, key: Key) {
    let remote = Remote { key, offset: 0 };
    let wrote = me.put(log, peer, remote, &[0xee; 100]);
    let read = || me.get(log, peer, remote, 100).map(drop);
    for outcome in [wrote].into_iter().chain(me.reads().then(read)) {
        match outcome {
            Err(Error::Revoked {
                peer: owner,
                key: word,
            }) => assert_eq!((owner, word), (peer, key.0)),
            other => panic!("{key:?} of rank {peer}: {other:?}"),
        }
    }
}

fn revoked(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let mut old = Vec::new();
        for round in 0..20 {
            let lent =
                LentWindow::new(me.conduit, Window::private(128)).expect("room for an extent");
            assert!(
                ![Key::SEGMENT, Key::ANY].contains(&lent.key),
                "{:?} has a meaning",
                lent.key
            );
            let to = me.exchange(log, lent.remote())[me.right().index()];
            let key = to.key;
            me.put(log, me.right(), to, &[round; 128])
                .expect("within the extent");
            me.meet(log);
            assert_eq!(bytes_of(&lent.window), [round; 128]);
            // Every earlier key stays invalid, even if its entry is in use again.
            for key in &old {
                assert_ne!(*key, to.key, "a key came back");
                refused(me, log, me.right(), *key);
            }
            me.meet(log);
            assert_eq!(
                bytes_of(&lent.window),
                [round; 128],
                "an old key opened a new extent"
            );
            let window = lent.revoke();
            old.push(key);
            me.meet(log);
            refused(me, log, me.right(), key);
            me.meet(log);
            assert_eq!(
                bytes_of(&window),
                [round; 128],
                "a write under a revoked key landed"
            );
        }
    });
}

fn forged(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let lent = LentWindow::new(me.conduit, Window::private(128)).expect("room for an extent");
        let key = me.gather(log, lent.key.0)[me.right().index()];
        let forgeries = [
            key ^ 1,
            key + 2,
            key ^ 1 << 20,
            key ^ 1 << 33,
            key ^ 1 << 62,
            1,
            7 << 32,
            u64::MAX - 1,
        ];
        // The ranks take turns: an access may register the rank's own buffers, and a forgery could
        // be their key.
        for turn in me.ranks() {
            for forgery in forgeries.into_iter().filter(|_| turn == me.rank()) {
                if ![key, Key::SEGMENT.0, Key::ANY.0].contains(&forgery) {
                    refused(me, log, me.right(), Key(forgery));
                }
            }
            me.meet(log);
        }
        assert_eq!(bytes_of(&lent.window), [0; 128]);
        me.meet(log);
    });
}

fn twice(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let lent = LentWindow::new(me.conduit, Window::private(64)).expect("room for an extent");
        let key = lent.key;
        lent.revoke();
        let again = LentWindow::new(me.conduit, Window::private(64)).expect("room for an extent");
        for key in [
            key,
            Key::SEGMENT,
            Key::ANY,
            Key(again.key.0 ^ 1),
            Key(1 << 63),
        ] {
            match me.conduit.deregister(key) {
                Err(Error::Revoked { peer, key: word }) => {
                    assert_eq!((peer, word), (me.rank(), key.0))
                }
                other => panic!("{key:?}: {other:?}"),
            }
        }
        again.revoke();
    });
}

fn exhausted(fixture: &dyn Fixture) {
    /// A conduit that takes this many extents may take any number.
    const MANY: usize = 1 << 17;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let mut held = Vec::new();
        let limit = loop {
            match LentWindow::new(me.conduit, Window::private(64)) {
                Ok(lent) if held.len() < MANY => held.push(lent),
                Ok(_) => break None,
                Err(Error::Exhausted { limit, .. }) => break Some(limit),
                Err(other) => panic!("after {} extents: {other}", held.len()),
            }
        };
        assert!(
            limit.is_none_or(|limit| limit >= held.len() as u64),
            "{limit:?}, {} taken",
            held.len()
        );
        let mut keys: Vec<u64> = held.iter().map(|lent| lent.key.0).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), held.len(), "a key was given twice");
        // An extent can be granted for each one that is revoked, again and again.
        for _ in 0..10 {
            held.swap_remove(held.len() / 2).revoke();
            held.push(
                LentWindow::new(me.conduit, Window::private(64)).expect("one was given back"),
            );
            if limit.is_some() {
                let error = LentWindow::new(me.conduit, Window::private(64)).err();
                assert!(matches!(error, Some(Error::Exhausted { .. })), "{error:?}");
            }
        }
        if me.conduit.caps().registration.is_some() {
            // Room for the source of a write.
            held.swap_remove(0).revoke();
        }
        let last = held.last().expect("there are some");
        let to = me.exchange(log, last.remote())[me.right().index()];
        me.put(log, me.right(), to, &[3; 64])
            .expect("within the extent");
        me.meet(log);
        assert_eq!(bytes_of(&last.window), [3; 64]);
        me.meet(log);
    });
}

/// Rank 0 lends and revokes. Rank 1 writes and rank 2 reads as fast as they can.
fn hammer(fixture: &dyn Fixture) {
    let rounds = 150 / fixture.slowness();
    const LEN: usize = 32 << 10;
    const SECRET: u8 = 0x5e;
    let (published, over) = (Mutex::new(None), AtomicU64::new(0));
    let (landed, late) = (AtomicU64::new(0), AtomicU64::new(0));
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        if me.rank() == Rank(0) {
            for round in 0..rounds {
                let window = Window::private(LEN);
                let lent = LentWindow::new(me.conduit, window).expect("room for an extent");
                let before = landed.load(SeqCst);
                *published.lock() = Some(lent.remote());
                me.until(log, "the others to touch the extent", |_| {
                    landed.load(SeqCst) > before
                });
                for _ in 0..round % 7 {
                    me.conduit.poll(log);
                }
                let window = lent.revoke();
                window.fill(0, LEN, SECRET).expect("in bounds");
                for turn in 0..30 {
                    me.conduit.poll(log);
                    if turn % 10 == 0 {
                        thread::yield_now();
                    }
                    let bytes = bytes_of(&window);
                    assert_same(&bytes, &vec![SECRET; LEN], format_args!("after deregister"));
                }
            }
            over.store(1, SeqCst);
        } else {
            while over.load(SeqCst) == 0 {
                let remote = *published.lock();
                me.conduit.poll(log);
                let Some(remote) = remote else {
                    continue;
                };
                let outcome = if me.rank() == Rank(1) || !me.reads() {
                    me.put(log, Rank(0), remote, &vec![1; LEN])
                } else {
                    me.get(log, Rank(0), remote, LEN).map(|bytes| {
                        assert!(
                            !bytes.contains(&SECRET),
                            "read memory that was not lent any more"
                        );
                    })
                };
                match outcome {
                    Ok(()) => landed.fetch_add(1, SeqCst),
                    Err(Error::Revoked { .. }) => late.fetch_add(1, SeqCst),
                    Err(other) => panic!("{other}"),
                };
                log.ended.clear();
                log.local.clear();
            }
        }
        me.meet(log);
    });
    assert!(
        late.into_inner() > 0,
        "no access ever came too late: nothing was tried"
    );
}

/// A thread of rank 1 writes to rank 0. Meanwhile another thread announces that the rank is lost,
/// as a panicking thread does. Rank 0 sees the loss and revokes its memory.
fn lost_at_work(fixture: &dyn Fixture) {
    const LEN: usize = 32 << 20;
    const PAGE: usize = 4096;
    const MINE: u64 = 0x5e5e;
    for _ in 0..3 {
        let (landing, over) = (AtomicBool::new(false), AtomicBool::new(false));
        each(fixture, 2, |me| {
            let log = &mut Log::new();
            let lent = (me.rank() == Rank(0)).then(|| {
                LentWindow::new(me.conduit, Window::private(LEN)).expect("room for an extent")
            });
            let nowhere = Remote {
                key: Key::ANY,
                offset: 0,
            };
            let to = me.exchange(log, lent.as_ref().map_or(nowhere, LentWindow::remote))[0];
            let Some(lent) = lent else {
                thread::scope(|scope| {
                    let over = &over;
                    scope.spawn(move || {
                        let _alarm = me.alarm();
                        write_until_refused(me, to, LEN, over);
                    });
                    // This thread does not poll: the ends of writes are the other thread's.
                    let since = Instant::now();
                    while !landing.load(SeqCst) {
                        me.hope("the first bytes to land", since);
                        me.breathe();
                    }
                    me.conduit.leave(false);
                });
                return me.meet(log);
            };
            me.until(log, "the first bytes", |_| {
                lent.window.load::<u64>(0) != Ok(0)
            });
            landing.store(true, SeqCst);
            me.until(log, "the loss", |_| {
                me.conduit.standing(Rank(1)) == Standing::Lost
            });
            let window = lent.revoke();
            for at in (0..LEN).step_by(PAGE) {
                window.store(at, MINE).expect("in bounds");
            }
            for _ in 0..100 {
                me.conduit.poll(log);
                me.breathe();
                let changed = (0..LEN)
                    .step_by(PAGE)
                    .filter(|at| window.load::<u64>(*at) != Ok(MINE));
                assert_eq!(changed.count(), 0, "pages changed after deregister");
            }
            over.store(true, SeqCst);
            me.meet(log);
        });
    }
}

/// Makes a few long writes, one after the other, until one is refused or `over` is set. The conduit
/// need not report the ends of a lost rank's operations. Nobody waits for the buffers, because the
/// rank's registrations may have gone with it.
fn write_until_refused(me: &TeamMember<'_>, to: Remote, len: usize, over: &AtomicBool) {
    let log = &mut Log::new();
    let data = vec![1; len];
    for _ in 0..4 {
        let Ok(transfer) = me.post_write(Rank(0), to, &data) else {
            return;
        };
        if let Some(ticket) = transfer.ticket() {
            me.until(log, "the end of a write", |log| {
                over.load(SeqCst) || log.outcome(ticket).is_some()
            });
            if !matches!(log.outcome(ticket), Some(Ok(()))) {
                return;
            }
        }
    }
}
