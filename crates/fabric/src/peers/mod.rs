//! One endpoint of the network, and its sessions.
//!
//! This room stands on a conduit without a job ([`hydrant_ofi::listen`]). A thread of its own polls; any thread begins
//! operations and posts them itself.
//!
//! # Lent memory
//!
//! To lend memory registers nothing. A lent range consists of *chunks*. A process that wants to access a chunk asks its
//! owner, who registers it and answers with the key: a *grant*. The process keeps the grant for later operations, until
//! the owner *recalls* it. Then it finishes the operations that use the grant, and *returns* it. An owner that takes
//! memory back recalls all its grants, and waits until each process that had one returned it or is lost. The conduit
//! promises that nothing of a lost process lands any more. So nobody touches the memory afterwards. A process that
//! returns no grant for a long time is given up, and so lost.
//!
//! The owner keeps at most so many bytes registered, for all peers together, by use. A chunk that is asked for while there
//! is no room waits until the chunk that was granted first is returned. The providers that this room uses pin nothing.
//!
//! # Order
//!
//! Messages to a peer leave in the order in which they were handed in. A message that is sent after an operation has
//! ended arrives after the data: the operation ended when the data was there.
//!
//! # Locks
//!
//! One lock guards the state. Under it messages and accesses are posted, and nothing is registered, waited for or called
//! in the layer above.

mod grants;
mod lender;
mod operations;
mod outbox;
mod poller;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    mem::ManuallyDrop,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hydrant_conduit::{Conduit, Error, Membership as _, Rank, Sleep as _, fork::CreatorProcess};
use hydrant_ofi::{ConnectFailure, ListenOptions, Ofi, OfiOptions, PeerControl};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use grants::KnownGrants;
use lender::LentChunks;
pub use lender::{LentTerms, MOST_RANGES};
use operations::OpenOperations;
pub use operations::{
    AccessRun, Finish, PeerAccess, PeerOperationEnd, PeerOperationError, PeerOperationFailure,
};
use outbox::WireOutbox;
use poller::HeardQueue;

/// The time between two looks whether messages have left.
const NAP: Duration = Duration::from_millis(1);

/// The result of a call of this crate.
type Result<T> = std::result::Result<T, Error>;

/// A session with a peer. No other session ever has the same number in this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FabricSession(u64);

/// The name of a range of lent memory, at its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LentName(pub u64);

/// The direction of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationWay {
    /// Own memory is written to the peer's.
    Write,
    /// The peer's memory is read into own memory.
    Read,
}

/// A change of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// It began. These are the peer's bytes, and whether this process asked for it.
    Met(FabricSession, Vec<u8>, bool),
    /// It did not begin, for this reason.
    Failed(FabricSession, ConnectFailure),
    /// It ended in good order.
    Left(FabricSession),
    /// It is lost, for this reason. Nothing of it lands any more.
    Lost(FabricSession, &'static str),
}

impl SessionEvent {
    /// Returns the session that is over.
    fn ending(&self) -> Option<FabricSession> {
        match self {
            Self::Met(..) => None,
            Self::Failed(session, _) | Self::Left(session) | Self::Lost(session, _) => {
                Some(*session)
            }
        }
    }
}

/// The layer above. The room's thread calls it, without a lock of the room.
pub trait SessionSink: Send + Sync {
    /// Decides about a peer by its bytes: returns bytes for the peer, or the reason to decline.
    fn admit(&self, introduction: &[u8]) -> std::result::Result<Vec<u8>, Vec<u8>>;
    /// Hears of a session.
    fn event(&self, event: SessionEvent);
    /// Hears a message.
    fn message(&self, from: FabricSession, bytes: &[u8]);
}

/// The options of an endpoint of the network.
#[derive(Clone, Debug)]
pub struct FabricOptions {
    /// The provider, as `tcp`; empty for the best one.
    pub provider: String,
    /// The network interfaces that may be used: names, addresses or networks, with commas between; empty for any.
    pub interface: String,
    /// The port to listen at; 0 for the kernel's choice.
    pub port: u16,
    /// The most bytes of own memory that are registered at a time; `None` for as many as the provider takes.
    pub registered: Option<u64>,
    /// How long a peer may be silent.
    pub peer_timeout: Duration,
    /// How long an attempt to connect lasts.
    pub connect_timeout: Duration,
    /// How long a peer may keep a grant that was recalled, before it is given up.
    pub recall_timeout: Duration,
}

impl Default for FabricOptions {
    fn default() -> Self {
        let usual = ListenOptions::default();
        let peer_timeout = usual.ofi.peer_timeout.unwrap_or(Duration::from_secs(3));
        Self {
            provider: String::new(),
            interface: String::new(),
            port: 0,
            registered: None,
            peer_timeout,
            connect_timeout: usual.connect_timeout,
            recall_timeout: 10 * peer_timeout,
        }
    }
}

