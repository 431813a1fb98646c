//! Completions of what was asked of peers' NICs, and what they are the end of.

use std::{
    hint,
    ops::Range,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    thread,
};

use hydrant_conduit::{Error, Posted, Rank, Ticket};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    control::Command,
    ffi,
    lane::{Access, Alone, Ended, Failure, Lane, named},
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
    /// Those of them that were taken and not looked at yet.
    left: Range<usize>,
    /// What these are the end of.
    ended: Vec<Ended>,
}

impl Harvest {
    pub(crate) fn new() -> Self {
        Self {
            reaper: Mutex::new(Reaper {
                completions: [blank(); BATCH],
                left: 0..0,
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
    ///
    /// A thread may be busy for long with a lane, where the NIC's work is done in the call that
    /// posts it: what is on that lane, and after it, is left for the next call.
    pub(crate) fn reap(&self) -> bool {
        match self.harvest.reaper.try_lock() {
            Some(mut reaper) => self.reap_with(&mut reaper, |lane| lane.try_lock()),
            None => true,
        }
    }

    /// As [`reap`](Self::reap), by a thread that has nothing else to do than wait for such others:
    /// all that has come.
    pub(crate) fn reap_all(&self) -> bool {
        // Who holds a lane waits for nobody who reaps.
        let mut reaper = self.harvest.reaper.lock();
        self.reap_with(&mut reaper, |lane| Some(lane.lock()))
    }

    #[inline(always)]
    fn reap_with<'a>(
        &'a self,
        reaper: &mut Reaper,
        hold: impl Fn(&'a Mutex<Lane>) -> Option<MutexGuard<'a, Lane>>,
    ) -> bool {
        let mut any = false;
        loop {
            let mut last = false;
            if reaper.left.start == reaper.left.end {
                let count = self.sent.poll(&mut reaper.completions);
                reaper.left = 0..count;
                last = count < BATCH;
                if count == 0 {
                    return any;
                }
            }
            any = true;
            let Reaper {
                completions,
                left,
                ended,
            } = reaper;
            while left.start < left.end && self.reap_one(&completions[left.start], &hold, ended) {
                left.start += 1;
            }
            let stopped = left.start < left.end;
            self.harvest.add(ended);
            if stopped || last {
                return true;
            }
        }
    }

    /// Posts an access, if nobody else takes completions or is at the lane and nothing is under way
    /// there: then what there is to say of it, if that is known after a moment.
    #[inline(always)]
    pub(crate) fn ask_alone(
        &self,
        peer: Rank,
        lane: &Mutex<Lane>,
        access: &Access,
    ) -> Option<Result<Posted, Error>> {
        let mut reaper = self.harvest.reaper.try_lock()?;
        let mut held = lane.try_lock()?;
        if !reaper.left.is_empty() || !held.is_free(&self.roads) {
            return None;
        }
        let became = held.post_alone(&self.roads, access, || {
            let taken = &mut reaper.completions[..1];
            (self.sent.poll(taken) > 0).then(|| taken[0])
        });
        if matches!(became, Alone::Done) {
            drop(held);
            drop(reaper);
            // Nobody waits for what that frees but requests that were gathered.
            self.flush();
            return Some(Ok(Posted::Done));
        }
        let ticket = self.ticket();
        held.not_alone(&self.roads, Access { ticket, ..*access }, &became);
        drop(held);
        let outcome = match became {
            Alone::Unclear => self.watch_rest(&mut reaper, ticket),
            Alone::UnderWay(id) => {
                drop(reaper);
                self.watch(lane, Some(id), ticket)
            }
            Alone::Refused(cause) => {
                self.not_taken(peer, &cause);
                None
            }
            Alone::Done => None,
        };
        Some(outcome.map_or(Ok(Posted::Pending(ticket)), |it| it.map(|()| Posted::Done)))
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
        if !reaper.left.is_empty()
            || !(0..LOOKS).any(|_| self.sent.poll(&mut reaper.completions[..1]) > 0)
        {
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
        let Reaper {
            completions, ended, ..
        } = reaper;
        self.reap_one(&completions[0], |lane| Some(lane.lock()), ended);
        let found = ended.iter().position(|(it, _)| *it == ticket);
        let outcome = found.map(|at| ended.remove(at).1);
        self.harvest.add(ended);
        self.flush();
        self.sleepers.arrived();
        outcome
    }

    /// Looks at a completion: `false` if its lane was not to be had.
    #[inline]
    fn reap_one<'a>(
        &'a self,
        completion: &ffi::ibv_wc,
        hold: impl Fn(&'a Mutex<Lane>) -> Option<MutexGuard<'a, Lane>>,
        ended: &mut Vec<Ended>,
    ) -> bool {
        let (rank, epoch, number) = named(completion.wr_id);
        let Some(peer) = self.known(rank) else {
            return true;
        };
        let Some(mut lane) = hold(&peer.lane) else {
            return false;
        };
        // What is left of a connection that is gone.
        if lane.epoch & 0xff != epoch || lane.pair.is_none() {
            return true;
        }
        if completion.status == ffi::IBV_WC_SUCCESS {
            lane.done(&self.roads, number, ended);
            return true;
        }
        let status = completion.status;
        match lane.failed(&self.roads, number, status, ended) {
            Failure::Broken => self.commands.give(Command::Connect(Rank(rank))),
            Failure::Unclear => self.commands.give(Command::Ask(Rank(rank))),
            Failure::Lost(why) => self.commands.give(Command::Lose(Rank(rank), why)),
        }
        true
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
