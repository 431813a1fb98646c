//! The helper thread: the loop of the plan's documentation, with a real clock, a real NIC and a real engine.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use hydrant_foresight::{
    Communication, Region, Time, Way,
    plan::{Action, Change, Config, Plan, RegionId, ThreadId},
    queue::Reader,
};
use hydrant_pinning::{GivenUp, Run};

use super::{
    Foreseeing, Recorder,
    cores::{Cores, LOOKS_AFTER},
    record::Freed,
    remote::{RemotePlan, is_remote},
    unfinished::{AllUnfinished, What},
};
use crate::{
    registration::{Foreseen, Registration},
    transfer::Transfer,
};

/// The helper, on its thread.
pub(super) struct Helper {
    foreseeing: Arc<Foreseeing>,
    recorder: Arc<Recorder>,
    transfer: Arc<Transfer>,
    config: Config,
    /// Bytes of peers' memory to which firehoses may be moved ahead, if they are.
    most_bytes: Option<u64>,
    /// What it knows of the other helpers of its host, if they share cores.
    cores: Option<Cores>,
    /// It has no core.
    rests: bool,
    readers: Vec<(ThreadId, Reader)>,
    /// Whose queue comes next.
    turn: usize,
    /// What did not end at once.
    unfinished: AllUnfinished,
    /// The bytes that operations were last told to keep within.
    room: u64,
}

impl Helper {
    pub(super) fn new(
        (foreseeing, transfer): (&Arc<Foreseeing>, &Arc<Transfer>),
        config: Config,
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
        struct Over(Arc<Recorder>, Arc<Transfer>);
        impl Drop for Over {
            fn drop(&mut self) {
                if let Some(registration) = self.1.registration() {
                    registration.keep_within(u64::MAX);
                }
                self.0.ended();
            }
        }
        let _over = Over(Arc::clone(&self.recorder), Arc::clone(&self.transfer));
        if !self.recorder.begin() {
            return;
        }
        let remote = self
            .most_bytes
            .map(|most| RemotePlan::new(self.config, most));
        let (mut plan, mut remote) = match (Plan::new(self.config), remote.transpose()) {
            (Ok(plan), Ok(remote)) => (plan, remote),
            (Err(cause), _) | (_, Err(cause)) => {
                tracing::error!(%cause, "nothing is foreseen");
                return;
            }
        };
        let transfer = Arc::clone(&self.transfer);
        let Some(registration) = transfer.registration() else {
            return;
        };
        self.look_for_core(registration, &mut plan, remote.as_mut());
        while !self.recorder.ends() {
            if self.rests {
                self.keep_within(registration, u64::MAX);
                let may_change = self.cores.as_ref().is_some_and(Cores::may_change);
                self.recorder.rest(may_change.then_some(LOOKS_AFTER));
                self.look_for_core(registration, &mut plan, remote.as_mut());
                continue;
            }
            for reader in self.recorder.take_fresh() {
                self.readers.push((plan.add_thread(), reader));
                if let Some(remote) = &mut remote {
                    remote.add_thread();
                }
            }
            if let Some(freed) = self.recorder.take_freed() {
                self.may_be_free(&freed, &plan);
            }
            // Both queues take turns, so that neither waits for all of the other.
            let read = self.read(registration, &mut plan, remote.as_mut());
            if let Some(cores) = &mut self.cores
                && cores.is_due(read, self.recorder.now())
            {
                self.look_for_core(registration, &mut plan, remote.as_mut());
                if self.rests {
                    self.say(&plan, remote.as_ref());
                    continue;
                }
            }
            let looked = self.look(registration, &mut plan);
            let again = self.look_again(registration, &mut plan);
            let ahead = match &mut remote {
                Some(remote) => remote.look(registration, self.recorder.now()),
                None => false,
            };
            self.keep_within(registration, plan.room_bytes());
            self.say(&plan, remote.as_ref());
            self.recorder.wait_for_use(self.unfinished.has_used());
            if !(read || looked || again || ahead) {
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

    /// Memory may be free by now that was in use: the regions are looked at that have a part of it.
    fn may_be_free(&mut self, freed: &Freed, plan: &Plan) {
        let now = self.recorder.now();
        if freed.is_all {
            return self.unfinished.all_may_be_free(now);
        }
        for place in &freed.places {
            for id in plan.in_use_within(*place) {
                self.unfinished.may_be_free(id, now);
            }
        }
    }

    /// Says what happened so far.
    fn say(&self, plan: &Plan, remote: Option<&RemotePlan>) {
        *self.foreseeing.said.lock() = plan.stats();
        if let Some(remote) = remote {
            *self.foreseeing.said_of_peers.lock() = remote.stats();
        }
    }

    /// Publishes what is registered, and looks whether the helper has a core, and with whom. One that is to rest has
    /// firehoses given back first, because nobody would find out meanwhile that they are of no use: what peers keep
    /// registered for them is not given up where room is short.
    fn look_for_core(
        &mut self,
        registration: &Registration,
        plan: &mut Plan,
        remote: Option<&mut RemotePlan>,
    ) {
        let Some(cores) = &mut self.cores else { return };
        let buckets = registration.stats().local.registered;
        let bucket = registration.limits().geometry.bucket();
        let now = self.recorder.now();
        let sharing = cores.look(buckets.saturating_mul(bucket), now);
        let rested = std::mem::replace(&mut self.rests, sharing.is_none());
        match (sharing, remote) {
            (Some(sharing), remote) => {
                plan.share(sharing);
                if let Some(remote) = remote {
                    remote.share(sharing);
                }
            }
            (None, Some(remote)) if !rested => remote.rest(registration, now),
            (None, _) => {}
        }
        let helpers = sharing.map_or(0, |it| it.helpers);
        self.foreseeing.helpers_on_core.store(helpers, SeqCst);
    }

    /// Takes one item off the deregistration queues; whether there was one.
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
                remote.passed(at, &communication, now);
            }
            let communication = self.located(registration, communication);
            self.hear_of_crowding(registration, plan, now);
            let action = plan.used(thread, &communication, now);
            self.part_and_join(registration, plan);
            match action {
                Some(action) => self.carry_out(action, registration, plan),
                None => self.look_for(&communication, registration, plan),
            }
            return true;
        }
        false
    }

