//! The peers: the connection to each, what is counted of it, and how it stands to the job.
//!
//! What a NIC is asked to do goes through here. It is posted at once, or kept with its connection
//! until that is made or until the doorbell is due; connections with such are listed, and every
//! poll [flushes](Peers::flush) them.

mod credits;
mod incoming;

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use hydrant_conduit::{Error, Rank, Standing, Standings, Ticket};
use parking_lot::Mutex;

use crate::{
    commands::{CommandQueue, ControlCommand},
    connection::{Connection, RdmaAccess, RdmaOperation, SendPool},
    message::Immediate,
    slots::SendSlot,
};

pub(crate) use credits::Credits;
pub(crate) use incoming::{ConnectRequest, IncomingConnection, IncomingPairs};

/// The peers, and what the connections to them share.
pub(crate) struct Peers {
    /// By rank; each is made when this rank first has to do with it.
    list: Box<[OnceLock<Box<PeerLink>>]>,
    /// Who takes part, and how the others ended.
    standings: Standings,
    /// Send slots and result words, and how much is with the NIC: of all connections together.
    pool: SendPool,
    /// What the control thread is to do: connections to be made, peers to be lost.
    commands: CommandQueue,
    /// Ranks whose connections have something that waits for the doorbell. Each is in it once:
    /// its connection is `listed`.
    doorbells_due: Mutex<Vec<u32>>,
    /// Whether there are such.
    any_doorbell_due: AtomicBool,
    /// Counts operations, from 1; 0 names none.
    next_ticket: AtomicU64,
}

/// In a ticket of what a rank asks of itself.
pub(crate) const OWN_TICKET: u64 = 1 << 62;

/// A peer that this rank has to do with.
pub(crate) struct PeerLink {
    /// What this rank asks of the peer, in order.
    connection: Mutex<Connection>,
    /// Requests that are unhandled, either way.
    credits: Credits,
    /// What the peer asks of this rank.
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

    pub(crate) fn commands(&self) -> &CommandQueue {
        &self.commands
    }

    /// A peer, made when this rank first has to do with it.
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

    /// The peer, if this rank ever had to do with it.
    pub(crate) fn known(&self, rank: u32) -> Option<&PeerLink> {
        Some(&**self.list.get(rank as usize)?.get()?)
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.next_ticket.fetch_add(1, Relaxed))
    }

    /// Of something that this rank asks of itself.
    pub(crate) fn own_ticket(&self) -> Ticket {
        Ticket(self.ticket().0 | OWN_TICKET)
    }

    /// Has something done by a peer's NIC: the name of its completion, if the NIC has it.
    ///
    /// # Safety
    /// As [`Connection::post_now`].
    #[allow(unsafe_code)] // posts work requests
    #[inline(always)]
    pub(crate) unsafe fn post(
        &self,
        rank: Rank,
        connection: &mut Connection,
        operation: RdmaOperation,
    ) -> Option<u64> {
        // SAFETY: the same contract.
        match unsafe { connection.post_now(&self.pool, operation) } {
            Ok(Ok(id)) => return Some(id),
            Ok(Err(cause)) => self.report_refusal(rank, &cause),
            // SAFETY: the same contract.
            Err(operation) => unsafe { self.enqueue(rank, connection, operation) },
        }
        None
    }

    #[cold]
    pub(crate) fn report_refusal(&self, rank: Rank, cause: &io::Error) {
        tracing::error!(%cause, peer = %rank, "the NIC does not take what is asked of it");
        let why = "the NIC refused a request";
        self.commands.push(ControlCommand::Lose(rank, why));
    }

    /// Has something done by a peer's NIC that could not be done at once.
    ///
    /// # Safety
    /// As [`Connection::post_now`].
    #[allow(unsafe_code)] // queues what is posted later
    unsafe fn enqueue(&self, rank: Rank, connection: &mut Connection, operation: RdmaOperation) {
        let first = connection.is_unused();
        // SAFETY: the same contract.
        if let Err(cause) = unsafe { connection.push(&self.pool, operation) } {
            self.report_refusal(rank, &cause);
        }
        if first {
            connection.begin_connecting();
            self.commands.push(ControlCommand::Connect(rank));
        }
        self.list_for_doorbell(rank, connection);
    }

    /// Asks for an empty write, which touches nothing: when it is done, all before it is.
    #[allow(unsafe_code)] // posts a work request
    pub(crate) fn post_empty_write(&self, rank: Rank, connection: &mut Connection) {
        // SAFETY: a write of no bytes names no memory.
        unsafe {
            self.post(
                rank,
                connection,
                RdmaOperation::Access(RdmaAccess::NOTHING, None),
            )
        };
    }

    /// Sends what was written into a slot.
    #[allow(unsafe_code)] // posts a work request
    #[inline]
    pub(crate) fn post_send(
        &self,
        rank: Rank,
        connection: &mut Connection,
        slot: SendSlot,
        len: usize,
        front: Immediate,
    ) {
        let len = len as u32;
        // SAFETY: the slot is registered as long as the pool lives, and is the operation's until
        // its completion gives it back.
        unsafe { self.post(rank, connection, RdmaOperation::Send { slot, len, front }) };
    }

    /// If something waits for the doorbell, polls look after it from now on.
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
            let Some(peer) = self.known(*rank) else {
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

    /// Whether a peer has nothing to do of which its NIC may tell.
    pub(crate) fn is_idle(&self, rank: u32) -> bool {
        let is_idle = |peer: &PeerLink| peer.connection.lock().is_idle();
        self.known(rank).is_none_or(is_idle)
    }

    /// Whether everything that was asked of the NICs of ranks that are there is known to be done.
    /// Where it is not known of messages, it will be.
    pub(crate) fn settle(&self) -> bool {
        let mut quiet = true;
        for rank in (0..self.list.len() as u32).map(Rank) {
            let Some(peer) = self.known(rank.0) else {
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
