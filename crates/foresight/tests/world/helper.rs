//! The helper: the loop of the plan's documentation.

use hydrant_foresight::cache::{Begun, Cache, EntryId};
use hydrant_foresight::plan::{Action, Plan, RegionId, ThreadId};
use hydrant_foresight::queue::Reader;
use hydrant_foresight::{Costs, Region, Time};

use super::nic::Nic;

/// What it is in the middle of.
enum Under {
    Registering {
        id: RegionId,
        entry: EntryId,
        region: Region,
    },
    Deregistering {
        id: RegionId,
        entry: EntryId,
        key: u64,
    },
}

pub(crate) struct Helper {
    pub(crate) plan: Plan,
    readers: Vec<(ThreadId, Reader)>,
    turn: usize,
    costs: Costs,
    now: Time,
    under: Option<Under>,
    /// Whether it looks at the registration queue first, this time.
    looks: bool,
    /// Whether it looked at both queues and found nothing to do.
    is_idle: bool,
    failing: u64,
    registrations: u64,
}

impl Helper {
    pub(crate) fn new(
        plan: Plan,
        readers: Vec<(ThreadId, Reader)>,
        costs: Costs,
        failing: u64,
    ) -> Self {
        Self {
            plan,
            readers,
            turn: 0,
            costs,
            now: Time(0),
            under: None,
            looks: false,
            is_idle: false,
            failing,
            registrations: 0,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn overwritten(&self) -> u64 {
        self.readers.iter().map(|it| it.1.overwritten()).sum()
    }

    /// Whether something is written that it has not read.
    pub(crate) fn has_records(&self) -> bool {
        self.readers.iter().any(|it| !it.1.is_empty())
    }

    /// When its next step is, if it does not wait for a record.
    pub(crate) fn next(&self) -> Option<Time> {
        match self.is_idle {
            true => self.plan.wake().map(|at| at.max(self.now)),
            false => Some(self.now),
        }
    }

    /// Something was written at `now`, maybe.
    pub(crate) fn wake(&mut self, now: Time) {
        if self.is_idle && self.readers.iter().any(|it| !it.1.is_empty()) {
            self.now = self.now.max(now);
            self.is_idle = false;
        }
    }

    pub(crate) fn step(&mut self, cache: &Cache, nic: &mut Nic) {
        if self.is_idle {
            self.now = self.now.max(self.plan.wake().unwrap_or(self.now));
            self.is_idle = false;
        }
        match self.under.take() {
            Some(Under::Registering { id, entry, region }) => {
                let key = nic.register(region.addr, region.bytes, self.now);
                cache.publish(entry, key);
                self.plan.registered(id);
            }
            Some(Under::Deregistering { id, entry, key }) => {
                nic.deregister(key, self.now);
                cache.deregistered(entry);
                if !self.plan.deregistered(id) {
                    cache.forget(entry);
                }
            }
            None => {
                // Both queues take turns.
                self.looks = !self.looks;
                let action = match self.looks {
                    true => self.plan.look(self.now).or_else(|| self.used()),
                    false => self.used().or_else(|| self.plan.look(self.now)),
                };
                match action {
                    Some(action) => self.begin(action, cache),
                    None => self.is_idle = self.readers.iter().all(|it| it.1.is_empty()),
                }
            }
        }
    }

    fn used(&mut self) -> Option<Action> {
        let count = self.readers.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count;
            let (thread, reader) = &mut self.readers[at];
            if let Some(communication) = reader.read() {
                self.turn = at + 1;
                self.now = self.now.max(communication.begun).after(self.costs.hash_ns);
                return self.plan.used(*thread, &communication, self.now);
            }
        }
        None
    }

    fn begin(&mut self, action: Action, cache: &Cache) {
        match action {
            Action::Register { id, region } => self.register(id, region, cache),
            Action::Deregister { id, region } => self.deregister(id, region, cache),
        }
    }

    fn deregister(&mut self, id: RegionId, region: Region, cache: &Cache) {
        let entry = cache.find(region);
        match entry.map(|entry| (entry, cache.begin_deregistering(entry))) {
            Some((entry, Begun::Deregister { key })) => {
                self.now = self
                    .now
                    .after(self.costs.deregister.of(region.bytes / 4096));
                self.under = Some(Under::Deregistering { id, entry, key });
            }
            Some((_, Begun::InUse)) => self.plan.still_used(id),
            Some((_, Begun::NotRegistered)) | None => {
                self.plan.deregistered(id);
            }
        }
    }

    fn register(&mut self, id: RegionId, region: Region, cache: &Cache) {
        self.registrations += 1;
        if self.failing != 0 && self.registrations.is_multiple_of(self.failing) {
            return self.plan.not_registered(id);
        }
        let claimed = match cache.find(region) {
            Some(entry) => cache.claim(entry).map(|_| entry),
            None => cache.insert(region.addr, region.bytes),
        };
        match claimed {
            Ok(entry) => {
                self.now = self.now.after(self.costs.register.of(region.bytes / 4096));
                self.under = Some(Under::Registering { id, entry, region });
            }
            // Somebody else does it, or it would be past the limit.
            Err(_) => self.plan.not_registered(id),
        }
    }
}
