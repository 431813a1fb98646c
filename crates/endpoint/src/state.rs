//! The state of an endpoint, which its handles, its thread and its regions share.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    time::{Duration, Instant},
};

use hydrant_base::words::Fixed;
use hydrant_conduit::{CommandQueue, Error as ConduitError, fork::CreatorProcess};
use hydrant_fabric::FabricPeers;
use hydrant_local::{ConnectError, SendState, proof::Bytes16};

use crate::{
    Address, Error, MAX_NAME, Result,
    address::Way,
    far::{FarSide, other_answers},
    link::SessionLink,
    news::{NewsQueue, PeerNews},
    promise::deadline,
    regions::{LentRegions, Lingering},
    session::{Session, SessionEnding},
    table::{PeerEntry, PeerStage, PeerTable},
    workers::{SharedWork, Workers},
};

/// An order to the service thread.
pub(crate) enum EndpointCommand {
    /// A connection was made.
    Add(Arc<Session>),
    /// Packets wait at this connection.
    Flush(u64),
    /// The process at the other end of this connection is dying.
    Died(u64),
    /// Grants of the network are in use, and will end.
    Linger(Vec<Lingering>),
    /// Work has a deadline.
    Expire(Instant, Weak<dyn SharedWork>),
    /// A task waits no longer. The network's own thread does not run what users wrote.
    Wake(Waker),
    /// The endpoint is closed.
    Close,
}

/// The state of an endpoint.
pub(crate) struct EndpointState {
    pub(crate) incarnation: u64,
    pub(crate) address: Address,
    /// Seals descriptors. Only this process knows it.
    pub(crate) secret: Bytes16,
    pub(crate) regions: LentRegions,
    pub(crate) peers: PeerTable,
    /// The peers of other hosts.
    pub(crate) far: FarSide,
    pub(crate) events: NewsQueue,
    pub(crate) workers: Arc<Workers>,
    pub(crate) commands: CommandQueue<EndpointCommand>,
    /// How long to wait for a peer.
    pub(crate) patience: Duration,
    next: AtomicU64,
    is_closed: AtomicBool,
    creator: CreatorProcess,
}

