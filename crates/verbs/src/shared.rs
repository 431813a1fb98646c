//! What all threads of a rank share.

use std::{
    hint,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use hydrant_conduit::{Caps, Error, Glance, Rank, Ticket, memory::Segment};
use rustc_hash::FxHashMap;

use crate::{
    control::{Command, Commands, Post},
    ffi,
    lane::{Ended, Failure, Lane, Roads, Work, named},
    loopback::Loopback,
    nic::{Channel, CompletionQueue, Nic, QueuePair, SharedQueue, blank},
    place::Place,
    sleepers::Sleepers,
    slots::ReceiveSlots,
    standing::Standings,
    table::Table,
};

pub(crate) struct Shared {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) caps: Caps,
    pub(crate) nic: Arc<Nic>,
    /// How long a packet waits to be acknowledged, as the NIC counts.
    pub(crate) ack_timeout: u8,
    pub(crate) places: Box<[Place]>,
    pub(crate) secret: [u8; 16],
    pub(crate) peers: Box<[OnceLock<Box<Peer>>]>,
    pub(crate) table: Table,
    pub(crate) roads: Roads,
    pub(crate) receives: ReceiveSlots,
    /// Requests that a peer may have unhandled here, and this rank at a peer.
    pub(crate) window: u32,
    pub(crate) shared_queue: Arc<SharedQueue>,
    pub(crate) sent: Arc<CompletionQueue>,
    pub(crate) received: Arc<CompletionQueue>,
    pub(crate) channel: Arc<Channel>,
    /// Which rank's requests come in by which queue pair.
    pub(crate) by_pair: RwLock<FxHashMap<u32, u32>>,
    /// Queue pairs that answer nothing any more, of which messages may still be unread.
    retired: Mutex<Vec<QueuePair>>,
    any_retired: AtomicBool,
    pub(crate) sleepers: Sleepers,
    pub(crate) standings: Standings,
    pub(crate) segment: Segment,
    pub(crate) started: Instant,
    pub(crate) post: Post,
    pub(crate) commands: Commands,
    pub(crate) loopback: Loopback,
    /// This rank has ended.
    pub(crate) left: AtomicBool,
    /// One thread at a time takes completions of what was asked.
    reaping: Mutex<Vec<Ended>>,
    ended: Mutex<Vec<Ended>>,
    /// Of what this rank asked of itself: who asked takes it from here.
    own_ended: Mutex<Vec<Ended>>,
    /// Lanes in which something waits for the doorbell.
    gathering: Mutex<Vec<u32>>,
    any_gathering: AtomicBool,
    next_ticket: AtomicU64,
    /// Counts the wakes sent to peers.
    pub(crate) wakes: AtomicU32,
}

/// In a ticket of what a rank asks of itself.
const OWN: u64 = 1 << 62;

/// A peer that this rank has to do with.
pub(crate) struct Peer {
    pub(crate) lane: Mutex<Lane>,
    /// Requests sent to it, and those of them it has handled.
    pub(crate) sent: AtomicU64,
    pub(crate) handled: AtomicU64,
    /// Its requests handled here, and those of them it was told of; modulo 2^32.
    pub(crate) done: AtomicU32,
    pub(crate) told: AtomicU32,
    pub(crate) incoming: Mutex<Incoming>,
}

/// The way from a peer.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) epoch: u32,
    pub(crate) pair: Option<QueuePair>,
    /// Whether its messages have slots here.
    pub(crate) housed: bool,
}

/// The parts of [`Shared`] that are made one after the other.
pub(crate) struct Parts {
    pub(crate) rank: Rank,
    pub(crate) caps: Caps,
    pub(crate) nic: Arc<Nic>,
    pub(crate) ack_timeout: u8,
    pub(crate) places: Box<[Place]>,
    pub(crate) secret: [u8; 16],
    pub(crate) table: Table,
    pub(crate) roads: Roads,
    pub(crate) receives: ReceiveSlots,
    pub(crate) window: u32,
    pub(crate) shared_queue: Arc<SharedQueue>,
    pub(crate) sent: Arc<CompletionQueue>,
    pub(crate) received: Arc<CompletionQueue>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) segment: Segment,
    pub(crate) post: Post,
}

