//! The control thread. It makes sessions, watches whether peers are alive, and tells them when this rank leaves. While no
//! other thread looks after arrivals, it reads the completion queue, too, so that peers' accesses go on.

mod acquaintances;
mod silence;

use std::{
    net::SocketAddr,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::{Error, Rank, Standing};
use rustc_hash::FxHashSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::silence::{PROBE, ProbeTurn};
use crate::{
    commands::LinkCommand,
    events::PeerEvent,
    inherited::ProviderSockets,
    message::ControlKind,
    peers::{OfiPeer, Phase},
    shared::OfiShared,
    sockets,
    strangers::SilentConnections,
};

/// The longest sleep of the thread while others look after arrivals.
const TICK: Duration = Duration::from_millis(50);
/// The same without a job, while no peer needs anything: an idle endpoint costs little.
const IDLE_TICK: Duration = Duration::from_millis(150);
/// The time between two looks for connections that have sent nothing. A connection may be silent for twice as long.
const LISTEN: Duration = Duration::from_secs(3);
/// The steps in a row that may go without sleep, because the provider has something to do. A provider that connects
/// says so all the time.
const RESTLESS: u32 = 4096;
/// The sleep of the thread while the provider would not let it sleep.
const NAP: Duration = Duration::from_micros(200);
/// How long a rank that failed waits for acknowledgements of its leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// Starts the control thread.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn start(shared: Arc<OfiShared>) -> Result<JoinHandle<()>, Error> {
    let own = shared.own_address();
    thread::Builder::new()
        .name(format!("hydrant-ofi-{}", shared.rank))
        .stack_size(256 << 10)
        .spawn(move || {
            let now = Instant::now();
            let mut control = LinkControl {
                sockets: own.map(ProviderSockets::new),
                silent: own.map(SilentConnections::of),
                next_listen: now + LISTEN,
                unmarked: own.is_some(),
                silent_turn: ProbeTurn::default(),
                down_turn: ProbeTurn::default(),
                next_mark: now,
                own,
                shared,
                down: FxHashSet::default(),
                last_step: now,
                last_check: now,
                next_probe: now + PROBE,
                is_warned: false,
                restless: 0,
                attention: 0,
                farewell: FAREWELL,
                pending: FxHashSet::default(),
                cut: Vec::new(),
                next_glance: now,
                stop_at: None,
            };
            control.run();
        })
        .map_err(|cause| Error::system("starting the thread for connections", cause))
}

struct LinkControl {
    shared: Arc<OfiShared>,
    /// The sockets of the provider, if it is TCP.
    sockets: Option<ProviderSockets>,
    /// Connections of strangers, if the provider is TCP, and the time of the next look for them.
    silent: Option<SilentConnections>,
    next_listen: Instant,
    /// True if sockets may have been opened that are not marked.
    unmarked: bool,
    /// The turns of the peers to be probed: of those that are silent, and of those whose link is down.
    silent_turn: ProbeTurn,
    down_turn: ProbeTurn,
    /// When sockets may be marked again.
    next_mark: Instant,
    /// This rank's address, if the provider is TCP.
    own: Option<SocketAddr>,
    /// Peers whose link is down.
    down: FxHashSet<u32>,
    /// When the last step began.
    last_step: Instant,
    /// When peers were last checked.
    last_check: Instant,
    next_probe: Instant,
    /// True once it was said that this process has no descriptor left.
    is_warned: bool,
    /// Steps in a row after which the provider let this thread not sleep.
    restless: u32,
    /// The number of polls and sleeps at the last look.
    attention: u64,
    /// How long to wait for acknowledgements at the end.
    farewell: Duration,
    /// Peers without a job whose stage may end by itself.
    pending: FxHashSet<u32>,
    /// Peers without a job to be cut off in this step, because they left something in flight.
    cut: Vec<Rank>,
    /// When to look next whether something listens where this process introduces itself.
    next_glance: Instant,
    /// When this thread ends at the latest. `None` until the conduit is dropped.
    stop_at: Option<Instant>,
}

