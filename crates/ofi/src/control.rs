//! The control thread. It makes sessions, watches whether peers are alive, and tells them when this rank leaves. While no
//! other thread looks after arrivals, it reads the completion queue, too, so that peers' accesses go on.

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

use crate::{
    commands::LinkCommand,
    message::ControlKind,
    peers::{Peer, Phase},
    shared::OfiShared,
    socket_address,
    sockets::{self, ListenerState},
};

/// The longest sleep of the thread while others look after arrivals.
const TICK: Duration = Duration::from_millis(50);
/// The steps in a row that may go without sleep, because the provider has something to do. A provider that connects
/// says so all the time.
const RESTLESS: u32 = 4096;
/// The sleep of the thread while the provider would not let it sleep.
const NAP: Duration = Duration::from_micros(200);
/// The part of the patience with a silent peer after which it is spoken to.
const BEATS: u32 = 8;
/// The longest time between two messages to an idle peer.
const BEAT: Duration = Duration::from_secs(1);
/// How long a rank that failed waits for acknowledgements of its leave.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a link is down before its peer's address is probed, and the time between probes.
const PROBE: Duration = Duration::from_millis(100);

/// Starts the control thread.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn start(shared: Arc<OfiShared>) -> Result<JoinHandle<()>, Error> {
    let own = socket_address::parse(shared.peers.name(shared.rank));
    let over_tcp = shared.fabric.offer().provider().starts_with("tcp");
    thread::Builder::new()
        .name(format!("hydrant-ofi-{}", shared.rank))
        .stack_size(256 << 10)
        .spawn(move || {
            let now = Instant::now();
            let mut control = LinkControl {
                own: own.filter(|_| over_tcp),
                shared,
                down: FxHashSet::default(),
                last_check: now,
                next_probe: now + PROBE,
                restless: 0,
                attention: 0,
                farewell: FAREWELL,
                stop_at: None,
            };
            control.run();
        })
        .map_err(|cause| Error::system("starting the thread for connections", cause))
}

