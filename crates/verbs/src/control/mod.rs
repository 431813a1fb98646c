//! The control thread. It makes and answers connections, watches whether peers are alive, and tells
//! them when this rank leaves.
//!
//! The thread exchanges datagrams and sleeps otherwise. It never waits for a peer: an unanswered
//! datagram is resent.
//!
//! If the queue pair for datagrams fails, it is renewed under its number. A connection that cannot be made, for want of a
//! route say, is tried again for as long as a peer may be silent. A rank that finds another lost tells all ranks, until
//! they acknowledge it.

mod connect;
mod stalled;
mod unanswered;
mod watch;

use std::{
    os::fd::AsFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::{Error, Rank, Standing};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    commands::ControlCommand,
    datagram::{Datagram, DatagramKind},
    shared::VerbsShared,
};
use stalled::Stalls;
use unanswered::Unanswered;
use watch::PeerWatch;

/// How long a rank that failed waits for acknowledgements of its leave. A rank that leaves in good
/// order waits as long as peers may be silent. Its link may be down just then, and a peer that
/// misses the leave takes the rank for lost.
const FAREWELL: Duration = Duration::from_secs(2);

/// Starts the control thread.
pub(crate) fn start(
    shared: Arc<VerbsShared>,
    patience: Option<Duration>,
) -> Result<JoinHandle<()>, Error> {
    let watch = PeerWatch::new(&shared, patience);
    let stalls = Stalls::new(shared.endpoint.ack_timeout(), Instant::now());
    thread::Builder::new()
        .name(format!("hydrant-verbs-{}", shared.endpoint.rank()))
        .stack_size(128 << 10)
        .spawn(move || {
            let mut control = Control {
                shared,
                connects: Unanswered::default(),
                watch,
                stalls,
                unacked_endings: Unanswered::default(),
                unacked_leaves: Unanswered::default(),
                unacked_wakes: Unanswered::default(),
                unacked_losses: Unanswered::default(),
                expelled: FxHashSet::default(),
                farewell_time: FAREWELL,
                failing_since: FxHashMap::default(),
                stop_at: None,
            };
            control.run();
        })
        .map_err(|cause| Error::system("starting the thread for connections", cause))
}

struct Control {
    /// The state that all threads of the rank share.
    shared: Arc<VerbsShared>,
    /// Unanswered requests to connect, or for an expected PSN, by peer.
    connects: Unanswered<u32, Datagram>,
    /// When each peer was heard last.
    watch: PeerWatch,
    /// The progress of each connection at the last check.
    stalls: Stalls,
    /// The number of this rank's last announcement about its program's end, by peer that has not
    /// acknowledged.
    unacked_endings: Unanswered<u32, u32>,
    /// True if this rank leaves in good order, by peer that has not acknowledged.
    unacked_leaves: Unanswered<u32, bool>,
    /// The number of the last wake, by peer that has not acknowledged.
    unacked_wakes: Unanswered<u32, u32>,
    /// Losses that peers have not acknowledged: the peer, and the lost rank.
    unacked_losses: Unanswered<(u32, u32), ()>,
    /// Ranks that this rank expelled.
    expelled: FxHashSet<u32>,
    /// Since when connections to these peers could not be made.
    failing_since: FxHashMap<u32, Instant>,
    /// How long to wait for acknowledgements at the end.
    farewell_time: Duration,
    /// When this thread ends at the latest. `None` until the conduit is dropped.
    stop_at: Option<Instant>,
}

impl Control {
    fn run(&mut self) {
        while !self.is_over() {
            if let Err(cause) = self.step() {
                tracing::error!(%cause, "the control thread failed: all peers are lost");
                let present: Vec<u32> = self.present().collect();
                for rank in present {
                    self.end(Rank(rank), false);
                }
                return;
            }
        }
    }

