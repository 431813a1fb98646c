//! Peers that are silent: beats tell peers that this rank is there, and a peer that misses some is probed or lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_conduit::{Rank, Standing};

use super::LinkControl;
use crate::{
    message::ControlKind,
    peers::{OfiPeer, Phase},
    sockets::{self, ListenerState},
};

/// How long a link is down before its peer's address is probed, and the time between probes.
pub(super) const PROBE: Duration = Duration::from_millis(100);
/// The part of the patience with a silent peer after which it is spoken to.
const BEATS: u32 = 8;
/// The beats without a message of a peer after which its address is probed.
const SUSPICION: u32 = 2;
/// The longest time between two messages to an idle peer.
const BEAT: Duration = Duration::from_secs(1);

/// The peer that was probed last.
#[derive(Default)]
pub(super) struct ProbeTurn(Rank);

impl LinkControl {
    /// Counts no silence while this process was stopped, or waited for the system: no peer could be heard then.
    pub(super) fn forgive_silence(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.last_step);
        self.last_step = now;
        let missed = since.saturating_sub(2 * self.beat());
        if missed.is_zero() {
            return;
        }
        let now_ms = self.shared.ms_at(now);
        for peer in self.shared.peers.all_known() {
            let mut link = peer.link.lock();
            link.down_since = now.min(link.down_since + missed);
            let (heard, _) = peer.times();
            peer.note_heard(heard.max(now_ms.min(heard + missed.as_millis() as u64)));
        }
    }

    /// The time between two messages to an idle peer.
    fn beat(&self) -> Duration {
        let patience = self.shared.patience;
        patience.map_or(BEAT, |patience| BEAT.min(patience / BEATS))
    }

    /// Speaks to peers that were not spoken to lately, and loses those that were not heard for long.
    pub(super) fn check_peers(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let beat = self.beat();
        if now.saturating_duration_since(self.last_check) < beat / 2 {
            return;
        }
        self.last_check = now;
        let now_ms = shared.ms_at(now);
        let (mut silent, mut suspects) = (Vec::new(), Vec::new());
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
            if now_ms.saturating_sub(spoken) >= beat.as_millis() as u64
                || peer.counts.is_unacknowledged()
            {
                let _ = shared.send_counts(peer, &link);
            }
            let silence = Duration::from_millis(now_ms.saturating_sub(heard));
            if shared.patience.is_some_and(|patience| silence >= patience) {
                silent.push(peer.rank);
            } else if silence >= SUSPICION * beat {
                suspects.push(peer.rank);
            }
        }
        for rank in silent {
            self.lose(rank, "it does not answer", ControlKind::Lost);
        }
        let turn = std::mem::take(&mut self.silent_turn);
        self.silent_turn = self.probe(suspects, turn);
        if shared.peers.are_ranks() {
            self.watch_next();
        }
    }

    /// Loses the peers, in the order of ranks, whose processes ended. The provider says nothing of that. A host that does
    /// not answer uses up the time for a step, so that this rank goes on speaking to the others. Then it is the next
    /// peer's turn in the next step.
    pub(super) fn probe(&mut self, mut suspects: Vec<Rank>, mut turn: ProbeTurn) -> ProbeTurn {
        if self.own.is_none() {
            return turn;
        }
        let first = suspects.partition_point(|rank| *rank <= turn.0);
        suspects.rotate_left(first);
        let shared = Arc::clone(&self.shared);
        let begun = Instant::now();
        // Other peers wait for this thread meanwhile. Those without a job should not feel it.
        let patience = if shared.peers.are_ranks() {
            PROBE
        } else {
            PROBE / 5
        };
        for rank in suspects {
            turn.0 = rank;
            let peer = shared.peers.known(rank.0);
            match peer.map(|peer| listener(peer, patience)) {
                Some(ListenerState::Gone) => self.lose(
                    rank,
                    "nothing listens at its address any more",
                    ControlKind::Lost,
                ),
                Some(ListenerState::NoDescriptor) => self.warn_of_descriptors(),
                _ => {}
            }
            if begun.elapsed() >= patience {
                break;
            }
        }
        turn
    }

    /// Says once that this process can make no connection.
    fn warn_of_descriptors(&mut self) {
        if !std::mem::replace(&mut self.is_warned, true) {
            let what =
                "no descriptor is left to reach other ranks: raise RLIMIT_NOFILE (ulimit -n)";
            tracing::warn!("{what}");
        }
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
}

/// Asks whether a peer's process still listens.
fn listener(peer: &OfiPeer, patience: Duration) -> ListenerState {
    match peer.at() {
        Some(address) => sockets::probe(address, patience),
        None => ListenerState::Silent,
    }
}