impl EndpointState {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(
        address: Address,
        secret: Bytes16,
        patience: Duration,
        far: FarSide,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            incarnation: address.incarnation,
            address,
            secret,
            regions: LentRegions::default(),
            peers: PeerTable::default(),
            far,
            events: NewsQueue::default(),
            workers: Workers::new(),
            commands: CommandQueue::new()?,
            patience,
            next: AtomicU64::new(1),
            is_closed: AtomicBool::new(false),
            creator: CreatorProcess::here(),
        }))
    }

    /// Returns the name for people.
    pub(crate) fn label(&self) -> &str {
        &self.address.name
    }

    /// Returns a number that was not given out before: for a connection, or a region.
    pub(crate) fn fresh_number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub(crate) fn check_origin(&self) -> Result<()> {
        if self.creator.is_here() {
            Ok(())
        } else {
            Err(Error::Forked)
        }
    }

    /// # Errors
    /// [`Error::Forked`], [`Error::Closed`].
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_origin()?;
        if self.is_closed.load(SeqCst) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Notes that the endpoint is closed. Returns `false` if it was before.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Has a connection flushed once its socket is writable, if packets wait.
    pub(crate) fn after_send(&self, session: &Session, state: SendState) {
        if state == SendState::Waits {
            self.commands.push(EndpointCommand::Flush(session.number));
        }
    }

    /// Adds news, and wakes those who wait.
    pub(crate) fn tell(&self, news: PeerNews) {
        for waker in self.events.push(news) {
            self.wake(waker);
        }
    }

    /// Wakes a task: here, or in the endpoint's thread if this one must not wait for peers. Code of users may do that.
    pub(crate) fn wake(&self, waker: Waker) {
        let mut waker = Some(waker);
        let hand_over = || {
            if let Some(waker) = waker.take() {
                self.commands.push(EndpointCommand::Wake(waker));
            }
        };
        if !self.far.unless_free(hand_over) {
            waker.into_iter().for_each(wake);
        }
    }

    /// Wakes the tasks whose wakers came while the endpoint closed.
    pub(crate) fn wake_rest(&self) {
        for command in self.commands.take_all() {
            if let EndpointCommand::Wake(waker) = command {
                wake(waker);
            }
        }
    }

    /// Returns what this endpoint tells others about itself.
    pub(crate) fn introduction(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.incarnation.put(&mut bytes);
        bytes.extend_from_slice(self.address.name.as_bytes());
        bytes
    }

    /// Notes that a connection is made.
    pub(crate) fn note_up(&self, session: &Arc<Session>) {
        let news = match self.peers.note_up(session) {
            Some(previous) => PeerNews::Returned(Arc::clone(session), previous),
            None => PeerNews::Connected(Arc::clone(session)),
        };
        self.tell(news);
    }

    /// Ends a connection. Its grants end, and those who wait for it hear of it. Returns the grants that are still in use,
    /// to be released later: the process at the other end may be about to die.
    pub(crate) fn end_session(
        &self,
        session: &Arc<Session>,
        ending: SessionEnding,
    ) -> Vec<Lingering> {
        let Some(wakers) = session.end(ending) else {
            return Vec::new();
        };
        self.peers.note_ended(session, ending);
        let lingering = self.regions.release_all(session);
        match ending {
            SessionEnding::Left => self.tell(PeerNews::Left(Arc::clone(session))),
            SessionEnding::Lost(cause) => {
                self.tell(PeerNews::Lost(Arc::clone(session), cause));
            }
            SessionEnding::Closed => {}
        }
        for waker in wakers {
            self.wake(waker);
        }
        lingering
    }

    /// Connects to a peer, or waits for a connection that is being made.
    ///
    /// # Errors
    /// As [`Endpoint::connect`](crate::Endpoint::connect).
    pub(crate) fn connect(
        self: &Arc<Self>,
        address: &Address,
        patience: Duration,
    ) -> Result<(Arc<PeerEntry>, Arc<Session>)> {
        self.check_open()?;
        if address.incarnation == self.incarnation {
            return Err(Error::OwnAddress);
        }
        let entry = self.peers.of(address);
        let deadline = deadline(patience);
        let unreachable = |why: String| Error::Unreachable {
            peer: entry.label(),
            why,
        };
        loop {
            match entry.begin() {
                None => {}
                Some(PeerStage::Up(session)) => return Ok((entry, session)),
                Some(_) => match entry.wait_settled(deadline) {
                    PeerStage::Connecting | PeerStage::Expecting => {
                        entry.fail(PeerStage::Idle);
                        let waited = format!("no answer within {} ms", patience.as_millis());
                        return Err(unreachable(waited));
                    }
                    _ => continue,
                },
            }
            match self.attempt(address, &entry, deadline) {
                Ok(session) => return Ok((entry, session)),
                Err(AttemptError::Local(ConnectError::Crossing)) => {
                    entry.fail(PeerStage::Expecting);
                }
                Err(cause) => {
                    entry.fail(PeerStage::Idle);
                    // The peer may have connected meanwhile.
                    if let PeerStage::Up(session) = entry.stage() {
                        return Ok((entry, session));
                    }
                    // The attempt may have failed because of that.
                    self.check_open()?;
                    return Err(match cause {
                        AttemptError::Local(ConnectError::System(cause)) => Error::System(cause),
                        AttemptError::Local(ConnectError::Nobody) => {
                            unreachable(self.why_nobody(address).to_owned())
                        }
                        AttemptError::Local(ConnectError::TimedOut) | AttemptError::TimedOut => {
                            unreachable(format!("no answer within {} ms", patience.as_millis()))
                        }
                        AttemptError::Local(other) => unreachable(other.to_string()),
                        AttemptError::Far(why) => unreachable(why),
                    });
                }
            }
        }
    }

    /// Returns why nobody answers at an address, as far as is known.
    fn why_nobody(&self, address: &Address) -> &'static str {
        let is_far = |way: &Way| matches!(way, Way::Far(_));
        match (self.far.peers().is_some(), address.ways.iter().any(is_far)) {
            (true, false) => {
                "nobody listens at its address on this host, and it does not listen on the network \
                 (EndpointBuilder::hosts)"
            }
            (false, true) => {
                "nobody listens at its address on this host, and this endpoint does not use the network \
                 (EndpointBuilder::hosts)"
            }
            _ => "nobody listens at its address on this host: it has ended, or is of another host",
        }
    }

    /// Makes one attempt to connect: on this host, or else over the network.
    fn attempt(
        self: &Arc<Self>,
        address: &Address,
        entry: &Arc<PeerEntry>,
        deadline: Instant,
    ) -> Result<Arc<Session>, AttemptError> {
        for way in &address.ways {
            if let Way::Local(name) = way {
                match self.attempt_here(name, address, entry, deadline) {
                    Err(ConnectError::Nobody) => {}
                    outcome => return outcome.map_err(AttemptError::Local),
                }
            }
        }
        for way in &address.ways {
            if let (Way::Far(locator), Some(peers)) = (way, self.far.peers()) {
                return self.attempt_far(peers, locator, address, deadline);
            }
        }
        Err(AttemptError::Local(ConnectError::Nobody))
    }

    /// Connects to a process of this host.
    fn attempt_here(
        self: &Arc<Self>,
        name: &Bytes16,
        address: &Address,
        entry: &Arc<PeerEntry>,
        deadline: Instant,
    ) -> Result<Arc<Session>, ConnectError> {
        let own = self.introduction();
        let (link, theirs) = hydrant_local::connect(name, &address.key, &own, deadline)?;
        let (incarnation, _) = parse_introduction(&theirs)
            .ok_or(ConnectError::Malformed("an introduction that is none"))?;
        if incarnation != address.incarnation {
            return Err(ConnectError::Refused(other_answers(incarnation)));
        }
        let link = SessionLink::Local(Arc::new(link));
        let session = Session::new(Arc::clone(&entry.identity), link, self.fresh_number());
        if !entry.set_up(&session) {
            // Nobody has asked it anything.
            let _ = session.end(SessionEnding::Closed);
            return Err(ConnectError::Crossing);
        }
        self.note_up(&session);
        self.commands
            .push(EndpointCommand::Add(Arc::clone(&session)));
        Ok(session)
    }

    /// Connects over the network. The network's thread makes the connection.
    fn attempt_far(
        &self,
        peers: Arc<FabricPeers>,
        locator: &[u8],
        address: &Address,
        deadline: Instant,
    ) -> Result<Arc<Session>, AttemptError> {
        let there = (locator, &address.key);
        let call = (self.far).call(&peers, there, &self.introduction(), address.incarnation);
        // The network cannot be closed while somebody has it.
        drop(peers);
        let (call, number) = call.map_err(|cause| match cause {
            ConduitError::Unreachable(why) => AttemptError::Far(why),
            cause => AttemptError::Local(ConnectError::System(cause)),
        })?;
        match call.outcome.wait_or_abandon(deadline) {
            Some(outcome) => outcome.map_err(AttemptError::Far),
            None => {
                self.far.take_call(number);
                if let Some(peers) = self.far.peers() {
                    peers.disconnect(number);
                }
                Err(AttemptError::TimedOut)
            }
        }
    }
}

/// The reason why an attempt to connect failed.
enum AttemptError {
    Local(ConnectError),
    /// The network says so.
    Far(String),
    TimedOut,
}

/// Wakes a task. A panic of its waker ends no thread of the endpoint.
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("the waker of a task panicked");
    }
}

/// Parses an introduction: the incarnation and the name.
pub(crate) fn parse_introduction(bytes: &[u8]) -> Option<(u64, &str)> {
    let mut rest = bytes;
    let incarnation = u64::take(&mut rest).ok()?;
    let name = std::str::from_utf8(rest).ok()?;
    (name.len() <= MAX_NAME && !name.chars().any(char::is_control)).then_some((incarnation, name))
}
