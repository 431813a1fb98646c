//! The completion queues: what of that which peers' NICs were asked to do has ended, what has
//! arrived, and who sleeps until there is something of either.

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

use hydrant_conduit::{Backoff, Error, Posted, Rank, Ticket};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    commands::ControlCommand,
    connection::{
        Connection, ConnectionFailure, EndedOperation, FastOutcome, RdmaAccess, parse_id,
    },
    endpoint::Endpoint,
    ffi,
    nic::{CompletionChannel, CompletionQueue, QueuePair, blank},
    peers::{OWN_TICKET, Peers},
    sleepers::Sleepers,
};

/// How often who waits for an operation looks whether it has ended before doing anything else:
/// about as long as a network takes.
const POLLS: u32 = 500;

/// Polls, with a spin after each, between two yields of who waits for one completion alone.
const SPINS: u32 = 15;

/// Completions taken at once.
const BATCH: usize = 16;

/// The completion queues, and what is known from them that nobody was handed yet.
pub(crate) struct Completions {
    /// Where the work requests of all connections complete.
    sent: Arc<CompletionQueue>,
    /// Where messages that arrived complete.
    received: Arc<CompletionQueue>,
    /// Gets an event for the next completion of either queue, once they are armed.
    channel: Arc<CompletionChannel>,
    /// One thread at a time takes completions of `sent`.
    poller: Mutex<Poller>,
    /// Operations that ended, by completion or otherwise, until a poll hands them up.
    ended: Mutex<Vec<EndedOperation>>,
    /// Whether there are such.
    any_ended: AtomicBool,
    /// Of what this rank asked of itself: who asked takes it from here.
    own: Mutex<Vec<EndedOperation>>,
    /// Threads that sleep until something is told here, or until somebody wakes them.
    sleepers: Sleepers,
}

/// What the thread that takes completions has of its own.
struct Poller {
    /// Completions taken last.
    completions: [ffi::ibv_wc; BATCH],
    /// Those of them that were taken and not looked at yet.
    unread: Range<usize>,
    /// What these are the end of.
    ended: Vec<EndedOperation>,
}

impl Completions {
    /// Of the queues that connections send to and receive by, which tell of completions on one
    /// channel.
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

    /// A queue pair that completes here, to be connected.
    pub(crate) fn queue_pair(
        &self,
        endpoint: &Endpoint,
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

    /// Has the channel get an event for the next completion, of what was sent or of what arrives.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.sent.arm()?;
        self.received.arm()
    }

    /// The descriptor of the channel, to be polled for reading.
    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Takes the events of the channel: whether there was any.
    pub(crate) fn clear_channel(&self) -> bool {
        self.channel.clear()
    }

    /// Takes completions of messages that arrived: how many. For the one thread that has the
    /// inbox.
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

    /// Takes completions of what was asked of peers' NICs; what ended can then be
    /// [taken](Self::take_ended). Whether there may have been any: a slot, or room for a request,
    /// can be what somebody waits for.
    ///
    /// A thread may be busy for long with a connection, where the NIC's work is done in the call that
    /// posts it: what is on that connection, and after it, is left for the next call.
    pub(crate) fn poll_sent(&self, peers: &Peers) -> bool {
        match self.poller.try_lock() {
            Some(mut poller) => {
                self.poll_with(peers, &mut poller, |connection| connection.try_lock())
            }
            None => true,
        }
    }

    /// As [`poll_sent`](Self::poll_sent), by a thread that has nothing else to do than wait for such others:
    /// all that has come.
    pub(crate) fn poll_all_sent(&self, peers: &Peers) -> bool {
        // Who holds a connection waits for nobody who polls.
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

    /// Posts an access, if nobody else takes completions or is at the connection and nothing is under way
    /// there: then what there is to say of it, if that is known after a moment.
    ///
    /// # Safety
    /// As [`Connection::post_fast`].
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
        let look = || {
            let taken = &mut poller.completions[..1];
            (self.sent.poll(taken) > 0).then(|| taken[0])
        };
        // SAFETY: the same contract.
        let fast = unsafe { held.post_fast(peers.pool(), access, look) };
        if matches!(fast, FastOutcome::Done) {
            drop(held);
            drop(poller);
            // Nobody waits for what that frees but operations that wait for the doorbell.
            peers.flush();
            return Some(Ok(Posted::Done));
        }
        let ticket = peers.ticket();
        // SAFETY: the caller's memory is as it was when the access was posted: this call has not returned.
        unsafe { held.leave_fast_path(peers.pool(), RdmaAccess { ticket, ..*access }, &fast) };
        drop(held);
        let outcome = match fast {
            FastOutcome::Unclear => self.complete_polled(peers, &mut poller, ticket),
            FastOutcome::UnderWay(id) => {
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

    /// Looks a moment whether one operation has ended, which no poll hands up then; others that
    /// have are handed up by the next poll. `id`: the name of its completion, where that is known.
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
            // Nobody waits for what that frees but operations that wait for the doorbell.
            drop(poller);
            peers.flush();
            return Some(Ok(()));
        }
        self.complete_polled(peers, &mut poller, ticket)
    }

    /// The completion is not of that operation alone.
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

    /// What ended since this was last called.
    #[inline]
    pub(crate) fn take_ended(&self, into: &mut Vec<EndedOperation>) {
        if self.any_ended.load(Acquire) {
            let mut ended = self.ended.lock();
            std::mem::swap(&mut *ended, into);
            self.any_ended.store(false, Release);
        }
    }

    /// Keeps the end of what this rank asked of itself for who asked, if it is of that kind.
    #[inline]
    pub(crate) fn keep_own(&self, ended: EndedOperation) -> Option<EndedOperation> {
        if ended.0.0 & OWN_TICKET == 0 {
            return Some(ended);
        }
        self.own.lock().push(ended);
        None
    }

    /// Waits until the own NIC has done what this rank asked of itself. No peer has a part in it,
    /// and nothing is delivered meanwhile.
    pub(crate) fn wait_for_own(&self, peers: &Peers, ticket: Ticket) -> Result<(), Error> {
        let take = |list: &Mutex<Vec<EndedOperation>>| {
            let mut list = list.lock();
            let at = list.iter().position(|ended| ended.0 == ticket)?;
            Some(list.swap_remove(at).1)
        };
        let mut backoff = Backoff::new(SPINS, 1);
        loop {
            self.poll_sent(peers);
            if let Some(outcome) = take(&self.ended).or_else(|| take(&self.own)) {
                return outcome;
            }
            peers.flush();
            backoff.pause_awake();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.any_ended.load(Acquire)
    }

    /// Operations that ended otherwise than by a completion.
    pub(crate) fn end_operations(&self, mut list: Vec<EndedOperation>) {
        self.add_ended(&mut list);
        self.sleepers.wake_all();
    }
}

/// Looks at a completion: `false` if its connection was not to be had.
#[inline]
fn complete<'a>(
    peers: &'a Peers,
    completion: &ffi::ibv_wc,
    lock: impl Fn(&'a Mutex<Connection>) -> Option<MutexGuard<'a, Connection>>,
    ended: &mut Vec<EndedOperation>,
) -> bool {
    let (rank, epoch, number) = parse_id(completion.wr_id);
    let Some(peer) = peers.known(rank) else {
        return true;
    };
    let Some(mut connection) = lock(peer.connection()) else {
        return false;
    };
    // What is left of a connection that is gone.
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