impl Shared {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(parts: Parts) -> Result<Self, Error> {
        let size = parts.places.len() as u32;
        Ok(Self {
            rank: parts.rank,
            size,
            caps: parts.caps,
            nic: parts.nic,
            ack_timeout: parts.ack_timeout,
            places: parts.places,
            secret: parts.secret,
            peers: (0..size).map(|_| OnceLock::new()).collect(),
            table: parts.table,
            roads: parts.roads,
            receives: parts.receives,
            window: parts.window,
            shared_queue: parts.shared_queue,
            sent: parts.sent,
            received: parts.received,
            channel: parts.channel,
            by_pair: RwLock::default(),
            retired: Mutex::default(),
            any_retired: AtomicBool::new(false),
            sleepers: Sleepers::default(),
            standings: Standings::new(size),
            segment: parts.segment,
            started: Instant::now(),
            post: parts.post,
            commands: Commands::new()?,
            loopback: Loopback::default(),
            left: AtomicBool::new(false),
            reaping: Mutex::default(),
            ended: Mutex::default(),
            own_ended: Mutex::default(),
            gathering: Mutex::default(),
            any_gathering: AtomicBool::new(false),
            next_ticket: AtomicU64::new(1),
            wakes: AtomicU32::new(1),
        })
    }

    /// A peer, made when this rank first has to do with it.
    #[inline]
    pub(crate) fn peer(&self, rank: Rank) -> &Peer {
        self.peers[rank.index()].get_or_init(|| Box::new(Peer::new(rank)))
    }

