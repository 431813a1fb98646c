//! The peers: the connection to each, its counts, and its standing in the job.
//!
//! Every request to a NIC goes through here. It is posted at once, or queued with its connection
//! until the connection is made or the doorbell is due. Connections with queued requests are
//! listed, and every poll [flushes](Peers::flush) them.

mod credits;
mod incoming;

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use hydrant_conduit::{CommandQueue, Error, Rank, Standing, Standings, Ticket};
use parking_lot::Mutex;

use crate::{
    commands::ControlCommand,
    connection::{Connection, RdmaAccess, RdmaOperation, SendPool},
    message::Immediate,
    slots::SendSlot,
};

pub(crate) use credits::Credits;
pub(crate) use incoming::{ConnectRequest, IncomingConnection, IncomingPairs};

/// The peers, and the state that their connections share.
pub(crate) struct Peers {
    /// The peers by rank, each made on first use.
    list: Box<[OnceLock<Box<PeerLink>>]>,
    /// The standing of each rank in the job.
    standings: Standings,
    /// Send slots, result words and the count of posted requests, shared by all connections.
    pool: SendPool,
    /// Commands to the control thread: connections to make, peers to declare lost.
    commands: CommandQueue<ControlCommand>,
    /// Ranks whose connections wait for the doorbell. Each is listed once: its connection is
    /// `listed`.
    doorbells_due: Mutex<Vec<u32>>,
    /// True if `doorbells_due` has entries.
    any_doorbell_due: AtomicBool,
    /// The next ticket. Tickets count from 1; ticket 0 names no operation.
    next_ticket: AtomicU64,
}

/// Set in the ticket of an operation of this rank on itself.
pub(crate) const OWN_TICKET: u64 = 1 << 62;

/// The connections and counts between this rank and one peer.
pub(crate) struct PeerLink {
    /// Requests of this rank to the peer, in order.
    connection: Mutex<Connection>,
    /// Counts of unhandled requests, in both directions.
    credits: Credits,
    /// The peer's connection to this rank.
    incoming: Mutex<IncomingConnection>,
}

impl Peers {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(ranks: u32, pool: SendPool) -> Result<Self, Error> {
        Ok(Self {
            list: (0..ranks).map(|_| OnceLock::new()).collect(),
            standings: Standings::new(ranks),
            pool,
            commands: CommandQueue::new()?,
            doorbells_due: Mutex::default(),
            any_doorbell_due: AtomicBool::new(false),
            next_ticket: AtomicU64::new(1),
        })
    }

    #[inline]
    pub(crate) fn standings(&self) -> &Standings {
        &self.standings
    }

    #[inline]
    pub(crate) fn pool(&self) -> &SendPool {
        &self.pool
    }

    pub(crate) fn commands(&self) -> &CommandQueue<ControlCommand> {
        &self.commands
    }

    /// Returns a peer, and makes it on first use.
    #[inline(always)] // on the path of every hit
    pub(crate) fn get(&self, rank: Rank) -> &PeerLink {
        match self.list[rank.index()].get() {
            Some(peer) => peer,
            None => self.create(rank),
        }
    }

    #[cold]
    fn create(&self, rank: Rank) -> &PeerLink {
        self.list[rank.index()].get_or_init(|| Box::new(PeerLink::new(rank)))
    }

