//! The completion queues: operations that ended, messages that arrived, and the threads that sleep
//! until either happens.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use hydrant_conduit::{Backoff, Error, Posted, Rank, Sleepers, Ticket};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    commands::ControlCommand,
    connection::{
        Connection, ConnectionFailure, EndedOperation, FastOutcome, RdmaAccess, parse_id,
    },
    endpoint::VerbsEndpoint,
    ffi,
    nic::{CompletionChannel, CompletionQueue, QueuePair, blank},
    peers::{OWN_TICKET, Peers},
};

/// How many polls a waiter makes for its operation before it does anything else: about as long as a
/// network takes.
const POLLS: u32 = 500;

/// Polls with a spin after each, between two yields of a thread that waits for one completion.
const SPINS: u32 = 15;

/// Completions taken by one poll.
const BATCH: usize = 16;

/// The completion queues, and the ended operations that no poll has handed up yet.
pub(crate) struct Completions {
    /// Completions of the work requests of all connections.
    sent: Arc<CompletionQueue>,
    /// Completions of messages that arrived.
    received: Arc<CompletionQueue>,
    /// Receives an event for the next completion of either queue, once they are armed.
    channel: Arc<CompletionChannel>,
    /// Held by the thread that takes completions of `sent`.
    poller: Mutex<Poller>,
    /// Operations that ended, by completion or otherwise, until a poll hands them up.
    ended: Mutex<Vec<EndedOperation>>,
    /// True if `ended` has entries.
    any_ended: AtomicBool,
    /// Ended operations of this rank on itself, until their waiters take them.
    own: Mutex<Vec<EndedOperation>>,
    /// Threads that sleep until a completion arrives or another thread wakes them.
    sleepers: Sleepers,
}

/// State of the thread that takes completions.
struct Poller {
    /// The completions of the last poll.
    completions: [ffi::ibv_wc; BATCH],
    /// The range of them that was not processed yet.
    unread: Range<usize>,
    /// The operations that they ended.
    ended: Vec<EndedOperation>,
}

impl Completions {
    /// Takes the queues that connections send to and receive by. Both report completions on
    /// `channel`.
    pub(crate) fn new(
        sent: Arc<CompletionQueue>,
        received: Arc<CompletionQueue>,
        channel: Arc<CompletionChannel>,
    ) -> Self {
        Self {
            sent,
            received,
            channel,
            poller: Mutex::new(Poller {
                completions: [blank(); BATCH],
                unread: 0..0,
                ended: Vec::new(),
            }),
            ended: Mutex::default(),
            any_ended: AtomicBool::new(false),
            own: Mutex::default(),
            sleepers: Sleepers::default(),
        }
    }

    /// Makes a queue pair that completes here, to be connected.
    pub(crate) fn queue_pair(
        &self,
        endpoint: &VerbsEndpoint,
        depth: u32,
        inline: u32,
    ) -> io::Result<QueuePair> {
        let (nic, receives) = (endpoint.nic(), endpoint.shared_queue());
        QueuePair::connected(nic, &self.sent, &self.received, receives, depth, inline)
    }

