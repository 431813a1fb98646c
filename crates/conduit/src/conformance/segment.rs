//! The segment of each rank.

use crate::{Error, Rank, memory::Fault};

use super::{
    ContractCheck, Fixture,
    log::Log,
    pattern::{self, assert_same},
    team::each,
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "window_bounds",
        "a mapped segment is as long as the capabilities say",
        bounds,
    ),
    ContractCheck::new(
        "window_shared",
        "other ranks load what a rank stores in a mapped segment",
        shared,
    ),
    ContractCheck::new(
        "commit_zeroed",
        "committed memory is zero, and zero again after decommit",
        zeroed,
    ),
    ContractCheck::new(
        "commit_huge_zeroed",
        "memory committed in huge pages is like any other",
        huge,
    ),
    ContractCheck::new(
        "commit_range",
        "committing outside the segment is refused",
        range,
    ),
    ContractCheck::new(
        "read_attached",
        "private memory arrives unchanged if the system lets a rank read it, and is an error otherwise",
        attached,
    ),
];

fn bounds(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        let segment = me.conduit.caps().segment;
        assert!(
            me.conduit.window(me.rank()).is_some(),
            "the own segment is not mapped"
        );
        for peer in me.ranks() {
            let Some(window) = me.conduit.window(peer) else {
                continue;
            };
            assert_eq!(window.len(), segment);
            assert_eq!(window.write(segment, &[1]), Err(Fault::OutOfBounds));
            assert!(
                me.conduit.wake_word(peer).is_some(),
                "a window without a wake word"
            );
        }
        // A rank that maps another's memory is on the same host. Further ranks may be there, too.
        let mapped = me.ranks().filter(|it| me.conduit.window(*it).is_some());
        let here = me.conduit.caps().host_ranks;
        assert!(
            (mapped.count() as u32..=me.conduit.size()).contains(&here),
            "{here} ranks of one host"
        );
        // The last byte is usable like the first.
        let mine = me.conduit.window(me.rank()).expect("checked");
        me.conduit
            .commit(segment - 1, 1)
            .expect("memory for a test");
        mine.write(segment - 1, &[7]).expect("in bounds");
        assert_eq!(mine.load::<u8>(segment - 1), Ok(7));
        me.meet(&mut Log::new());
    });
}

/// Every rank writes a stripe of every segment. Then it compares all stripes of all ranks.
fn shared(fixture: &dyn Fixture) {
    const STRIPE: usize = 1001;
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        me.conduit.commit(0, 3 * STRIPE).expect("memory for a test");
        me.meet(log);
        let seed = |owner: usize, writer: usize| (owner * 3 + writer) as u64;
        for owner in me.ranks() {
            let data = pattern::bytes(seed(owner.index(), me.rank().index()), STRIPE);
            if let Some(window) = me.conduit.window(owner) {
                let at = me.rank().index() * STRIPE;
                window.write(at, &data).expect("in bounds");
            }
        }
        // A conduit may map the segments of only some peers.
        let mapped = |owner: &Rank| me.conduit.window(*owner).is_some();
        let mine = me
            .ranks()
            .filter(mapped)
            .fold(0, |all, owner| all | 1 << owner.0);
        let maps = me.gather(log, mine);
        for owner in me.ranks() {
            let Some(window) = me.conduit.window(owner) else {
                continue;
            };
            let wrote = |writer: &Rank| maps[writer.index()] & 1 << owner.0 != 0;
            for writer in me.ranks().filter(wrote) {
                let mut got = vec![0; STRIPE];
                window
                    .read(writer.index() * STRIPE, &mut got)
                    .expect("in bounds");
                let expected = pattern::bytes(seed(owner.index(), writer.index()), STRIPE);
                assert_same(
                    &got,
                    &expected,
                    format_args!("{writer}'s part of {owner}'s segment"),
                );
            }
        }
        me.meet(log);
    });
}

