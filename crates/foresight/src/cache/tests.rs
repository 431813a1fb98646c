//! The cache against a list of regions, and by two threads.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Known {
    Absent,
    Busy,
    Registered { key: u64, users: u32 },
    Leaving,
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { addr: u64, bytes: u64 },
    Insert { addr: u64, bytes: u64 },
    Claim(usize),
    Publish(usize, bool),
    Abandon(usize),
    Release(usize),
    Begin(usize),
    Done(usize),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0u64..8, 1u64..4);
    prop_oneof![
        3 => range().prop_map(|(addr, bytes)| Step::Acquire { addr, bytes }),
        1 => range().prop_map(|(addr, bytes)| Step::Insert { addr, bytes }),
        1 => (0usize..4).prop_map(Step::Claim),
        2 => (0usize..4, any::<bool>()).prop_map(|(at, held)| Step::Publish(at, held)),
        1 => (0usize..4).prop_map(Step::Abandon),
        2 => (0usize..4).prop_map(Step::Release),
        2 => (0usize..4).prop_map(Step::Begin),
        1 => (0usize..4).prop_map(Step::Done),
        1 => (0usize..4).prop_map(Step::Forget),
    ]
}

const ENTRIES: usize = 4;
const LIMIT: u64 = 7;

proptest! {
    #[test]
    fn does_as_a_list_of_regions(steps in prop::collection::vec(step(), 0..200)) {
        let cache = Cache::new(ENTRIES, LIMIT);
        // What is in each entry: its bounds and its state.
        let mut model: [Option<(u64, u64, Known)>; ENTRIES] = [None; ENTRIES];
        let mut held: Vec<Held> = Vec::new();
        let mut next_key = 100;
        let id = |at: usize| EntryId(at as u32);
        for step in steps {
            let bytes = |model: &[Option<(u64, u64, Known)>]| -> u64 {
                let counted = model.iter().flatten().filter(|it| it.2 != Known::Absent);
                counted.map(|it| it.1 - it.0).sum()
            };
            match step {
                Step::Acquire { addr, bytes } => {
                    let has = |it: &&mut Option<(u64, u64, Known)>| {
                        it.is_some_and(|it| it.0 <= addr && addr + bytes <= it.1)
                    };
                    let mut fitting: Vec<_> = model.iter_mut().filter(has).flatten().collect();
                    match cache.acquire(addr, bytes) {
                        Acquired::Hit(it) => {
                            let region = model[it.entry.0 as usize].as_mut().unwrap();
                            prop_assert!(region.0 <= addr && addr + bytes <= region.1);
                            let Known::Registered { key, users } = &mut region.2 else {
                                panic!("a hit of {region:?}");
                            };
                            prop_assert_eq!(it.key, *key);
                            *users += 1;
                            held.push(it);
                        }
                        Acquired::Absent(id) => {
                            let absent = |it: &&&mut (u64, u64, Known)| it.2 == Known::Absent;
                            let largest = fitting.iter().filter(absent).map(|it| it.1 - it.0).max();
                            let its = cache.claim(id).map(|it| it.bytes);
                            if its.is_ok() {
                                cache.abandon(id);
                                prop_assert_eq!(its.ok(), largest);
                            }
                            let registered = |it: &&&mut (u64, u64, Known)| matches!(it.2, Known::Registered { .. });
                            prop_assert_eq!(fitting.iter().filter(registered).count(), 0);
                            prop_assert!(fitting.iter().any(|it| it.2 == Known::Absent));
                        }
                        Acquired::Busy(_) => prop_assert!(
                            fitting.iter_mut().all(|it| matches!(it.2, Known::Busy | Known::Leaving))
                        ),
                        Acquired::Unknown => prop_assert!(fitting.is_empty()),
                    }
                }
                Step::Insert { addr, bytes: more } => match cache.insert(addr, more) {
                    Ok(entry) => {
                        prop_assert!(bytes(&model) + more <= LIMIT);
                        let is_full = model.iter().all(Option::is_some);
                        let taken = model[entry.0 as usize].map(|it| it.2);
                        prop_assert_eq!(taken, is_full.then_some(Known::Absent));
                        model[entry.0 as usize] = Some((addr, addr + more, Known::Busy));
                    }
                    Err(Refusal::Limit { .. }) => prop_assert!(bytes(&model) + more > LIMIT),
                    Err(_) => prop_assert!(model.iter().all(|it| it.is_some_and(|it| it.2 != Known::Absent))),
                },
                Step::Claim(at) => {
                    let registered = bytes(&model);
                    match (cache.claim(id(at)), &mut model[at]) {
                        (Ok(region), Some(it)) => {
                            prop_assert_eq!(it.2, Known::Absent);
                            prop_assert_eq!((region.addr, region.addr + region.bytes), (it.0, it.1));
                            it.2 = Known::Busy;
                        }
                        (Err(Refusal::Limit { .. }), Some(it)) => {
                            prop_assert!(registered + it.1 - it.0 > LIMIT);
                        }
                        (result, it) => {
                            prop_assert_eq!(result, Err(Refusal::Changed));
                            prop_assert!(it.is_none_or(|it| it.2 != Known::Absent));
                        }
                    }
                }
                Step::Publish(at, hold) => if let Some(it) = model[at].as_mut().filter(|it| it.2 == Known::Busy) {
                    next_key += 1;
                    if hold {
                        held.push(cache.publish_held(id(at), next_key));
                    } else {
                        cache.publish(id(at), next_key);
                    }
                    it.2 = Known::Registered { key: next_key, users: u32::from(hold) };
                },
                Step::Abandon(at) => if let Some(it) = model[at].as_mut().filter(|it| it.2 == Known::Busy) {
                    cache.abandon(id(at));
                    it.2 = Known::Absent;
                },
                Step::Release(at) => if at < held.len() {
                    let it = held.swap_remove(at);
                    let Some((_, _, Known::Registered { users, .. })) = &mut model[it.entry.0 as usize] else {
                        panic!("held and not registered");
                    };
                    *users -= 1;
                    cache.release(it);
                },
                Step::Begin(at) => {
                    let began = cache.begin_deregistering(id(at));
                    let known = model[at].as_mut().map(|it| &mut it.2);
                    match (began, known) {
                        (Begun::Deregister { key }, Some(known)) => {
                            prop_assert_eq!(*known, Known::Registered { key, users: 0 });
                            *known = Known::Leaving;
                        }
                        (Begun::InUse, Some(Known::Registered { users, .. })) => prop_assert_ne!(*users, 0),
                        (began, known) => {
                            prop_assert_eq!(began, Begun::NotRegistered);
                            let registered = matches!(known, Some(Known::Registered { .. }));
                            prop_assert!(!registered);
                        }
                    }
                }
                Step::Done(at) => if let Some(it) = model[at].as_mut().filter(|it| it.2 == Known::Leaving) {
                    cache.deregistered(id(at));
                    it.2 = Known::Absent;
                },
                Step::Forget(at) => {
                    let absent = model[at].is_some_and(|it| it.2 == Known::Absent);
                    prop_assert_eq!(cache.forget(id(at)), absent);
                    if absent {
                        model[at] = None;
                    }
                }
            }
            prop_assert_eq!(cache.registered_bytes(), bytes(&model));
        }
    }
}

