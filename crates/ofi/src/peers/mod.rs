//! The peers: the link to each, the counts, and its standing in the job.

mod counts;
mod link;

use std::net::SocketAddr;
use std::sync::{
    OnceLock,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::{Error, Rank, Standings};
use parking_lot::Mutex;

use crate::{
    fabric::{Fabric, PeerAddress},
    socket_address,
};

pub(crate) use counts::Counts;
pub(crate) use link::{Link, PendingSession, Phase, Resumption};

/// The link to one peer, and what threads read of it without its lock.
pub(crate) struct OfiPeer {
    pub(crate) rank: Rank,
    /// Its address in the address vector.
    pub(crate) address: PeerAddress,
    pub(crate) link: Mutex<Link>,
    pub(crate) counts: Counts,
    /// The token of the peer's messages; 0 without a session.
    pub(crate) token: AtomicU64,
    /// When the peer was heard last, in milliseconds since the job began.
    heard: AtomicU64,
    /// When this rank last sent it a message, likewise. Accesses do not count: the peer's process does not see them.
    spoken: AtomicU64,
    /// The low half of the token whose writes count: of the session, or of the one that this rank answered last. Written
    /// by the thread that collects.
    pub(crate) epoch: AtomicU32,
    /// True once a session was confirmed.
    pub(crate) was_up: AtomicBool,
}

impl OfiPeer {
    pub(crate) fn note_heard(&self, now: u64) {
        self.heard.store(now, Relaxed);
    }

    pub(crate) fn note_spoken(&self, now: u64) {
        self.spoken.store(now, Relaxed);
    }

    /// Returns when the peer was heard last, and when it was last sent a message.
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.heard.load(Relaxed), self.spoken.load(Relaxed))
    }
}

/// All peers.
pub(crate) struct OfiPeers {
    /// The peers by rank, each made on first use.
    list: Box<[OnceLock<Box<OfiPeer>>]>,
    /// The address of each rank's endpoint, as the provider writes it.
    names: Box<[Vec<u8>]>,
    pub(crate) standings: Standings,
    /// Peers with a message or an access that was not posted.
    listed: Mutex<Vec<u32>>,
    any_listed: AtomicBool,
}

impl OfiPeers {
    pub(crate) fn new(names: Vec<Vec<u8>>) -> Self {
        Self {
            list: names.iter().map(|_| OnceLock::new()).collect(),
            standings: Standings::new(names.len() as u32),
            names: names.into(),
            listed: Mutex::default(),
            any_listed: AtomicBool::new(false),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.list.len() as u32
    }

    /// Returns the address of a rank's endpoint, as the provider writes it.
    pub(crate) fn name(&self, rank: Rank) -> &[u8] {
        &self.names[rank.index()]
    }

    /// Returns the socket address of each rank's endpoint, as far as it has one.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.names
            .iter()
            .filter_map(|name| socket_address::parse(name))
    }

    /// Returns a peer, and makes it on first use.
    ///
    /// # Errors
    /// [`Error::System`] if the provider does not take its address.
    #[inline]
    pub(crate) fn get(&self, fabric: &Fabric, rank: Rank) -> Result<&OfiPeer, Error> {
        match self.list.get(rank.index()).map(OnceLock::get) {
            Some(Some(peer)) => Ok(peer),
            Some(None) => self.make(fabric, rank),
            None => Err(Error::PeerLost(rank)),
        }
    }

    #[cold]
    fn make(&self, fabric: &Fabric, rank: Rank) -> Result<&OfiPeer, Error> {
        // The lock keeps two threads from adding the address twice.
        let _one = self.listed.lock();
        if let Some(peer) = self.list[rank.index()].get() {
            return Ok(peer);
        }
        let address = fabric.insert(&self.names[rank.index()])?;
        let peer = OfiPeer {
            rank,
            address,
            link: Mutex::new(Link::new()),
            counts: Counts::default(),
            token: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            heard: AtomicU64::new(0),
            spoken: AtomicU64::new(0),
            was_up: AtomicBool::new(false),
        };
        Ok(self.list[rank.index()].get_or_init(|| Box::new(peer)))
    }

    /// Returns a peer if it was made before.
    #[inline]
    pub(crate) fn known(&self, rank: u32) -> Option<&OfiPeer> {
        Some(&**self.list.get(rank as usize)?.get()?)
    }

    /// Returns the peers that were made.
    pub(crate) fn all_known(&self) -> impl Iterator<Item = &OfiPeer> {
        self.list
            .iter()
            .filter_map(|peer| peer.get().map(Box::as_ref))
    }

    /// Returns true if a link is being made. A link that another thread uses now is not.
    pub(crate) fn any_down(&self) -> bool {
        let is_down = |peer: &OfiPeer| {
            let link = peer.link.try_lock();
            link.is_some_and(|link| link.phase == Phase::Down)
        };
        self.all_known().any(is_down)
    }

    /// Lists a link for the next flush.
    pub(crate) fn list(&self, rank: Rank, link: &mut Link) {
        if !link.is_listed {
            link.is_listed = true;
            self.listed.lock().push(rank.0);
            self.any_listed.store(true, Release);
        }
    }

    /// Takes the listed peers.
    #[inline]
    pub(crate) fn take_listed(&self) -> Vec<u32> {
        if !self.any_listed.load(Acquire) {
            return Vec::new();
        }
        let mut listed = self.listed.lock();
        self.any_listed.store(false, Release);
        std::mem::take(&mut *listed)
    }
}
