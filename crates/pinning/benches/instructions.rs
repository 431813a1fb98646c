//! The instruction counts of a hit, with both sides, and of a change. They are the same on every
//! run, so that CI notices one more. `cargo xtask instructions` compares them with the committed
//! counts.
//!
//! Each benchmark measures many steps, so that the frame around them vanishes: divide by [`STEPS`].

// The macros make public items without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use gungraun::prelude::*;
use hydrant_pinning::table::{Editor, Extent};
use hydrant_pinning::{Direction, Engine};

mod both_sides;
use both_sides::{BUCKET, OWN, PEER, engine, hot, put};

/// The number of steps in one measurement.
const STEPS: u64 = 1_000;

// Both sides of a put of a word, in extents of one bucket.
#[library_benchmark]
#[bench::of_256(engine(256, 1))]
#[bench::of_65536(engine(65_536, 1))]
fn hit_and_release(engine: Engine) -> Engine {
    let hot = hot(&engine);
    for bucket in 0..STEPS {
        put(&hot, bucket * 7 % 256, 8);
    }
    engine
}

// Both sides of a put that ends in the third bucket, in extents of sixteen.
#[library_benchmark]
#[bench::of_65536(engine(65_536, 16))]
fn hit_and_release_run(engine: Engine) -> Engine {
    let hot = hot(&engine);
    for bucket in 0..STEPS {
        put(&hot, bucket * 16, 2 * BUCKET + 8);
    }
    engine
}

// A put to unregistered memory of the peer.
#[library_benchmark]
#[bench::of_65536(engine(65_536, 1))]
fn miss(engine: Engine) -> Engine {
    let hot = hot(&engine);
    for bucket in 0..STEPS {
        let remote = black_box((1 << 30 | bucket) * BUCKET);
        black_box(hot.hit(PEER, remote, black_box(OWN * BUCKET), 8, Direction::Put));
    }
    engine
}

#[library_benchmark]
#[bench::of_65536(filled(65_536))]
fn give_up_and_add(mut editor: Editor) -> Editor {
    for bucket in 0..STEPS {
        black_box(editor.take_victim()).expect("nothing is in use");
        add(&mut editor, black_box(1 << 30 | bucket));
    }
    editor
}

library_benchmark_group!(
    name = table,
    benchmarks = [hit_and_release, hit_and_release_run, miss, give_up_and_add]
);

main!(library_benchmark_groups = table);

fn filled(size: u64) -> Editor {
    let mut editor = Editor::new();
    (0..size).for_each(|bucket| add(&mut editor, bucket));
    editor
}

fn add(editor: &mut Editor, bucket: u64) {
    let extent = Extent {
        key: bucket,
        base: bucket,
        end: bucket + 1,
        writable: true,
    };
    let slot = editor.insert(bucket, &extent, 0).expect("there is room");
    editor.queue(slot);
}
