//! An engine with memory registered on both sides, for benchmarks of the hit.

// Each benchmark uses only a part.
#![allow(dead_code)]

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use hydrant_base::Random;
use hydrant_pinning::{
    Action, Config, Decisions, Direction, Engine, Hot, RegisteredExtent, Run, wire::Grant,
};

/// The bytes of a bucket.
pub(crate) const BUCKET: u64 = 4096;
/// The peer.
pub(crate) const PEER: u32 = 1;
/// The first own bucket: the heap of a Linux process.
pub(crate) const OWN: u64 = 0x7f3a_5c00_0000 >> 12;
/// The first bucket of the peer.
pub(crate) const THEIRS: u64 = 0x7e00_1200_0000 >> 12;

/// Registers so many buckets on both sides, in extents of so many.
pub(crate) fn engine(buckets: u64, wide: u64) -> Engine {
    let config = Config {
        maxvictim: 1 << 30,
        available: 4 << 30,
        ..Config::firehose_paper(0, 2)
    };
    let mut engine = Engine::new(config).expect("limits that can be");
    for first in (0..buckets).step_by(wide as usize) {
        let run = |base| Run {
            first: base + first,
            count: wide,
        };
        let grant = Grant {
            run: run(THEIRS),
            key: first,
            writable: true,
        };
        (engine.add_static(PEER, &[grant], buckets)).expect("there is such a peer");
        let mut out = Decisions::default();
        engine.keep(first, run(OWN), &mut out);
        for action in std::mem::take(&mut out.actions) {
            let Action::Register { id, preferred, .. } = action else {
                panic!("there is room: {action:?}");
            };
            let registered = RegisteredExtent {
                run: preferred,
                key: first,
                writable: true,
            };
            engine.registered(id, Ok(registered), &mut out);
        }
    }
    engine
}

/// Puts `len` bytes from own memory to the same place of the peer, and gives both sides back.
#[inline]
pub(crate) fn put(hot: &Hot, bucket: u64, len: u64) {
    let (remote, local) = ((THEIRS + bucket) * BUCKET, (OWN + bucket) * BUCKET);
    let hit = hot.hit(
        PEER,
        black_box(remote),
        black_box(local),
        black_box(len),
        Direction::Put,
    );
    let hit = hit.expect("both sides are there");
    // The keys are used before the references are given back.
    black_box((hit.remote_key, hit.local_key));
    black_box(hot.release(&hit));
}

/// The part of the engine that threads share.
pub(crate) fn hot(engine: &Engine) -> Arc<Hot> {
    Arc::clone(engine.hot())
}

/// The first buckets of extents, shuffled, the same every time.
pub(crate) fn shuffled(buckets: Range<u64>, wide: u64) -> Vec<u64> {
    let mut order = in_order(buckets, wide);
    Random::new(1).shuffle(&mut order);
    order
}

pub(crate) fn in_order(buckets: Range<u64>, wide: u64) -> Vec<u64> {
    buckets.step_by(wide as usize).collect()
}
