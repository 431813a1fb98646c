//! What the helper does: when regions are deregistered, and when registered again (§3.2).
//!
//! [`Plan`] is told of each communication as it is read from the deregistration queue, and of the time;
//! it gives back at most one [`Action`] at a time, which the helper carries out and reports. The helper's
//! loop, which takes turns between both queues as the paper's does:
//!
//! ```text
//! loop {
//!     if let Some(communication) = reader.read() {
//!         carry out plan.used(thread, &communication, now)      // deregistration condition
//!     }
//!     carry out plan.look(now)                                  // registration condition
//!     if nothing happened, sleep until plan.wake(), or until something is written
//! }
//! ```
//!
//! **Deregistration condition.** A region that was used is deregistered if the current time and what it
//! takes to deregister, queue and register it again are not later than the earliest deadline of
//! all its uses. One of which nothing is known, as on its first use, is always deregistered.
//!
//! **Registration condition.** The most urgent registration is put off as long as the current time, one
//! item of the other queue and the registration itself are not later than its deadline. Deadlines are spaced
//! so that neighbours can all be met. Where helpers share a core, both conditions are (2), with the turns of
//! the others.
//!
//! Beyond the paper: a use that waits for a landmark is not acted upon before that; a region that
//! was registered and then not used for a period after its time is deregistered again; no more is registered than uses
//! need at once, unless that costs time, for which registrations ahead wait and operations give up what nobody uses;
//! and the bytes registered stay within a limit, by giving up what is needed last.

mod action;
mod bound;
mod config;
mod decide;
mod queue;
mod region;
mod regions;
mod report;
mod shared;
mod tree;
mod worth;

use std::fmt;

use crate::communication::{Communication, Region, Way};
use crate::costs::Backlog;
use crate::predictor::{Observation, Predictor, Update};
use crate::signature::{Context, Signature};
use crate::time::Time;

pub use action::{Action, ERRORS, RegionId, Stats, ThreadId};
use bound::Bound;
pub use config::{Config, Invalid};
use queue::RegistrationQueue;
use region::State;
use regions::Regions;
use shared::SharedPages;
pub use shared::{Change, Shared};
use worth::Worth;

/// What the helper knows and decides.
pub struct Plan {
    config: Config,
    threads: Vec<Stream>,
    regions: Regions,
    queue: RegistrationQueue,
    registered_bytes: u64,
    /// All that are registered, as the driver knows and the plan hears of later.
    actual_bytes: u64,
    /// Those of regions that are in use though they were to be deregistered.
    held_bytes: u64,
    /// How many of them there may be when something is registered ahead.
    bound: Bound,
    /// Tracks whether giving up is worth its cost.
    worth: Worth,
    /// What is to be registered for the uses of late.
    backlog: Backlog,
    stats: Stats,
    updates: Vec<Update>,
    /// Pages that buffers share.
    shared: SharedPages,
}

/// The communications of one thread.
struct Stream {
    context: Context,
    predictor: Box<dyn Predictor>,
    /// What the thread spent on registering so far. Periods are taken without it, because they are to
    /// be those of a thread that finds its buffers registered.
    stalled_ns: u64,
}

impl Plan {
    /// A plan that knows nothing yet.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: a value of the configuration is out of its range.
    pub fn new(config: Config) -> Result<Self, Invalid> {
        config.check()?;
        Ok(Self {
            config,
            threads: Vec::new(),
            regions: Regions::new(config.regions),
            queue: RegistrationQueue::default(),
            registered_bytes: 0,
            actual_bytes: 0,
            held_bytes: 0,
            bound: Bound::default(),
            worth: Worth::new(config.lost_part),
            backlog: Backlog::default(),
            stats: Stats::default(),
            updates: Vec::new(),
            shared: SharedPages::default(),
        })
    }

