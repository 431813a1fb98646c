//! The helper: the loop in the plan's documentation.

use super::registrations::{Deregistration, EntryId, Registrations};
use hydrant_foresight::plan::{HelperTask, Plan, RegionId, ThreadId};
use hydrant_foresight::queue::RecordReader;
use hydrant_foresight::{Costs, PageRun, Time};

use super::nic::NaiveNic;

/// The action in progress.
enum ActionInProgress {
    Registering {
        id: RegionId,
        entry: EntryId,
        region: PageRun,
    },
    Deregistering {
        id: RegionId,
        entry: EntryId,
        key: u64,
    },
}

pub(crate) struct SimulatedHelper {
    pub(crate) plan: Plan,
    readers: Vec<(ThreadId, RecordReader)>,
    turn: usize,
    costs: Costs,
    now: Time,
    in_progress: Option<ActionInProgress>,
    /// True if this step looks at the registration queue first.
    looks: bool,
    /// True if it found nothing to do in both queues.
    is_idle: bool,
    failing: u64,
    registrations: u64,
}

impl SimulatedHelper {
    pub(crate) fn new(
        plan: Plan,
        readers: Vec<(ThreadId, RecordReader)>,
        costs: Costs,
        failing: u64,
    ) -> Self {
        Self {
            plan,
            readers,
            turn: 0,
            costs,
            now: Time(0),
            in_progress: None,
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

    /// True if there are unread records.
    pub(crate) fn has_records(&self) -> bool {
        self.readers.iter().any(|it| !it.1.is_empty())
    }

    /// The time of its next step, unless it waits for a record.
    pub(crate) fn next(&self) -> Option<Time> {
        if self.is_idle {
            self.plan.wake().map(|at| at.max(self.now))
        } else {
            Some(self.now)
        }
    }

    /// Checks for records that were written by `now`.
    pub(crate) fn wake(&mut self, now: Time) {
        if self.is_idle && self.readers.iter().any(|it| !it.1.is_empty()) {
            self.now = self.now.max(now);
            self.is_idle = false;
        }
    }

    pub(crate) fn step(&mut self, registrations: &Registrations, nic: &mut NaiveNic) {
        if self.is_idle {
            self.now = self.now.max(self.plan.wake().unwrap_or(self.now));
            self.is_idle = false;
        }
        match self.in_progress.take() {
            Some(ActionInProgress::Registering { id, entry, region }) => {
                let key = nic.register(region.addr, region.bytes, self.now);
                registrations.publish(entry, key);
                self.plan.registered(id);
            }
            Some(ActionInProgress::Deregistering { id, entry, key }) => {
                nic.deregister(key, self.now);
                registrations.deregistered(entry);
                if !self.plan.deregistered(id) {
                    registrations.forget(entry);
                }
            }
            None => {
                // Both queues take turns.
                self.looks = !self.looks;
                let action = if self.looks {
                    self.plan.next_action(self.now).or_else(|| self.used())
                } else {
                    self.used().or_else(|| self.plan.next_action(self.now))
                };
                match action {
                    Some(action) => self.begin(action, registrations),
                    None => self.is_idle = self.readers.iter().all(|it| it.1.is_empty()),
                }
            }
        }
    }

    fn used(&mut self) -> Option<HelperTask> {
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

    fn begin(&mut self, action: HelperTask, registrations: &Registrations) {
        match action {
            HelperTask::Register { id, region } => self.register(id, region, registrations),
            HelperTask::Deregister { id, region } => self.deregister(id, region, registrations),
        }
    }

    fn deregister(&mut self, id: RegionId, region: PageRun, registrations: &Registrations) {
        let entry = registrations.find(region);
        match entry.map(|entry| (entry, registrations.begin_deregistering(entry))) {
            Some((entry, Deregistration::Started { key })) => {
                self.now = self
                    .now
                    .after(self.costs.deregister.of(region.bytes / 4096));
                self.in_progress = Some(ActionInProgress::Deregistering { id, entry, key });
            }
            Some((_, Deregistration::InUse)) => self.plan.still_used(id),
            Some((_, Deregistration::NotRegistered)) | None => {
                self.plan.deregistered(id);
            }
        }
    }

    fn register(&mut self, id: RegionId, region: PageRun, registrations: &Registrations) {
        self.registrations += 1;
        if self.failing != 0 && self.registrations.is_multiple_of(self.failing) {
            return self.plan.not_registered(id);
        }
        let claimed = match registrations.find(region) {
            Some(entry) => registrations.claim(entry).map(|_| entry),
            None => registrations.insert(region),
        };
        match claimed {
            Ok(entry) => {
                self.now = self.now.after(self.costs.register.of(region.bytes / 4096));
                self.in_progress = Some(ActionInProgress::Registering { id, entry, region });
            }
            // Another thread registers it, or it would exceed the limit.
            Err(_) => self.plan.not_registered(id),
        }
    }
}
