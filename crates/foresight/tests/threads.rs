//! The application and its helper as threads, on a real clock, with the loop in the plan's documentation. A counting NIC
//! checks registrations and uses; times are not checked.

#[path = "world/registrations.rs"]
mod registrations;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use hydrant_foresight::plan::{HelperTask, Plan, PlanConfig, Stats, ThreadId};
use hydrant_foresight::queue::{RecordReader, RecordWriter, queue};
use hydrant_foresight::{
    Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome, Time,
};
use registrations::{Acquired, Deregistration, EntryId, Registrations};

/// The registered keys, each with the number of its users.
#[derive(Default)]
struct CountingNic {
    users: Mutex<HashMap<u64, u32>>,
    next: AtomicU64,
}

impl CountingNic {
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

/// The state that all threads share.
struct TestState {
    registrations: Registrations,
    nic: CountingNic,
    began: Instant,
    over: AtomicBool,
}

impl TestState {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }
}

fn application(shared: &TestState, mut writer: RecordWriter, number: u64) {
    for round in 0..ROUNDS {
        for buffer in 0..BUFFERS {
            // All threads use the first buffer.
            let own = if buffer == 0 { 0 } else { number };
            let addr = (1 << 32) + (own * BUFFERS + buffer) * (1 << 20);
            let begun = shared.now();
            let (region, outcome) = communicate(shared, addr);
            writer.write(&Communication {
                begun,
                kind: CommunicationKind(1),
                outcome,
                addr,
                bytes: BYTES,
                region,
                stack: [buffer + 1; FRAMES],
            });
        }
        // Computes; longer in every fiftieth round.
        let until = shared
            .now()
            .after(if round % 50 == 0 { 300_000 } else { 50_000 });
        while shared.now() < until {
            std::thread::yield_now();
        }
    }
}

fn communicate(shared: &TestState, addr: u64) -> (PageRun, RegistrationOutcome) {
    let wanted = PageRun::of_pages(PAGE, addr, BYTES);
    loop {
        let entry = match shared.registrations.acquire(addr, BYTES) {
            Acquired::Hit(held) => {
                shared.nic.transfer(held.key);
                let region = held.region;
                shared.registrations.release(held);
                return (region, RegistrationOutcome::Found);
            }
            Acquired::Busy => {
                std::thread::yield_now();
                continue;
            }
            Acquired::Absent(entry) => shared.registrations.claim(entry).map(|_| entry),
            Acquired::Unknown => shared.registrations.insert(wanted),
        };
        let Ok(entry) = entry else {
            return (wanted, RegistrationOutcome::Refused);
        };
        let held = shared
            .registrations
            .publish_held(entry, shared.nic.register());
        shared.nic.transfer(held.key);
        let region = held.region;
        shared.registrations.release(held);
        return (region, RegistrationOutcome::OnDemand);
    }
}

fn helper(
    shared: &TestState,
    mut plan: Plan,
    mut readers: Vec<(ThreadId, RecordReader)>,
) -> (Stats, u64) {
    loop {
        let is_last = shared.over.load(Ordering::Acquire);
        let mut is_idle = true;
        for (thread, reader) in &mut readers {
            if let Some(communication) = reader.read() {
                is_idle = false;
                let action = plan.used(*thread, &communication, shared.now());
                carry_out(shared, &mut plan, action);
            }
            let action = plan.next_action(shared.now());
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

fn carry_out(shared: &TestState, plan: &mut Plan, action: Option<HelperTask>) {
    let TestState {
        registrations, nic, ..
    } = shared;
    match action {
        Some(HelperTask::Register { id, region }) => {
            let entry: Result<EntryId, _> = match registrations.find(region) {
                Some(entry) => registrations.claim(entry).map(|_| entry),
                None => registrations.insert(region),
            };
            match entry {
                Ok(entry) => {
                    registrations.publish(entry, nic.register());
                    plan.registered(id);
                }
                Err(_) => plan.not_registered(id),
            }
        }
        Some(HelperTask::Deregister { id, region }) => {
            let entry = registrations.find(region);
            match entry.map(|entry| (entry, registrations.begin_deregistering(entry))) {
                Some((entry, Deregistration::Started { key })) => {
                    nic.deregister(key);
                    registrations.deregistered(entry);
                    if !plan.deregistered(id) {
                        registrations.forget(entry);
                    }
                }
                Some((_, Deregistration::InUse)) => plan.still_used(id),
                Some((_, Deregistration::NotRegistered)) | None => {
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
        let mut plan = Plan::new(PlanConfig {
            limit_bytes,
            ..PlanConfig::DEFAULT
        })
        .unwrap();
        let shared = TestState {
            registrations: Registrations::new(limit_bytes),
            nic: CountingNic::default(),
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
        assert!(shared.registrations.registered_bytes() <= limit_bytes);
    }
}
