//! What the hot table costs: a hit and its release, by one thread and by two, and
//! adding and giving up a bucket around a registration that takes no time itself.
//!
//! `cargo bench -p hydrant-pinning --bench hit`. Figures of UCX and libfabric for the
//! same work are measured elsewhere; they stand in the README beside ours.

// What the macros make is public and bare.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hydrant_pinning::table::{Editor, Extent, Table};

const SIZES: [u64; 3] = [256, 4_096, 65_536];

/// The first bucket of a heap that lies where Linux puts one.
const HEAP: u64 = 0x7f3a_5c00_0000 >> 12;

criterion_group!(benches, hit, changes, two_threads);
criterion_main!(benches);

fn hit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acquire and release");
    for size in SIZES {
        let (_editor, table) = filled(size);
        for (order, buckets) in [("random", shuffled(size)), ("in order", in_order(size))] {
            let id = BenchmarkId::new(order, size);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|times| hits(&table, &buckets, times));
            });
        }
    }
    group.finish();
}

fn changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("give up one bucket and add another");
    for size in SIZES {
        let (mut editor, _) = filled(size);
        for bucket in in_order(size) {
            editor.queue(editor.get(bucket).expect("it was added"));
        }
        let mut next = HEAP + size;
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                black_box(editor.take_victim()).expect("nothing is in use");
                let extent = registered(next);
                let slot = editor.insert(next, &extent, 0).expect("there is room");
                editor.queue(slot);
                next += 1;
            });
        });
    }
    group.finish();
}

/// The same number of hits by one thread and by two that share nothing but the table.
fn two_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acquire and release, by threads");
    for size in SIZES {
        let (_editor, table) = filled(size);
        let buckets = shuffled_halves(size);
        for threads in [1, 2] {
            let id = BenchmarkId::new(format!("{threads} at once, hits of each"), size);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|times| at_once(&table, &buckets[..threads], times));
            });
        }
        println!("{}", totals(&table, &buckets, size));
    }
    group.finish();
}

/// One thread and two in turn, many times, so that other load falls on both.
fn totals(table: &Arc<Table>, buckets: &[Vec<u64>], size: u64) -> String {
    const HITS: u64 = 400_000;
    let rate = |threads: usize| {
        let took = at_once(table, &buckets[..threads], HITS);
        (HITS * threads as u64) as f64 / took.as_secs_f64() / 1e6
    };
    let (mut one, mut two): (Vec<_>, Vec<_>) = (0..61).map(|_| (rate(1), rate(2))).unzip();
    one.sort_by(f64::total_cmp);
    two.sort_by(f64::total_cmp);
    let (one, two) = (one[one.len() / 2], two[two.len() / 2]);
    format!(
        "{size} buckets, medians of {}: one thread {one:.1}, two threads {two:.1} million hits a second, {:.2} times",
        61,
        two / one,
    )
}

/// How long the slowest thread took for `times` hits of its own buckets.
fn at_once(table: &Arc<Table>, buckets: &[Vec<u64>], times: u64) -> Duration {
    let start = Barrier::new(buckets.len());
    thread::scope(|scope| {
        let run = |own| {
            start.wait();
            hits(table, own, times)
        };
        let threads: Vec<_> = (buckets.iter().map(|own| scope.spawn(move || run(own)))).collect();
        let times = threads
            .into_iter()
            .map(|it| it.join().expect("no hit panics"));
        times.max().expect("there is a thread")
    })
}

fn hits(table: &Table, buckets: &[u64], times: u64) -> Duration {
    let mut order = buckets.iter().cycle();
    let start = Instant::now();
    for _ in 0..times {
        let bucket = *order.next().expect("it is a cycle");
        let found = table.acquire(black_box(bucket)).expect("it is there");
        // The key is used before the reference is given back.
        black_box(found.key);
        black_box(table.release(found.slot));
    }
    start.elapsed()
}

fn filled(size: u64) -> (Editor, Arc<Table>) {
    let mut editor = Editor::new();
    for bucket in in_order(size) {
        (editor.insert(bucket, &registered(bucket), 0)).expect("there is room");
    }
    let table = editor.table().clone();
    (editor, table)
}

/// A registration that costs nothing.
fn registered(bucket: u64) -> Extent {
    black_box(Extent {
        key: bucket,
        base: bucket,
        end: bucket + 1,
        writable: true,
    })
}

fn in_order(size: u64) -> Vec<u64> {
    (HEAP..HEAP + size).collect()
}

fn shuffled(size: u64) -> Vec<u64> {
    shuffle(in_order(size))
}

/// The lower buckets for one thread, the upper for the other.
fn shuffled_halves(size: u64) -> Vec<Vec<u64>> {
    let (lower, upper) = (HEAP..HEAP + size / 2, HEAP + size / 2..HEAP + size);
    vec![shuffle(lower.collect()), shuffle(upper.collect())]
}

/// Fisher and Yates, the same every time.
fn shuffle(mut buckets: Vec<u64>) -> Vec<u64> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    for last in (1..buckets.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        buckets.swap(last, (state % (last as u64 + 1)) as usize);
    }
    buckets
}
