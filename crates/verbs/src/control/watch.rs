//! Detecting that a peer is dead.
//!
//! The kernel reports at once when a process on this host ends. This rank also pings all peers
//! that it is connected with, and the next rank in the ring. A peer that is silent for long is lost.
//! The ring guarantees that some rank sees each death, and that rank tells all.
//!
//! While the local port is down, the silence of ranks on this host means nothing. They are cut off
//! together, and may reach each other by other conduits. Such a rank is lost like any other only if
//! a request or a message to it through that port is outstanding.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use hydrant_conduit::{Rank, Standing};
use rustc_hash::FxHashMap;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Control;
use crate::{
    datagram::{Datagram, DatagramKind},
    shared::VerbsShared,
};

/// Pings that may stay unanswered before a peer is lost.
const PINGS: u32 = 8;

pub(super) struct PeerWatch {
    /// Ranks of this host and the `pidfd` of each, until its process ends.
    processes: Vec<(u32, OwnedFd)>,
    /// When each watched peer was heard last.
    last_heard: FxHashMap<u32, Instant>,
    /// How long a peer may be silent; `None` for ever.
    patience: Option<Duration>,
    /// When peers were last checked.
    last_check: Instant,
}

impl PeerWatch {
    pub(super) fn new(shared: &VerbsShared, patience: Option<Duration>) -> Self {
        let own = &shared.endpoint.addresses()[shared.endpoint.rank().index()];
        let mut processes = Vec::new();
        for (rank, address) in (0..).zip(shared.endpoint.addresses()) {
            if address.host != own.host || address.pid == own.pid {
                continue;
            }
            let pid = i32::try_from(address.pid).ok().and_then(Pid::from_raw);
            // The silence of a process that is gone, or cannot be watched, will tell.
            if let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                processes.push((rank, process));
            }
        }
        let mut watch = Self {
            processes,
            last_heard: FxHashMap::default(),
            patience,
            last_check: Instant::now(),
        };
        if shared.endpoint.size() > 1 {
            watch.add((shared.endpoint.rank().0 + 1) % shared.endpoint.size());
        }
        watch
    }

    /// Returns how long a peer may be silent; `None` for ever.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.patience
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().map(|(_, process)| process.as_fd())
    }

    /// Removes and returns the ranks whose processes ended.
    pub(super) fn take_ended(&mut self, gone: &[bool]) -> Vec<u32> {
        let mut ranks = Vec::new();
        let mut gone = gone.iter();
        self.processes.retain(|(rank, _)| {
            let ended = gone.next() == Some(&true);
            if ended {
                ranks.push(*rank);
            }
            !ended
        });
        ranks
    }

    /// Watches a peer: from now on it has to answer.
    pub(super) fn add(&mut self, rank: u32) {
        self.last_heard.entry(rank).or_insert_with(Instant::now);
    }

    pub(super) fn note_heard(&mut self, rank: u32) {
        if let Some(heard) = self.last_heard.get_mut(&rank) {
            *heard = Instant::now();
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        Some(self.last_check + self.patience? / PINGS)
    }
}

impl Control {
    /// Pings peers that were not heard lately. Declares peers lost that were not heard for long.
    pub(super) fn check_peers(&mut self, now: Instant) {
        let (Some(patience), Some(next)) = (self.watch.patience, self.watch.next()) else {
            return;
        };
        if now < next {
            return;
        }
        let between = patience / PINGS;
        // While this process was stopped, or waited for the system, no peer could be heard.
        let unheard = now.saturating_duration_since(self.watch.last_check);
        let unheard = unheard.saturating_sub(2 * between);
        self.watch.last_check = now;
        let standings = self.shared.peers.standings();
        self.watch
            .last_heard
            .retain(|rank, _| standings.of(Rank(*rank)) == Standing::Present);
        let (addresses, own) = (
            self.shared.endpoint.addresses(),
            self.shared.endpoint.rank().index(),
        );
        let mut silent = Vec::new();
        for (rank, heard) in &mut self.watch.last_heard {
            *heard = now.min(*heard + unheard);
            let is_mate = addresses[*rank as usize].host == addresses[own].host;
            if is_mate && now - *heard >= between && self.shared.is_cut_off_from(*rank) {
                *heard = now - between;
            }
            let silence = now.saturating_duration_since(*heard);
            if silence >= patience {
                silent.push(*rank);
            } else if silence >= between / 2 {
                let (to, ping) = (
                    Rank(*rank),
                    Datagram::new(DatagramKind::Ping, self.shared.endpoint.rank().0),
                );
                let address = &addresses[to.index()];
                (self.shared.datagrams).send(
                    to.0,
                    address,
                    &ping.with_secret(self.shared.endpoint.secret()),
                );
            }
        }
        for rank in silent {
            self.lose(Rank(rank), "it does not answer");
        }
        // The ring skips ranks that ended.
        let (size, own) = (self.shared.endpoint.size(), self.shared.endpoint.rank().0);
        let next = (1..size)
            .map(|step| (own + step) % size)
            .find(|rank| self.shared.peers.standings().of(Rank(*rank)) == Standing::Present);
        if let Some(next) = next {
            self.watch.add(next);
        }
    }
}
