//! Completions of what was asked of peers' NICs, and what they are the end of.

use std::{
    hint,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    thread,
};

use hydrant_conduit::{Error, Rank, Ticket};
use parking_lot::Mutex;

use crate::{
    control::Command,
    ffi,
    lane::{Ended, Failure, Lane, named},
    nic::blank,
    shared::{OWN, Shared},
};

/// How often who waits for an operation looks whether it has ended before doing anything else:
/// about as long as a network takes.
const LOOKS: u32 = 500;

/// Completions taken at once.
const BATCH: usize = 16;

/// What ended, until somebody is told.
pub(crate) struct Harvest {
    /// One thread at a time takes completions.
    reaper: Mutex<Reaper>,
    ended: Mutex<Vec<Ended>>,
    any: AtomicBool,
    /// Of what this rank asked of itself: who asked takes it from here.
    own: Mutex<Vec<Ended>>,
}

struct Reaper {
    completions: [ffi::ibv_wc; BATCH],
    /// What these are the end of.
    ended: Vec<Ended>,
}

impl Harvest {
    pub(crate) fn new() -> Self {
        Self {
            reaper: Mutex::new(Reaper {
                completions: [blank(); BATCH],
                ended: Vec::new(),
            }),
            ended: Mutex::default(),
            any: AtomicBool::new(false),
            own: Mutex::default(),
        }
    }

    fn add(&self, list: &mut Vec<Ended>) {
        if !list.is_empty() {
            let mut ended = self.ended.lock();
            ended.append(list);
            self.any.store(true, Release);
        }
    }

    fn take(&self, into: &mut Vec<Ended>) {
        let mut ended = self.ended.lock();
        std::mem::swap(&mut *ended, into);
        self.any.store(false, Release);
    }
}

impl Shared {
    /// Takes completions of what was asked of peers' NICs; what ended can then be
    /// [taken](Self::take_ended). Whether there may have been any: a slot, or room for a request,
    /// can be what somebody waits for.
    pub(crate) fn reap(&self) -> bool {
        let Some(mut reaper) = self.harvest.reaper.try_lock() else {
            return true;
        };
        let mut any = false;
        loop {
            let count = self.sent.poll(&mut reaper.completions);
            if count == 0 {
                return any;
            }
            any = true;
            self.reap_all(&mut reaper, count);
            if count < BATCH {
                return true;
            }
        }
    }

    /// Looks a moment whether one operation has ended, which is told by this alone then; others
    /// that have are told by the next poll. `id`: the name of its completion, where that is known.
    #[inline]
    pub(crate) fn watch(
        &self,
        lane: &Mutex<Lane>,
        id: Option<u64>,
        ticket: Ticket,
    ) -> Option<Result<(), Error>> {
        let mut reaper = self.harvest.reaper.try_lock()?;
        if !(0..LOOKS).any(|_| self.sent.poll(&mut reaper.completions[..1]) > 0) {
            return None;
        }
        let completion = &reaper.completions[0];
        if Some(completion.wr_id) == id
            && completion.status == ffi::IBV_WC_SUCCESS
            && lane
                .lock()
                .done_alone(&self.roads, completion.wr_id, ticket)
        {
            // Nobody waits for what that frees but requests that were gathered.
            drop(reaper);
            self.flush();
            return Some(Ok(()));
        }
        self.watch_rest(&mut reaper, ticket)
    }

    /// The completion is not of that operation alone.
    #[cold]
    fn watch_rest(&self, reaper: &mut Reaper, ticket: Ticket) -> Option<Result<(), Error>> {
        let Reaper { completions, ended } = reaper;
        self.reap_one(&completions[0], ended);
        let found = ended.iter().position(|(it, _)| *it == ticket);
        let outcome = found.map(|at| ended.remove(at).1);
        self.harvest.add(ended);
        self.flush();
        self.sleepers.arrived();
        outcome
    }

    /// So many completions were taken.
    fn reap_all(&self, reaper: &mut Reaper, count: usize) {
        let Reaper { completions, ended } = reaper;
        for completion in &completions[..count] {
            self.reap_one(completion, ended);
        }
        self.harvest.add(ended);
    }

    fn reap_one(&self, completion: &ffi::ibv_wc, ended: &mut Vec<Ended>) {
        let (rank, epoch, number) = named(completion.wr_id);
        let Some(peer) = self.known(rank) else {
            return;
        };
        let mut lane = peer.lane.lock();
        // What is left of a connection that is gone.
        if lane.epoch & 0xff != epoch || lane.pair.is_none() {
            return;
        }
        if completion.status == ffi::IBV_WC_SUCCESS {
            return lane.done(&self.roads, number, ended);
        }
        let status = completion.status;
        match lane.failed(&self.roads, number, status, ended) {
            Failure::Broken => self.commands.give(Command::Connect(Rank(rank))),
            Failure::Unclear => self.commands.give(Command::Ask(Rank(rank))),
            Failure::Lost(why) => self.commands.give(Command::Lose(Rank(rank), why)),
        }
    }

    /// What ended since this was last called.
    #[inline]
    pub(crate) fn take_ended(&self, into: &mut Vec<Ended>) {
        if self.harvest.any.load(Acquire) {
            self.harvest.take(into);
        }
    }

    /// Keeps the end of what this rank asked of itself for who asked, if it is of that kind.
    #[inline]
    pub(crate) fn keep_own(&self, ended: Ended) -> Option<Ended> {
        if ended.0.0 & OWN == 0 {
            return Some(ended);
        }
        self.harvest.own.lock().push(ended);
        None
    }

    /// Waits until the own NIC has done what this rank asked of itself. No peer has a part in it,
    /// and nothing is delivered meanwhile.
    pub(crate) fn wait_for_own(&self, ticket: Ticket) -> Result<(), Error> {
        let take = |list: &Mutex<Vec<Ended>>| {
            let mut list = list.lock();
            let at = list.iter().position(|ended| ended.0 == ticket)?;
            Some(list.swap_remove(at).1)
        };
        let mut tries = 0_u32;
        loop {
            self.reap();
            if let Some(outcome) = take(&self.harvest.ended).or_else(|| take(&self.harvest.own)) {
                return outcome;
            }
            self.flush();
            tries += 1;
            if tries.is_multiple_of(16) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.harvest.any.load(Acquire)
    }

    /// Operations that ended otherwise than by a completion.
    pub(crate) fn end_operations(&self, mut list: Vec<Ended>) {
        self.harvest.add(&mut list);
        self.sleepers.wake_all();
    }
}
