//! What all threads of a rank share.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use hydrant_conduit::{Caps, Error, Rank, Standing, Standings, Ticket, memory::Segment};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{
    control::{Command, Commands, Post},
    harvest::Harvest,
    lane::{Access, Lane, Roads, Work},
    loopback::Loopback,
    message::more_handled,
    nic::{Channel, CompletionQueue, Nic, QueuePair, SharedQueue},
    place::Place,
    sleepers::Sleepers,
    slots::ReceiveSlots,
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
    pub(crate) harvest: Harvest,
    /// Lanes in which something waits for the doorbell.
    gathering: Mutex<Vec<u32>>,
    any_gathering: AtomicBool,
    next_ticket: AtomicU64,
    /// Counts the wakes sent to peers.
    pub(crate) wakes: AtomicU32,
}

/// In a ticket of what a rank asks of itself.
pub(crate) const OWN: u64 = 1 << 62;

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
    /// The packet that the pair expected next when the peer first asked, for it broke.
    pub(crate) expected: Option<u32>,
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
            harvest: Harvest::new(),
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
        self.retired.lock().push(pair);
        self.any_retired.store(true, Relaxed);
    }

    /// Those that retired so far, for who then looks whether anything of them is unread.
    #[inline]
    pub(crate) fn take_retired(&self) -> Option<Vec<QueuePair>> {
        if !self.any_retired.load(Relaxed) {
            return None;
        }
        let mut retired = self.retired.lock();
        self.any_retired.store(false, Relaxed);
        Some(std::mem::take(&mut *retired))
    }

    /// Something of these may still be unread.
    pub(crate) fn keep_retired(&self, mut pairs: Vec<QueuePair>) {
        self.retired.lock().append(&mut pairs);
        self.any_retired.store(true, Relaxed);
    }

    /// Has something done by a peer's NIC: the name of its completion, if the NIC has it.
    #[inline(always)]
    pub(crate) fn ask(&self, rank: Rank, lane: &mut Lane, work: Work) -> Option<u64> {
        match lane.post_now(&self.roads, work) {
            Ok(Ok(id)) => return Some(id),
            Ok(Err(cause)) => self.not_taken(rank, &cause),
            Err(work) => self.ask_later(rank, lane, work),
        }
        None
    }

    #[cold]
    pub(crate) fn not_taken(&self, rank: Rank, cause: &io::Error) {
        tracing::error!(%cause, peer = %rank, "the NIC does not take what is asked of it");
        let why = "the NIC refused a request";
        self.commands.give(Command::Lose(rank, why));
    }

    /// Has something done by a peer's NIC that could not be done at once.
    pub(crate) fn ask_later(&self, rank: Rank, lane: &mut Lane, work: Work) {
        let first = lane.state == crate::lane::State::Idle;
        if let Err(cause) = lane.push(&self.roads, work) {
            self.not_taken(rank, &cause);
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
            self.gathering.lock().push(rank.0);
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
        let mut list = std::mem::take(&mut *self.gathering.lock());
        list.retain(|rank| {
            let Some(peer) = self.known(*rank) else {
                return false;
            };
            let mut lane = peer.lane.lock();
            if let Err(cause) = lane.flush(&self.roads) {
                self.not_taken(Rank(*rank), &cause);
            }
            lane.listed = lane.is_gathering();
            lane.listed
        });
        let mut gathering = self.gathering.lock();
        gathering.append(&mut list);
        self.any_gathering.store(!gathering.is_empty(), Relaxed);
    }

    /// Whether the own port is down, and a peer has nothing to do that was asked by way of it.
    pub(crate) fn is_cut_off_from(&self, rank: u32) -> bool {
        let is_idle = |peer: &Peer| peer.lane.lock().is_idle();
        self.known(rank).is_none_or(is_idle) && !self.nic.is_up()
    }

    /// Whether everything that was asked of the NICs of ranks that are there is known to be done.
    /// Where it is not known of messages, it will be.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut quiet = true;
        for rank in (0..self.size).map(Rank) {
            let Some(peer) = self.known(rank.0) else {
                continue;
            };
            if self.standings.of(rank) != Standing::Present {
                continue;
            }
            let mut lane = peer.lane.lock();
            if lane.is_idle() && !lane.is_empty() {
                self.ask(rank, &mut lane, Work::Access(Access::NOTHING));
            }
            quiet &= lane.is_empty();
        }
        quiet
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

    /// The peer says how many requests it has handled so far, modulo some number.
    #[inline]
    pub(crate) fn note_handled(&self, count: u32) {
        let sent = self.sent.load(Relaxed);
        let old = self.handled.load(Relaxed);
        let more = u64::from(more_handled(count, old as u32));
        // What an older message says is less, and would seem to be very much more.
        if more <= sent.wrapping_sub(old) {
            self.handled.fetch_max(old + more, Relaxed);
        }
    }
}
