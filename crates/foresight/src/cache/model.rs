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

#[test]
fn loom_nothing_is_deregistered_while_it_is_used() {
    loom::model(|| {
        let cache = Arc::new(Cache::new(1, 100));
        let entry = cache.insert(0, 10).unwrap();
        cache.publish(entry, 7);
        let memory = Arc::new(Registered::new(true));
        let application = {
            let (cache, memory) = (cache.clone(), memory.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Acquired::Hit(held) = cache.acquire(2, 3) {
                        assert_eq!(held.key, 7);
                        memory.transfer();
                        cache.release(held);
                    }
                }
            })
        };
        if matches!(cache.begin_deregistering(entry), Begun::Deregister { .. }) {
            memory.deregister();
            cache.deregistered(entry);
        }
        application.join().unwrap();
    });
}

#[test]
fn loom_one_of_two_registers_and_the_other_is_told() {
    loom::model(|| {
        let cache = Arc::new(Cache::new(1, 10));
        let entry = cache.insert(0, 10).unwrap();
        cache.abandon(entry);
        let memory = Arc::new(Registered::new(false));
        let application = {
            let (cache, memory) = (cache.clone(), memory.clone());
            thread::spawn(move || match cache.acquire(0, 10) {
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
            })
        };
        // The helper, ahead of the need.
        if cache.claim(entry).is_ok() {
            memory.register();
            cache.publish(entry, 2);
        }
        application.join().unwrap();
        assert_eq!(cache.registered_bytes(), 10);
    });
}

#[test]
fn loom_a_registration_under_way_keeps_nobody_from_another_buffer() {
    loom::model(|| {
        let cache = Arc::new(Cache::new(2, 100));
        let other = cache.insert(50, 10).unwrap();
        cache.publish(other, 5);
        let application = {
            let cache = cache.clone();
            thread::spawn(move || {
                // However far the helper is, this is a hit: it is spun for nothing.
                let Acquired::Hit(held) = cache.acquire(50, 10) else {
                    panic!("kept from another buffer");
                };
                cache.release(held);
            })
        };
        // Begun, and never ended.
        let _stuck = cache.insert(0, 10).unwrap();
        application.join().unwrap();
    });
}

#[test]
fn loom_an_entry_given_to_another_region_is_never_taken_for_the_first() {
    loom::model(|| {
        let cache = Arc::new(Cache::new(1, 100));
        let entry = cache.insert(0, 10).unwrap();
        cache.publish(entry, 1);
        let application = {
            let cache = cache.clone();
            thread::spawn(move || {
                if let Acquired::Hit(held) = cache.acquire(0, 10) {
                    assert_eq!(held.key, 1, "the key of other memory");
                    cache.release(held);
                }
            })
        };
        if matches!(cache.begin_deregistering(entry), Begun::Deregister { .. }) {
            cache.deregistered(entry);
            assert!(cache.forget(entry));
            let again = cache.insert(50, 10).unwrap();
            cache.publish(again, 2);
        }
        application.join().unwrap();
    });
}

#[test]
fn loom_the_limit_holds_whoever_registers() {
    loom::model(|| {
        let cache = Arc::new(Cache::new(2, 10));
        let register = |cache: &Cache, addr| {
            if let Ok(entry) = cache.insert(addr, 6) {
                assert!(cache.registered_bytes() <= 10);
                cache.publish(entry, addr);
            }
        };
        let application = {
            let cache = cache.clone();
            thread::spawn(move || register(&cache, 0))
        };
        register(&cache, 50);
        application.join().unwrap();
        assert_eq!(cache.registered_bytes(), 6);
    });
}
