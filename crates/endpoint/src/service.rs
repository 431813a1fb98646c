//! The thread of an endpoint: takes connections, packets and news of processes that end.

#![allow(unsafe_code)] // the list of words that the thread holds

use std::{
    collections::HashMap,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use hydrant_conduit::Error as ConduitError;
use hydrant_local::{
    ArrivalRefusal, ArrivalStep, DeathWatch, HeldWords, Introduction, LocalArrival, LocalLink,
    LocalListener, LocalPacket, ReceiveError, WirePacket,
};
use rustix::event::{Timespec, epoll};

use crate::{
    LossCause, Result,
    link::SessionLink,
    packets,
    regions::Lingering,
    session::{Session, SessionEnding},
    state::{EndpointCommand, EndpointState, parse_introduction, wake},
    table::{Arriving, PeerStage},
    workers::{SharedWork, mark_own_thread},
};

/// Descriptors that the thread always waits for. The others are `2 * number` for a socket and one more for a process.
const COMMANDS: u64 = 0;
const LISTENER: u64 = 1;

/// How long a connection may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// The most connections that have not introduced themselves. A further one ends the oldest.
const MOST_ARRIVALS: usize = 256;
/// How long no connection is taken after the system refused one.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two looks at grants in use of connections that have ended.
const LINGER: Duration = Duration::from_millis(10);
/// The packets of a connection that are taken at a time, so that each gets its turn.
const TURN: usize = 64;
/// The connections that are taken at a time.
const ACCEPTS: usize = 32;

/// The thread's state.
pub(crate) struct Service {
    endpoint: Arc<EndpointState>,
    listener: LocalListener,
    epoll: OwnedFd,
    sessions: HashMap<u64, ServedSession>,
    /// Tells of peers that die.
    deaths: DeathWatch,
    /// Tells peers if this process dies; made by the thread.
    held: Option<HeldWords>,
    arrivals: HashMap<u64, LocalArrival>,
    /// Grants in use of connections that have ended.
    lingering: Vec<Lingering>,
    /// Work that has a deadline.
    deadlines: Vec<(Instant, Weak<dyn SharedWork>)>,
    /// When connections are taken again.
    accepts_again: Option<Instant>,
    /// When the endpoint, which is closed, waits no longer for peers to take their messages.
    closes: Option<Instant>,
    buffer: Vec<u8>,
}

struct ServedSession {
    session: Arc<Session>,
    link: Arc<LocalLink>,
    /// True if the peer has said that it leaves.
    leaves: bool,
    /// True once the peer was told that this endpoint leaves.
    was_told: bool,
}

impl Service {
    /// # Errors
    /// [`Error::System`](crate::Error::System).
    pub(crate) fn new(endpoint: Arc<EndpointState>, listener: LocalListener) -> Result<Self> {
        let failed = |cause| ConduitError::system("making an epoll descriptor", cause);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let service = Self {
            listener,
            epoll,
            sessions: HashMap::new(),
            deaths: {
                let endpoint = Arc::downgrade(&endpoint);
                DeathWatch::new(move |number| {
                    if let Some(endpoint) = endpoint.upgrade() {
                        endpoint.commands.push(EndpointCommand::Died(number));
                    }
                })
            },
            held: None,
            endpoint,
            arrivals: HashMap::new(),
            lingering: Vec::new(),
            deadlines: Vec::new(),
            accepts_again: None,
            closes: None,
            buffer: vec![0; LocalLink::BUFFER],
        };
        service
            .listen_to(&service.endpoint.commands, COMMANDS)
            .map_err(failed)?;
        service
            .listen_to(&service.listener, LISTENER)
            .map_err(failed)?;
        Ok(service)
    }

    fn listen_to(&self, source: impl AsFd, number: u64) -> rustix::io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, source, data, epoll::EventFlags::IN)
    }

    /// Serves until the endpoint is closed.
    pub(crate) fn run(mut self) {
        // SAFETY: 1. and 2. this thread runs nothing else, and drops the list at the end of this function.
        self.held = Some(unsafe { HeldWords::of_this_thread() });
        mark_own_thread();
        loop {
            let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
            let timeout = self.timeout();
            let events = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
                Ok((events, _)) => events,
                Err(rustix::io::Errno::INTR) => continue,
                Err(cause) => {
                    tracing::error!(%cause, "an endpoint hears nothing any more");
                    return self.close();
                }
            };
            let events: smallvec::SmallVec<[(u64, epoll::EventFlags); 64]> = (events.iter())
                .map(|event| (event.data.u64(), event.flags))
                .collect();
            for (number, flags) in events {
                match number {
                    COMMANDS => self.obey(),
                    LISTENER => self.accept(),
                    _ if number % 2 == 1 => self.process_ended(number / 2),
                    _ if self.arrivals.contains_key(&(number / 2)) => self.introduce(number / 2),
                    _ => {
                        if flags.contains(epoll::EventFlags::OUT) {
                            self.flush(number / 2);
                        }
                        self.receive(number / 2);
                    }
                }
            }
            self.tidy();
            if self.closes.is_some() && self.leave_peers() {
                return self.close();
            }
        }
    }

    /// Returns how long to sleep at most.
    fn timeout(&self) -> Option<Timespec> {
        let first = self.arrivals.values().map(LocalArrival::since).min();
        let first = first.map(|since| since + INTRODUCTION);
        // A closed endpoint waits for messages on the network, of which this thread hears nothing.
        let looks_again = !self.lingering.is_empty() || self.closes.is_some();
        let linger = looks_again.then(|| Instant::now() + LINGER);
        let due = self.deadlines.iter().map(|(at, _)| *at).min();
        let until = (first.into_iter().chain(linger).chain(due))
            .chain(self.accepts_again)
            .min()?;
        let left = until.saturating_duration_since(Instant::now());
        // A millisecond more, so that the time has come by then.
        Timespec::try_from(left + Duration::from_millis(1)).ok()
    }

    /// Ends connections that do not introduce themselves, and takes connections again.
    fn tidy(&mut self) {
        let now = Instant::now();
        if self.accepts_again.is_some_and(|at| at <= now) {
            self.accepts_again = None;
            let _ = self.listen_to(&self.listener, LISTENER);
        }
        self.lingering.retain(|lingering| !lingering.release());
        let due =
            (self.deadlines).extract_if(.., |(at, work)| *at <= now || work.strong_count() == 0);
        let due: Vec<_> = due.filter_map(|(_, work)| work.upgrade()).collect();
        due.iter().for_each(|work| work.expire());
        self.arrivals
            .retain(|_, arrival| now.duration_since(arrival.since()) < INTRODUCTION);
    }

    /// Does what other threads ordered.
    fn obey(&mut self) {
        for command in self.endpoint.commands.take_all() {
            match command {
                EndpointCommand::Add(session) => self.add(session),
                EndpointCommand::Flush(number) => self.flush(number),
                EndpointCommand::Died(number) => self.process_ended(number),
                EndpointCommand::Linger(lingering) => self.lingering.extend(lingering),
                EndpointCommand::Expire(at, work) => self.deadlines.push((at, work)),
                EndpointCommand::Wake(waker) => wake(waker),
                EndpointCommand::Close => {
                    self.closes = Instant::now().checked_add(self.endpoint.patience);
                    let _ = epoll::delete(&self.epoll, &self.listener);
                    self.accepts_again = None;
                    self.arrivals.clear();
                }
            }
        }
    }

    /// Leaves the peers that have all their messages. Returns whether none is left, or the time is over.
    fn leave_peers(&mut self) -> bool {
        let numbers: Vec<u64> = self.sessions.keys().copied().collect();
        for number in numbers {
            let Some(served) = self.sessions.get_mut(&number) else {
                continue;
            };
            if !served.session.has_waiting() && !served.was_told {
                served.was_told = true;
                let _ = served.link.send(&WirePacket::Leave, None);
            }
            if served.session.has_waiting() {
                self.flush(number);
            } else {
                let _ = self
                    .endpoint
                    .end_session(&served.session, SessionEnding::Closed);
                self.sessions.remove(&number);
            }
        }
        let far_waits =
            |session: &Arc<Session>| session.link.far().is_some() && session.has_waiting();
        let is_done = self.sessions.is_empty()
            && !(self.endpoint.peers.up().iter()).any(|(_, session)| far_waits(session));
        is_done || self.closes.is_some_and(|at| at <= Instant::now())
    }

    fn add(&mut self, session: Arc<Session>) {
        let Some(link) = session.link.local().cloned() else {
            return;
        };
        let number = session.number;
        let mut watched = self.listen_to(&link, 2 * number);
        if let (Ok(()), Some(process)) = (watched, &link.process().watch) {
            watched = self.listen_to(process, 2 * number + 1);
        }
        if let Err(cause) = watched {
            tracing::error!(%cause, "a peer cannot be heard");
            let ending = SessionEnding::Lost(LossCause::Broken);
            (self.lingering).extend(self.endpoint.end_session(&session, ending));
            return;
        }
        if let Some(held) = &mut self.held {
            held.hold(Arc::clone(&link));
        }
        self.deaths.add(number, Arc::clone(&link));
        let served = ServedSession {
            session,
            link,
            leaves: false,
            was_told: false,
        };
        self.sessions.insert(number, served);
        // Packets may have come before the socket was watched, and there may be none later.
        self.receive(number);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok(Some(arrival)) => {
                    if self.arrivals.len() >= MOST_ARRIVALS {
                        let oldest = self.arrivals.iter().min_by_key(|(_, it)| it.since());
                        if let Some(number) = oldest.map(|(number, _)| *number) {
                            self.arrivals.remove(&number);
                        }
                    }
                    let number = self.endpoint.fresh_number();
                    if self.listen_to(&arrival, 2 * number).is_ok() {
                        self.arrivals.insert(number, arrival);
                    }
                }
                Ok(None) => return,
                Err(cause) => {
                    // Without descriptors the socket stays readable, and would keep this thread busy.
                    tracing::warn!(%cause, "no connection can be taken");
                    let _ = epoll::delete(&self.epoll, &self.listener);
                    self.accepts_again = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    /// Goes on with a connection that introduces itself.
    fn introduce(&mut self, number: u64) {
        let Some(mut arrival) = self.arrivals.remove(&number) else {
            return;
        };
        match arrival.step() {
            ArrivalStep::Waiting => {
                self.arrivals.insert(number, arrival);
            }
            ArrivalStep::Gone => {}
            ArrivalStep::Introduced(introduction) => {
                let _ = epoll::delete(&self.epoll, &arrival);
                self.admit(arrival, &introduction);
            }
        }
    }

    /// Makes a connection that has introduced itself, or refuses it.
    fn admit(&mut self, arrival: LocalArrival, introduction: &Introduction) {
        let refuse = |arrival: LocalArrival, why| arrival.refuse(ArrivalRefusal::Other(why));
        let Some((incarnation, name)) = parse_introduction(&introduction.bytes) else {
            return refuse(arrival, "the introduction is malformed");
        };
        if incarnation == self.endpoint.incarnation {
            return refuse(arrival, "it is the same endpoint");
        }
        if self.endpoint.events.is_full() {
            return refuse(arrival, "its program does not read its events");
        }
        let entry = self.endpoint.peers.entry(incarnation, name);
        let own = self.endpoint.incarnation;
        let mut decision = entry.arriving(own);
        if let Arriving::Up(session) = &decision {
            // The peer has ended that connection if it makes another. The news of the end may be unread.
            self.receive(session.number);
            decision = entry.arriving(own);
        }
        match decision {
            Arriving::Welcome => {}
            Arriving::Crossing | Arriving::Up(_) => {
                return arrival.refuse(ArrivalRefusal::Crossing);
            }
        }
        let accepted = arrival.accept(introduction, &self.endpoint.introduction());
        let link = match accepted {
            Ok(link) => link,
            Err(cause) => {
                tracing::warn!(%cause, peer = %entry.label(), "a connection failed");
                return;
            }
        };
        let identity = Arc::clone(&entry.identity);
        let session = Session::new(
            identity,
            SessionLink::Local(Arc::new(link)),
            self.endpoint.fresh_number(),
        );
        entry.set(PeerStage::Up(Arc::clone(&session)));
        self.endpoint.note_up(&session);
        self.add(session);
    }

    /// Sends what waits at a connection, and watches if its socket becomes writable.
    fn flush(&mut self, number: u64) {
        let Some(served) = self.sessions.get(&number) else {
            return;
        };
        let flags = match served.link.flush() {
            Ok(true) => epoll::EventFlags::IN,
            Ok(false) => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            // The next packet to receive is the end.
            Err(_) => return,
        };
        let data = epoll::EventData::new_u64(2 * number);
        let _ = epoll::modify(&self.epoll, &served.link, data, flags);
    }

    /// Notes that a peer's process has ended. Its last packets count.
    fn process_ended(&mut self, number: u64) {
        while let Some(served) = self.sessions.get(&number) {
            let session = Arc::clone(&served.session);
            if !self.receive(number) {
                self.finish(&session, LossCause::Died);
            }
        }
    }

    /// Takes packets of a connection. Returns whether there may be more.
    fn receive(&mut self, number: u64) -> bool {
        let Some(served) = self.sessions.get(&number) else {
            return false;
        };
        let (session, link) = (Arc::clone(&served.session), Arc::clone(&served.link));
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut more = true;
        for _ in 0..TURN {
            let result = match link.receive(&mut buffer) {
                Ok(Some(packet)) => self.take(&session, packet),
                Ok(None) => {
                    more = false;
                    break;
                }
                Err(ReceiveError::Ended) => Err(LossCause::Died),
                Err(ReceiveError::Malformed(what)) => Err(LossCause::Malformed(what)),
            };
            if let Err(loss) = result {
                self.finish(&session, loss);
                more = false;
                break;
            }
        }
        self.buffer = buffer;
        more
    }

    /// Listens to a connection no more.
    fn unwatch(&mut self, served: &ServedSession) {
        let _ = epoll::delete(&self.epoll, &served.link);
        if let Some(process) = &served.link.process().watch {
            let _ = epoll::delete(&self.epoll, process);
        }
        self.deaths.remove(served.session.number);
        if let Some(held) = &mut self.held {
            held.release(&served.link);
        }
    }

    /// Ends a connection.
    fn finish(&mut self, session: &Arc<Session>, loss: LossCause) {
        let Some(served) = self.sessions.remove(&session.number) else {
            return;
        };
        self.unwatch(&served);
        let ending = match loss {
            LossCause::Died if served.leaves => SessionEnding::Left,
            loss => SessionEnding::Lost(loss),
        };
        (self.lingering).extend(self.endpoint.end_session(session, ending));
    }

    /// Takes a packet.
    ///
    /// # Errors
    /// The violation of the protocol, if it is one.
    fn take(&mut self, session: &Arc<Session>, packet: LocalPacket<'_>) -> Result<(), LossCause> {
        let leaves = packets::take(&self.endpoint, session, packet.packet, packet.descriptor)?;
        if leaves && let Some(served) = self.sessions.get_mut(&session.number) {
            served.leaves = true;
        }
        Ok(())
    }

    /// Ends all connections.
    fn close(self) {
        // The thread may not have heard of some yet.
        let served = self.sessions.into_values().map(|served| served.session);
        let others = self
            .endpoint
            .peers
            .up()
            .into_iter()
            .map(|(_, session)| session);
        for session in served.chain(others) {
            let _ = session.link.send(&WirePacket::Leave, None);
            // Grants in use stay with their regions.
            let _ = self.endpoint.end_session(&session, SessionEnding::Closed);
        }
    }
}
