//! Fences: certainty that no access of a peer is on its way.
//!
//! A software provider moves the data of an access while this rank polls, and looks at the key only at the begin. So
//! data may land after the key was revoked. A fence asks every connected peer for an answer. The connection is ordered:
//! when the answer arrives, everything before it has landed.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hydrant_conduit::Standing;

use crate::{
    message::ControlKind,
    peers::{OfiPeer, Phase},
    shared::OfiShared,
};

impl OfiShared {
    /// Waits until all accesses that peers began before the call have landed, or were dropped.
    pub(crate) fn fence(&self) {
        let number = self.fences.fetch_add(1, SeqCst) + 1;
        let up: Vec<&OfiPeer> = (self.peers.all_known())
            .filter(|peer| Self::was_up(peer) && peer.link.lock().phase != Phase::Ended)
            .collect();
        for peer in &up {
            self.send_control(peer, ControlKind::Fence, &[number]);
        }
        let is_open = |peer: &OfiPeer| {
            peer.counts.fenced() < number
                && self.peers.standings.of(peer.rank) == Standing::Present
                && peer.link.lock().phase != Phase::Ended
        };
        let mut idle = 0_u32;
        while up.iter().any(|peer| is_open(peer)) {
            let read = match self.collector.try_lock() {
                Some(mut collector) => collector.collect(self, true),
                None => 0,
            };
            idle = if read == 0 { idle + 1 } else { 0 };
            if idle > 1000 {
                std::thread::sleep(Duration::from_micros(50));
            } else if idle > 50 {
                std::thread::yield_now();
            }
        }
        self.sleepers.wake_listening();
    }
}
