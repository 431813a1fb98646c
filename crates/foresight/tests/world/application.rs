//! A thread of the application: it computes, communicates, and records its communications.

use super::registrations::{Acquired, EntryId, HeldRegion, Registrations};
use hydrant_foresight::queue::RecordWriter;
use hydrant_foresight::{
    Communication, CommunicationKind, Costs, FRAMES, PageRun, RegistrationOutcome, Time,
};

use super::nic::NaiveNic;

/// Buffers up to this size are copied (§2).
pub(crate) const THRESHOLD: u64 = 16 << 10;

/// The interval at which a thread checks its buffer while another thread registers it.
const LOOK_AGAIN_NS: u64 = 500;

/// One communication of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProgramStep {
    /// The computation before it.
    pub(crate) compute_ns: u64,
    /// The call site.
    pub(crate) site: u64,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    /// The duration of the transfer.
    pub(crate) transfer_ns: u64,
}

/// The time of a thread beside computing and transfers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ThreadTimes {
    /// Registering on the critical path.
    pub(crate) registering_ns: u64,
    /// Waiting while another thread registers the buffer.
    pub(crate) waiting_ns: u64,
    /// Communications that were copied because of the limit.
    pub(crate) refused: u64,
}

impl ThreadTimes {
    pub(crate) fn join(&mut self, other: &ThreadTimes) {
        self.registering_ns += other.registering_ns;
        self.waiting_ns += other.waiting_ns;
        self.refused += other.refused;
    }
}

/// A thread's activity until its next step.
enum ThreadState {
    Computing,
    Waiting,
    Registering {
        entry: EntryId,
        region: PageRun,
    },
    Transferring {
        held: Option<HeldRegion>,
        outcome: RegistrationOutcome,
    },
}

pub(crate) struct Application {
    program: std::vec::IntoIter<ProgramStep>,
    current: Option<ProgramStep>,
    doing: ThreadState,
    begun: Time,
    now: Time,
    writer: RecordWriter,
    costs: Costs,
    page_bytes: u64,
    pub(crate) times: ThreadTimes,
}

impl Application {
    pub(crate) fn new(
        program: Vec<ProgramStep>,
        writer: RecordWriter,
        costs: Costs,
        page_bytes: u64,
    ) -> Self {
        let mut thread = Self {
            program: program.into_iter(),
            current: None,
            doing: ThreadState::Computing,
            begun: Time(0),
            now: Time(0),
            writer,
            costs,
            page_bytes,
            times: ThreadTimes::default(),
        };
        thread.compute();
        thread
    }

    pub(crate) fn is_over(&self) -> bool {
        self.current.is_none()
    }

    /// The time of the next step.
    pub(crate) fn next(&self) -> Time {
        self.now
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    fn compute(&mut self) {
        self.current = self.program.next();
        self.doing = ThreadState::Computing;
        if let Some(step) = self.current {
            self.now = self.now.after(step.compute_ns);
            self.begun = self.now;
        }
    }

    pub(crate) fn step(&mut self, registrations: &Registrations, nic: &mut NaiveNic) {
        let Some(step) = self.current else {
            return;
        };
        match std::mem::replace(&mut self.doing, ThreadState::Computing) {
            ThreadState::Computing if step.bytes <= THRESHOLD => {
                self.transfer(step, None, RegistrationOutcome::Copied, nic)
            }
            ThreadState::Computing | ThreadState::Waiting => self.acquire(step, registrations, nic),
            ThreadState::Registering { entry, region } => {
                let key = nic.register(region.addr, region.bytes, self.now);
                let held = registrations.publish_held(entry, key);
                self.transfer(step, Some(held), RegistrationOutcome::OnDemand, nic);
            }
            ThreadState::Transferring { held, outcome } => {
                let mut region = PageRun::of_pages(self.page_bytes, step.addr, step.bytes);
                if let Some(held) = held {
                    region = held.region;
                    nic.end(held.key);
                    registrations.release(held);
                }
                self.record(step, region, outcome);
                self.compute();
            }
        }
    }

    fn acquire(&mut self, step: ProgramStep, registrations: &Registrations, nic: &mut NaiveNic) {
        let whole = PageRun::of_pages(self.page_bytes, step.addr, step.bytes);
        let claimed = match registrations.acquire(step.addr, step.bytes) {
            Acquired::Hit(held) => {
                return self.transfer(step, Some(held), RegistrationOutcome::Found, nic);
            }
            Acquired::Busy => {
                self.times.waiting_ns += LOOK_AGAIN_NS;
                self.now = self.now.after(LOOK_AGAIN_NS);
                self.doing = ThreadState::Waiting;
                return;
            }
            Acquired::Absent(entry) => registrations.claim(entry).map(|region| (entry, region)),
            Acquired::Unknown => registrations.insert(whole).map(|entry| (entry, whole)),
        };
        match claimed {
            Ok((entry, region)) => {
                let takes_ns = self.costs.register.of(region.bytes / self.page_bytes);
                self.times.registering_ns += takes_ns;
                self.now = self.now.after(takes_ns);
                self.doing = ThreadState::Registering { entry, region };
            }
            Err(_) => {
                self.times.refused += 1;
                self.transfer(step, None, RegistrationOutcome::Refused, nic);
            }
        }
    }

    fn transfer(
        &mut self,
        step: ProgramStep,
        held: Option<HeldRegion>,
        outcome: RegistrationOutcome,
        nic: &mut NaiveNic,
    ) {
        if let Some(held) = &held {
            nic.begin(held.key, step.addr, step.bytes);
        }
        self.now = self.now.after(step.transfer_ns);
        self.doing = ThreadState::Transferring { held, outcome };
    }

    fn record(&mut self, step: ProgramStep, region: PageRun, outcome: RegistrationOutcome) {
        let mut stack = [0; FRAMES];
        stack[0] = step.site;
        self.writer.write(&Communication {
            begun: self.begun,
            kind: CommunicationKind(1),
            outcome,
            addr: step.addr,
            bytes: step.bytes,
            region,
            stack,
        });
    }
}