impl LinkControl {
    fn run(&mut self) {
        while !self.is_over() {
            self.step();
        }
    }

    /// Does all pending work, then sleeps until there is more.
    fn step(&mut self) {
        self.shared.check_stall();
        for command in self.shared.commands.take_all() {
            self.run_command(command);
        }
        // All decisions of a step are about this time, also if the process is stopped meanwhile.
        let now = Instant::now();
        self.forgive_silence(now);
        self.mark_sockets(now);
        self.end_silent_connections(now);
        let next = self.attend_links(now);
        let next = [next, self.attend_book(now)].into_iter().flatten().min();
        self.check_peers(now);
        let attended = self.look_after_arrivals();
        if self.is_over() {
            return;
        }
        let is_idle = self.shared.listening.is_some()
            && self.pending.is_empty()
            && self.down.is_empty()
            && !self.unmarked;
        let mut timeout = if is_idle && attended { IDLE_TICK } else { TICK };
        if let Some(next) = next {
            timeout = timeout.min(next.saturating_duration_since(now));
        }
        if let Some(stop) = self.stop_at {
            timeout = timeout
                .min(stop.saturating_duration_since(now))
                .min(Duration::from_millis(2));
        }
        let shared = &self.shared;
        let mut fds = vec![PollFd::from_borrowed_fd(
            shared.commands.as_fd(),
            PollFlags::IN,
        )];
        if !attended {
            if shared.fabric.may_sleep() {
                fds.push(PollFd::from_borrowed_fd(
                    shared.fabric.as_fd(),
                    PollFlags::IN,
                ));
                self.restless = 0;
            } else if self.restless < RESTLESS && !shared.peers.any_down() {
                // The provider has something to do, which the next step does.
                self.restless += 1;
                return;
            } else {
                timeout = timeout.min(NAP);
            }
        }
        let timeout = Timespec::try_from(timeout).ok();
        // An interrupted sleep just ends early.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Marks the sockets that were opened, not too often.
    fn mark_sockets(&mut self, now: Instant) {
        if let Some(sockets) = self
            .sockets
            .as_ref()
            .filter(|_| self.unmarked && now >= self.next_mark)
        {
            self.unmarked = false;
            self.next_mark = now + TICK;
            sockets.mark(&self.shared.peers.addresses());
        }
    }

    /// Ends connections that somebody opened and does not use. Each would hold a descriptor.
    fn end_silent_connections(&mut self, now: Instant) {
        if let Some(silent) = self.silent.as_mut().filter(|_| now >= self.next_listen) {
            self.next_listen = now + LISTEN;
            silent.end();
        }
    }

    /// Reads the completion queue, unless another thread polled since the last look or sleeps on it. Returns true if one
    /// did.
    fn look_after_arrivals(&mut self) -> bool {
        let shared = &self.shared;
        let before = std::mem::replace(&mut self.attention, shared.attention.load(Relaxed));
        if self.stop_at.is_none() && (before != self.attention || shared.sleepers.are_listening()) {
            return true;
        }
        let has_news = match shared.collector.try_lock() {
            Some(mut collector) => {
                collector.collect(shared, true);
                collector.has_news()
            }
            None => false,
        };
        if has_news {
            shared.sleepers.wake_listening();
        }
        false
    }

    fn is_over(&self) -> bool {
        let settled = || {
            (self.shared.peers.all_known()).all(|peer| {
                let link = peer.link.lock();
                link.phase == Phase::Ended
                    || self.shared.peers.standings.of(peer.rank) != Standing::Present
                    || link.is_settled()
                    || link
                        .first_kept()
                        .wrapping_add(link.kept.len() as u32)
                        .wrapping_sub(1)
                        == peer.counts.known()
            })
        };
        self.stop_at
            .is_some_and(|stop| Instant::now() >= stop || settled())
    }

    fn run_command(&mut self, command: LinkCommand) {
        match command {
            LinkCommand::Attend(rank) => {
                self.down.insert(rank.0);
            }
            LinkCommand::Lose(rank, why) => self.lose(rank, why, ControlKind::Lost),
            LinkCommand::Expel(rank) => {
                self.lose(
                    rank,
                    "it broke the protocol, or ranks of its host lost it",
                    ControlKind::Expelled,
                );
            }
            LinkCommand::LoseAll => {
                for rank in self.present() {
                    self.end(Rank(rank), "the endpoint failed");
                }
            }
            LinkCommand::NoteLeft(rank, orderly) => self.close(rank, orderly),
            LinkCommand::NoteLost(rank) => self.end(rank, "another rank says so"),
            LinkCommand::Expelled(by) => {
                // The peer tells all others that this rank is lost, so all count as lost to each other.
                self.shared.peers.standings.end(self.shared.rank, false);
                self.end(by, "it expelled this rank");
            }
            LinkCommand::ComeToEnd(number) => {
                self.tell_all(ControlKind::Ending, &[number.into()]);
            }
            LinkCommand::Leave(orderly) => {
                if let (true, Some(patience)) = (orderly, self.shared.patience) {
                    self.farewell = FAREWELL.max(patience);
                }
                self.tell_all(ControlKind::Leave, &[orderly.into()]);
                // Ranks that have left may still listen.
                for peer in self.shared.peers.all_known() {
                    let is_present = self.shared.peers.standings.of(peer.rank) == Standing::Present;
                    if !is_present && peer.link.lock().phase == Phase::Up {
                        self.shared
                            .send_control(peer, ControlKind::Leave, &[orderly.into()]);
                    }
                }
            }
            LinkCommand::MarkSockets => self.unmarked = true,
            LinkCommand::Stop => self.stop_at = Some(Instant::now() + self.farewell),
            LinkCommand::Attempt(number) => self.attempt(number),
            LinkCommand::Introduced(it) => self.introduced(&it),
            LinkCommand::Admitted(number, it) => self.admitted(number, &it),
            LinkCommand::Declined(number, it) => self.declined(number, *it),
            LinkCommand::Proved(number, hello) => self.proved(number, &hello),
            LinkCommand::Disconnect(number) => self.disconnect(number),
            LinkCommand::Abandon(number) => self.abandon(number),
            LinkCommand::GivenUp(number) => self.given_up(number),
            LinkCommand::Release(number) => self.release(number),
            LinkCommand::Stalled => {
                self.lose_all("this process stood still for longer than peers wait");
            }
        }
    }

    /// Returns the other ranks that are present.
    fn present(&self) -> Vec<u32> {
        let shared = &self.shared;
        if shared.listening.is_some() {
            let is_met = |peer: &&OfiPeer| {
                let is_present = shared.peers.standings.of(peer.rank) == Standing::Present;
                is_present && matches!(peer.link.lock().phase, Phase::Up | Phase::Down)
            };
            let present = shared.peers.all_known().filter(is_met);
            return present.map(|peer| peer.rank.0).collect();
        }
        (0..shared.peers.size())
            .filter(|rank| *rank != shared.rank.0)
            .filter(|rank| shared.peers.standings.of(Rank(*rank)) == Standing::Present)
            .collect()
    }

    fn tell_all(&self, kind: ControlKind, args: &[u64]) {
        for rank in self.present() {
            if let Ok(peer) = self.shared.peer(Rank(rank)) {
                self.shared.send_control(peer, kind, args);
            }
        }
    }

    /// Asks for sessions where links are down. Returns when to continue.
    fn attend_links(&mut self, now: Instant) -> Option<Instant> {
        let shared = Arc::clone(&self.shared);
        let mut next: Option<Instant> = None;
        let (mut lost, mut suspects) = (Vec::new(), Vec::new());
        let probes = now >= self.next_probe;
        self.down.retain(|rank| {
            let Some(peer) = shared.peers.known(*rank) else {
                return false;
            };
            let link = &mut *peer.link.lock();
            if link.phase != Phase::Down {
                return false;
            }
            let down = now.saturating_duration_since(link.down_since);
            if shared.patience.is_some_and(|patience| down >= patience) {
                lost.push(peer.rank);
            } else if probes && down >= PROBE {
                suspects.push(peer.rank);
            }
            let again = shared.ask(peer, link, now).unwrap_or(now + TICK);
            next = Some(next.map_or(again, |next| next.min(again)));
            true
        });
        for rank in lost {
            self.lose(rank, "it cannot be reached", ControlKind::Lost);
        }
        if probes {
            self.next_probe = now + PROBE;
            suspects.sort_unstable();
            let turn = std::mem::take(&mut self.down_turn);
            self.down_turn = self.probe(suspects, turn);
        }
        next
    }

    /// Declares a peer lost, and tells all others and the peer.
    fn lose(&mut self, rank: Rank, why: &'static str, word: ControlKind) {
        let shared = Arc::clone(&self.shared);
        if rank == shared.rank || shared.peers.standings.of(rank) != Standing::Present {
            return;
        }
        tracing::warn!(peer = %rank, why, "a rank is lost");
        if let Some(peer) = shared.peers.known(rank.0)
            && peer.link.lock().phase == Phase::Up
        {
            shared.send_control(peer, word, &[rank.0.into()]);
        }
        self.end(rank, why);
        if shared.peers.are_ranks() {
            self.tell_all(ControlKind::Lost, &[rank.0.into()]);
        }
    }

    /// Marks a peer as left, because it said so. Its link stays for what the conduits have to say.
    fn close(&mut self, rank: Rank, orderly: bool) {
        let shared = &self.shared;
        if rank != shared.rank && shared.peers.standings.end(rank, orderly) {
            self.end_operations(rank, Phase::Up);
            let event = if orderly {
                PeerEvent::Left { peer: rank }
            } else {
                let why = "it ended in failure";
                PeerEvent::Lost { peer: rank, why }
            };
            self.conclude(rank, Some(event));
        }
    }

    /// Marks a peer as lost, once nothing of it lands here any more.
    fn end(&mut self, rank: Rank, why: &'static str) {
        let shared = Arc::clone(&self.shared);
        let is_present = shared.peers.standings.of(rank) == Standing::Present;
        // A peer without a job that this process leaves is not present any more, and ends all the same.
        if rank == shared.rank || shared.peers.are_ranks() && !is_present {
            return;
        }
        shared.cut_off([rank]);
        if shared.peers.standings.end(rank, false) || !shared.peers.are_ranks() {
            self.down.remove(&rank.0);
            self.end_operations(rank, Phase::Ended);
            self.conclude(rank, Some(PeerEvent::Lost { peer: rank, why }));
        }
    }

    /// Ends the operations on a peer that has ended. A link that is not `best` ends, too.
    fn end_operations(&mut self, rank: Rank, best: Phase) {
        let shared = &self.shared;
        if let Some(peer) = shared.peers.known(rank.0) {
            let mut guard = peer.link.lock();
            let link = &mut *guard;
            link.is_closing = true;
            if link.phase != best || best == Phase::Ended {
                link.phase = Phase::Ended;
                link.resumption = None;
                link.pending = None;
                for slot in link.kept.drain(..) {
                    shared.sends.release(slot);
                }
                link.posted = link.sent;
            }
            let waiting: Vec<u32> = (link.queue.drain(..))
                .chain(link.unknown.drain(..))
                .chain(link.asked_about.drain(..))
                .collect();
            let is_busy = link.in_flight > 0;
            drop(guard);
            for index in waiting {
                shared.finish(index, Err(Error::PeerLost(rank)));
            }
            // The provider ends operations only with their connection. That of a lost peer was cut off before.
            // Without a job the peer goes on, and ends them by itself.
            if is_busy
                && best != Phase::Ended
                && shared.listening.is_none()
                && let (Some(own), Some(there)) = (self.own, shared.peers.address_of(rank))
            {
                sockets::end_connections(own, there);
            }
        }
        shared.sleepers.wake_all();
    }
}