/// An endpoint of the network whose peers come and go. Dropping it leaves all sessions, ends the operations that are under
/// way, and waits until nothing of them lands any more.
#[derive(Debug)]
pub struct FabricPeers {
    room: ManuallyDrop<Arc<EndpointRoom>>,
    poller: Option<JoinHandle<()>>,
    registrar: Option<JoinHandle<()>>,
    peer_timeout: Duration,
    creator: CreatorProcess,
}

/// The room's state.
struct EndpointRoom {
    conduit: Ofi,
    control: PeerControl,
    sink: Arc<dyn SessionSink>,
    state: Mutex<FabricState>,
    /// Notified when a grant was returned, or a session ended.
    returned: Condvar,
    /// Notified when the registrar has work.
    work: Condvar,
    is_over: AtomicBool,
    /// The deliveries of the current poll.
    heard: Arc<HeardQueue>,
    /// Held by the thread that polls.
    turn: Mutex<()>,
}

impl std::fmt::Debug for EndpointRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndpointRoom")
    }
}

/// A session that was begun.
struct SessionRecord {
    rank: Rank,
    /// True until its end was heard.
    is_open: bool,
    /// True once the layer above was told of its end.
    is_told: bool,
    /// Operations that have not ended. The conduit's number is released after the last.
    uses: usize,
}

struct FabricState {
    sessions: FxHashMap<FabricSession, SessionRecord>,
    by_rank: FxHashMap<Rank, FabricSession>,
    next_session: u64,
    /// Sessions that have ended, whose numbers were not released.
    over: Vec<FabricSession>,
    lender: LentChunks,
    grants: KnownGrants,
    operations: OpenOperations,
    outbox: WireOutbox,
}

impl FabricState {
    /// Returns the session that has a number of the conduit, and begins it if there is none.
    fn session_of(&mut self, rank: Rank) -> FabricSession {
        if let Some(session) = self.by_rank.get(&rank) {
            return *session;
        }
        self.next_session += 1;
        let session = FabricSession(self.next_session);
        self.by_rank.insert(rank, session);
        let record = SessionRecord {
            rank,
            is_open: true,
            is_told: false,
            uses: 0,
        };
        self.sessions.insert(session, record);
        session
    }
}

impl FabricPeers {
    /// Listens. Processes that know the locator and `key` may become peers.
    ///
    /// # Errors
    /// The conduit's; [`Error::Unreachable`] if libfabric is missing, or if the provider wants own memory registered,
    /// which this room does not do.
    pub fn listen(
        options: &FabricOptions,
        key: [u8; 16],
        sink: Arc<dyn SessionSink>,
    ) -> Result<Self> {
        let usual = ListenOptions::default();
        let listen = ListenOptions {
            ofi: OfiOptions {
                provider: options.provider.clone(),
                interface: options.interface.clone(),
                peer_timeout: Some(options.peer_timeout),
                ..usual.ofi
            },
            port: options.port,
            connect_timeout: options.connect_timeout,
            ..usual
        };
        let heard = Arc::new(HeardQueue::new(Arc::clone(&sink)));
        let (conduit, control) = hydrant_ofi::listen(&listen, key, Arc::clone(&heard) as _)?;
        let registration = conduit.caps().registration;
        if registration.is_none_or(|registration| registration.local) {
            let provider = conduit.provider();
            return Err(Error::Unreachable(format!(
                "{provider} wants own memory registered; an endpoint needs a provider that does not, as tcp"
            )));
        }
        let most = registration.map_or(usize::MAX, |it| it.max_bytes) as u64;
        let limit = options.registered.unwrap_or(most).min(most);
        let room = Arc::new(EndpointRoom {
            conduit,
            control,
            sink,
            state: Mutex::new(FabricState {
                sessions: FxHashMap::default(),
                by_rank: FxHashMap::default(),
                next_session: 0,
                over: Vec::new(),
                lender: LentChunks::new(limit, options.recall_timeout),
                grants: KnownGrants::default(),
                operations: OpenOperations::default(),
                outbox: WireOutbox::default(),
            }),
            returned: Condvar::new(),
            work: Condvar::new(),
            is_over: AtomicBool::new(false),
            heard,
            turn: Mutex::new(()),
        });
        let poller = start("hydrant-fabric", &room, EndpointRoom::poll_until_over)?;
        let registrar = start("hydrant-grant", &room, EndpointRoom::register_until_over)?;
        Ok(Self {
            room: ManuallyDrop::new(room),
            poller: Some(poller),
            registrar: Some(registrar),
            peer_timeout: options.peer_timeout,
            creator: CreatorProcess::here(),
        })
    }

    /// Returns true in a thread that polls now, which must not wait for peers.
    pub fn is_polling_here(&self) -> bool {
        poller::is_polling_here()
    }

    /// Returns the bytes that, with the key, are enough to connect.
    pub fn locator(&self) -> Vec<u8> {
        self.room.control.locator()
    }

