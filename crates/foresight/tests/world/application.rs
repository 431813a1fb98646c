//! A thread of the application: it computes, communicates, and records what it did.

use hydrant_foresight::cache::{Acquired, Cache, EntryId, Held};
use hydrant_foresight::queue::Writer;
use hydrant_foresight::{Communication, Costs, FRAMES, Kind, Region, Time, Way};

use super::nic::Nic;

/// Buffers up to this size are copied (§2).
pub(crate) const THRESHOLD: u64 = 16 << 10;

/// How often a thread looks again for its own buffer that somebody else registers.
const LOOK_AGAIN_NS: u64 = 500;

/// One communication of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The computation before it.
    pub(crate) compute_ns: u64,
    /// The call site.
    pub(crate) site: u64,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    /// How long the transfer takes.
    pub(crate) transfer_ns: u64,
}

/// What a thread spent its time on, beside computing and transfers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Times {
    /// Registering on the critical path.
    pub(crate) registering_ns: u64,
    /// Waiting for a registration of its own buffer by somebody else.
    pub(crate) waiting_ns: u64,
    /// Communications that were copied because of the limit.
    pub(crate) refused: u64,
}

impl Times {
    pub(crate) fn join(&mut self, other: &Times) {
        self.registering_ns += other.registering_ns;
        self.waiting_ns += other.waiting_ns;
        self.refused += other.refused;
    }
}

/// What a thread does until its next step.
enum Doing {
    Computing,
    Waiting,
    Registering { entry: EntryId, region: Region },
    Transferring { held: Option<Held>, way: Way },
}

pub(crate) struct Application {
    program: std::vec::IntoIter<Step>,
    current: Option<Step>,
    doing: Doing,
    begun: Time,
    now: Time,
    writer: Writer,
    costs: Costs,
    page_bytes: u64,
    pub(crate) times: Times,
}

impl Application {
    pub(crate) fn new(program: Vec<Step>, writer: Writer, costs: Costs, page_bytes: u64) -> Self {
        let mut thread = Self {
            program: program.into_iter(),
            current: None,
            doing: Doing::Computing,
            begun: Time(0),
            now: Time(0),
            writer,
            costs,
            page_bytes,
            times: Times::default(),
        };
        thread.compute();
        thread
    }

    pub(crate) fn is_over(&self) -> bool {
        self.current.is_none()
    }

    /// When its next step is.
    pub(crate) fn next(&self) -> Time {
        self.now
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    fn compute(&mut self) {
        self.current = self.program.next();
        self.doing = Doing::Computing;
        if let Some(step) = self.current {
            self.now = self.now.after(step.compute_ns);
            self.begun = self.now;
        }
    }

    pub(crate) fn step(&mut self, cache: &Cache, nic: &mut Nic) {
        let Some(step) = self.current else {
            return;
        };
        match std::mem::replace(&mut self.doing, Doing::Computing) {
            Doing::Computing if step.bytes <= THRESHOLD => {
                self.transfer(step, None, Way::Copied, nic)
            }
            Doing::Computing | Doing::Waiting => self.acquire(step, cache, nic),
            Doing::Registering { entry, region } => {
                let key = nic.register(region.addr, region.bytes, self.now);
                let held = cache.publish_held(entry, key);
                self.transfer(step, Some(held), Way::OnDemand, nic);
            }
            Doing::Transferring { held, way } => {
                let mut region = Region::of_pages(self.page_bytes, step.addr, step.bytes);
                if let Some(held) = held {
                    region = held.region;
                    nic.end(held.key);
                    cache.release(held);
                }
                self.record(step, region, way);
                self.compute();
            }
        }
    }

    fn acquire(&mut self, step: Step, cache: &Cache, nic: &mut Nic) {
        let whole = Region::of_pages(self.page_bytes, step.addr, step.bytes);
        let claimed = match cache.acquire(step.addr, step.bytes) {
            Acquired::Hit(held) => return self.transfer(step, Some(held), Way::Found, nic),
            Acquired::Busy(_) => {
                self.times.waiting_ns += LOOK_AGAIN_NS;
                self.now = self.now.after(LOOK_AGAIN_NS);
                self.doing = Doing::Waiting;
                return;
            }
            Acquired::Absent(entry) => cache.claim(entry).map(|region| (entry, region)),
            Acquired::Unknown => cache
                .insert(whole.addr, whole.bytes)
                .map(|entry| (entry, whole)),
        };
        match claimed {
            Ok((entry, region)) => {
                let takes_ns = self.costs.register.of(region.bytes / self.page_bytes);
                self.times.registering_ns += takes_ns;
                self.now = self.now.after(takes_ns);
                self.doing = Doing::Registering { entry, region };
            }
            Err(_) => {
                self.times.refused += 1;
                self.transfer(step, None, Way::Refused, nic);
            }
        }
    }

    fn transfer(&mut self, step: Step, held: Option<Held>, way: Way, nic: &mut Nic) {
        if let Some(held) = &held {
            nic.begin(held.key, step.addr, step.bytes);
        }
        self.now = self.now.after(step.transfer_ns);
        self.doing = Doing::Transferring { held, way };
    }

    fn record(&mut self, step: Step, region: Region, way: Way) {
        let mut stack = [0; FRAMES];
        stack[0] = step.site;
        self.writer.write(&Communication {
            begun: self.begun,
            kind: Kind(1),
            way,
            addr: step.addr,
            bytes: step.bytes,
            region,
            stack,
        });
    }
}