    /// Says which region served a use. That is known only now, because it may have been registered for it.
    fn located(&self, registration: &Registration, it: Communication) -> Communication {
        let whole = Region::of_pages(self.config.page_bytes, it.addr, it.bytes);
        let found = match it.way {
            Way::Copied => None,
            _ => registration.registered_with(it.addr, it.bytes),
        };
        let region = found.map_or(whole, |(addr, bytes)| Region { addr, bytes });
        Communication { region, ..it }
    }

    /// Tells the plan if the region that served a use is not registered any more.
    fn look_for(&self, it: &Communication, registration: &Registration, plan: &mut Plan) {
        let Region { addr, bytes } = it.region;
        if it.way.wants_registration() && registration.is_gone(addr, bytes) {
            plan.lost(it.region);
        }
    }

    /// Tells the plan what operations gave up because more was registered than it has room for.
    fn hear_of_crowding(&mut self, registration: &Registration, plan: &mut Plan, now: Time) {
        let it = registration.take_crowded_out();
        let geometry = registration.limits().geometry;
        let bytes = |buckets: u64| buckets.saturating_mul(geometry.bucket());
        let region = |run: &Run| Region {
            addr: geometry.address_of(run.first),
            bytes: bytes(run.count),
        };
        let regions: Vec<_> = it.runs.iter().map(region).collect();
        plan.crowded_out(&regions, bytes(it.short), bytes(it.needed), now);
        for id in regions
            .iter()
            .filter_map(|it| plan.known(*it))
            .collect::<Vec<_>>()
        {
            self.mend_neighbours(id, registration, plan);
        }
    }

