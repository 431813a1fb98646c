//! The end of what lost peers still write.
//!
//! A software provider looks at the key of a write when it begins, and stores the data as it arrives. So megabytes may
//! be on their way when a peer is lost, and would land in memory that was taken back and is in use again. Nobody answers
//! a fence then. So the connections end before the peer counts as lost.

use std::net::SocketAddr;

use hydrant_conduit::Rank;

use crate::{
    commands::LinkCommand,
    listening::Listening,
    peers::{OfiPeer, Phase},
    shared::OfiShared,
    sockets,
};

/// The reads of the completion queue in which the provider sees that connections have ended.
const LAST_LOOKS: u32 = 4;

impl OfiShared {
    /// Returns this rank's address if the provider is TCP.
    pub(crate) fn own_address(&self) -> Option<SocketAddr> {
        (self.peers.own_address()).filter(|_| self.fabric.is_over_tcp())
    }

    /// Ends the links to peers and their connections. Waits until the provider has seen that, so that nothing that they
    /// wrote lands afterwards.
    pub(crate) fn cut_off(&self, ranks: impl IntoIterator<Item = Rank>) {
        let own = self.own_address();
        let mut any = false;
        for rank in ranks {
            let Some(peer) = self.peers.known(rank.0) else {
                continue;
            };
            {
                let mut link = peer.link.lock();
                // No session begins from now on, so that the peer posts nothing more.
                link.phase = Phase::Ended;
                link.resumption = None;
                link.pending = None;
                link.is_cut = true;
            }
            if let (Some(own), Some(there)) = (own, self.peers.address_of(rank)) {
                sockets::end_connections(own, there);
                any = true;
            }
        }
        if any {
            let mut collector = self.collector.lock();
            for _ in 0..LAST_LOOKS {
                collector.collect(self, true);
            }
        }
    }

    /// Ends the links to all peers without a job that were not cut off, and their connections.
    pub(crate) fn cut_off_rest(&self) {
        let is_cut = |peer: &OfiPeer| {
            let link = peer.link.lock();
            link.is_cut || link.phase == Phase::Unused
        };
        let rest: Vec<Rank> = (self.peers.all_known())
            .filter(|peer| !is_cut(peer))
            .map(|peer| peer.rank)
            .collect();
        self.cut_off(rest);
    }

    /// Ends all sessions without a job, if this process stood still for so long that peers may count it as lost. They
    /// do not expect that anything lands any more, and megabytes may wait in this process's sockets. So this comes before
    /// each look at the completion queue, and before anything is posted.
    #[inline]
    pub(crate) fn check_stall(&self) {
        if let Some(listening) = &self.listening
            && listening.has_stalled()
        {
            self.cut_after_stall(listening);
        }
    }

    #[cold]
    fn cut_after_stall(&self, listening: &Listening) {
        let _one = listening.stall.lock();
        if !listening.has_stalled() {
            return;
        }
        for peer in self.peers.all_known() {
            let mut link = peer.link.lock();
            if link.phase != Phase::Unused {
                link.phase = Phase::Ended;
                link.resumption = None;
                link.pending = None;
                link.is_cut = true;
            }
        }
        if let Some(own) = self.own_address() {
            sockets::end_all_connections(own, &self.peers.addresses());
        }
        listening.note_seen();
        self.commands.push(LinkCommand::Stalled);
    }

    /// Cuts off all peers, once, because this rank counts as lost to them and none answers it any more.
    pub(crate) fn cut_off_all(&self) {
        let mut is_done = self.is_alone.lock();
        if !*is_done {
            let others = (0..self.peers.size()).map(Rank);
            self.cut_off(others.filter(|rank| *rank != self.rank));
            *is_done = true;
            // The operations that wait end, too.
            self.commands.push(LinkCommand::LoseAll);
        }
    }
}