    /// Another thread of the application communicates from now on, with a queue of its own.
    pub fn add_thread(&mut self) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(Stream {
            context: Context::new(self.config.window, self.config.grain_bits),
            predictor: self.config.method.predictor(),
            stalled_ns: 0,
        });
        id
    }

    /// A communication was read from the deregistration queue of a thread.
    ///
    /// # Panics
    ///
    /// If the thread is none of this plan's.
    pub fn used(
        &mut self,
        thread: ThreadId,
        communication: &Communication,
        now: Time,
    ) -> Option<Action> {
        let wanted = communication.way.wants_registration();
        let bytes = communication.region.bytes;
        let lead_ns = self.lead_ns(communication, bytes);
        let stream = self
            .threads
            .get_mut(thread.0 as usize)
            .expect("a thread that was added");
        let signature = stream.context.sign(communication);
        let begun = communication.begun.before(stream.stalled_ns);
        if communication.way == Way::OnDemand {
            let takes_ns = self
                .config
                .costs
                .register
                .of(bytes / self.config.page_bytes);
            stream.stalled_ns = stream.stalled_ns.saturating_add(takes_ns);
        }
        let stalled_ns = stream.stalled_ns;
        let seen = Observation {
            signature,
            at: begun,
            heard: now.before(stalled_ns).max(begun),
            wanted,
            lead_ns,
        };
        let mut updates = std::mem::take(&mut self.updates);
        stream.predictor.observe(&seen, &mut updates);
        let region = wanted.then(|| self.find_or_add(communication, now));
        if let Some(region) = region {
            self.count(thread, signature, region, communication);
            self.weigh(region, communication, now);
            // The use has come: what was expected of it is over.
            if let Some(left) = self.regions.expect(region, thread, signature, None) {
                self.requeue(left);
            }
        }
        for update in updates.drain(..) {
            let own = region.filter(|_| update.signature == signature);
            if let Some(id) = own.or_else(|| self.regions.of(thread, update.signature)) {
                let forecast = update.forecast.map(|it| it.later(stalled_ns));
                // A use that is known stays with its region.
                let _ = self.regions.expect(id, thread, update.signature, forecast);
                self.requeue(id);
            }
        }
        self.updates = updates;
        let region = region?;
        self.requeue(region);
        self.reconsider(region, now)
    }

    /// How long before such a use it must be known: with what is to be registered for the uses just before.
    fn lead_ns(&mut self, communication: &Communication, bytes: u64) -> u64 {
        if !communication.way.wants_registration() {
            return 0;
        }
        let alone_ns = self.to_delay_ns(bytes);
        let takes_ns = self.registration_ns(bytes);
        let all_ns = self.backlog.add(communication.begun, takes_ns);
        alone_ns.max(all_ns.saturating_add(self.config.sharing.delay_ns()))
    }

    /// Looks at what is due: the most urgent registration, and what was not used in its time.
    pub fn look(&mut self, now: Time) -> Option<Action> {
        let over = self.expire(now).or_else(|| self.give_up_spared(now));
        over.or_else(|| self.register_first(now))
    }

    /// So many bytes are registered at this moment, which the plan may not have heard of yet: for the next
    /// [`look`](Self::look).
    pub fn are_registered(&mut self, bytes: u64) {
        self.actual_bytes = bytes;
    }

    /// When [`look`](Self::look) has something to do, if nothing else happens before.
    pub fn wake(&self) -> Option<Time> {
        let due = self.queue.first().map(|it| {
            let bytes = self.regions.at(it.region).bytes();
            // The first moment at which it can no longer be put off.
            it.deadline.before(self.to_delay_ns(bytes)).after(1)
        });
        let expires = self.regions.first_look().map(|it| it.0);
        let spared = self.regions.first_spared();
        let spared_ns = spared.map(|id| self.regions.at(id).spared_ns);
        let is_worth_it = spared_ns.and_then(|ns| self.worth.affords_from(ns));
        due.into_iter().chain(expires).chain(is_worth_it).min()
    }

    /// The helper shares its core with others from now on, or no longer.
    pub fn share(&mut self, sharing: crate::sharing::Sharing) {
        self.config.sharing = sharing;
    }

    /// The helper is to keep nothing registered, because it rests: what it is to deregister next, though that may be
    /// expected; none if all is. What is in use stays.
    pub fn rest(&mut self) -> Option<Action> {
        let (_, id) = self.regions.last_needed()?;
        Some(self.deregister(id))
    }

    /// How many regions are remembered.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Which region just this memory is, if it is remembered.
    pub fn known(&self, memory: Region) -> Option<RegionId> {
        self.regions.exact(memory)
    }

    /// The bytes that are registered as far as the plan knows, those under way included.
    pub fn registered_bytes(&self) -> u64 {
        self.registered_bytes
    }

    /// The bytes that are to be registered in all, unless uses need more at once: what is registered on demand beyond
    /// that has others given up first. It is unbounded while giving up would cost more than it is worth.
    pub fn room_bytes(&self) -> u64 {
        match self.worth.is_bounded() {
            true => u64::MAX,
            false => self.bound.bytes(),
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Takes note of how much memory a use needed at once with others, and whether it would have come sooner with more.
    fn weigh(&mut self, id: RegionId, communication: &Communication, now: Time) {
        let before = self.bound.bytes();
        self.set_held(id, false);
        let region = self.regions.at(id);
        let (bytes, begun) = (region.bytes(), communication.begun);
        let pages = bytes / self.config.page_bytes;
        self.bound.used(begun);
        // Those are in use yet, as puts and gets are, which are written down when they begin.
        self.bound.at_once(self.held_bytes.saturating_add(bytes));
        let register_ns = self.config.costs.register.of(pages);
        let is_late = region.registered_from.after(register_ns) > begun;
        let short = self.regions.take_short(id);
        let took_longer = is_late || communication.way == Way::OnDemand;
        if took_longer && short > 0 && self.bound.cost(register_ns, short, now) {
            self.regions.forget_short();
        }
        if self.bound.bytes() > before {
            self.retry_postponed();
        }
    }

    /// A region is in use though it was to be deregistered, or no longer.
    fn set_held(&mut self, id: RegionId, is_held: bool) {
        let region = self.regions.at_mut(id);
        if region.is_held == is_held {
            return;
        }
        region.is_held = is_held;
        let bytes = region.bytes();
        self.held_bytes = match is_held {
            true => self.held_bytes.saturating_add(bytes),
            false => self.held_bytes.saturating_sub(bytes),
        };
    }

    /// Takes note of how a use got its buffer.
    fn count(
        &mut self,
        thread: ThreadId,
        signature: Signature,
        id: RegionId,
        communication: &Communication,
    ) {
        let expected = self.regions.expected(id, thread, signature);
        if let Some(forecast) = expected {
            self.stats.count_error(&forecast, communication.begun);
        }
        let was_expected = expected.is_some();
        let region = self.regions.at_mut(id);
        region.last_used = region.last_used.max(communication.begun);
        region.is_postponed = false;
        region.is_spared = false;
        // The record of a use may come after the region was given up that it used.
        if region.charged_at <= communication.begun {
            let charged_ns = std::mem::take(&mut region.charged_ns);
            if communication.way == Way::Found {
                self.worth.refund(charged_ns);
            }
        }
        match communication.way {
            Way::Copied => {}
            Way::Refused => self.stats.refused += 1,
            Way::Found => {
                self.stats.found += 1;
                self.stats.ahead += u64::from(region.is_ahead);
                region.is_ahead = false;
                // Somebody else registered it, of which no record was left.
                if region.state == State::Absent {
                    region.state = State::Registered;
                    self.registered_bytes = self.registered_bytes.saturating_add(region.bytes());
                }
            }
            Way::OnDemand => {
                self.stats.on_demand += 1;
                // By now it may be registered, which was too late for this use.
                self.stats.late += u64::from(was_expected);
                region.is_ahead = false;
                if region.state == State::Absent {
                    region.state = State::Registered;
                    self.registered_bytes = self.registered_bytes.saturating_add(region.bytes());
                }
            }
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("threads", &self.threads.len())
            .field("regions", &self.regions)
            .field("queue", &self.queue)
            .field("registered_bytes", &self.registered_bytes)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