    #[inline]
    pub(crate) fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// Arms both queues: the channel receives an event for the next completion of either.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.sent.arm()?;
        self.received.arm()
    }

    /// The descriptor of the channel, readable when an event is pending.
    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Takes the events of the channel. Returns whether there was any.
    pub(crate) fn clear_channel(&self) -> bool {
        self.channel.clear()
    }

    /// Takes completions of messages that arrived. Returns how many. Only the thread that holds the
    /// inbox calls this.
    #[inline]
    pub(crate) fn poll_received(&self, into: &mut [ffi::ibv_wc]) -> usize {
        self.received.poll(into)
    }

    fn add_ended(&self, list: &mut Vec<EndedOperation>) {
        if !list.is_empty() {
            let mut ended = self.ended.lock();
            ended.append(list);
            self.any_ended.store(true, Release);
        }
    }

    /// Takes completions of work requests; [`take_ended`](Self::take_ended) then returns the
    /// operations that ended. Returns whether any completion may have been taken: a waiter may wait
    /// for a slot, or for room for a request.
    ///
    /// Stops at a connection that another thread holds, and leaves the rest for the next call. Such
    /// a thread may hold it for long, where the NIC does its work inside the call that posts it.
    pub(crate) fn poll_sent(&self, peers: &Peers) -> bool {
        match self.poller.try_lock() {
            Some(mut poller) => {
                self.poll_with(peers, &mut poller, |connection| connection.try_lock())
            }
            None => true,
        }
    }

    /// As [`poll_sent`](Self::poll_sent), but waits for other threads and takes everything that has
    /// arrived. For a thread that has nothing else to do.
    pub(crate) fn poll_all_sent(&self, peers: &Peers) -> bool {
        // This cannot deadlock: a thread that holds a connection never waits for a poller.
        let mut poller = self.poller.lock();
        self.poll_with(peers, &mut poller, |connection| Some(connection.lock()))
    }

    #[inline(always)]
    fn poll_with<'a>(
        &self,
        peers: &'a Peers,
        poller: &mut Poller,
        lock: impl Fn(&'a Mutex<Connection>) -> Option<MutexGuard<'a, Connection>>,
    ) -> bool {
        let mut any = false;
        loop {
            let mut last = false;
            if poller.unread.start == poller.unread.end {
                let count = self.sent.poll(&mut poller.completions);
                poller.unread = 0..count;
                last = count < BATCH;
                if count == 0 {
                    return any;
                }
            }
            any = true;
            let Poller {
                completions,
                unread,
                ended,
            } = poller;
            while unread.start < unread.end
                && complete(peers, &completions[unread.start], &lock, ended)
            {
                unread.start += 1;
            }
            let stopped = unread.start < unread.end;
            self.add_ended(ended);
            if stopped || last {
                return true;
            }
        }
    }

    /// Posts an access by the fast path, if no other thread takes completions or holds the
    /// connection, and nothing is in flight on the connection. Returns the outcome if it is known
    /// after a moment.
    ///
    /// # Safety
    /// 1. and 2. as [`Connection::post_fast`].
    #[allow(unsafe_code)] // posts a work request
    #[inline(always)]
    pub(crate) unsafe fn post_fast(
        &self,
        peers: &Peers,
        peer: Rank,
        connection: &Mutex<Connection>,
        access: &RdmaAccess,
    ) -> Option<Result<Posted, Error>> {
        let mut poller = self.poller.try_lock()?;
        let mut held = connection.try_lock()?;
        if !poller.unread.is_empty() || !held.can_post_fast(peers.pool()) {
            return None;
        }
        let poll_once = || {
            let taken = &mut poller.completions[..1];
            (self.sent.poll(taken) > 0).then(|| taken[0])
        };
        // SAFETY: the caller's conditions 1 and 2.
        let fast = unsafe { held.post_fast(peers.pool(), access, poll_once) };
        if matches!(fast, FastOutcome::Done) {
            drop(held);
            drop(poller);
            // Only operations that wait for the doorbell can use the freed room.
            peers.flush();
            return Some(Ok(Posted::Done));
        }
        let ticket = peers.ticket();
        // SAFETY: the caller's condition 2: inline data is still unchanged, because this call has
        // not returned.
        unsafe { held.leave_fast_path(peers.pool(), RdmaAccess { ticket, ..*access }, &fast) };
        drop(held);
        let outcome = match fast {
            FastOutcome::Unclear => self.complete_polled(peers, &mut poller, ticket),
            FastOutcome::InFlight(id) => {
                drop(poller);
                self.poll_for(peers, connection, Some(id), ticket)
            }
            FastOutcome::Refused(cause) => {
                peers.report_refusal(peer, &cause);
                None
            }
            FastOutcome::Done => None,
        };
        Some(outcome.map_or(Ok(Posted::Pending(ticket)), |it| it.map(|()| Posted::Done)))
    }

    /// Polls a moment for one operation. Returns its outcome if it ended; then no poll hands it up.
    /// Other operations that ended are handed up by the next poll. `id` is carried by its
    /// completion, where that is known.
    #[inline]
    pub(crate) fn poll_for(
        &self,
        peers: &Peers,
        connection: &Mutex<Connection>,
        id: Option<u64>,
        ticket: Ticket,
    ) -> Option<Result<(), Error>> {
        let mut poller = self.poller.try_lock()?;
        if !poller.unread.is_empty()
            || !(0..POLLS).any(|_| self.sent.poll(&mut poller.completions[..1]) > 0)
        {
            return None;
        }
        let completion = &poller.completions[0];
        if Some(completion.wr_id) == id
            && completion.status == ffi::IBV_WC_SUCCESS
            && connection
                .lock()
                .complete_one(peers.pool(), completion.wr_id, ticket)
        {
            // Only operations that wait for the doorbell can use the freed room.
            drop(poller);
            peers.flush();
            return Some(Ok(()));
        }
        self.complete_polled(peers, &mut poller, ticket)
    }

    /// Processes the completion that was polled, which need not be of the operation with this
    /// ticket.
    #[cold]
    fn complete_polled(
        &self,
        peers: &Peers,
        poller: &mut Poller,
        ticket: Ticket,
    ) -> Option<Result<(), Error>> {
        let Poller {
            completions, ended, ..
        } = poller;
        complete(
            peers,
            &completions[0],
            |connection| Some(connection.lock()),
            ended,
        );
        let found = ended.iter().position(|(it, _)| *it == ticket);
        let outcome = found.map(|at| ended.remove(at).1);
        self.add_ended(ended);
        peers.flush();
        self.sleepers.wake_listening();
        outcome
    }

    /// Takes the operations that ended since the last call.
    #[inline]
    pub(crate) fn take_ended(&self, into: &mut Vec<EndedOperation>) {
        if self.any_ended.load(Acquire) {
            let mut ended = self.ended.lock();
            std::mem::swap(&mut *ended, into);
            self.any_ended.store(false, Release);
        }
    }

    /// Keeps the outcome of an operation of this rank on itself for its waiter. Returns any other
    /// outcome.
    #[inline]
    pub(crate) fn keep_own(&self, ended: EndedOperation) -> Option<EndedOperation> {
        if ended.0.0 & OWN_TICKET == 0 {
            return Some(ended);
        }
        self.own.lock().push(ended);
        None
    }

    /// Waits until an operation of this rank on itself ends. It depends on no peer, and nothing is
    /// delivered meanwhile.
    pub(crate) fn wait_for_own(&self, peers: &Peers, ticket: Ticket) -> Result<(), Error> {
        let take_from = |list: &Mutex<Vec<EndedOperation>>| {
            let mut list = list.lock();
            let at = list.iter().position(|ended| ended.0 == ticket)?;
            Some(list.swap_remove(at).1)
        };
        let mut backoff = Backoff::new(SPINS, 1);
        loop {
            self.poll_sent(peers);
            if let Some(outcome) = take_from(&self.ended).or_else(|| take_from(&self.own)) {
                return outcome;
            }
            peers.flush();
            backoff.pause_awake();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.any_ended.load(Acquire)
    }

    /// Adds operations that ended without a completion, and wakes all sleepers.
    pub(crate) fn end_operations(&self, mut list: Vec<EndedOperation>) {
        self.add_ended(&mut list);
        self.sleepers.wake_all();
    }
}

