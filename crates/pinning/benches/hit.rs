//! The cost of a hit: both sides of a put are held and given back ([`Hot::hit`], [`Hot::release`]).
//! It is measured with one thread and with two, on single buckets and on runs. Another benchmark
//! adds and evicts a bucket around a registration that takes no time.
//!
//! Run `cargo bench -p hydrant-pinning --bench hit`. The figures of UCX and libfabric for the same
//! work are measured elsewhere, and stand beside these in `docs/benchmarks.md`.

// The macros make public items without documentation.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hydrant_pinning::Hot;
use hydrant_pinning::table::{Editor, Extent};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

mod both_sides;
use both_sides::{BUCKET, OWN, engine, hot, in_order, put, shuffled};

const SIZES: [u64; 3] = [256, 4_096, 65_536];

/// The buckets of an extent, and the bytes of a put: a word, and a length that ends in the third
/// bucket.
const RUNS: [(u64, u64); 2] = [(1, 8), (16, 2 * BUCKET + 8)];

criterion_group!(benches, hit, changes, two_threads);
criterion_main!(benches);

fn hit(criterion: &mut Criterion) {
    for (wide, len) in RUNS {
        let name = format!("put of {len} B, extents of {wide}: hit and release");
        let mut group = criterion.benchmark_group(name);
        for size in SIZES {
            let engine = engine(size, wide);
            let hot = hot(&engine);
            let orders = [
                ("random", shuffled(0..size, 1)),
                ("in order", in_order(0..size, 1)),
            ];
            for (order, buckets) in orders {
                let buckets = fitting(buckets, wide);
                group.bench_function(BenchmarkId::new(order, size), |bencher| {
                    bencher.iter_custom(|times| time_hits(&hot, &buckets, len, times));
                });
            }
        }
        group.finish();
    }
}

/// The buckets from which a put of three buckets stays in the extent.
fn fitting(buckets: Vec<u64>, wide: u64) -> Vec<u64> {
    let fits = |bucket: &u64| wide == 1 || bucket % wide + 2 < wide;
    buckets.into_iter().filter(fits).collect()
}

fn changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("give up one bucket and add another");
    for size in SIZES {
        let mut editor = Editor::new();
        let add = |editor: &mut Editor, bucket: u64| {
            let slot = editor.insert(bucket, &registered(bucket), 0);
            editor.queue(slot.expect("there is room"));
        };
        (OWN..OWN + size).for_each(|bucket| add(&mut editor, bucket));
        let mut next = OWN + size;
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                black_box(editor.take_victim()).expect("nothing is in use");
                add(&mut editor, next);
                next += 1;
            });
        });
    }
    group.finish();
}

/// The same number of hits by one thread, and by two that share only the engine's tables.
fn two_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("put of 8 B: hit and release, by threads");
    for size in SIZES {
        let engine = engine(size, 1);
        let hot = hot(&engine);
        // One thread takes the lower buckets, the other the upper ones.
        let halves = [0..size / 2, size / 2..size].map(|half| shuffled(half, 1));
        for threads in [1, 2] {
            let id = BenchmarkId::new(format!("{threads} at once, hits of each"), size);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|times| at_once(&hot, &halves[..threads], times));
            });
        }
        println!("{}", totals(&hot, &halves, size));
    }
    group.finish();
}

/// One thread and two take turns many times, so that other load falls on both.
fn totals(hot: &Hot, buckets: &[Vec<u64>], size: u64) -> String {
    const HITS: u64 = 400_000;
    const TIMES: usize = 61;
    let rate = |threads: usize| {
        let took = at_once(hot, &buckets[..threads], HITS);
        (HITS * threads as u64) as f64 / took.as_secs_f64() / 1e6
    };
    let (mut one, mut two): (Vec<_>, Vec<_>) = (0..TIMES).map(|_| (rate(1), rate(2))).unzip();
    one.sort_by(f64::total_cmp);
    two.sort_by(f64::total_cmp);
    let (one, two) = (one[TIMES / 2], two[TIMES / 2]);
    format!(
        "{size} buckets, medians of {TIMES}: one thread {one:.1}, two threads {two:.1} million hits a second, {:.2} times",
        two / one,
    )
}

/// The time of the slowest thread for `times` hits of its own buckets. Each thread has a core.
fn at_once(hot: &Hot, buckets: &[Vec<u64>], times: u64) -> Duration {
    let start = Barrier::new(buckets.len());
    thread::scope(|scope| {
        let run = |number, own| {
            bind(number);
            start.wait();
            time_hits(hot, own, 8, times)
        };
        let numbered = buckets.iter().enumerate();
        let threads: Vec<_> = numbered
            .map(|(number, own)| scope.spawn(move || run(number, own)))
            .collect();
        let times = threads
            .into_iter()
            .map(|it| it.join().expect("no hit panics"));
        times.max().expect("there is a thread")
    })
}

/// Binds the calling thread to one of this process's cores. Left alone, two threads may share one.
fn bind(number: usize) {
    let Ok(permitted) = sched_getaffinity(None) else {
        return;
    };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| permitted.is_set(*core));
    if let Some(core) = cores.nth(number) {
        let mut own = CpuSet::new();
        own.set(core);
        // A thread that is not bound is measured all the same.
        let _ = sched_setaffinity(None, &own);
    }
}

fn time_hits(hot: &Hot, buckets: &[u64], len: u64, times: u64) -> Duration {
    let mut order = buckets.iter().cycle();
    let start = Instant::now();
    for _ in 0..times {
        put(hot, *order.next().expect("it is a cycle"), len);
    }
    start.elapsed()
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