    /// Does all pending work, then sleeps until there is more.
    fn step(&mut self) -> std::io::Result<()> {
        for command in self.shared.peers.commands().take_all() {
            self.run_command(command);
        }
        self.shared.datagrams.arm()?;
        let more = self.handle_datagrams()?;
        let now = Instant::now();
        self.resend_due(now);
        self.check_peers(now);
        self.check_stalls(now);
        let until = [
            self.connects.next(),
            self.unacked_endings.next(),
            self.unacked_leaves.next(),
            self.unacked_wakes.next(),
            self.unacked_losses.next(),
            self.watch.next(),
            Some(self.stalls.next()),
            self.stop_at,
            more.then_some(now),
        ];
        let timeout = (until.into_iter().flatten().min())
            .map(|until| until.saturating_duration_since(now))
            .and_then(|time| Timespec::try_from(time).ok());
        let shared = &self.shared;
        let mut fds = vec![
            PollFd::from_borrowed_fd(shared.datagrams.channel(), PollFlags::IN),
            PollFd::from_borrowed_fd(shared.peers.commands().as_fd(), PollFlags::IN),
        ];
        fds.extend(
            self.watch
                .processes()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        if self.is_over() {
            return Ok(());
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(cause) => return Err(cause.into()),
        }
        let gone: Vec<bool> = fds[2..].iter().map(|fd| !fd.revents().is_empty()).collect();
        // The last datagrams of a process come before its end.
        self.handle_datagrams()?;
        for rank in self.watch.take_ended(&gone) {
            self.lose(Rank(rank), "its process ended");
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        self.stop_at.is_some_and(|stop| {
            self.unacked_leaves.is_empty() && self.unacked_losses.is_empty() || now >= stop
        })
    }

    fn run_command(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Connect(rank) => self.request_connection(rank),
            ControlCommand::QueryPsn(rank) => self.query_psn(rank),
            ControlCommand::Lose(rank, why) => self.lose(rank, why),
            ControlCommand::Expel(rank) => {
                self.expelled.insert(rank.0);
                self.lose(rank, "its message breaks the protocol");
            }
            ControlCommand::ComeToEnd(number) => {
                for rank in self.present() {
                    self.unacked_endings.note_sent(rank, number);
                    self.send_ending(rank, number);
                }
            }
            ControlCommand::Leave(orderly) => {
                if let (true, Some(patience)) = (orderly, self.watch.patience()) {
                    self.farewell_time = FAREWELL.max(patience);
                }
                for rank in self.present() {
                    self.unacked_leaves.note_sent(rank, orderly);
                }
                // Ranks that have left may still answer.
                for rank in (0..self.shared.endpoint.size())
                    .filter(|rank| *rank != self.shared.endpoint.rank().0)
                {
                    self.send_leave(rank, orderly);
                }
            }
            ControlCommand::ConfirmWake(rank, number) => {
                self.unacked_wakes.note_sent(rank.0, number);
            }
            ControlCommand::Stop => self.stop_at = Some(Instant::now() + self.farewell_time),
        }
    }

    /// Handles the datagrams that arrived. Returns whether there may be more.
    fn handle_datagrams(&mut self) -> std::io::Result<bool> {
        let shared = Arc::clone(&self.shared);
        let mut heard = Vec::new();
        let more = shared
            .datagrams
            .take(shared.endpoint.secret(), |kind, datagram| {
                heard.push((kind, datagram))
            })?;
        for (kind, datagram) in heard {
            let from = Rank(datagram.from);
            self.watch.note_heard(datagram.from);
            let expects_answer = matches!(
                kind,
                DatagramKind::Connect | DatagramKind::QueryPsn | DatagramKind::Ping
            );
            if expects_answer && shared.peers.standings().of(from) == Standing::Lost {
                // The peer may not know that it counts as lost.
                self.send_lost(from, from);
                continue;
            }
            let accuses = matches!(kind, DatagramKind::Lost | DatagramKind::Expelled);
            if accuses && shared.peers.standings().of(from) == Standing::Lost {
                // A peer that counts as lost may accuse healthy ranks: its accusations are ignored.
                continue;
            }
            match kind {
                DatagramKind::Connect => self.accept_connection(from, &datagram),
                DatagramKind::Accept => self.finish_connection(from, &datagram),
                DatagramKind::QueryPsn => self.tell_psn(from, &datagram),
                DatagramKind::ExpectedPsn => self.resume(from, &datagram),
                DatagramKind::Ping => self.send(
                    from,
                    Datagram::new(DatagramKind::Pong, shared.endpoint.rank().0),
                ),
                DatagramKind::Pong => {}
                DatagramKind::Ending => {
                    shared.peers.standings().note_end(from, datagram.epoch);
                    shared.completions.sleepers().wake_all();
                    let seen = Datagram {
                        epoch: datagram.epoch,
                        ..Datagram::new(DatagramKind::EndingAck, shared.endpoint.rank().0)
                    };
                    self.send(from, seen);
                }
                // An acknowledgement of an earlier announcement does not count for the last.
                DatagramKind::EndingAck => {
                    if self.unacked_endings.pending(datagram.from) == Some(datagram.epoch) {
                        self.unacked_endings.note_answered(datagram.from);
                    }
                }
                DatagramKind::Leave => {
                    self.end(from, datagram.about == 1);
                    self.send(
                        from,
                        Datagram::new(DatagramKind::LeaveAck, shared.endpoint.rank().0),
                    );
                }
                DatagramKind::LeaveAck => {
                    self.unacked_leaves.note_answered(datagram.from);
                }
                DatagramKind::Lost if datagram.about == shared.endpoint.rank().0 => {
                    self.lose(from, "it counts this rank as lost");
                }
                DatagramKind::Lost if datagram.about < shared.endpoint.size() => {
                    self.end(Rank(datagram.about), false);
                    let seen = Datagram {
                        about: datagram.about,
                        ..Datagram::new(DatagramKind::LostAck, shared.endpoint.rank().0)
                    };
                    self.send(from, seen);
                }
                DatagramKind::Lost => {}
                DatagramKind::Expelled => {
                    // The peer reports this rank lost to all others, so all count as lost to each
                    // other.
                    shared.peers.standings().end(shared.endpoint.rank(), false);
                    self.end(from, false);
                }
                DatagramKind::LostAck => {
                    self.unacked_losses
                        .note_answered((datagram.from, datagram.about));
                }
                DatagramKind::Wake => {
                    shared.completions.sleepers().wake_all();
                    let awake = Datagram {
                        epoch: datagram.epoch,
                        ..Datagram::new(DatagramKind::WakeAck, shared.endpoint.rank().0)
                    };
                    self.send(from, awake);
                }
                // An acknowledgement of an earlier wake does not count for the last.
                DatagramKind::WakeAck => {
                    if self.unacked_wakes.pending(datagram.from) == Some(datagram.epoch) {
                        self.unacked_wakes.note_answered(datagram.from);
                    }
                }
            }
        }
        Ok(more)
    }

    fn send(&self, to: Rank, datagram: Datagram) {
        let shared = &self.shared;
        let address = &shared.endpoint.addresses()[to.index()];
        shared.datagrams.send(
            to.0,
            address,
            &datagram.with_secret(shared.endpoint.secret()),
        );
    }

    fn send_ending(&self, rank: u32, number: u32) {
        let word = Datagram {
            epoch: number,
            ..Datagram::new(DatagramKind::Ending, self.shared.endpoint.rank().0)
        };
        self.send(Rank(rank), word);
    }

    fn send_leave(&self, rank: u32, orderly: bool) {
        let goodbye = Datagram {
            about: orderly.into(),
            ..Datagram::new(DatagramKind::Leave, self.shared.endpoint.rank().0)
        };
        self.send(Rank(rank), goodbye);
    }

    /// Resends the unanswered datagrams that are due.
    fn resend_due(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let is_present = |rank: u32| shared.peers.standings().of(Rank(rank)) == Standing::Present;
        for (rank, request) in self.connects.due(now, |_| true) {
            if rank == shared.endpoint.rank().0 {
                self.request_connection(Rank(rank));
            } else {
                self.send(Rank(rank), request);
            }
        }
        for (rank, number) in self.unacked_endings.due(now, is_present) {
            self.send_ending(rank, number);
        }
        for (rank, orderly) in self.unacked_leaves.due(now, is_present) {
            self.send_leave(rank, orderly);
        }
        for (rank, number) in self.unacked_wakes.due(now, is_present) {
            self.send(Rank(rank), Datagram::wake(shared.endpoint.rank().0, number));
        }
        for ((rank, lost), ()) in self.unacked_losses.due(now, |(rank, _)| is_present(rank)) {
            self.send_lost(Rank(rank), Rank(lost));
        }
    }

    /// Returns the other ranks that are present.
    fn present(&self) -> impl Iterator<Item = u32> + use<> {
        let shared = Arc::clone(&self.shared);
        (0..shared.endpoint.size())
            .filter(move |rank| *rank != shared.endpoint.rank().0)
            .filter({
                let shared = Arc::clone(&self.shared);
                move |rank| shared.peers.standings().of(Rank(*rank)) == Standing::Present
            })
    }

    /// Declares a peer lost and tells all ranks until they acknowledge. A rank that waits for the
    /// lost one need not be connected with it, and would never find out.
    fn lose(&mut self, rank: Rank, why: &str) {
        if rank == self.shared.endpoint.rank() {
            return self.lose_loopback(why);
        }
        if self.shared.peers.standings().of(rank) != Standing::Present {
            return;
        }
        tracing::info!(%rank, why, "a peer is lost");
        self.end(rank, false);
        // The peer may be alive and only unreachable from this rank.
        self.send_lost(rank, rank);
        let others: Vec<u32> = self.present().collect();
        for other in others {
            self.unacked_losses.note_sent((other, rank.0), ());
            self.send_lost(Rank(other), rank);
        }
    }

    /// Ends the operations of this rank on itself: its NIC cannot reach its own memory.
    fn lose_loopback(&mut self, why: &str) {
        let shared = &self.shared;
        let mut ended = Vec::new();
        let cause = Error::System {
            what: "reaching own memory through the NIC",
            cause: why.to_owned(),
        };
        shared
            .peers
            .get(shared.endpoint.rank())
            .connection()
            .lock()
            .end(shared.peers.pool(), &cause, &mut ended);
        shared.completions.end_operations(ended);
    }

    fn send_lost(&self, to: Rank, about: Rank) {
        let kind = if to == about && self.expelled.contains(&about.0) {
            DatagramKind::Expelled
        } else {
            DatagramKind::Lost
        };
        let news = Datagram {
            about: about.0,
            ..Datagram::new(kind, self.shared.endpoint.rank().0)
        };
        self.send(to, news);
    }

    /// Marks a peer as left or lost, and ends the operations on it.
    fn end(&mut self, rank: Rank, orderly: bool) {
        let shared = &self.shared;
        if rank == shared.endpoint.rank() || !shared.peers.standings().end(rank, orderly) {
            return;
        }
        self.connects.note_answered(rank.0);
        self.failing_since.remove(&rank.0);
        let mut ended = Vec::new();
        if let Some(peer) = shared.peers.existing(rank.0) {
            peer.connection()
                .lock()
                .end(shared.peers.pool(), &Error::PeerLost(rank), &mut ended);
            if !orderly {
                // A lost peer must no longer reach this rank's memory. Messages of a peer that left
                // in good order may still arrive.
                let gone = peer.incoming().lock().take_pair();
                if let Some(pair) = gone {
                    shared.incoming.retire(pair);
                }
            }
        }
        shared.completions.end_operations(ended);
    }
}
