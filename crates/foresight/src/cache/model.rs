//! Every interleaving of the application with the helper, by loom.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::*;

/// A registration, as the NIC sees it.
struct Registered {
    is_valid: AtomicBool,
    in_use: AtomicBool,
}

impl Registered {
    fn new(is_valid: bool) -> Self {
        Self {
            is_valid: AtomicBool::new(is_valid),
            in_use: AtomicBool::new(false),
        }
    }

    fn register(&self) {
        assert!(!self.is_valid.load(Ordering::Relaxed), "registered twice");
        self.is_valid.store(true, Ordering::Relaxed);
    }

    /// What is done while it is held.
    fn transfer(&self) {
        self.in_use.store(true, Ordering::Relaxed);
        assert!(
            self.is_valid.load(Ordering::Relaxed),
            "used while not registered"
        );
        self.in_use.store(false, Ordering::Relaxed);
    }

    fn deregister(&self) {
        assert!(
            !self.in_use.load(Ordering::Relaxed),
            "deregistered while in use"
        );
        self.is_valid.store(false, Ordering::Relaxed);
    }
}

type Side = Box<dyn FnOnce() + Send>;

/// Runs the application's side and the helper's in every interleaving that loom finds, once with either on the
/// first thread: loom keeps one access of an atomic to compare the next with, so where a thread reads
/// before it swaps, what the other did before that read is found from one side only.
fn model(sides: impl Fn() -> (Side, Side) + Send + Sync + Clone + 'static) {
    for is_swapped in [false, true] {
        let sides = sides.clone();
        loom::model(move || {
            let (application, helper) = sides();
            let (spawned, first) = match is_swapped {
                true => (helper, application),
                false => (application, helper),
            };
            let spawned = thread::spawn(spawned);
            first();
            spawned.join().unwrap();
        });
    }
}

/// A cache of one region, which is registered under key 7.
fn registered(entries: usize) -> (Arc<Cache>, EntryId, Arc<Registered>) {
    let cache = Cache::new(entries, 100);
    let entry = cache.insert(0, 10).unwrap();
    cache.publish(entry, 7);
    (Arc::new(cache), entry, Arc::new(Registered::new(true)))
}

#[test]
fn loom_nothing_is_deregistered_while_it_is_used() {
    model(|| {
        let (cache, entry, memory) = registered(1);
        let application = {
            let (cache, memory) = (cache.clone(), memory.clone());
            move || {
                for _ in 0..2 {
                    if let Acquired::Hit(held) = cache.acquire(2, 3) {
                        assert_eq!(held.key, 7);
                        memory.transfer();
                        cache.release(held);
                    }
                }
            }
        };
        let helper = move || {
            if matches!(cache.begin_deregistering(entry), Begun::Deregister { .. }) {
                memory.deregister();
                cache.deregistered(entry);
            }
        };
        (Box::new(application), Box::new(helper))
    });
}

#[test]
fn loom_one_of_two_registers_and_the_other_is_told() {
    model(|| {
        let cache = Arc::new(Cache::new(1, 10));
        let entry = cache.insert(0, 10).unwrap();
        cache.abandon(entry);
        let memory = Arc::new(Registered::new(false));
        let application = {
            let (cache, memory) = (cache.clone(), memory.clone());
            move || match cache.acquire(0, 10) {
                Acquired::Hit(held) => {
                    memory.transfer();
                    cache.release(held);
                }
                Acquired::Absent(entry) => {
                    if cache.claim(entry).is_ok() {
                        memory.register();
                        let held = cache.publish_held(entry, 1);
                        memory.transfer();
                        cache.release(held);
                    }
                }
                Acquired::Busy(_) => {}
                Acquired::Unknown => panic!("it is known"),
            }
        };
        // Ahead of the need.
        let helper = move || {
            if cache.claim(entry).is_ok() {
                memory.register();
                cache.publish(entry, 2);
            }
            assert_eq!(cache.registered_bytes(), 10);
        };
        (Box::new(application), Box::new(helper))
    });
}

#[test]
fn loom_a_registration_under_way_keeps_nobody_from_another_buffer() {
    model(|| {
        let (cache, _, memory) = registered(2);
        let application = {
            let cache = cache.clone();
            move || {
                // However far the helper is, this is a hit: there is nothing to spin for.
                let Acquired::Hit(held) = cache.acquire(0, 10) else {
                    panic!("kept from another buffer");
                };
                memory.transfer();
                cache.release(held);
            }
        };
        // Begun, and never ended.
        let helper = move || assert!(cache.insert(50, 10).is_ok());
        (Box::new(application), Box::new(helper))
    });
}

#[test]
fn loom_an_entry_given_to_another_region_is_never_taken_for_the_first() {
    model(|| {
        let (cache, entry, _) = registered(1);
        let application = {
            let cache = cache.clone();
            move || {
                if let Acquired::Hit(held) = cache.acquire(0, 10) {
                    assert_eq!((held.key, held.region.addr), (7, 0), "another region");
                    cache.release(held);
                }
            }
        };
        let helper = move || {
            if matches!(cache.begin_deregistering(entry), Begun::Deregister { .. }) {
                cache.deregistered(entry);
                assert!(cache.forget(entry));
                let again = cache.insert(50, 10).unwrap();
                cache.publish(again, 2);
            }
        };
        (Box::new(application), Box::new(helper))
    });
}

#[test]
fn loom_the_limit_holds_whoever_registers() {
    model(|| {
        let cache = Arc::new(Cache::new(2, 10));
        let register = |cache: Arc<Cache>, addr| {
            move || {
                if let Ok(entry) = cache.insert(addr, 6) {
                    assert!(cache.registered_bytes() <= 10);
                    cache.publish(entry, addr);
                }
                assert_eq!(cache.registered_bytes(), 6, "one of both");
            }
        };
        (
            Box::new(register(cache.clone(), 0)),
            Box::new(register(cache, 50)),
        )
    });
}
