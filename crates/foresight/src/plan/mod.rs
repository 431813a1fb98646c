//! The helper's plan: when to deregister regions, and when to register them again (§3.2).
//!
//! [`Plan`] hears of each communication as the helper reads it from the deregistration queue, and of the time. It
//! returns at most one [`HelperTask`] at a time, which the helper carries out and reports. The helper's loop takes turns
//! between both queues, as the paper's does:
//!
//! ```text
//! loop {
//!     if let Some(communication) = reader.read() {
//!         carry out plan.used(thread, &communication, now)      // deregistration condition
//!     }
//!     carry out plan.next_action(now)                           // registration condition
//!     if nothing happened, sleep until plan.wake(), or until something is written
//! }
//! ```
//!
//! **Deregistration condition.** A used region is deregistered if there is time to deregister it, queue it and
//! register it again before the earliest deadline of all its uses. A region without a forecast, as on its first use,
//! is always deregistered.
//!
//! **Registration condition.** The most urgent registration is postponed while one item of the other queue and the
//! registration itself still fit before its deadline. Deadlines are spaced so that neighbours can all be met. If
//! helpers share a core, both conditions become (2), with the turns of the others.
//!
//! Beyond the paper:
//!
//! - A use that awaits a landmark causes no action before that landmark.
//! - A region registered ahead and not used for a period after its time is deregistered again.
//! - No more bytes are registered than uses need at once, unless that costs time. Registrations ahead wait for room,
//!   and operations evict unused regions.
//! - The registered bytes stay within a limit: the region needed last is evicted.

mod bound;
mod config;
mod decide;
mod queue;
mod region;
mod regions;
mod report;
mod shared;
mod task;
mod tree;
mod uses;
mod worth;

use std::fmt;

use crate::communication::{Communication, PageRun, RegistrationOutcome};
use crate::costs::RegistrationBacklog;
use crate::predictor::{Landmarks, MOST_SITES, Observation, Update};
use crate::signature::{Signature, SignatureContext};
use crate::time::Time;

use bound::RoomBound;
pub use config::{Invalid, PlanConfig};
use queue::RegistrationQueue;
use region::RegionState;
use regions::Regions;
use shared::SharedPages;
pub use shared::{Change, SharedPage};
pub use task::{ERRORS, HelperTask, RegionId, Stats, ThreadId};
use worth::Worth;

/// The state of a helper's plan.
pub struct Plan {
    config: PlanConfig,
    threads: Vec<ThreadStream>,
    regions: Regions,
    queue: RegistrationQueue,
    registered_bytes: u64,
    /// All registered bytes as the driver knows them; the plan may hear of them later.
    actual_bytes: u64,
    /// Bytes of regions that were in use when they were to be deregistered.
    held_bytes: u64,
    /// True if room has come for postponed regions, and none was tried again since.
    has_new_room: bool,
    /// Bounds the registered bytes for registrations ahead.
    bound: RoomBound,
    /// Tracks whether giving up is worth its cost.
    worth: Worth,
    /// The registrations for recent uses.
    backlog: RegistrationBacklog,
    stats: Stats,
    updates: Vec<Update>,
    /// Pages that buffers share.
    shared: SharedPages,
}

/// The communications of one thread.
struct ThreadStream {
    context: SignatureContext,
    predictor: Landmarks,
    /// The time that the thread has spent on registering so far. Periods exclude it, because they are those of a
    /// thread that finds its buffers registered.
    stalled_ns: u64,
}

impl Plan {
    /// Makes an empty plan.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: a value of the configuration is out of its range.
    pub fn new(config: PlanConfig) -> Result<Self, Invalid> {
        config.check()?;
        Ok(Self {
            config,
            threads: Vec::new(),
            regions: Regions::new(config.regions),
            queue: RegistrationQueue::default(),
            registered_bytes: 0,
            actual_bytes: 0,
            held_bytes: 0,
            has_new_room: false,
            bound: RoomBound::default(),
            worth: Worth::new(config.lost_part),
            backlog: RegistrationBacklog::default(),
            stats: Stats::default(),
            updates: Vec::new(),
            shared: SharedPages::default(),
        })
    }

