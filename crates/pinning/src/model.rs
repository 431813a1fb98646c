//! Explores every interleaving of hits with the changes of both editors, by loom.
//!
//! The hit is the real [`Hot::hit`], on runs of buckets, with the tables of both sides. Barriers of
//! the system are fences of both threads here.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::table::{Editor, Extent};
use super::{Direction, Geometry, Hot};

/// The peer.
const PEER: u32 = 1;
/// Bytes of a bucket.
const BUCKET: u64 = 4096;
/// The own bucket of most hits.
const OWN: u64 = 5;

fn extent(key: u64, base: u64, end: u64) -> Extent {
    Extent {
        key,
        base,
        end,
        writable: true,
    }
}

/// Makes the shared part and the editors of both sides, with one own bucket registered.
fn both_sides() -> (Hot, Editor, Editor) {
    let geometry = Geometry::new(BUCKET as usize, BUCKET as usize).unwrap();
    let mut local = Editor::new();
    let remote = Editor::among(local.table().announcements());
    local.insert(OWN, &extent(50, OWN, OWN + 1), 0).unwrap();
    let hot = Hot::new(geometry, 2, true, local.table().clone());
    hot.add_peer(PEER, remote.table());
    (hot, remote, local)
}

/// A registration as the NIC sees it.
struct NicKey {
    is_valid: AtomicBool,
    in_use: AtomicBool,
}

impl NicKey {
    fn new(is_valid: bool) -> Arc<Self> {
        Arc::new(NicKey {
            is_valid: AtomicBool::new(is_valid),
            in_use: AtomicBool::new(false),
        })
    }

    /// Uses the registration, as a transfer does under a reference.
    fn transfer(&self) {
        self.in_use.store(true, Ordering::Relaxed);
        let is_valid = self.is_valid.load(Ordering::Relaxed);
        assert!(is_valid, "used after its eviction");
        self.in_use.store(false, Ordering::Relaxed);
    }

    /// Ends the registration, after the bucket was evicted.
    fn deregister(&self) {
        let in_use = self.in_use.load(Ordering::Relaxed);
        assert!(!in_use, "evicted while in use");
        self.is_valid.store(false, Ordering::Relaxed);
    }
}

/// Puts to `buckets` buckets of the peer from `first` on. Returns the result of the release, or
/// `None` after a miss.
fn put(hot: &Hot, first: u64, buckets: u64, key: u64, registered: &NicKey) -> Option<bool> {
    // The bytes reach from the last byte of the first bucket to the first byte of the last bucket.
    let (remote, len) = match buckets {
        1 => (first * BUCKET, 8),
        _ => ((first + 1) * BUCKET - 1, (buckets - 2) * BUCKET + 2),
    };
    let hit = hot.hit(PEER, remote, OWN * BUCKET, len.min(BUCKET), Direction::Put)?;
    assert_eq!(hit.remote_key, key, "the key of other memory");
    assert_eq!(hit.local_key, 50);
    registered.transfer();
    Some(hot.release(&hit))
}

#[test]
fn loom_a_hit_never_meets_a_record_given_to_another_bucket() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        let slot = remote.insert(1, &extent(10, 1, 2), 0).unwrap();
        let first = NicKey::new(true);
        let second = NicKey::new(false);
        let hits = {
            let (first, second) = (first.clone(), second.clone());
            thread::spawn(move || {
                put(&hot, 1, 1, 10, &first);
                put(&hot, 2, 1, 20, &second);
            })
        };
        if remote.remove(slot).is_some() {
            first.deregister();
            second.is_valid.store(true, Ordering::Relaxed);
            let again = remote.insert(2, &extent(20, 2, 3), 0).unwrap();
            assert_eq!(again, slot);
        }
        hits.join().unwrap();
        assert_eq!(remote.references(slot), 0);
    });
}

#[test]
fn loom_an_extent_goes_whole_or_not_at_all() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        for bucket in 1..4 {
            remote.insert(bucket, &extent(20, 1, 4), 0).unwrap();
        }
        let slot = remote.get(1).unwrap();
        let registered = NicKey::new(true);
        let hot = Arc::new(hot);
        let hits = {
            let (hot, registered) = (hot.clone(), registered.clone());
            // The hit asks for a later bucket, so that the first is closed already and must reopen.
            thread::spawn(move || put(&hot, 2, 2, 20, &registered).is_some())
        };
        let removed = remote.remove(slot).is_some();
        if removed {
            registered.deregister();
        }
        hits.join().unwrap();
        assert_eq!(remote.len(), if removed { 0 } else { 3 });
        if !removed {
            for (first, buckets) in [(1, 2), (2, 2), (3, 1)] {
                put(&hot, first, buckets, 20, &registered).expect("it was opened again");
            }
            assert!(remote.remove(slot).is_some());
        }
    });
}

#[test]
fn loom_an_extent_in_use_comes_back_to_the_queue() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        let slot = remote.insert(1, &extent(10, 1, 2), 1).unwrap();
        remote.queue(slot);
        let table = remote.table().clone();
        let registered = NicKey::new(true);
        let user = thread::spawn(move || {
            let released = table.release(slot);
            // A later hit must not swallow the mark that the editor waits for.
            put(&hot, 1, 1, 10, &registered).unwrap_or(false) || released
        });
        let victim = remote.next_victim();
        let released = user.join().unwrap();
        assert!(victim.is_some() || released, "nobody brings it back");
        if released {
            remote.requeue(slot);
        }
        assert!(remote.is_queued(slot));
        assert_eq!(remote.take_victim(), Some(extent(10, 1, 2)));
    });
}

