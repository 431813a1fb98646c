//! The application and its helper as threads, on a real clock: the loop that the plan's documentation has. What is
//! registered and in use is checked by a NIC that knows; no time is.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use hydrant_foresight::cache::{Acquired, Begun, Cache, EntryId};
use hydrant_foresight::plan::{Action, Config, Plan, Stats, ThreadId};
use hydrant_foresight::queue::{Reader, Writer, queue};
use hydrant_foresight::{Communication, FRAMES, Kind, Region, Time, Way};

/// Which keys are registered, and by how many they are used.
#[derive(Default)]
struct Nic {
    users: Mutex<HashMap<u64, u32>>,
    next: AtomicU64,
}

impl Nic {
    fn register(&self) -> u64 {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.users.lock().unwrap().insert(key, 0);
        key
    }

    fn deregister(&self, key: u64) {
        assert_eq!(
            self.users.lock().unwrap().remove(&key),
            Some(0),
            "in use, or not registered"
        );
    }

    fn transfer(&self, key: u64) {
        *self
            .users
            .lock()
            .unwrap()
            .get_mut(&key)
            .expect("registered") += 1;
        std::hint::spin_loop();
        *self
            .users
            .lock()
            .unwrap()
            .get_mut(&key)
            .expect("registered all the time") -= 1;
    }
}

const PAGE: u64 = 4096;
const BUFFERS: u64 = 6;
const BYTES: u64 = 64 << 10;
const ROUNDS: u64 = 400;

/// What all have in common.
struct Shared {
    cache: Cache,
    nic: Nic,
    began: Instant,
    over: AtomicBool,
}

impl Shared {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }
}

fn application(shared: &Shared, mut writer: Writer, number: u64) {
    for round in 0..ROUNDS {
        for buffer in 0..BUFFERS {
            // All threads use the first buffer.
            let own = if buffer == 0 { 0 } else { number };
            let addr = (1 << 32) + (own * BUFFERS + buffer) * (1 << 20);
            let begun = shared.now();
            let (region, way) = communicate(shared, addr);
            writer.write(&Communication {
                begun,
                kind: Kind(1),
                way,
                addr,
                bytes: BYTES,
                region,
                stack: [buffer + 1; FRAMES],
            });
        }
        // Computing; now and then for longer.
        let until = shared
            .now()
            .after(if round % 50 == 0 { 300_000 } else { 50_000 });
        while shared.now() < until {
            std::thread::yield_now();
        }
    }
}

fn communicate(shared: &Shared, addr: u64) -> (Region, Way) {
    let wanted = Region::of_pages(PAGE, addr, BYTES);
    loop {
        let entry = match shared.cache.acquire(addr, BYTES) {
            Acquired::Hit(held) => {
                shared.nic.transfer(held.key);
                let region = held.region;
                shared.cache.release(held);
                return (region, Way::Found);
            }
            Acquired::Busy(_) => {
                std::thread::yield_now();
                continue;
            }
            Acquired::Absent(entry) => shared.cache.claim(entry).map(|_| entry),
            Acquired::Unknown => shared.cache.insert(wanted.addr, wanted.bytes),
        };
        let Ok(entry) = entry else {
            return (wanted, Way::Refused);
        };
        let held = shared.cache.publish_held(entry, shared.nic.register());
        shared.nic.transfer(held.key);
        let region = held.region;
        shared.cache.release(held);
        return (region, Way::OnDemand);
    }
}

fn helper(shared: &Shared, mut plan: Plan, mut readers: Vec<(ThreadId, Reader)>) -> (Stats, u64) {
    loop {
        let is_last = shared.over.load(Ordering::Acquire);
        let mut is_idle = true;
        for (thread, reader) in &mut readers {
            if let Some(communication) = reader.read() {
                is_idle = false;
                let action = plan.used(*thread, &communication, shared.now());
                carry_out(shared, &mut plan, action);
            }
            let action = plan.look(shared.now());
            is_idle &= action.is_none();
            carry_out(shared, &mut plan, action);
        }
        if is_idle && is_last {
            let overwritten = readers.iter().map(|it| it.1.overwritten()).sum();
            return (plan.stats(), overwritten);
        }
        if is_idle {
            std::thread::yield_now();
        }
    }
}

fn carry_out(shared: &Shared, plan: &mut Plan, action: Option<Action>) {
    let Shared { cache, nic, .. } = shared;
    match action {
        Some(Action::Register { id, region }) => {
            let entry: Result<EntryId, _> = match cache.find(region) {
                Some(entry) => cache.claim(entry).map(|_| entry),
                None => cache.insert(region.addr, region.bytes),
            };
            match entry {
                Ok(entry) => {
                    cache.publish(entry, nic.register());
                    plan.registered(id);
                }
                Err(_) => plan.not_registered(id),
            }
        }
        Some(Action::Deregister { id, region }) => {
            let entry = cache.find(region);
            match entry.map(|entry| (entry, cache.begin_deregistering(entry))) {
                Some((entry, Begun::Deregister { key })) => {
                    nic.deregister(key);
                    cache.deregistered(entry);
                    if !plan.deregistered(id) {
                        cache.forget(entry);
                    }
                }
                Some((_, Begun::InUse)) => plan.still_used(id),
                Some((_, Begun::NotRegistered)) | None => {
                    plan.deregistered(id);
                }
            }
        }
        None => {}
    }
}

#[test]
fn threads_and_their_helper_agree() {
    for (threads, limit_bytes) in [(1, u64::MAX), (2, u64::MAX), (2, 4 * BYTES)] {
        let mut plan = Plan::new(Config {
            limit_bytes,
            ..Config::DEFAULT
        })
        .unwrap();
        let shared = Shared {
            cache: Cache::new(64, limit_bytes),
            nic: Nic::default(),
            began: Instant::now(),
            over: AtomicBool::new(false),
        };
        let (writers, readers): (Vec<_>, Vec<_>) = (0..threads)
            .map(|_| {
                let (writer, reader) = queue(64);
                (writer, (plan.add_thread(), reader))
            })
            .unzip();
        let shared = &shared;
        let (stats, overwritten) = std::thread::scope(|scope| {
            let helper = scope.spawn(move || helper(shared, plan, readers));
            let running: Vec<_> = (0..)
                .zip(writers)
                .map(|(number, writer)| scope.spawn(move || application(shared, writer, number)))
                .collect();
            running.into_iter().for_each(|it| it.join().unwrap());
            shared.over.store(true, Ordering::Release);
            helper.join().unwrap()
        });
        let seen = stats.found + stats.on_demand + stats.refused;
        assert_eq!(seen + overwritten, threads * ROUNDS * BUFFERS, "{stats:?}");
        assert!(shared.cache.registered_bytes() <= limit_bytes);
    }
}