    /// Has pages that buffers share be registered as the plan says.
    fn part_and_join(&self, registration: &Registration, plan: &mut Plan) {
        for it in plan.take_shared() {
            match it.change {
                Change::Apart => registration.set_apart(it.page, true),
                Change::Joined => registration.set_apart(it.page, false),
                Change::Idle => registration.give_up_apart(it.page),
            }
        }
    }

    /// Has operations keep within so many bytes.
    fn keep_within(&mut self, registration: &Registration, room: u64) {
        if std::mem::replace(&mut self.room, room) != room {
            registration.keep_within(room);
        }
    }

    /// Takes one item off the registration queue, if it is due.
    fn look(&mut self, registration: &Registration, plan: &mut Plan) -> bool {
        let now = self.recorder.now();
        let registered = registration.stats().local.registered;
        let bucket = registration.limits().geometry.bucket();
        plan.are_registered(registered.saturating_mul(bucket));
        let action = plan.look(now);
        self.part_and_join(registration, plan);
        let is_something = action.is_some();
        if let Some(action) = action {
            self.carry_out(action, registration, plan);
        }
        is_something
    }

    fn carry_out(&mut self, action: Action, registration: &Registration, plan: &mut Plan) {
        match action {
            Action::Register { id, region } => {
                let foreseen = registration.foresee(region.addr, region.bytes);
                let ahead = registration.stats().local.ahead;
                self.foreseeing.registered_ahead.store(ahead, SeqCst);
                match foreseen {
                    Foreseen::Registered => plan.registered(id),
                    Foreseen::Refused => plan.not_registered(id),
                    Foreseen::UnderWay(number) => self.later(id, What::Registering(number)),
                }
            }
            Action::Deregister { id, region } => {
                if !self.give_up((id, region), registration, plan) {
                    self.later(id, What::InUse);
                }
            }
        }
    }

    /// Whether a region is given up, which it is not where it is in use.
    fn give_up(
        &mut self,
        (id, region): (RegionId, Region),
        registration: &Registration,
        plan: &mut Plan,
    ) -> bool {
        match registration.give_up(region.addr, region.bytes) {
            GivenUp::All => {
                self.foreseeing.given_up.fetch_add(1, SeqCst);
                plan.deregistered(id);
                self.mend_neighbours(id, registration, plan);
            }
            // It went for want of room, or because its memory went.
            GivenUp::Nothing => _ = plan.deregistered(id),
            GivenUp::InUse => {
                plan.still_used(id);
                return false;
            }
        }
        self.part_and_join(registration, plan);
        true
    }

    /// Has those registered again as a whole that shared a page with a region that was given up, and are expected.
    fn mend_neighbours(&mut self, id: RegionId, registration: &Registration, plan: &mut Plan) {
        for (id, region) in plan.neighbours(id) {
            let is_whole = (registration.registered_with(region.addr, region.bytes)).is_some();
            let now = self.recorder.now();
            if !is_whole && let Some(action) = plan.torn(id, now) {
                self.carry_out(action, registration, plan);
            }
        }
    }

    fn later(&mut self, region: RegionId, what: What) {
        let now = self.recorder.now();
        self.unfinished.add(region, what, now);
    }

    /// Looks at one thing that did not end at once, if it is time for that.
    fn look_again(&mut self, registration: &Registration, plan: &mut Plan) -> bool {
        let now = self.recorder.now();
        let Some(it) = self.unfinished.take_due(now) else {
            return false;
        };
        match it.what {
            What::Moving(_) => debug_assert!(false, "that is of peers' memory"),
            What::Registering(number) => match registration.is_foreseen(number) {
                Some(true) => plan.registered(it.region),
                Some(false) => plan.not_registered(it.region),
                None => self.unfinished.put_back(it, now),
            },
            What::InUse => match plan.try_again(it.region, now) {
                Some(Action::Deregister { id, region }) => {
                    let is_over = self.give_up((id, region), registration, plan);
                    if !is_over {
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