fn zeroed(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let window = me.conduit.window(me.rank()).expect("the own segment");
        let len = (64 << 10).min(me.conduit.caps().segment / 4);
        // The neighbours of the changing part keep their contents.
        me.conduit.commit(0, 3 * len).expect("memory for a test");
        for round in 0..4 {
            let mut got = vec![1; len];
            window.read(len, &mut got).expect("in bounds");
            assert_same(
                &got,
                &vec![0; len],
                format_args!("fresh memory, round {round}"),
            );
            window.fill(0, 3 * len, 0xa5).expect("in bounds");
            me.meet(log);
            if let Some(theirs) = me.conduit.window(me.right()) {
                theirs.read(len, &mut got).expect("in bounds");
                assert_same(
                    &got,
                    &vec![0xa5; len],
                    format_args!("the peer's, round {round}"),
                );
            }
            me.meet(log);
            me.conduit.decommit(len, len);
            me.conduit.commit(len, len).expect("memory for a test");
            for at in [0, len - 1, 2 * len, 3 * len - 1] {
                assert_eq!(window.load::<u8>(at), Ok(0xa5), "a neighbour changed");
            }
        }
        me.conduit
            .commit(0, 0)
            .expect("a length of 0 always succeeds");
    });
}

fn huge(fixture: &dyn Fixture) {
    const HUGE: usize = 2 << 20;
    each(fixture, 2, |me| {
        if me.conduit.caps().segment < 2 * HUGE {
            return;
        }
        let window = me.conduit.window(me.rank()).expect("the own segment");
        for round in 0..2 {
            let huge = me
                .conduit
                .commit_huge(HUGE, HUGE)
                .expect("memory for a test");
            assert!(huge <= HUGE, "{huge} of {HUGE} bytes are in huge pages");
            let mut got = vec![1; HUGE];
            window.read(HUGE, &mut got).expect("in bounds");
            assert_same(
                &got,
                &vec![0; HUGE],
                format_args!("fresh memory, round {round}"),
            );
            window.fill(HUGE, HUGE, 0x5a).expect("in bounds");
            me.conduit.decommit(HUGE, HUGE);
        }
    });
}

fn range(fixture: &dyn Fixture) {
    each(fixture, 2, |me| {
        let segment = me.conduit.caps().segment;
        let places = [
            (0, segment + 1),
            (segment, 1),
            (segment - 1, 2),
            (usize::MAX, 1),
            (1, usize::MAX),
        ];
        for (offset, len) in places {
            for error in [
                me.conduit.commit(offset, len).err(),
                me.conduit.commit_huge(offset, len).err(),
            ] {
                match error {
                    Some(Error::OutOfExtent {
                        peer,
                        offset: at,
                        len: bytes,
                        extent,
                    }) => {
                        let answered = (peer, at, bytes, extent);
                        let asked = (me.rank(), offset as u64, len as u64, segment as u64);
                        assert_eq!(answered, asked);
                    }
                    other => panic!("{len} bytes at {offset}: {other:?}"),
                }
            }
            // Such a part is ignored without harm.
            me.conduit.decommit(offset, len);
        }
    });
}

/// Every rank reads private memory of all ranks if it may, whole and in part.
fn attached(fixture: &dyn Fixture) {
    const LEN: usize = 300_001;
    let of = |rank: Rank| -> Vec<u8> {
        (0..LEN as u64)
            .map(|at| (at * 31 + u64::from(rank.0)) as u8)
            .collect()
    };
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        let mine = of(me.rank());
        let addrs = me.gather(log, mine.as_ptr().addr() as u64);
        for (peer, addr) in me.ranks().zip(addrs) {
            let mut got = vec![0; LEN];
            if !me.conduit.attaches(peer) {
                // The result is unspecified then.
                let _ = me.conduit.read_attached(peer, addr, &mut got);
                continue;
            }
            for range in [0..LEN, 0..0, 4095..4097, 100_001..LEN] {
                got.fill(0);
                let part = &mut got[range.clone()];
                (me.conduit
                    .read_attached(peer, addr + range.start as u64, part))
                .expect("the peer has it");
                assert_same(part, &of(peer)[range], format_args!("from {peer}"));
            }
            // The first page is never mapped.
            match me.conduit.read_attached(peer, 8, &mut got) {
                Err(Error::BadAddress {
                    peer: of,
                    addr: 8,
                    len,
                }) => assert_eq!((of, len), (peer, LEN as u64)),
                other => panic!("{other:?}"),
            }
        }
        me.meet(log);
        assert_same(&mine, &of(me.rank()), format_args!("what others read"));
    });
}