struct LinkControl {
    shared: Arc<OfiShared>,
    /// This rank's address, if the provider is TCP.
    own: Option<SocketAddr>,
    /// Peers whose link is down.
    down: FxHashSet<u32>,
    /// When peers were last checked.
    last_check: Instant,
    next_probe: Instant,
    /// Steps in a row after which the provider let this thread not sleep.
    restless: u32,
    /// The number of polls and sleeps at the last look.
    attention: u64,
    /// How long to wait for acknowledgements at the end.
    farewell: Duration,
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
        for command in self.shared.commands.take_all() {
            self.run_command(command);
        }
        let now = Instant::now();
        let next = self.attend_links(now);
        self.check_peers(now);
        let attended = self.look_after_arrivals();
        if self.is_over() {
            return;
        }
        let mut timeout = TICK;
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
                    "its message breaks the protocol",
                    ControlKind::Expelled,
                );
            }
            LinkCommand::LoseAll => {
                for rank in self.present() {
                    self.end(Rank(rank));
                }
            }
            LinkCommand::NoteLeft(rank, orderly) => self.close(rank, orderly),
            LinkCommand::NoteLost(rank) => self.end(rank),
            LinkCommand::Expelled(by) => {
                // The peer tells all others that this rank is lost, so all count as lost to each other.
                self.shared.peers.standings.end(self.shared.rank, false);
                self.end(by);
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
            LinkCommand::Stop => self.stop_at = Some(Instant::now() + self.farewell),
        }
    }

    /// Returns the other ranks that are present.
    fn present(&self) -> Vec<u32> {
        let shared = &self.shared;
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
        let mut lost = Vec::new();
        let probes = now >= self.next_probe;
        self.down.retain(|rank| {
            let Some(peer) = shared.peers.known(*rank) else {
                return false;
            };
            let mut guard = peer.link.lock();
            let link = &mut *guard;
            if link.phase != Phase::Down {
                return false;
            }
            let down = now.saturating_duration_since(link.down_since);
            if shared.patience.is_some_and(|patience| down >= patience) {
                lost.push((peer.rank, "it cannot be reached"));
            } else if probes && down >= PROBE {
                drop(guard);
                if self.own.is_some() && listener(&shared, peer) == ListenerState::Gone {
                    lost.push((peer.rank, "nothing listens at its address any more"));
                }
                return true;
            }
            let again = shared.ask(peer, link, now).unwrap_or(now + TICK);
            next = Some(next.map_or(again, |next| next.min(again)));
            true
        });
        if probes {
            self.next_probe = now + PROBE;
        }
        for (rank, why) in lost {
            self.lose(rank, why, ControlKind::Lost);
        }
        next
    }

    /// Speaks to peers that were not spoken to lately, and loses those that were not heard for long.
    fn check_peers(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let beat = shared
            .patience
            .map_or(BEAT, |patience| BEAT.min(patience / BEATS));
        let since = now.saturating_duration_since(self.last_check);
        if since < beat / 2 {
            return;
        }
        self.last_check = now;
        // While this process was stopped, or waited for the system, no peer could be heard.
        let missed = since.saturating_sub(2 * beat).as_millis() as u64;
        let now_ms = shared.now_ms();
        let mut silent = Vec::new();
        for peer in shared.peers.all_known() {
            if shared.peers.standings.of(peer.rank) != Standing::Present || peer.rank == shared.rank
            {
                continue;
            }
            let link = peer.link.lock();
            if link.phase != Phase::Up {
                continue;
            }
            let (heard, spoken) = peer.times();
            let heard = (heard + missed).min(now_ms);
            if missed > 0 {
                peer.note_heard(heard);
            }
            if now_ms.saturating_sub(spoken) >= beat.as_millis() as u64
                || peer.counts.is_unacknowledged()
            {
                let _ = shared.send_counts(peer, &link);
            }
            let silence = Duration::from_millis(now_ms.saturating_sub(heard));
            if shared.patience.is_some_and(|patience| silence >= patience) {
                silent.push(peer.rank);
            }
        }
        for rank in silent {
            self.lose(rank, "it does not answer", ControlKind::Lost);
        }
        self.watch_next();
    }

    /// Makes sure that the next rank of the ring is watched, so that some rank sees each death.
    fn watch_next(&self) {
        let shared = &self.shared;
        let (size, own) = (shared.peers.size(), shared.rank.0);
        let next = (1..size)
            .map(|step| Rank((own + step) % size))
            .find(|rank| shared.peers.standings.of(*rank) == Standing::Present);
        if let Some(Ok(peer)) = next.map(|rank| shared.peer(rank)) {
            shared.bring_up(peer, &mut peer.link.lock());
        }
    }

    /// Declares a peer lost, and tells all others and the peer.
    fn lose(&mut self, rank: Rank, why: &str, word: ControlKind) {
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
        self.end(rank);
        self.tell_all(ControlKind::Lost, &[rank.0.into()]);
    }

    /// Marks a peer as left, because it said so. Its link stays for what the conduits have to say.
    fn close(&mut self, rank: Rank, orderly: bool) {
        let shared = &self.shared;
        if rank != shared.rank && shared.peers.standings.end(rank, orderly) {
            self.end_operations(rank, Phase::Up);
        }
    }

    /// Marks a peer as lost.
    fn end(&mut self, rank: Rank) {
        let shared = &self.shared;
        if rank != shared.rank && shared.peers.standings.end(rank, false) {
            self.down.remove(&rank.0);
            self.end_operations(rank, Phase::Ended);
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
            // The provider ends operations only with their connection.
            if (is_busy || best == Phase::Ended)
                && let (Some(own), Some(there)) =
                    (self.own, socket_address::parse(shared.peers.name(rank)))
            {
                sockets::end_connections(own, there);
            }
        }
        shared.sleepers.wake_all();
    }
}

/// Asks whether a peer's process still listens.
fn listener(shared: &OfiShared, peer: &Peer) -> ListenerState {
    match socket_address::parse(shared.peers.name(peer.rank)) {
        Some(address) => sockets::probe(address, PROBE),
        None => ListenerState::Silent,
    }
}
