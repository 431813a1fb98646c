//! The state that all threads of a rank share, composed of its owners.

#![allow(unsafe_code)] // closes the endpoint

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Caps, CommandQueue, Error, Footprint, Loopback, Rank, Sleepers, Ticket, memory::Segment,
};
use parking_lot::Mutex;

use crate::{
    arrivals::{Collector, EndedAccess},
    commands::LinkCommand,
    fabric::Fabric,
    keys::ProviderKeys,
    listening::Listening,
    peers::OfiPeers,
    slots::{AccessPool, ArrivalSlots, SendBuffers},
    sockets::SocketRemains,
    table::RegionTable,
};

/// The limits of traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrafficLimits {
    /// Most unhandled requests, of a peer here and of this rank at a peer.
    pub(crate) window: u32,
    /// Most accesses with the provider, for one peer and for all.
    pub(crate) per_peer: u32,
    pub(crate) all: u32,
    /// Most bytes of a message that is sent by inject.
    pub(crate) inject: usize,
}

/// The state that all threads of a rank share.
pub(crate) struct OfiShared {
    pub(crate) rank: Rank,
    pub(crate) caps: Caps,
    pub(crate) footprint: Footprint,
    pub(crate) limits: TrafficLimits,
    pub(crate) segment: Segment,
    pub(crate) started: Instant,
    /// How long a peer may be silent; `None` for ever.
    pub(crate) patience: Option<Duration>,
    pub(crate) peers: OfiPeers,
    /// The keys of own memory.
    pub(crate) keys: ProviderKeys,
    /// Locked by the thread that reads the completion queue.
    pub(crate) collector: Mutex<Collector>,
    /// Operations that ended outside a read of the queue.
    ended: Mutex<Vec<EndedAccess>>,
    any_ended: AtomicBool,
    pub(crate) sleepers: Sleepers,
    pub(crate) commands: CommandQueue<LinkCommand>,
    pub(crate) loopback: Loopback,
    /// Accesses with the provider.
    pub(crate) in_flight: AtomicU32,
    next_ticket: AtomicU64,
    /// The number of the last fence.
    pub(crate) fences: AtomicU64,
    /// Counts polls and sleeps, so that the control thread knows whether anybody looks after arrivals.
    pub(crate) attention: AtomicU64,
    left: AtomicBool,
    /// The state of an endpoint without a job.
    pub(crate) listening: Option<Box<Listening>>,
    /// True once all peers were cut off.
    pub(crate) is_alone: Mutex<bool>,
    pub(crate) table: RegionTable,
    pub(crate) accesses: AccessPool,
    pub(crate) sends: SendBuffers,
    pub(crate) receives: ArrivalSlots,
    pub(crate) fabric: Arc<Fabric>,
    /// Dropped last: after the fabric.
    remains: SocketRemains,
}

/// The parts of [`OfiShared`] that are made before.
pub(crate) struct SharedParts {
    pub(crate) rank: Rank,
    pub(crate) caps: Caps,
    pub(crate) footprint: Footprint,
    pub(crate) limits: TrafficLimits,
    pub(crate) segment: Segment,
    pub(crate) patience: Option<Duration>,
    pub(crate) peers: OfiPeers,
    pub(crate) keys: ProviderKeys,
    pub(crate) listening: Option<Box<Listening>>,
    pub(crate) table: RegionTable,
    pub(crate) sends: SendBuffers,
    pub(crate) receives: ArrivalSlots,
    pub(crate) fabric: Arc<Fabric>,
}

impl Drop for OfiShared {
    /// Closes the endpoint before the memory of its operations is freed.
    fn drop(&mut self) {
        self.table.deregister();
        self.sends.deregister();
        self.receives.deregister();
        if let Some(own) = self.own_address() {
            self.remains = SocketRemains::of(own);
        }
        // SAFETY: no other thread has this state, and nothing is posted after this.
        unsafe { self.fabric.close_endpoint() }
    }
}

impl OfiShared {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(parts: SharedParts) -> Result<Self, Error> {
        Ok(Self {
            rank: parts.rank,
            caps: parts.caps,
            footprint: parts.footprint,
            limits: parts.limits,
            segment: parts.segment,
            started: Instant::now(),
            patience: parts.patience,
            peers: parts.peers,
            keys: parts.keys,
            collector: Mutex::new(Collector::new()),
            ended: Mutex::default(),
            any_ended: AtomicBool::new(false),
            sleepers: Sleepers::default(),
            commands: CommandQueue::new()?,
            loopback: Loopback::default(),
            in_flight: AtomicU32::new(0),
            next_ticket: AtomicU64::new(1),
            fences: AtomicU64::new(0),
            attention: AtomicU64::new(0),
            left: AtomicBool::new(false),
            listening: parts.listening,
            is_alone: Mutex::new(false),
            table: parts.table,
            accesses: AccessPool::new(),
            sends: parts.sends,
            receives: parts.receives,
            fabric: parts.fabric,
            remains: SocketRemains::default(),
        })
    }

    /// Returns the time since the job began, in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.ms_at(Instant::now())
    }

    /// Returns the time from the begin of the job until `time`, in milliseconds.
    pub(crate) fn ms_at(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.started).as_millis() as u64
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.next_ticket.fetch_add(1, Relaxed))
    }

    /// Marks this rank as having left. Returns `false` if it had left before.
    pub(crate) fn begin_to_leave(&self) -> bool {
        !self.left.swap(true, SeqCst)
    }

    /// Returns true if this rank has left.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(SeqCst)
    }

    /// Hands an ended operation to the next poll.
    pub(crate) fn end_operation(&self, ended: EndedAccess) {
        self.ended.lock().push(ended);
        self.any_ended.store(true, Release);
    }

    /// Moves the ended operations into `into`.
    #[inline]
    pub(crate) fn take_ended(&self, into: &mut Vec<EndedAccess>) {
        if self.any_ended.load(Acquire) {
            let mut ended = self.ended.lock();
            into.append(&mut ended);
            self.any_ended.store(false, Release);
        }
    }
}