    /// Adds a thread of the application, with a queue of its own. The threads share the memory for histories.
    pub fn add_thread(&mut self) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(ThreadStream {
            context: SignatureContext::new(self.config.window, self.config.grain_bits),
            predictor: Landmarks::new(),
            stalled_ns: 0,
        });
        let each = MOST_SITES / self.threads.len();
        for it in &mut self.threads {
            it.predictor.keep_at_most(each);
        }
        id
    }

    /// Handles a communication that was read from the deregistration queue of a thread.
    ///
    /// # Panics
    ///
    /// If the thread does not belong to this plan.
    pub fn used(
        &mut self,
        thread: ThreadId,
        communication: &Communication,
        now: Time,
    ) -> Option<HelperTask> {
        let wanted = communication.outcome.wants_registration();
        let bytes = communication.region.bytes;
        let lead_ns = self.lead_ns(communication, bytes);
        let stream = self
            .threads
            .get_mut(thread.0 as usize)
            .expect("a thread that was added");
        let signature = stream.context.sign(communication);
        let begun = communication.begun.before(stream.stalled_ns);
        if communication.outcome == RegistrationOutcome::OnDemand {
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
        }
        // A use that wants its buffer registered has an update of its own, which ends its last forecast.
        for update in updates.drain(..) {
            let own = region.filter(|_| update.signature == signature);
            if let Some(id) = own.or_else(|| self.regions.of(thread, update.signature)) {
                let forecast = update.forecast.map(|it| it.later(stalled_ns));
                let left = self.regions.expect(id, thread, update.signature, forecast);
                for changed in left.into_iter().chain(Some(id).filter(|_| own.is_none())) {
                    self.requeue(changed);
                }
            }
        }
        self.updates = updates;
        self.reconsider_or_requeue(region?, now)
    }

    /// The lead time of a use: its own registration, and those of the uses just before it.
    fn lead_ns(&mut self, communication: &Communication, bytes: u64) -> u64 {
        if !communication.outcome.wants_registration() {
            return 0;
        }
        let alone_ns = self.to_delay_ns(bytes);
        let takes_ns = self.registration_ns(bytes);
        let all_ns = self.backlog.add(communication.begun, takes_ns);
        alone_ns.max(all_ns.saturating_add(self.config.sharing.delay_ns()))
    }

    /// Acts on due work: the most urgent registration, and overdue uses.
    pub fn next_action(&mut self, now: Time) -> Option<HelperTask> {
        let over = self.expire(now).or_else(|| self.give_up_spared(now));
        over.or_else(|| self.register_first(now))
    }

    /// Sets the bytes registered at this moment, of which the plan may not have heard yet, for the next
    /// [`next_action`](Self::next_action).
    pub fn set_registered_bytes(&mut self, bytes: u64) {
        self.actual_bytes = bytes;
    }

    /// The next time at which [`next_action`](Self::next_action) has work, if nothing else happens before.
    pub fn wake(&self) -> Option<Time> {
        let due = self.queue.first().map(|it| {
            let bytes = self.regions.at(it.region).bytes();
            // The first moment at which the registration can no longer be postponed.
            it.deadline.before(self.to_delay_ns(bytes)).after(1)
        });
        let expires = self.regions.first_overdue().map(|it| it.0);
        let spared = self.regions.first_spared();
        let spared_ns = spared.map(|id| self.regions.at(id).spared_ns);
        let is_worth_it = spared_ns.and_then(|ns| self.worth.affords_from(ns));
        let retry = self.has_new_room.then_some(Time(0));
        [due, expires, is_worth_it, retry]
            .into_iter()
            .flatten()
            .min()
    }

    /// Changes the number of helpers on the core.
    pub fn share(&mut self, sharing: crate::sharing::Sharing) {
        self.config.sharing = sharing;
    }

    /// Prepares the helper to rest with nothing registered: returns the next deregistration, even of an expected
    /// region. Regions in use stay.
    pub fn deregister_last(&mut self) -> Option<HelperTask> {
        let (_, id) = self.regions.last_needed()?;
        Some(self.deregister(id))
    }

    /// The number of remembered regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// The id of the region with exactly this memory, if it is remembered.
    pub fn find(&self, memory: PageRun) -> Option<RegionId> {
        self.regions.exact(memory)
    }

    /// The registered bytes as far as the plan knows, registrations in progress included.
    pub fn registered_bytes(&self) -> u64 {
        self.registered_bytes
    }

    /// The bound on registered bytes, unless uses need more at once. An on-demand registration beyond it evicts
    /// others first. There is no bound while evicting would cost more than it is worth.
    pub fn room_bytes(&self) -> u64 {
        if self.worth.is_bounded() {
            u64::MAX
        } else {
            self.bound.bytes()
        }
    }

    /// Counts of events so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Notes how much memory a use needed at once with others, and whether more room would have saved time.
    fn weigh(&mut self, id: RegionId, communication: &Communication, now: Time) {
        let before = self.bound.bytes();
        self.set_held(id, false);
        let region = self.regions.at(id);
        let (bytes, begun) = (region.bytes(), communication.begun);
        let pages = bytes / self.config.page_bytes;
        self.bound.note_use(begun);
        // Held regions are still in use: puts and gets are recorded at their begin.
        self.bound
            .raise_in_use(self.held_bytes.saturating_add(bytes));
        let register_ns = self.config.costs.register.of(pages);
        let is_late = region.registered_from.after(register_ns) > begun;
        let short = self.regions.take_shortage(id);
        let took_longer = is_late || communication.outcome == RegistrationOutcome::OnDemand;
        if took_longer && short > 0 && self.bound.count_loss(register_ns, short, now) {
            self.regions.forget_shortages();
        }
        if self.bound.bytes() > before {
            self.note_room();
        }
    }

    /// Sets whether a region was in use when it was to be deregistered.
    fn set_held(&mut self, id: RegionId, is_held: bool) {
        let region = self.regions.at_mut(id);
        if region.is_held == is_held {
            return;
        }
        region.is_held = is_held;
        let bytes = region.bytes();
        self.held_bytes = if is_held {
            self.held_bytes.saturating_add(bytes)
        } else {
            self.held_bytes.saturating_sub(bytes)
        }
    }

    /// Counts how a use found its buffer.
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
        // The record of a use may be read after its region was deregistered.
        if region.charged_at <= communication.begun {
            let charged_ns = std::mem::take(&mut region.charged_ns);
            if communication.outcome == RegistrationOutcome::Found {
                self.worth.refund(charged_ns);
            }
        }
        match communication.outcome {
            RegistrationOutcome::Copied => {}
            RegistrationOutcome::Refused => self.stats.refused += 1,
            RegistrationOutcome::Found => {
                self.stats.found += 1;
                self.stats.ahead += u64::from(region.is_ahead);
                region.is_ahead = false;
                // Another thread registered it, and that record was lost.
                if region.state == RegionState::Absent {
                    region.state = RegionState::Registered;
                    self.registered_bytes = self.registered_bytes.saturating_add(region.bytes());
                }
            }
            RegistrationOutcome::OnDemand => {
                self.stats.on_demand += 1;
                // It may be registered by now, but too late for this use.
                self.stats.late += u64::from(was_expected);
                region.is_ahead = false;
                if region.state == RegionState::Absent {
                    region.state = RegionState::Registered;
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
