//! The helper thread: the loop in the plan's documentation, with a real clock, NIC and engine.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use hydrant_foresight::{
    Communication, PageRun, RegistrationOutcome, Time,
    plan::{Change, HelperTask, Plan, PlanConfig, RegionId, ThreadId},
    queue::RecordReader,
};
use hydrant_pinning::{GivenUp, Run};

use super::{
    cores::{CHECK_AFTER, Cores},
    foreseeing::Foreseeing,
    record::{FreedMemory, Recorder},
    remote::{RemotePlan, is_remote},
    unfinished::{AllUnfinished, UnfinishedKind},
};
use crate::{
    registration::{Foreseen, Registration},
    transfer::Transfer,
};

/// The helper, on its own thread.
pub(super) struct Helper {
    foreseeing: Arc<Foreseeing>,
    recorder: Arc<Recorder>,
    transfer: Arc<Transfer>,
    config: PlanConfig,
    /// The bytes of peers' memory to which firehoses may be moved ahead, if they are.
    most_bytes: Option<u64>,
    /// The other helpers of the host, if they share cores.
    cores: Option<Cores>,
    /// True while the helper has no core.
    rests: bool,
    readers: Vec<(ThreadId, RecordReader)>,
    /// The index of the queue to read next.
    turn: usize,
    /// Requests that did not end at once.
    unfinished: AllUnfinished,
    /// The bytes that operations may keep registered, as last set.
    room: u64,
}

impl Helper {
    pub(super) fn new(
        (foreseeing, transfer): (&Arc<Foreseeing>, &Arc<Transfer>),
        config: PlanConfig,
        most_bytes: Option<u64>,
        cores: Option<Cores>,
    ) -> Self {
        Self {
            foreseeing: Arc::clone(foreseeing),
            recorder: Arc::clone(&foreseeing.recorder),
            transfer: Arc::clone(transfer),
            config,
            most_bytes,
            cores,
            rests: false,
            readers: Vec::new(),
            turn: 0,
            unfinished: AllUnfinished::default(),
            room: 0,
        }
    }

    pub(super) fn run(mut self) {
        struct EndGuard(Arc<Recorder>, Arc<Transfer>);
        impl Drop for EndGuard {
            fn drop(&mut self) {
                if let Some(registration) = self.1.registration() {
                    registration.keep_within(u64::MAX);
                }
                self.0.ended();
            }
        }
        let _end = EndGuard(Arc::clone(&self.recorder), Arc::clone(&self.transfer));
        if !self.recorder.begin() {
            return;
        }
        let remote = self
            .most_bytes
            .map(|most| RemotePlan::new(self.config, most));
        let (mut plan, mut remote) = match (Plan::new(self.config), remote.transpose()) {
            (Ok(plan), Ok(remote)) => (plan, remote),
            (Err(cause), _) | (_, Err(cause)) => {
                tracing::error!(%cause, "the helper cannot plan, so all memory is registered on demand");
                return;
            }
        };
        let transfer = Arc::clone(&self.transfer);
        let Some(registration) = transfer.registration() else {
            return;
        };
        self.find_core(registration, &mut plan, remote.as_mut());
        while !self.recorder.ends() {
            if self.rests {
                self.keep_within(registration, u64::MAX);
                let may_change = self.cores.as_ref().is_some_and(Cores::may_change);
                self.recorder.rest(may_change.then_some(CHECK_AFTER));
                self.find_core(registration, &mut plan, remote.as_mut());
                continue;
            }
            for reader in self.recorder.take_new_queues() {
                self.readers.push((plan.add_thread(), reader));
                if let Some(remote) = &mut remote {
                    remote.add_thread();
                }
            }
            if let Some(freed) = self.recorder.take_freed() {
                self.recheck_freed(&freed, &plan);
            }
            // The two queues take turns, so that neither waits for the whole of the other.
            let read = self.read(registration, &mut plan, remote.as_mut());
            if let Some(cores) = &mut self.cores
                && cores.note_turn(read, self.recorder.now())
            {
                self.find_core(registration, &mut plan, remote.as_mut());
                if self.rests {
                    self.publish_stats(&plan, remote.as_ref());
                    continue;
                }
            }
            let registered = self.run_due_registration(registration, &mut plan);
            let again = self.recheck_unfinished(registration, &mut plan);
            let ahead = match &mut remote {
                Some(remote) => remote.run_due(registration, self.recorder.now()),
                None => false,
            };
            self.keep_within(registration, plan.room_bytes());
            self.publish_stats(&plan, remote.as_ref());
            self.recorder.wait_for_use(self.unfinished.has_in_use());
            if !(read || registered || again || ahead) {
                let readers = &self.readers;
                let has_records = || readers.iter().any(|it| !it.1.is_empty());
                let until = (self.unfinished.first().into_iter())
                    .chain(plan.wake())
                    .chain(remote.as_ref().and_then(RemotePlan::wake))
                    .min();
                self.recorder.sleep(until, &has_records);
            }
        }
    }

