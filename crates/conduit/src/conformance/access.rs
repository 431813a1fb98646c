//! One-sided writes and reads that succeed.

use crate::{Access, Key, Local, Permission, Rank, Remote};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena, beyond, bytes_of},
    pattern::{self, assert_same},
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "segment_lengths",
        "every length and offset in a segment, neighbours untouched",
        |f| lengths(f, AddressKind::Segment),
    )
    .segment(),
    ContractCheck::new(
        "extent_lengths",
        "every length and offset in an extent, neighbours untouched",
        |f| lengths(f, AddressKind::Extent),
    ),
    ContractCheck::new(
        "anywhere_lengths",
        "every length and offset at an address, neighbours untouched",
        |f| lengths(f, AddressKind::Anywhere),
    )
    .any_address(),
    ContractCheck::new("segment_big", "long transfers in a segment", |f| {
        big(f, AddressKind::Segment)
    })
    .segment(),
    ContractCheck::new("extent_big", "long transfers in an extent", |f| {
        big(f, AddressKind::Extent)
    }),
    ContractCheck::new("anywhere_big", "long transfers at an address", |f| {
        big(f, AddressKind::Anywhere)
    })
    .any_address(),
    ContractCheck::new(
        "to_oneself",
        "a rank writes to and reads from itself like any peer",
        to_oneself,
    ),
    ContractCheck::new(
        "many_to_one",
        "writes of all ranks to one rank arrive side by side",
        many_to_one,
    ),
    ContractCheck::new(
        "read_only_source",
        "a write takes its data from memory that cannot be written",
        source,
    ),
];

const STRIPE: usize = 256;
const STRIPES: usize = 8;

/// Returns the start of each piece of one round. No two pieces share a byte.
fn pieces() -> impl Iterator<Item = usize> {
    (0..STRIPES).map(|stripe| stripe * STRIPE + (stripe * 5 + 1) % 8 + stripe / 7 * 40)
}

fn lengths(fixture: &dyn Fixture, place: AddressKind) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, place, STRIPES * STRIPE);
        let remotes = arena.publish(me, log);
        let to = remotes[me.right().index()];
        for len in 0..=STRIPE - 56 {
            let data = |writer: Rank, at: usize| {
                pattern::bytes((len * 4096 + at) as u64 * 8 + u64::from(writer.0), len)
            };
            arena
                .window
                .fill(0, arena.window.len(), len as u8)
                .expect("in bounds");
            me.meet(log);
            let transfers: Vec<_> = pieces()
                .map(|at| me.post_write(me.right(), beyond(to, at), &data(me.rank(), at)))
                .collect();
            for transfer in transfers {
                me.land(log, transfer.expect("within the arena"))
                    .expect("within the arena");
            }
            me.meet(log);
            let model = |writer: Rank| {
                let mut model = vec![len as u8; STRIPES * STRIPE];
                for at in pieces() {
                    model[at..at + len].copy_from_slice(&data(writer, at));
                }
                model
            };
            assert_same(
                &arena.bytes(),
                &model(me.left()),
                format_args!("{len} bytes written"),
            );
            let theirs = model(me.rank());
            for at in pieces().filter(|_| me.reads()) {
                let got = me
                    .get(log, me.right(), beyond(to, at), len)
                    .expect("within the arena");
                assert_same(
                    &got,
                    &theirs[at..at + len],
                    format_args!("{len} bytes read at {at}"),
                );
            }
            me.meet(log);
        }
    });
}

fn big(fixture: &dyn Fixture, place: AddressKind) {
    const ARENA: usize = (1 << 20) + 4096;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        if me.conduit.caps().segment < ARENA && place == AddressKind::Segment {
            return;
        }
        let arena = Arena::new(me.conduit, place, ARENA);
        let remotes = arena.publish(me, log);
        let to = remotes[me.right().index()];
        let most = me.conduit.caps().max_payload;
        for (at, len) in [
            (0, most),
            (1, most + 1),
            (7, 4 * most - 1),
            (4095, 4097),
            (13, 65_537),
            (5, (1 << 18) + 3),
            (1025, 1 << 20),
            (0, ARENA),
        ] {
            if at + len > ARENA {
                continue;
            }
            let data = |rank: Rank| pattern::bytes(len as u64 * 64 + u64::from(rank.0), len);
            arena.window.fill(0, ARENA, 0x3c).expect("in bounds");
            me.meet(log);
            me.put(log, me.right(), beyond(to, at), &data(me.rank()))
                .expect("within the arena");
            me.meet(log);
            let mut expected = vec![0x3c; ARENA];
            expected[at..at + len].copy_from_slice(&data(me.left()));
            assert_same(
                &arena.bytes(),
                &expected,
                format_args!("{len} bytes written at {at}"),
            );
            if me.reads() {
                let got = me
                    .get(log, me.right(), beyond(to, at), len)
                    .expect("within the arena");
                assert_same(
                    &got,
                    &data(me.rank()),
                    format_args!("{len} bytes read at {at}"),
                );
            }
            me.meet(log);
        }
    });
}

