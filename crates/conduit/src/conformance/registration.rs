//! NICs that only access registered memory, on both sides.

use crate::{Access, Error, Key, Local, Permission, Rank, Remote, Window};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena, ChangingPages, LentWindow, beyond, bytes_of},
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "local_key",
        "a write whose local key does not cover its source is refused",
        local,
    )
    .registering(),
    ContractCheck::new(
        "segment_is_memory",
        "the segment is ordinary memory: it must be registered",
        segment,
    )
    .registering(),
    ContractCheck::new(
        "access_kept",
        "a write to an extent registered for reading is refused",
        access,
    )
    .registering(),
    ContractCheck::new(
        "register_what_is_there",
        "memory that is not mapped, or lacks the permission, cannot be registered",
        mapped,
    )
    .registering(),
    ContractCheck::new(
        "follows_the_mapping",
        "an access reaches the pages that are mapped now, and is refused while none are",
        follows,
    )
    .following(),
    ContractCheck::new(
        "reads_if_told",
        "a conduit reads one-sidedly if its capabilities say so, and otherwise refuses a read",
        reads,
    ),
];

/// Writes local memory under a local key, and waits for the end.
fn write(
    me: &TeamMember<'_>,
    log: &mut Log<'_>,
    to: Remote,
    from: &Window,
    len: usize,
    key: Key,
) -> Result<(), Error> {
    write_from(me, log, to, (from.as_ptr(), key), len)
}

/// Writes memory that need not be mapped, under a local key, and waits for the end.
fn write_from(
    me: &TeamMember<'_>,
    log: &mut Log<'_>,
    to: Remote,
    (addr, key): (*mut u8, Key),
    len: usize,
) -> Result<(), Error> {
    let access = Access::put(me.right(), to, Local { addr, key }, len);
    // SAFETY: 1. the memory stays as it is until the operation has ended.
    // 2. The target is an extent of a test, or nothing.
    let posted = unsafe { me.conduit.post(&access)? };
    if let crate::Posted::Pending(ticket) = posted {
        me.until(log, "a write", |log| log.outcome(ticket).is_some());
        log.outcome(ticket).expect("just seen")?;
    }
    Ok(())
}

fn local(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 256);
        let to = arena.publish(me, log)[me.right().index()];
        let source = Window::private(128);
        source.fill(0, 128, 7).expect("in bounds");
        let part = source.part(0, 64).expect("a part");
        let lent = LentWindow::new(me.conduit, part).expect("room for an extent");
        write(me, log, to, &source, 64, lent.key).expect("both sides are registered");
        match write(me, log, to, &source, 65, lent.key) {
            Err(Error::OutOfExtent {
                peer, len, extent, ..
            }) => assert_eq!((peer, len, extent), (me.rank(), 65, 64)),
            other => panic!("past the end of the source's extent: {other:?}"),
        }
        let key = lent.key;
        lent.revoke();
        for key in [key, Key::SEGMENT, Key(key.0 ^ 1)] {
            match write(me, log, to, &source, 8, key) {
                Err(Error::Revoked { peer, key: word }) => {
                    assert_eq!((peer, word), (me.rank(), key.0));
                }
                other => panic!("under {key:?}: {other:?}"),
            }
        }
        me.meet(log);
        let bytes = arena.bytes();
        assert_eq!((&bytes[..64], &bytes[64..]), (&[7; 64][..], &[0; 192][..]));
        me.meet(log);
    });
}

fn segment(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        me.conduit.commit(0, 4096).expect("memory for a test");
        let mine = me.conduit.window(me.rank()).expect("the own segment");
        let part = mine.part(0, 4096).expect("a part");
        let lent = LentWindow::new(me.conduit, part).expect("room for an extent");
        let to = me.exchange(log, lent.remote())[me.right().index()];
        let unregistered = Remote {
            key: Key::SEGMENT,
            ..to
        };
        match me.put(log, me.right(), unregistered, &[1; 8]) {
            Err(Error::Revoked { peer, key: 0 }) => assert_eq!(peer, me.right()),
            other => panic!("a segment that is not registered: {other:?}"),
        }
        me.put(log, me.right(), beyond(to, 8), &[5; 8])
            .expect("registered");
        me.meet(log);
        assert_eq!(
            mine.load::<[u8; 16]>(0),
            Ok([0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5])
        );
        me.meet(log);
    });
}