    /// Returns the peer if it was made before.
    pub(crate) fn existing(&self, rank: u32) -> Option<&PeerLink> {
        Some(&**self.list.get(rank as usize)?.get()?)
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.next_ticket.fetch_add(1, Relaxed))
    }

    /// Returns a ticket for an operation of this rank on itself.
    pub(crate) fn own_ticket(&self) -> Ticket {
        Ticket(self.ticket().0 | OWN_TICKET)
    }

    /// Posts an operation. Returns the id that its completion carries, if the NIC took it at once.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`Connection::post_now`].
    #[allow(unsafe_code)] // posts work requests
    #[inline(always)]
    pub(crate) unsafe fn post(
        &self,
        rank: Rank,
        connection: &mut Connection,
        operation: RdmaOperation,
    ) -> Option<u64> {
        // SAFETY: the caller's conditions 1, 2 and 3.
        match unsafe { connection.post_now(&self.pool, operation) } {
            Ok(Ok(id)) => return Some(id),
            Ok(Err(cause)) => self.report_refusal(rank, &cause),
            // SAFETY: the caller's conditions 1, 2 and 3.
            Err(operation) => unsafe { self.enqueue(rank, connection, operation) },
        }
        None
    }

    #[cold]
    pub(crate) fn report_refusal(&self, rank: Rank, cause: &io::Error) {
        tracing::error!(%cause, peer = %rank, "the NIC refused a request");
        let why = "the NIC refused a request";
        self.commands.push(ControlCommand::Lose(rank, why));
    }

    /// Queues an operation that could not be posted at once.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`Connection::post_now`].
    #[allow(unsafe_code)] // queues what is posted later
    unsafe fn enqueue(&self, rank: Rank, connection: &mut Connection, operation: RdmaOperation) {
        let is_first = connection.is_unused();
        // SAFETY: the caller's conditions 1, 2 and 3.
        if let Err(cause) = unsafe { connection.push(&self.pool, operation) } {
            self.report_refusal(rank, &cause);
        }
        if is_first {
            connection.begin_connecting();
            self.commands.push(ControlCommand::Connect(rank));
        }
        self.list_for_doorbell(rank, connection);
    }

    /// Posts an empty write, which touches no memory. Its completion completes all requests before
    /// it.
    #[allow(unsafe_code)] // posts a work request
    pub(crate) fn post_empty_write(&self, rank: Rank, connection: &mut Connection) {
        // SAFETY: 1., 2., 3. A write of no bytes names no memory.
        unsafe {
            self.post(
                rank,
                connection,
                RdmaOperation::Access(RdmaAccess::NOTHING, None),
            )
        };
    }

    /// Posts the send of a filled slot.
    #[allow(unsafe_code)] // posts a work request
    #[inline]
    pub(crate) fn post_send(
        &self,
        rank: Rank,
        connection: &mut Connection,
        slot: SendSlot,
        len: usize,
        immediate: Immediate,
    ) {
        let len = len as u32;
        // SAFETY: 1. The slot is registered as long as the pool lives. 2. The operation owns the
        // slot until its completion gives it back. 3. A send names no memory of the peer.
        unsafe {
            self.post(
                rank,
                connection,
                RdmaOperation::Send {
                    slot,
                    len,
                    immediate,
                },
            )
        };
    }

    /// Lists the connection for the next flush, if a request waits for the doorbell.
    #[inline]
    pub(crate) fn list_for_doorbell(&self, rank: Rank, connection: &mut Connection) {
        if connection.mark_listed() {
            self.doorbells_due.lock().push(rank.0);
            self.any_doorbell_due.store(true, Relaxed);
        }
    }

    /// Rings the doorbells that are due.
    #[inline]
    pub(crate) fn flush(&self) {
        if self.any_doorbell_due.load(Relaxed) {
            self.flush_due();
        }
    }

    #[cold]
    fn flush_due(&self) {
        let mut list = std::mem::take(&mut *self.doorbells_due.lock());
        list.retain(|rank| {
            let Some(peer) = self.existing(*rank) else {
                return false;
            };
            let mut connection = peer.connection.lock();
            if let Err(cause) = connection.flush(&self.pool) {
                self.report_refusal(Rank(*rank), &cause);
            }
            connection.refresh_listed()
        });
        let mut due = self.doorbells_due.lock();
        due.append(&mut list);
        self.any_doorbell_due.store(!due.is_empty(), Relaxed);
    }

    /// Returns whether no signaled request to a peer is in flight or queued.
    pub(crate) fn is_idle(&self, rank: u32) -> bool {
        let is_idle = |peer: &PeerLink| peer.connection.lock().is_idle();
        self.existing(rank).is_none_or(is_idle)
    }

    /// Returns whether all requests to present ranks are known to be done. Where only unsignaled
    /// messages are in flight, posts an empty write whose completion will tell.
    pub(crate) fn settle(&self) -> bool {
        let mut quiet = true;
        for rank in (0..self.list.len() as u32).map(Rank) {
            let Some(peer) = self.existing(rank.0) else {
                continue;
            };
            if self.standings.of(rank) != Standing::Present {
                continue;
            }
            let mut connection = peer.connection.lock();
            if connection.is_idle() && !connection.is_empty() {
                self.post_empty_write(rank, &mut connection);
            }
            quiet &= connection.is_empty();
        }
        quiet
    }
}

impl PeerLink {
    fn new(rank: Rank) -> Self {
        Self {
            connection: Mutex::new(Connection::new(rank.0)),
            credits: Credits::default(),
            incoming: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn connection(&self) -> &Mutex<Connection> {
        &self.connection
    }

    #[inline]
    pub(crate) fn credits(&self) -> &Credits {
        &self.credits
    }

    pub(crate) fn incoming(&self) -> &Mutex<IncomingConnection> {
        &self.incoming
    }
}
