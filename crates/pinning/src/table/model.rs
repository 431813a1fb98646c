//! Every interleaving of hits with the changes of the one editor, by loom.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::{Editor, Extent, Table};

fn extent(key: u64, base: u64, end: u64) -> Extent {
    Extent {
        key,
        base,
        end,
        writable: true,
    }
}

/// A registration, as the NIC sees it.
struct Registered {
    is_valid: AtomicBool,
    in_use: AtomicBool,
}

impl Registered {
    fn new(is_valid: bool) -> Arc<Self> {
        Arc::new(Registered {
            is_valid: AtomicBool::new(is_valid),
            in_use: AtomicBool::new(false),
        })
    }

    /// What is done under a reference.
    fn transfer(&self) {
        self.in_use.store(true, Ordering::Relaxed);
        let is_valid = self.is_valid.load(Ordering::Relaxed);
        assert!(is_valid, "used after it was given up");
        self.in_use.store(false, Ordering::Relaxed);
    }

    /// What is done when the bucket was given up.
    fn deregister(&self) {
        let in_use = self.in_use.load(Ordering::Relaxed);
        assert!(!in_use, "given up while in use");
        self.is_valid.store(false, Ordering::Relaxed);
    }
}

/// Takes `bucket` if it can and uses it; says what the release said.
fn visit(table: &Table, bucket: u64, registered: &Registered) -> Option<bool> {
    let found = table.acquire(bucket)?;
    assert_eq!(found.key, bucket * 10, "the key of another bucket");
    assert!(found.base <= bucket && bucket < found.end);
    registered.transfer();
    Some(table.release(found.slot))
}

#[test]
fn loom_a_hit_never_meets_a_record_given_to_another_bucket() {
    loom::model(|| {
        let mut editor = Editor::new();
        let slot = editor.insert(1, &extent(10, 1, 2), 0).unwrap();
        let table = editor.table().clone();
        let first = Registered::new(true);
        let second = Registered::new(false);
        let hits = {
            let (first, second) = (first.clone(), second.clone());
            thread::spawn(move || {
                visit(&table, 1, &first);
                visit(&table, 2, &second);
            })
        };
        if editor.remove(slot).is_some() {
            first.deregister();
            second.is_valid.store(true, Ordering::Relaxed);
            let again = editor.insert(2, &extent(20, 2, 3), 0).unwrap();
            assert_eq!(again, slot);
        }
        hits.join().unwrap();
        assert_eq!(editor.references(slot), 0);
    });
}

#[test]
fn loom_an_extent_goes_whole_or_not_at_all() {
    loom::model(|| {
        let mut editor = Editor::new();
        for bucket in 1..3 {
            editor.insert(bucket, &extent(20, 1, 3), 0).unwrap();
        }
        let slot = editor.get(1).unwrap();
        let table = editor.table().clone();
        let registered = Registered::new(true);
        let hits = {
            let registered = registered.clone();
            // The last bucket, so that the first is shut already and must reopen.
            thread::spawn(move || visit(&table, 2, &registered).is_some())
        };
        let removed = editor.remove(slot).is_some();
        if removed {
            registered.deregister();
        }
        let hit = hits.join().unwrap();
        assert_eq!(editor.len(), if removed { 0 } else { 2 });
        assert!(removed || hit, "refused though nobody held it");
        if !removed {
            let table = editor.table().clone();
            for bucket in 1..3 {
                let found = table.acquire(bucket).expect("it was opened again");
                let _ = table.release(found.slot);
            }
            assert!(editor.remove(slot).is_some());
        }
    });
}

#[test]
fn loom_what_was_in_use_comes_back_to_the_queue() {
    loom::model(|| {
        let mut editor = Editor::new();
        let slot = editor.insert(1, &extent(10, 1, 2), 1).unwrap();
        editor.queue(slot);
        let table = editor.table().clone();
        let registered = Registered::new(true);
        let user = thread::spawn(move || {
            let told = table.release(slot);
            // A hit after that must not swallow what the editor is to be told.
            visit(&table, 1, &registered).unwrap_or(false) || told
        });
        let victim = editor.next_victim();
        let told = user.join().unwrap();
        assert!(victim.is_some() || told, "nobody brings it back");
        if told {
            editor.requeue(slot);
        }
        assert!(editor.is_queued(slot));
        assert_eq!(editor.take_victim(), Some(extent(10, 1, 2)));
    });
}

#[test]
fn loom_an_index_that_grows_leads_nobody_astray() {
    loom::model(|| {
        let mut editor = Editor::new();
        for bucket in 1..8 {
            editor
                .insert(bucket, &extent(bucket * 10, bucket, bucket + 1), 0)
                .unwrap();
        }
        let table = editor.table().clone();
        let registered = Registered::new(true);
        let hits = thread::spawn(move || {
            visit(&table, 1, &registered);
            visit(&table, 8, &registered);
        });
        editor.insert(8, &extent(80, 8, 9), 0).unwrap();
        hits.join().unwrap();
        for bucket in 1..9 {
            let found = editor.table().acquire(bucket).expect("nothing was lost");
            assert_eq!(found.key, bucket * 10);
        }
    });
}