fn access(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let window = Window::private(64);
        // SAFETY: 1. and 2. the window outlives the key.
        let key = unsafe { (me.conduit).register(window.as_ptr(), 64, Permission::Read) };
        let key = key.expect("room for an extent");
        let offset = window.addr() as u64;
        let remote = me.exchange(log, Remote { key, offset })[me.right().index()];
        match me.put(log, me.right(), remote, &[1; 8]) {
            Err(Error::BadAddress { peer, len: 8, .. }) => assert_eq!(peer, me.right()),
            other => panic!("a write to an extent for reading: {other:?}"),
        }
        if me.reads() {
            let got = me.get(log, me.right(), remote, 8).expect("for reading");
            assert_eq!(got, [0; 8]);
        }
        me.meet(log);
        assert_eq!(bytes_of(&window), [0; 64]);
        me.conduit.deregister(key).expect("a key in force");
    });
}

fn mapped(fixture: &dyn Fixture) {
    static READ_ONLY: [u8; 64] = [0x22; 64];
    each(fixture, 1, |me| {
        let read_only = READ_ONLY.as_ptr().cast_mut();
        let nowhere = std::ptr::without_provenance_mut(1 << 62);
        for (addr, permission, there) in [
            (read_only, Permission::Read, true),
            (read_only, Permission::ReadWrite, false),
            (nowhere, Permission::Read, false),
            (nowhere, Permission::ReadWrite, false),
        ] {
            // SAFETY: 1. and 2. no peer knows the key.
            match unsafe { me.conduit.register(addr, 64, permission) } {
                Ok(key) if there => me.conduit.deregister(key).expect("a key in force"),
                Err(Error::BadAddress {
                    peer: Rank(0),
                    addr: at,
                    len: 64,
                }) if !there => assert_eq!(at, addr.addr() as u64),
                other => panic!("{addr:p} for {permission:?}: {other:?}"),
            }
        }
    });
}

fn follows(fixture: &dyn Fixture) {
    const LEN: usize = 3 * 4096;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, LEN);
        let to = arena.publish(me, log)[me.right().index()];
        let pages = ChangingPages::new(LEN);
        // SAFETY: 1. no pages of anybody else come to that address. 2. The pages are named by address only.
        let key = unsafe { (me.conduit).register(pages.start(), LEN, Permission::ReadWrite) };
        let key = key.expect("room for an extent");
        let offset = pages.start().expose_provenance() as u64;
        let theirs = me.exchange(log, Remote { key, offset })[me.right().index()];
        for value in 1..4 {
            me.put(log, me.right(), theirs, &[value; LEN])
                .expect("mapped");
            me.meet(log);
            assert_eq!(pages.bytes(), [value; LEN], "what the peer wrote");
            write_from(me, log, to, (pages.start(), key), LEN).expect("mapped");
            me.meet(log);
            assert_eq!(arena.bytes(), [value; LEN], "what the own pages have");
            pages.renew();
            assert_eq!(pages.bytes(), [0; LEN], "other pages");
            me.meet(log);
        }
        pages.hide();
        me.meet(log);
        let wrote = me.put(log, me.right(), theirs, &[7; LEN]);
        let read = (me.reads()).then(|| me.get(log, me.right(), theirs, LEN).map(drop));
        for outcome in [Some(wrote), read].into_iter().flatten() {
            match outcome {
                Err(Error::BadAddress { peer, addr, .. }) => {
                    assert_eq!((peer, addr), (me.right(), theirs.offset));
                }
                other => panic!("memory of a peer that is not mapped: {other:?}"),
            }
        }
        if fixture.misses_own_memory() {
            match write_from(me, log, to, (pages.start(), key), LEN) {
                Err(Error::BadAddress { peer, addr, .. }) => {
                    assert_eq!((peer, addr), (me.rank(), offset));
                }
                other => panic!("own memory that is not mapped: {other:?}"),
            }
        }
        me.meet(log);
        pages.renew();
        me.meet(log);
        me.put(log, me.right(), theirs, &[8; LEN])
            .expect("mapped again");
        me.meet(log);
        assert_eq!(pages.bytes(), [8; LEN]);
        me.conduit.deregister(key).expect("a key in force");
        me.meet(log);
    });
}

fn reads(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let from = arena.publish(me, log)[me.right().index()];
        let outcome = me.get(log, me.right(), from, 8);
        assert_eq!(outcome.is_ok(), me.reads(), "{outcome:?}");
        me.meet(log);
    });
}