#[test]
fn loom_a_hit_that_prevents_an_eviction_tells_of_its_end() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        let slot = remote.insert(1, &extent(10, 1, 2), 0).unwrap();
        remote.queue(slot);
        let registered = NicKey::new(true);
        let hits = {
            let registered = registered.clone();
            thread::spawn(move || put(&hot, 1, 1, 10, &registered))
        };
        let gone = remote.remove(slot).is_some();
        if gone {
            registered.deregister();
        }
        let released = hits.join().unwrap();
        if !gone {
            // The engine looks again when a miss reaches it.
            assert_ne!(released, Some(false), "nobody brings it back");
            remote.requeue(slot);
            assert!(remote.is_queued(slot));
            assert!(remote.remove(slot).is_some());
        }
    });
}

#[test]
fn loom_a_miss_tells_of_the_wrong_record_that_it_announced() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        let hot = Arc::new(hot);
        let slot = remote.insert(1, &extent(10, 1, 2), 0).unwrap();
        let registered = NicKey::new(true);
        let hits = {
            let (hot, registered) = (hot.clone(), registered.clone());
            thread::spawn(move || put(&hot, 1, 1, 10, &registered))
        };
        if remote.remove(slot).is_some() {
            registered.deregister();
            let again = remote.insert(2, &extent(20, 2, 3), 0).unwrap();
            assert_eq!(again, slot);
            remote.queue(again);
            let gone = remote.remove(again).is_some();
            hits.join().unwrap();
            if !gone {
                let next = hot.hit(PEER, 2 * BUCKET, OWN * BUCKET, 8, Direction::Put);
                assert!(next.is_none(), "the next operation goes to the engine");
                let missed = hot.take_missed();
                assert!(missed.iter().any(|hit| hit.remote_slot == again));
                remote.requeue(again);
                assert!(remote.remove(again).is_some());
            }
        } else {
            hits.join().unwrap();
        }
    });
}

#[test]
fn loom_a_miss_finds_the_side_unused_that_its_hit_held() {
    loom::model(|| {
        let (hot, mut remote, mut local) = both_sides();
        let slot = remote.insert(1, &extent(10, 1, 2), 0).unwrap();
        remote.queue(slot);
        let registered = NicKey::new(true);
        let hits = {
            let registered = registered.clone();
            thread::spawn(move || put(&hot, 1, 1, 10, &registered))
        };
        // The own side goes, while the hit looks at the remote side.
        let own = local.get(OWN).unwrap();
        let gone = local.remove(own).is_some();
        if gone {
            registered.deregister();
        }
        let victim = remote.next_victim();
        let released = hits.join().unwrap();
        assert_eq!(remote.references(slot), 0, "a miss holds nothing");
        // A miss loses the result of its release; the engine looks again when the miss reaches it.
        match released {
            Some(true) | None => remote.requeue(slot),
            Some(false) => {}
        }
        assert!(victim.is_some() || remote.is_queued(slot));
        assert_eq!(remote.take_victim(), Some(extent(10, 1, 2)));
    });
}

#[test]
fn loom_a_hit_past_the_end_of_an_extent_holds_nothing() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        let slot = remote.insert(1, &extent(10, 1, 2), 0).unwrap();
        remote.insert(2, &extent(20, 2, 3), 0).unwrap();
        let registered = NicKey::new(true);
        let hits = thread::spawn(move || put(&hot, 1, 2, 10, &registered));
        let removed = remote.remove(slot).is_some();
        assert_eq!(hits.join().unwrap(), None, "no key covers both");
        if !removed {
            assert_eq!(remote.references(slot), 0);
            assert!(remote.remove(slot).is_some());
        }
    });
}

#[test]
fn loom_an_index_that_grows_leads_nobody_astray() {
    loom::model(|| {
        let (hot, mut remote, _local) = both_sides();
        for bucket in 1..8 {
            remote
                .insert(bucket, &extent(bucket * 10, bucket, bucket + 1), 0)
                .unwrap();
        }
        let registered = NicKey::new(true);
        let hits = thread::spawn(move || {
            put(&hot, 1, 1, 10, &registered);
            put(&hot, 8, 1, 80, &registered);
        });
        remote.insert(8, &extent(80, 8, 9), 0).unwrap();
        hits.join().unwrap();
        for bucket in 1..9 {
            let found = remote.table().acquire(bucket).expect("nothing was lost");
            assert_eq!(found.key, bucket * 10);
        }
    });
}

/// A monitor hears that own memory goes, and lets the program go on. The engine learns of it later.
#[test]
fn loom_a_hit_after_a_change_finds_nothing_of_the_old_memory() {
    loom::model(|| {
        let (hot, mut remote, mut local) = both_sides();
        remote.insert(1, &extent(10, 1, 2), 0).unwrap();
        let hot = Arc::new(hot);
        let registered = NicKey::new(true);
        let is_gone = Arc::new(AtomicBool::new(false));
        let hits = {
            let (hot, registered, is_gone) = (hot.clone(), registered.clone(), is_gone.clone());
            thread::spawn(move || {
                let is_gone = is_gone.load(Ordering::Acquire);
                let hit = put(&hot, 1, 1, 10, &registered);
                assert!(!is_gone || hit.is_none(), "it reaches the old memory");
                hit
            })
        };
        hot.change_begins();
        is_gone.store(true, Ordering::Release);
        let slot = local.get(OWN).unwrap();
        local.close(slot);
        hot.changes_known(1);
        let removed = local.remove(slot).is_some();
        if removed {
            registered.deregister();
        }
        let released = hits.join().unwrap();
        // An operation that was in flight keeps the registration, and tells of its end. The engine looks again when a
        // miss reaches it.
        assert!(removed || released != Some(false), "nobody ends it");
        assert!(removed || local.remove(slot).is_some());
    });
}