    /// Begins a session with the endpoint at a locator, or returns the one that there is.
    ///
    /// # Errors
    /// Those of [`PeerControl::connect`].
    pub fn connect(
        &self,
        locator: &[u8],
        key: &[u8; 16],
        introduction: &[u8],
    ) -> Result<FabricSession> {
        // The event of the begin is heard under the lock.
        let mut state = self.room.state.lock();
        let rank = self.room.control.connect(locator, key, introduction)?;
        Ok(state.session_of(rank))
    }

    /// Leaves a session in good order, once the messages that were sent before have left. The event tells the end.
    pub fn disconnect(&self, session: FabricSession) {
        let mut state = self.room.state.lock();
        if let Some(record) = state.sessions.get(&session) {
            let rank = record.rank;
            if !state.outbox.close_after_last(rank) {
                self.room.control.disconnect(rank);
            }
        }
    }

    /// Gives a session up. The event tells when nothing of it lands any more, here or there.
    pub fn abandon(&self, session: FabricSession) {
        let state = self.room.state.lock();
        if let Some(record) = state.sessions.get(&session) {
            self.room.control.abandon(record.rank);
        }
    }

    /// Polls for a short time, until `is_done` says so. A thread that waits for an operation saves two switches of threads.
    pub fn poll_for_a_while(&self, is_done: impl Fn() -> bool) {
        self.room.poll_for_a_while(is_done);
    }

    /// Polls once, unless another thread does.
    pub fn poll_once(&self) {
        self.room.poll_once();
    }

    /// Returns the most bytes of a message.
    pub fn most_bytes(&self) -> usize {
        self.room.conduit.caps().max_payload
    }

    /// Sends a message, which arrives after the data of all operations that have ended before. Returns `false` if so much
    /// waits for the peer that it was not taken.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the session has ended; [`Error::MessageTooLong`].
    pub fn send(&self, session: FabricSession, bytes: &[u8]) -> Result<bool> {
        let mut state = self.room.state.lock();
        let rank = match state.open(session) {
            Ok(rank) => rank,
            // The layer above is about to be told.
            Err(_) if state.is_to_be_told(session) => return Ok(true),
            Err(error) => return Err(error),
        };
        let limit = self.most_bytes();
        if bytes.len() > limit {
            let len = bytes.len();
            return Err(Error::MessageTooLong { len, limit });
        }
        if state.outbox.is_full(rank) {
            return Ok(false);
        }
        state.outbox.push(rank, wire::text(bytes));
        self.room.flush(&mut state);
        Ok(true)
    }
}

impl FabricState {
    /// Returns the conduit's number of a session that has not ended.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    fn open(&self, session: FabricSession) -> Result<Rank> {
        match self.sessions.get(&session) {
            Some(record) if record.is_open => Ok(record.rank),
            Some(record) => Err(Error::PeerLost(record.rank)),
            None => Err(Error::PeerLost(Rank(0))),
        }
    }

    /// Returns true if a session has ended, and the layer above has not been told yet.
    fn is_to_be_told(&self, session: FabricSession) -> bool {
        (self.sessions.get(&session)).is_some_and(|record| !record.is_open && !record.is_told)
    }
}

impl FabricPeers {
    /// Waits until messages have left, as long as a peer may be silent.
    fn send_last(&self) {
        let until = Instant::now() + self.peer_timeout;
        let mut state = self.room.state.lock();
        while !state.outbox.is_empty() && Instant::now() < until {
            self.room.flush(&mut state);
            self.room.returned.wait_for(&mut state, NAP);
        }
    }
}

impl Drop for FabricPeers {
    #[allow(unsafe_code)] // takes the room apart
    fn drop(&mut self) {
        if !self.creator.is_here() {
            // The threads and the network are the parent's.
            return;
        }
        self.send_last();
        {
            // The registrar looks under the lock, and then waits.
            let _state = self.room.state.lock();
            self.room.is_over.store(true, SeqCst);
        }
        self.room.conduit.leave(true);
        self.room.conduit.wake(Rank(0));
        self.room.work.notify_all();
        for thread in [self.poller.take(), self.registrar.take()] {
            if thread.is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a thread of an endpoint panicked");
            }
        }
        // SAFETY: the room is not used after this.
        let room = unsafe { ManuallyDrop::take(&mut self.room) };
        let Some(room) = Arc::into_inner(room) else {
            tracing::error!("a thread of an endpoint is left");
            return;
        };
        let EndpointRoom {
            conduit,
            control,
            state,
            ..
        } = room;
        // Nothing lands any more once the conduit is closed.
        drop((conduit, control));
        for finish in state.into_inner().operations.into_open() {
            finish(Err(PeerOperationError {
                why: PeerOperationFailure::Lost,
                is_untouched: false,
            }));
        }
    }
}

/// Starts a thread of a room.
fn start(name: &str, room: &Arc<EndpointRoom>, run: fn(&EndpointRoom)) -> Result<JoinHandle<()>> {
    let room = Arc::clone(room);
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(move || run(&room));
    started.map_err(|cause| Error::system("starting a thread of an endpoint", cause))
}
