//! Ranks of a world as threads, and helpers of the tests.

#![allow(dead_code, unreachable_pub)] // each test uses a part of it
#![allow(unsafe_code)] // registers and writes windows that tests keep

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant_conduit::{
    Access, Clock, Conduit, Error, Key, Local, Membership, Message, Permission, Posted, Rank,
    Remote, Sent, Sleep, Sleeper, Ticket, Window, conformance::Log,
};
use hydrant_sim::{Faults, Profile, Sim, SimOptions, World};

pub fn world(profile: &str, ranks: u32, seed: u64, faults: Faults) -> Arc<World> {
    let options = SimOptions {
        segment: 4 << 20,
        seed,
        faults,
    };
    World::new(Profile::named(profile).unwrap(), ranks, options).unwrap()
}

/// Runs `work` on every rank, each in its own thread; returns the results by rank.
pub fn each<R: Send>(world: &Arc<World>, work: impl Fn(&RankHandle<'_>) -> R + Sync) -> Vec<R> {
    let shared = MeetingState::default();
    let (shared, work) = (&shared, &work);
    let size = world.size();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let conduit = world.conduit(Rank(rank));
                scope.spawn(move || {
                    let member = RankHandle { conduit, shared };
                    let result = panic::catch_unwind(AssertUnwindSafe(|| work(&member)));
                    member.conduit.leave(result.is_ok());
                    result.unwrap_or_else(|cause| panic::resume_unwind(cause))
                })
            })
            .collect();
        (threads.into_iter())
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|cause| panic::resume_unwind(cause))
            })
            .collect()
    })
}

#[derive(Default)]
pub struct MeetingState {
    arrived: AtomicU64,
    places: Mutex<Vec<(Rank, u64, Remote)>>,
}

pub struct RankHandle<'a> {
    pub conduit: Sim,
    shared: &'a MeetingState,
}

impl RankHandle<'_> {
    pub fn rank(&self) -> Rank {
        self.conduit.rank()
    }

    pub fn nap(&self, time: Duration) {
        self.conduit.wait(Sleeper::Nap, Some(time), &mut || false);
    }

    /// Sleeps until a time that ranks agreed on, however late each of them began.
    pub fn nap_until(&self, time: Duration) {
        let now = self.conduit.now();
        assert!(now < time, "{now:?} is after {time:?}");
        self.nap(time - now);
    }

    /// Waits for all ranks, without handling messages.
    ///
    /// # Panics
    /// If a rank is lost, because it will never come.
    pub fn meet(&self) {
        let size = u64::from(self.conduit.size());
        let mine = self.shared.arrived.fetch_add(1, SeqCst) / size + 1;
        while self.shared.arrived.load(SeqCst) < mine * size {
            let lost = self.conduit.first_lost();
            assert_eq!(lost, None, "a rank will not come");
            self.nap(Duration::from_micros(10));
        }
    }

    /// Registers a window and tells all ranks; returns the windows of all, by rank.
    pub fn publish(&self, window: &Window, permission: Permission, round: u64) -> Vec<Remote> {
        let key = register(&self.conduit, window, permission).unwrap();
        let offset = window.addr() as u64;
        let entry = (self.rank(), round, Remote { key, offset });
        self.shared.places.lock().unwrap().push(entry);
        self.meet();
        let mut all: Vec<_> = (self.shared.places.lock().unwrap().iter())
            .filter(|(_, of, _)| *of == round)
            .copied()
            .collect();
        all.sort_by_key(|(rank, ..)| *rank);
        all.into_iter().map(|(.., place)| place).collect()
    }

    /// Begins a write from a registered window.
    pub fn post(
        &self,
        peer: Rank,
        to: Remote,
        from: &Window,
        len: usize,
        key: Key,
    ) -> Result<Ticket, Error> {
        assert!(len <= from.len());
        let addr = from.as_ptr();
        let access = Access::put(peer, to, Local { addr, key }, len);
        // SAFETY: tests keep their windows until all their operations are complete.
        match unsafe { self.conduit.post(&access)? } {
            Posted::Pending(ticket) => Ok(ticket),
            Posted::Done => panic!("no write under a key is done at once"),
        }
    }

    /// Waits until an operation is complete.
    pub fn finish(&self, log: &mut Log<'_>, ticket: Ticket) -> Result<(), Error> {
        loop {
            assert!(log.malformed.is_empty(), "{:?}", log.malformed);
            if let Some(outcome) = log.take(ticket) {
                return outcome;
            }
            if self.conduit.poll(log) == 0 {
                self.conduit.wait(Sleeper::Application, None, &mut || false);
            }
        }
    }

    /// Writes, and waits for completion.
    pub fn put(
        &self,
        log: &mut Log<'_>,
        peer: Rank,
        to: Remote,
        from: &Window,
        len: usize,
        key: Key,
    ) -> Result<(), Error> {
        let ticket = self.post(peer, to, from, len, key)?;
        self.finish(log, ticket)
    }

    pub fn send(&self, log: &mut Log<'_>, peer: Rank, args: &[u64], payload: &[u8]) {
        let message = Message {
            kind: 0,
            tag: 0,
            args,
            payload,
        };
        while self.conduit.send(peer, &message).unwrap() == Sent::Full {
            self.conduit.poll(log);
        }
    }
}

pub fn register(conduit: &Sim, window: &Window, permission: Permission) -> Result<Key, Error> {
    // SAFETY: tests keep their windows, and peers may write to them.
    unsafe { conduit.register(window.as_ptr(), window.len(), permission) }
}
