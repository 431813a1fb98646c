//! Peers that are silent: beats tell peers that this rank is there, and a peer that misses some is probed or lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_conduit::{Rank, Standing};

use super::LinkControl;
use crate::{
    message::ControlKind,
    peers::{Peer, Phase},
    shared::OfiShared,
    socket_address,
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

impl LinkControl {
    /// Speaks to peers that were not spoken to lately, and loses those that were not heard for long.
    pub(super) fn check_peers(&mut self, now: Instant) {
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
            } else if silence >= SUSPICION * beat {
                suspects.push(peer.rank);
            }
        }
        for rank in silent {
            self.lose(rank, "it does not answer", ControlKind::Lost);
        }
        self.probe_suspects(suspects);
        self.watch_next();
    }

    /// Loses the peers that missed a beat because their processes ended. The provider says nothing of that.
    fn probe_suspects(&mut self, mut suspects: Vec<Rank>) {
        if self.own.is_none() || suspects.is_empty() {
            return;
        }
        // The first is the one after the last that was probed, because a host that does not answer uses up the time.
        let first = suspects.partition_point(|rank| *rank <= self.last_probed);
        suspects.rotate_left(first);
        let shared = Arc::clone(&self.shared);
        let begun = Instant::now();
        for rank in suspects {
            self.last_probed = rank;
            let peer = shared.peers.known(rank.0);
            if peer.is_some_and(|peer| listener(&shared, peer) == ListenerState::Gone) {
                self.lose(
                    rank,
                    "nothing listens at its address any more",
                    ControlKind::Lost,
                );
            }
            if begun.elapsed() >= PROBE {
                return;
            }
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
pub(super) fn listener(shared: &OfiShared, peer: &Peer) -> ListenerState {
    match socket_address::parse(shared.peers.name(peer.rank)) {
        Some(address) => sockets::probe(address, PROBE),
        None => ListenerState::Silent,
    }
}