    /// Checks the regions that overlap memory which was in use and may be free now.
    fn recheck_freed(&mut self, freed: &FreedMemory, plan: &Plan) {
        let now = self.recorder.now();
        if freed.is_all {
            return self.unfinished.note_all_may_be_free(now);
        }
        for place in &freed.places {
            for id in plan.in_use_within(*place) {
                self.unfinished.note_may_be_free(id, now);
            }
        }
    }

    /// Publishes the counts so far.
    fn publish_stats(&self, plan: &Plan, remote: Option<&RemotePlan>) {
        *self.foreseeing.own_stats.lock() = plan.stats();
        if let Some(remote) = remote {
            *self.foreseeing.peer_stats.lock() = remote.stats();
        }
    }

    /// Publishes the registered bytes, and checks whether the helper has a core and with whom it
    /// shares. A helper that is to rest first releases its firehoses. Otherwise nobody would
    /// release them, and the peers would keep memory registered for them even when room is short.
    fn find_core(
        &mut self,
        registration: &Registration,
        plan: &mut Plan,
        remote: Option<&mut RemotePlan>,
    ) {
        let Some(cores) = &mut self.cores else { return };
        let buckets = registration.stats().local.registered;
        let bucket = registration.limits().geometry.bucket();
        let now = self.recorder.now();
        let sharing = cores.publish_and_place(buckets.saturating_mul(bucket), now);
        let rested = std::mem::replace(&mut self.rests, sharing.is_none());
        match (sharing, remote) {
            (Some(sharing), remote) => {
                plan.share(sharing);
                if let Some(remote) = remote {
                    remote.share(sharing);
                }
            }
            (None, Some(remote)) if !rested => remote.release_all(registration, now),
            (None, _) => {}
        }
        let helpers = sharing.map_or(0, |it| it.helpers);
        self.foreseeing.helpers_on_core.store(helpers, SeqCst);
    }

