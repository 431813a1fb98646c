//! How many instructions a hit takes, and a change: the same on every run, so that CI
//! sees one more. `cargo xtask instructions` compares them with what is committed.
//!
//! Each measures many steps, so that what surrounds them vanishes: divide by [`STEPS`].

// What the macros make is public and bare.
#![allow(missing_docs)]

use std::hint::black_box;

use gungraun::prelude::*;
use hydrant_pinning::table::{Editor, Extent};

/// How often each is done in one measurement.
const STEPS: u64 = 1_000;

#[library_benchmark]
#[bench::of_256(filled(256))]
#[bench::of_65536(filled(65_536))]
fn acquire_and_release(editor: Editor) -> Editor {
    let table = editor.table();
    for bucket in 0..STEPS {
        let found = table.acquire(black_box(bucket * 7 % 256));
        let found = black_box(found).expect("it is there");
        black_box(table.release(found.slot));
    }
    editor
}

#[library_benchmark]
#[bench::of_65536(filled(65_536))]
fn miss(editor: Editor) -> Editor {
    let table = editor.table();
    for bucket in 0..STEPS {
        black_box(table.acquire(black_box(1 << 30 | bucket)));
    }
    editor
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
    benchmarks = [acquire_and_release, miss, give_up_and_add]
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
