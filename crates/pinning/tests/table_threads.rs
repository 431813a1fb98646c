//! The hot table under two hitting threads and an editor that evicts beneath them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hydrant_base::Random;
use hydrant_pinning::table::{BucketTable, Editor, Extent};

const BUCKETS: u64 = 64;

/// The number of hits and misses that each thread must have had.
const ENOUGH: u64 = 20_000;

/// The registrations as the NIC knows them: the valid key of each bucket, or 0.
struct ValidKeys([AtomicU64; BUCKETS as usize]);

/// The hits and misses of a thread so far.
#[derive(Default)]
struct HitCounts {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl HitCounts {
    fn is_enough(&self) -> bool {
        let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) >= ENOUGH;
        enough(&self.hits) && enough(&self.misses)
    }
}

/// Adds the extent of four buckets around `bucket`, under a new key, where it is missing.
fn add(editor: &mut Editor, registered: &ValidKeys, bucket: u64, key: u64) {
    let base = bucket / 4 * 4;
    if editor.get(base).is_some() {
        return;
    }
    let extent = Extent {
        key,
        base,
        end: base + 4,
        writable: true,
    };
    for bucket in base..base + 4 {
        registered.0[bucket as usize].store(key, Ordering::Release);
        editor.insert(bucket, &extent, 0).unwrap();
    }
    editor.queue(editor.get(base).unwrap());
}

/// Hits buckets as they come until told to stop.
fn hit(
    table: &BucketTable,
    editor: &Mutex<Editor>,
    registered: &ValidKeys,
    seen: &HitCounts,
    seed: u64,
) {
    let mut random = Random::new(seed);
    while !seen.is_enough() {
        let bucket = random.word_below(BUCKETS);
        let Some(found) = table.acquire(bucket) else {
            seen.misses.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        seen.hits.fetch_add(1, Ordering::Relaxed);
        assert!(found.base <= bucket && bucket < found.end);
        let in_force = &registered.0[bucket as usize];
        assert_eq!(in_force.load(Ordering::Acquire), found.key);
        if random.one_in(8) {
            thread::yield_now();
        }
        let key = in_force.load(Ordering::Acquire);
        assert_eq!(key, found.key, "evicted while in use");
        if table.release(found.slot) {
            editor.lock().unwrap().requeue(found.slot);
        }
    }
}

#[test]
fn no_extent_is_evicted_under_a_hit_and_no_hit_has_a_wrong_key() {
    let editor = Editor::new();
    let table = editor.table().clone();
    let editor = Mutex::new(editor);
    let registered = ValidKeys([const { AtomicU64::new(0) }; BUCKETS as usize]);
    let seen = [HitCounts::default(), HitCounts::default()];

    thread::scope(|scope| {
        let users = [(&seen[0], 1), (&seen[1], 2)];
        let users = users.map(|(seen, seed)| {
            let (table, editor, registered) = (&table, &editor, &registered);
            scope.spawn(move || hit(table, editor, registered, seen, seed))
        });
        let mut key = 0;
        while !users.iter().all(|user| user.is_finished()) {
            key += 1;
            change(&mut editor.lock().unwrap(), &registered, key);
            thread::yield_now();
        }
    });

    // Nothing is held, so nothing stays off the queue and everything is evicted.
    let mut editor = editor.into_inner().unwrap();
    while editor.take_victim().is_some() {}
    assert!(editor.is_empty(), "{} buckets are left", editor.len());
}

/// Adds an extent, and evicts one where half of all buckets are present.
fn change(editor: &mut Editor, registered: &ValidKeys, key: u64) {
    add(editor, registered, key * 31 % BUCKETS, key);
    if editor.len() <= BUCKETS as usize / 2 {
        return;
    }
    if let Some(extent) = editor.take_victim() {
        for bucket in extent.base..extent.end {
            registered.0[bucket as usize].store(0, Ordering::Release);
        }
    }
}
