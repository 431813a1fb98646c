//! Peers on other hosts that come and go, over libfabric: memory lent to them, one-sided operations, and messages.
//!
//! This room stands on a conduit without a job ([`hydrant_ofi::listen`]). It has none of the rooms of a job. A thread of
//! its own polls; any thread begins operations and posts them itself.
//!
//! # Lent memory
//!
//! To lend memory registers nothing. A lent range consists of *chunks*. A process that wants to access a chunk asks its
//! owner, who registers it and answers with the key: a *grant*. The process keeps the grant for later operations, until
//! the owner *recalls* it. Then it finishes the operations that use the grant, and *returns* it. An owner that takes
//! memory back recalls all its grants, and waits until each process that had one returned it or is lost. The conduit
//! promises that nothing of a lost process lands any more. So nobody touches the memory afterwards.
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
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use hydrant_conduit::{Conduit, Membership as _, Sleep as _};
use hydrant_ofi::{ConnectFailure, ListenOptions, Ofi, OfiOptions, PeerControl};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::{Error, Rank, Result, Settings};
use grants::KnownGrants;
use lender::LentChunks;
use operations::OpenOperations;
#[cfg_attr(not(test), expect(unused_imports, reason = "endpoints name them"))]
pub(crate) use operations::{Finish, PeerOperationEnd, PeerOperationFailure};
use outbox::WireOutbox;
use poller::HeardQueue;

/// A session with a peer. No other session ever has the same number in this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct FabricSession(u64);

/// The name of a range of lent memory, at its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LentName(pub(crate) u64);

/// The rights of peers to lent memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LentRights {
    Read,
    ReadWrite,
}

/// The direction of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationWay {
    /// Own memory is written to the peer's.
    Write,
    /// The peer's memory is read into own memory.
    Read,
}

/// A change of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SessionEvent {
    /// It began. These are the peer's bytes, and whether this process asked for it.
    Met(FabricSession, Vec<u8>, bool),
    /// It did not begin.
    Failed(FabricSession, ConnectFailure),
    /// It ended in good order.
    Left(FabricSession),
    /// It is lost, for this reason. Nothing of it lands any more.
    Lost(FabricSession, &'static str),
}

/// The layer above. The room's thread calls it, without a lock of the room.
pub(crate) trait SessionSink: Send + Sync {
    /// Decides about a peer by its bytes: returns bytes for the peer, or the reason to decline.
    fn admit(&self, introduction: &[u8]) -> std::result::Result<Vec<u8>, Vec<u8>>;
    fn event(&self, event: SessionEvent);
    fn message(&self, from: FabricSession, bytes: &[u8]);
}

/// The options of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct EndpointOptions {
    /// The port to listen at; 0 for the kernel's choice.
    pub(crate) port: u16,
    /// How long a peer may be silent.
    pub(crate) peer_timeout: Duration,
    /// How long an attempt to connect lasts.
    pub(crate) connect_timeout: Duration,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        let usual = ListenOptions::default();
        Self {
            port: 0,
            peer_timeout: usual.ofi.peer_timeout.unwrap_or(Duration::from_secs(3)),
            connect_timeout: usual.connect_timeout,
        }
    }
}

/// An endpoint whose peers come and go. Dropping it leaves all sessions.
pub(crate) struct FabricPeers {
    room: Arc<EndpointRoom>,
    poller: Option<JoinHandle<()>>,
    registrar: Option<JoinHandle<()>>,
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
}

/// A session that was begun.
struct SessionRecord {
    rank: Rank,
    /// True until its end was heard.
    is_open: bool,
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
    /// The conduit's; [`Error::Setting`] if the provider wants own memory registered, which this room does not do.
    pub(crate) fn listen(
        settings: &Settings,
        options: &EndpointOptions,
        key: [u8; 16],
        sink: Arc<dyn SessionSink>,
    ) -> Result<Self> {
        let usual = ListenOptions::default();
        let listen = ListenOptions {
            ofi: OfiOptions {
                extents: settings.extents.unwrap_or(usual.ofi.extents),
                provider: settings.ofi_provider.clone(),
                interface: settings.ofi_interface.clone(),
                window: settings.ofi_window,
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
            return Err(Error::Setting {
                name: "HYDRANT_OFI_PROVIDER",
                value: conduit.provider(),
                expected: "a provider that needs no own memory registered, as tcp does".to_owned(),
            });
        }
        let most = registration.map_or(usize::MAX, |it| it.max_bytes) as u64;
        let m = settings.m.unwrap_or(most).min(most);
        let room = Arc::new(EndpointRoom {
            conduit,
            control,
            sink,
            state: Mutex::new(FabricState {
                sessions: FxHashMap::default(),
                by_rank: FxHashMap::default(),
                next_session: 0,
                over: Vec::new(),
                lender: LentChunks::new(m),
                grants: KnownGrants::default(),
                operations: OpenOperations::default(),
                outbox: WireOutbox::default(),
            }),
            returned: Condvar::new(),
            work: Condvar::new(),
            is_over: AtomicBool::new(false),
            heard,
        });
        let poller = start("hydrant-fabric", &room, EndpointRoom::poll_until_over)?;
        let registrar = start("hydrant-grant", &room, EndpointRoom::register_until_over)?;
        Ok(Self {
            room,
            poller: Some(poller),
            registrar: Some(registrar),
        })
    }

    /// Returns the bytes that, with the key, are enough to connect.
    pub(crate) fn locator(&self) -> Vec<u8> {
        self.room.control.locator()
    }

    /// Begins a session with the endpoint at a locator, or returns the one that there is.
    ///
    /// # Errors
    /// Those of [`PeerControl::connect`].
    pub(crate) fn connect(
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
    pub(crate) fn disconnect(&self, session: FabricSession) {
        let mut state = self.room.state.lock();
        if let Some(record) = state.sessions.get(&session) {
            let rank = record.rank;
            if !state.outbox.close_after_last(rank) {
                self.room.control.disconnect(rank);
            }
        }
    }

    /// Gives a session up. The event tells when nothing of it lands any more, here or there.
    pub(crate) fn abandon(&self, session: FabricSession) {
        let state = self.room.state.lock();
        if let Some(record) = state.sessions.get(&session) {
            self.room.control.abandon(record.rank);
        }
    }

    /// Sends a message, which arrives after the data of all operations that have ended before.
    ///
    /// # Errors
    /// [`Error::PeerLost`], or the conduit's error for a message that is too long.
    pub(crate) fn send(&self, session: FabricSession, bytes: &[u8]) -> Result<()> {
        let mut state = self.room.state.lock();
        let rank = state.open(session)?;
        let limit = self.room.conduit.caps().max_payload;
        if bytes.len() > limit {
            let len = bytes.len();
            return Err(hydrant_conduit::Error::MessageTooLong { len, limit }.into());
        }
        state.outbox.push(rank, wire::text(bytes));
        self.room.flush(&mut state);
        Ok(())
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
}

impl Drop for FabricPeers {
    fn drop(&mut self) {
        self.room.is_over.store(true, SeqCst);
        self.room.conduit.leave(true);
        self.room.conduit.wake(Rank(0));
        self.room.work.notify_all();
        for thread in [self.poller.take(), self.registrar.take()] {
            if thread.is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a thread of an endpoint panicked");
            }
        }
    }
}

/// Starts a thread of a room.
fn start(name: &str, room: &Arc<EndpointRoom>, run: fn(&EndpointRoom)) -> Result<JoinHandle<()>> {
    let room = Arc::clone(room);
    let thread = std::thread::Builder::new().name(name.to_owned());
    Ok(thread.spawn(move || run(&room))?)
}