#[test]
fn what_is_no_region_is_refused() {
    let cache = Cache::new(1, u64::MAX);
    for (addr, bytes) in [(0x1000, 0), (u64::MAX, 2)] {
        assert_eq!(
            cache.insert(addr, bytes),
            Err(Refusal::NoRegion { addr, bytes })
        );
    }
    assert_eq!(cache.acquire(u64::MAX, 2), Acquired::Unknown);
}

#[test]
fn a_registration_under_way_keeps_nobody_from_another_buffer() {
    let cache = Cache::new(4, u64::MAX);
    let other = cache.insert(0x5000, 0x1000).unwrap();
    cache.publish(other, 5);
    // Begun, and never ended.
    let stuck = cache.insert(0x1000, 0x1000).unwrap();
    assert_eq!(cache.acquire(0x1000, 8), Acquired::Busy(stuck));
    let Acquired::Hit(held) = cache.acquire(0x5800, 8) else {
        panic!("no hit");
    };
    cache.release(held);
}

#[test]
fn threads_use_only_what_is_registered() {
    let cache = Cache::new(2, u64::MAX);
    let entry = cache.insert(0, 4096).unwrap();
    cache.publish(entry, 1);
    let registered = AtomicBool::new(true);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            let mut hits = 0;
            while hits < 1000 {
                if let Acquired::Hit(held) = cache.acquire(8, 8) {
                    assert!(registered.load(Ordering::SeqCst));
                    cache.release(held);
                    hits += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) && !user.is_finished() {
            if cache.begin_deregistering(entry) == (Begun::Deregister { key: 1 }) {
                registered.store(false, Ordering::SeqCst);
                cache.deregistered(entry);
                cache.claim(entry).unwrap();
                registered.store(true, Ordering::SeqCst);
                cache.publish(entry, 1);
            }
            std::thread::yield_now();
        }
    });
}