/// Processes a completion. Returns `false` if its connection could not be locked.
#[inline]
fn complete<'a>(
    peers: &'a Peers,
    completion: &ffi::ibv_wc,
    lock: impl Fn(&'a Mutex<Connection>) -> Option<MutexGuard<'a, Connection>>,
    ended: &mut Vec<EndedOperation>,
) -> bool {
    let (rank, epoch, number) = parse_id(completion.wr_id);
    let Some(peer) = peers.existing(rank) else {
        return true;
    };
    let Some(mut connection) = lock(peer.connection()) else {
        return false;
    };
    // A late completion of a connection that was replaced.
    if !connection.has_epoch(epoch) {
        return true;
    }
    if completion.status == ffi::IBV_WC_SUCCESS {
        connection.complete_through(peers.pool(), number, ended);
        return true;
    }
    let status = completion.status;
    match connection.fail(peers.pool(), number, status, ended) {
        ConnectionFailure::Broken => peers.commands().push(ControlCommand::Connect(Rank(rank))),
        ConnectionFailure::Unclear => peers.commands().push(ControlCommand::QueryPsn(Rank(rank))),
        ConnectionFailure::Lost(why) => {
            peers.commands().push(ControlCommand::Lose(Rank(rank), why))
        }
    }
    true
}