    /// Takes one record off the deregistration queues. Returns whether there was one.
    fn read(
        &mut self,
        registration: &Registration,
        plan: &mut Plan,
        remote: Option<&mut RemotePlan>,
    ) -> bool {
        let count = self.readers.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count;
            let (thread, reader) = &mut self.readers[at];
            let Some(communication) = reader.read() else {
                continue;
            };
            let thread = *thread;
            self.turn = at + 1;
            let lost = self.readers.iter().map(|it| it.1.overwritten()).sum();
            self.foreseeing.overwritten.store(lost, SeqCst);
            let now = self.recorder.now();
            if let Some(remote) = remote {
                if is_remote(&communication) {
                    remote.used(at, &communication, registration, now);
                    return true;
                }
                remote.note_other(at, &communication, now);
            }
            let communication = self.locate(registration, communication);
            self.report_crowding(registration, plan, now);
            let action = plan.used(thread, &communication, now);
            self.apply_shared_pages(registration, plan);
            match action {
                Some(action) => self.carry_out(action, registration, plan),
                None => self.report_if_lost(&communication, registration, plan),
            }
            return true;
        }
        false
    }

    /// Adds the region that served a use. It is known only now, because it may have been registered
    /// for that use.
    fn locate(&self, registration: &Registration, it: Communication) -> Communication {
        let whole = PageRun::of_pages(self.config.page_bytes, it.addr, it.bytes);
        let found = match it.outcome {
            RegistrationOutcome::Copied => None,
            _ => registration.registered_with(it.addr, it.bytes),
        };
        let region = found.map_or(whole, |(addr, bytes)| PageRun { addr, bytes });
        Communication { region, ..it }
    }

    /// Reports to the plan if the region that served a use is no longer registered.
    fn report_if_lost(&self, it: &Communication, registration: &Registration, plan: &mut Plan) {
        let PageRun { addr, bytes } = it.region;
        if it.outcome.wants_registration() && registration.is_gone(addr, bytes) {
            plan.lost(it.region);
        }
    }

    /// Reports to the plan what operations evicted because the plan's limit was exceeded.
    fn report_crowding(&mut self, registration: &Registration, plan: &mut Plan, now: Time) {
        let it = registration.take_crowded_out();
        let geometry = registration.limits().geometry;
        let bytes = |buckets: u64| buckets.saturating_mul(geometry.bucket());
        let region = |run: &Run| PageRun {
            addr: geometry.address_of(run.first),
            bytes: bytes(run.count),
        };
        let regions: Vec<_> = it.runs.iter().map(region).collect();
        plan.crowded_out(&regions, bytes(it.short), bytes(it.needed), now);
        for id in regions
            .iter()
            .filter_map(|it| plan.find(*it))
            .collect::<Vec<_>>()
        {
            self.restore_neighbours(id, registration, plan);
        }
    }

    /// Has shared pages registered as the plan says.
    fn apply_shared_pages(&self, registration: &Registration, plan: &mut Plan) {
        for it in plan.take_shared() {
            match it.change {
                Change::Apart => registration.set_apart(it.page, true),
                Change::Joined => registration.set_apart(it.page, false),
                Change::Idle => registration.evict_apart(it.page),
            }
        }
    }

    /// Sets the bytes that operations may keep registered.
    fn keep_within(&mut self, registration: &Registration, room: u64) {
        if std::mem::replace(&mut self.room, room) != room {
            registration.keep_within(room);
        }
    }

    /// Takes one item off the registration queue if it is due.
    fn run_due_registration(&mut self, registration: &Registration, plan: &mut Plan) -> bool {
        let now = self.recorder.now();
        let registered = registration.stats().local.registered;
        let bucket = registration.limits().geometry.bucket();
        plan.set_registered_bytes(registered.saturating_mul(bucket));
        let action = plan.next_action(now);
        self.apply_shared_pages(registration, plan);
        let is_something = action.is_some();
        if let Some(action) = action {
            self.carry_out(action, registration, plan);
        }
        is_something
    }

    fn carry_out(&mut self, action: HelperTask, registration: &Registration, plan: &mut Plan) {
        match action {
            HelperTask::Register { id, region } => {
                let foreseen = registration.foresee(region.addr, region.bytes);
                let ahead = registration.stats().local.ahead;
                self.foreseeing.registered_ahead.store(ahead, SeqCst);
                match foreseen {
                    Foreseen::Registered => plan.registered(id),
                    Foreseen::Refused => plan.not_registered(id),
                    Foreseen::InFlight(number) => {
                        self.recheck_later(id, UnfinishedKind::Registering(number))
                    }
                }
            }
            HelperTask::Deregister { id, region } => {
                if !self.evict((id, region), registration, plan) {
                    self.recheck_later(id, UnfinishedKind::InUse);
                }
            }
        }
    }

    /// Evicts a region. Returns false if it is in use.
    fn evict(
        &mut self,
        (id, region): (RegionId, PageRun),
        registration: &Registration,
        plan: &mut Plan,
    ) -> bool {
        match registration.evict(region.addr, region.bytes) {
            GivenUp::All => {
                self.foreseeing.given_up.fetch_add(1, SeqCst);
                plan.deregistered(id);
                self.restore_neighbours(id, registration, plan);
            }
            // It was evicted for lack of room, or its memory was revoked.
            GivenUp::Nothing => _ = plan.deregistered(id),
            GivenUp::InUse => {
                plan.still_used(id);
                return false;
            }
        }
        self.apply_shared_pages(registration, plan);
        true
    }

    /// Registers expected neighbours again as a whole. They shared a page with an evicted region.
    fn restore_neighbours(&mut self, id: RegionId, registration: &Registration, plan: &mut Plan) {
        for (id, region) in plan.neighbours(id) {
            let is_whole = (registration.registered_with(region.addr, region.bytes)).is_some();
            let now = self.recorder.now();
            if !is_whole && let Some(action) = plan.torn(id, now) {
                self.carry_out(action, registration, plan);
            }
        }
    }

    fn recheck_later(&mut self, region: RegionId, what: UnfinishedKind) {
        let now = self.recorder.now();
        self.unfinished.add(region, what, now);
    }

    /// Checks one request that did not end at once, if its time has come.
    fn recheck_unfinished(&mut self, registration: &Registration, plan: &mut Plan) -> bool {
        let now = self.recorder.now();
        let Some(it) = self.unfinished.take_due(now) else {
            return false;
        };
        match it.kind {
            UnfinishedKind::Moving(_) => debug_assert!(false, "only firehoses to peers move"),
            UnfinishedKind::Registering(number) => match registration.take_foreseen(number) {
                Some(true) => plan.registered(it.region),
                Some(false) => plan.not_registered(it.region),
                None => self.unfinished.put_back(it, now),
            },
            UnfinishedKind::InUse => match plan.try_again(it.region, now) {
                Some(HelperTask::Deregister { id, region }) => {
                    let is_evicted = self.evict((id, region), registration, plan);
                    if !is_evicted {
                        self.unfinished.put_back(it, now);
                    }
                }
                Some(action) => self.carry_out(action, registration, plan),
                None => {}
            },
        }
        true
    }
}