    /// The peer, if this rank ever had to do with it.
    pub(crate) fn known(&self, rank: u32) -> Option<&Peer> {
        Some(&**self.peers.get(rank as usize)?.get()?)
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.next_ticket.fetch_add(1, Relaxed))
    }

    /// Of something that this rank asks of itself.
    pub(crate) fn own_ticket(&self) -> Ticket {
        Ticket(self.ticket().0 | OWN)
    }

    /// A queue pair answers nothing from now on. What came by it is still delivered.
    pub(crate) fn retire(&self, pair: QueuePair) {
        if let Err(cause) = pair.halt() {
            tracing::debug!(%cause, "a queue pair was not halted");
        }
        lock(&self.retired).push(pair);
        self.any_retired.store(true, Relaxed);
    }

    /// Those that retired so far, for who then looks whether anything of them is unread.
    pub(crate) fn take_retired(&self) -> Vec<QueuePair> {
        if !self.any_retired.load(Relaxed) {
            return Vec::new();
        }
        let mut retired = lock(&self.retired);
        self.any_retired.store(false, Relaxed);
        std::mem::take(&mut *retired)
    }

    /// Something of these may still be unread.
    pub(crate) fn keep_retired(&self, mut pairs: Vec<QueuePair>) {
        lock(&self.retired).append(&mut pairs);
        self.any_retired.store(true, Relaxed);
    }

    /// Has something done by a peer's NIC.
    #[inline]
    pub(crate) fn ask(&self, rank: Rank, lane: &mut Lane, work: Work) {
        let first = lane.state == crate::lane::State::Idle;
        if let Err(cause) = lane.push(&self.roads, work) {
            tracing::error!(%cause, peer = %rank, "the NIC does not take what is asked of it");
            self.commands
                .give(Command::Lose(rank, "the NIC refused a request"));
        }
        if first {
            lane.state = crate::lane::State::Connecting;
            self.commands.give(Command::Connect(rank));
        }
        self.look_after(rank, lane);
    }

    /// If something waits for the doorbell, polls look after it from now on.
    #[inline]
    pub(crate) fn look_after(&self, rank: Rank, lane: &mut Lane) {
        if lane.is_gathering() && !lane.listed {
            lane.listed = true;
            lock(&self.gathering).push(rank.0);
            self.any_gathering.store(true, Relaxed);
        }
    }

    /// Rings the doorbell for what was gathered.
    #[inline]
    pub(crate) fn flush(&self) {
        if self.any_gathering.load(Relaxed) {
            self.flush_gathered();
        }
    }

    #[cold]
    fn flush_gathered(&self) {
        let mut list = std::mem::take(&mut *lock(&self.gathering));
        list.retain(|rank| {
            let Some(peer) = self.known(*rank) else {
                return false;
            };
            let mut lane = lock(&peer.lane);
            if let Err(cause) = lane.flush(&self.roads) {
                tracing::error!(%cause, peer = rank, "the NIC does not take what is asked of it");
                let why = "the NIC refused a request";
                self.commands.give(Command::Lose(Rank(*rank), why));
            }
            lane.listed = lane.is_gathering();
            lane.listed
        });
        let mut gathering = lock(&self.gathering);
        gathering.append(&mut list);
        self.any_gathering.store(!gathering.is_empty(), Relaxed);
    }

    /// Takes completions of what was asked of peers' NICs; what ended can then be
    /// [taken](Self::take_ended). Whether there may have been any: a slot, or room for a request,
    /// can be what somebody waits for.
    pub(crate) fn reap(&self) -> bool {
        let _reaping = match self.reaping.try_lock() {
            Ok(reaping) => reaping,
            Err(TryLockError::Poisoned(reaping)) => reaping.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        let mut completions = [blank(); 16];
        let mut any = false;
        loop {
            let count = self.sent.poll(&mut completions);
            if count == 0 {
                return any;
            }
            any = true;
            let mut ended = lock(&self.ended);
            for completion in &completions[..count] {
                self.reap_one(completion, &mut ended);
            }
            if count < completions.len() {
                return true;
            }
        }
    }

    /// Looks whether one operation has ended; others that have are told by the next poll.
    #[inline]
    pub(crate) fn glance(&self, ticket: Ticket, times: u32) -> Glance {
        let mut ended = match self.reaping.try_lock() {
            Ok(ended) => ended,
            Err(TryLockError::Poisoned(ended)) => ended.into_inner(),
            Err(TryLockError::WouldBlock) => return Glance::Elsewhere,
        };
        let mut completions = [blank()];
        if !(0..times).any(|_| self.sent.poll(&mut completions) > 0) {
            return Glance::NotYet;
        }
        let [completion] = completions;
        let glance = if self.ends_alone(&completion, ticket) {
            Glance::Ended(Ok(()))
        } else {
            self.reap_one(&completion, &mut ended);
            let found = ended.iter().position(|(it, _)| *it == ticket);
            let glance = found.map_or(Glance::NotYet, |at| Glance::Ended(ended.remove(at).1));
            if !ended.is_empty() {
                lock(&self.ended).append(&mut ended);
            }
            glance
        };
        drop(ended);
        self.flush();
        self.sleepers.arrived();
        glance
    }

    /// Whether a completion is that of one operation alone, which then is over.
    #[inline]
    fn ends_alone(&self, completion: &ffi::ibv_wc, ticket: Ticket) -> bool {
        let (rank, epoch, number) = named(completion.wr_id);
        if completion.status != ffi::IBV_WC_SUCCESS {
            return false;
        }
        let Some(peer) = self.known(rank) else {
            return false;
        };
        let mut lane = lock(&peer.lane);
        lane.epoch & 0xff == epoch
            && lane.pair.is_some()
            && lane.done_alone(&self.roads, number, ticket)
    }

    fn reap_one(&self, completion: &ffi::ibv_wc, ended: &mut Vec<Ended>) {
        let (rank, epoch, number) = named(completion.wr_id);
        let Some(peer) = self.known(rank) else {
            return;
        };
        let mut lane = lock(&peer.lane);
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
    pub(crate) fn take_ended(&self, into: &mut Vec<Ended>) {
        std::mem::swap(&mut *lock(&self.ended), into);
    }

    /// Keeps the end of what this rank asked of itself for who asked, if it is of that kind.
    #[inline]
    pub(crate) fn keep_own(&self, ended: Ended) -> Option<Ended> {
        if ended.0.0 & OWN == 0 {
            return Some(ended);
        }
        lock(&self.own_ended).push(ended);
        None
    }

    /// Waits until the own NIC has done what this rank asked of itself. No peer has a part in it,
    /// and nothing is delivered meanwhile.
    pub(crate) fn wait_for_own(&self, ticket: Ticket) -> Result<(), Error> {
        let take = |list: &Mutex<Vec<Ended>>| {
            let mut list = lock(list);
            let at = list.iter().position(|ended| ended.0 == ticket)?;
            Some(list.swap_remove(at).1)
        };
        let mut tries = 0_u32;
        loop {
            self.reap();
            if let Some(outcome) = take(&self.ended).or_else(|| take(&self.own_ended)) {
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
        !lock(&self.ended).is_empty()
    }

    /// Operations that ended otherwise than by a completion.
    pub(crate) fn end_operations(&self, mut list: Vec<Ended>) {
        lock(&self.ended).append(&mut list);
        self.sleepers.wake_all();
    }

    /// Whether the own port is down, and a peer has nothing to do that was asked by way of it.
    pub(crate) fn is_cut_off_from(&self, rank: u32) -> bool {
        let is_idle = |peer: &Peer| lock(&peer.lane).is_empty();
        self.known(rank).is_none_or(is_idle) && !self.nic.is_up()
    }

    /// Whether nothing that was asked of peers' NICs is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        (0..self.size)
            .filter_map(|rank| self.known(rank))
            .all(|peer| lock(&peer.lane).is_empty())
    }
}

impl Peer {
    fn new(rank: Rank) -> Self {
        Self {
            lane: Mutex::new(Lane::new(rank.0)),
            sent: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            done: AtomicU32::new(0),
            told: AtomicU32::new(0),
            incoming: Mutex::default(),
        }
    }

    /// The peer says how many requests it has handled so far, modulo 2^32.
    pub(crate) fn note_handled(&self, count: u32) {
        let sent = self.sent.load(Relaxed);
        let old = self.handled.load(Relaxed);
        let more = u64::from(count.wrapping_sub(old as u32));
        // What an older message says is less, and would seem to be very much more.
        if more <= sent.wrapping_sub(old) {
            self.handled.fetch_max(old + more, Relaxed);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