fn to_oneself(fixture: &dyn Fixture) {
    each(fixture, 1, |me| {
        let log = &mut Log::new();
        for place in AddressKind::of(me.conduit) {
            let arena = Arena::new(me.conduit, place, 4096);
            for (at, len) in [(0, 8), (3, 1), (9, 1000), (1500, 2596)] {
                let data = pattern::bytes(len as u64, len);
                let to = beyond(arena.remote, at);
                me.put(log, me.rank(), to, &data).expect("within the arena");
                assert_same(
                    &arena.bytes()[at..at + len],
                    &data,
                    format_args!("written, {place:?}"),
                );
                if me.reads() || place == AddressKind::Anywhere {
                    let got = me.get(log, me.rank(), to, len).expect("within the arena");
                    assert_same(&got, &data, format_args!("read, {place:?}"));
                }
            }
        }
    });
}

fn many_to_one(fixture: &dyn Fixture) {
    const ROUNDS: usize = 40;
    const PART: usize = 37;
    each(
        fixture,
        8.min(fixture.most_ranks()),
        |me: &TeamMember<'_>| {
            let log = &mut Log::new();
            let ranks = me.conduit.size() as usize;
            for place in AddressKind::of(me.conduit) {
                let arena = Arena::new(me.conduit, place, ROUNDS * PART * ranks);
                let to = arena.publish(me, log)[0];
                let data =
                    |rank: usize, round| pattern::bytes((rank * ROUNDS + round) as u64, PART);
                for round in 0..ROUNDS {
                    let rank = me.rank().index();
                    let to = beyond(to, (round * ranks + rank) * PART);
                    me.put(log, Rank(0), to, &data(rank, round))
                        .expect("within the arena");
                }
                me.meet(log);
                if me.rank() == Rank(0) {
                    let expected: Vec<u8> = (0..ROUNDS)
                        .flat_map(|round| (0..ranks).flat_map(move |rank| data(rank, round)))
                        .collect();
                    assert_same(&arena.bytes(), &expected, format_args!("{place:?}"));
                }
                me.meet(log);
            }
        },
    );
}

fn source(fixture: &dyn Fixture) {
    static CONSTANT: [u8; 3001] = [0x42; 3001];
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, CONSTANT.len());
        let to = arena.publish(me, log)[me.right().index()];
        let (from, len) = (CONSTANT.as_ptr(), CONSTANT.len());
        let registers = me.conduit.caps().registration.is_some();
        let key = if registers {
            // SAFETY: 1. and 2. a constant lives for ever, and no peer knows the key.
            unsafe { me.conduit.register(from.cast_mut(), len, Permission::Read) }
                .expect("constants can be registered for reading")
        } else {
            Key::ANY
        };
        let addr = from.cast_mut();
        let access = Access::put(me.right(), to, Local { addr, key }, len);
        // SAFETY: 1. a constant is readable for ever. 2. The arena is memory of the test.
        let posted = unsafe { me.conduit.post(&access) };
        if let crate::Posted::Pending(ticket) = posted.expect("within the extent") {
            me.until(log, "a write", |log| log.outcome(ticket).is_some());
            log.outcome(ticket)
                .expect("just seen")
                .expect("within the extent");
        }
        if registers {
            me.conduit.deregister(key).expect("a key in force");
        }
        me.meet(log);
        assert_same(
            &bytes_of(&arena.window),
            &CONSTANT,
            format_args!("a constant"),
        );
        if me.conduit.caps().any_address && me.reads() {
            let from = Remote {
                key: Key::ANY,
                offset: CONSTANT.as_ptr().addr() as u64,
            };
            let got = me
                .get(log, me.right(), from, CONSTANT.len())
                .expect("readable memory");
            assert_same(&got, &CONSTANT, format_args!("a peer's constant"));
        }
        me.meet(log);
    });
}
