//! The peers: the link to each, the counts, and its standing.
//!
//! Each process numbers its peers. In a job all use the same numbers, the ranks. A peer is shown the number that it has
//! for this process in each message and write, so that it finds the link without a search.

#![allow(unsafe_code)] // owns the peers by pointer

mod counts;
mod link;

use std::{
    net::SocketAddr,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::{Error, Rank, Standings};
use parking_lot::Mutex;

use crate::{
    fabric::{Fabric, PeerAddress},
    keys::ProviderKeys,
    session::Sessions,
    socket_address,
};

pub(crate) use counts::Counts;
pub(crate) use link::{Acquaintance, Link, PendingSession, Phase, Resumption};

/// The link to one peer, and what threads read of it without its lock.
pub(crate) struct OfiPeer {
    pub(crate) rank: Rank,
    /// The number that the peer has for this process.
    me: AtomicU32,
    /// Its address in the address vector.
    address: AtomicU64,
    /// Messages without a number with the provider, counted without a job.
    outside: AtomicU32,
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
    fn new(rank: Rank, me: u32, address: PeerAddress, known_as: Acquaintance) -> Self {
        Self {
            rank,
            me: AtomicU32::new(me),
            address: AtomicU64::new(address),
            outside: AtomicU32::new(0),
            link: Mutex::new(Link::new(known_as)),
            counts: Counts::default(),
            token: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            heard: AtomicU64::new(0),
            spoken: AtomicU64::new(0),
            was_up: AtomicBool::new(false),
        }
    }

    /// Returns the number that the peer has for this process.
    #[inline]
    pub(crate) fn me(&self) -> u32 {
        self.me.load(Relaxed)
    }

    pub(crate) fn set_me(&self, me: u32) {
        self.me.store(me, Relaxed);
    }

    /// Counts a message without a number that the provider has.
    pub(crate) fn note_outside(&self) {
        self.outside.fetch_add(1, Relaxed);
    }

    /// Notes that the provider is done with such a message.
    pub(crate) fn end_outside(&self) {
        self.outside.fetch_sub(1, Relaxed);
    }

    pub(crate) fn has_outside(&self) -> bool {
        self.outside.load(Acquire) > 0
    }

    /// Forgets everything about the process that had this number. Nothing is in flight to it.
    fn reset(&self, address: PeerAddress, known_as: Acquaintance) {
        self.token.store(0, Release);
        self.epoch.store(0, Release);
        self.me.store(u32::MAX, Relaxed);
        self.address.store(address, Relaxed);
        self.counts.reset();
        self.was_up.store(false, Release);
        *self.link.lock() = Link::new(known_as);
    }

    /// Returns its address in the address vector.
    #[inline]
    pub(crate) fn address(&self) -> PeerAddress {
        self.address.load(Relaxed)
    }

    /// Returns the socket address of its endpoint, if it has one.
    pub(crate) fn at(&self) -> Option<SocketAddr> {
        self.link.lock().known_as.at
    }

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
    /// The peers by number, each made on first use and never freed before this. Null for others.
    list: Box<[AtomicPtr<OfiPeer>]>,
    /// No peer with this number or a higher one was made.
    end: AtomicU32,
    /// The address of this process's endpoint, as the provider writes it.
    own_name: Vec<u8>,
    /// The ranks of a job. `None` without one.
    job: Option<JobPeers>,
    pub(crate) standings: Standings,
    /// Peers with a message or an access that was not posted.
    listed: Mutex<Vec<u32>>,
    any_listed: AtomicBool,
}

/// The knowledge about all ranks of a job from its start.
struct JobPeers {
    own: Rank,
    secret: [u8; 16],
    /// Bytes of a provider's key.
    key_size: usize,
    /// The address of each rank's endpoint, as the provider writes it.
    names: Box<[Vec<u8>]>,
}

impl JobPeers {
    fn sessions(&self, rank: Rank) -> Sessions {
        Sessions::new(self.secret, self.own.0, rank.0)
    }
}

impl Drop for OfiPeers {
    fn drop(&mut self) {
        for place in &mut self.list[..*self.end.get_mut() as usize] {
            let peer = std::mem::replace(place.get_mut(), ptr::null_mut());
            if !peer.is_null() {
                // SAFETY: `add` made the pointer of a box, and nobody else has it any more.
                drop(unsafe { Box::from_raw(peer) });
            }
        }
    }
}

impl OfiPeers {
    /// Makes the ranks of a job, with their endpoints' addresses.
    pub(crate) fn of_job(
        own: Rank,
        secret: [u8; 16],
        key_size: usize,
        names: Vec<Vec<u8>>,
    ) -> Self {
        let own_name = names[own.index()].clone();
        let size = names.len() as u32;
        let names = names.into();
        let mut peers = Self::without_job(size, own_name);
        peers.job = Some(JobPeers {
            own,
            secret,
            key_size,
            names,
        });
        peers
    }

    /// Makes room for peers that come and go, with numbers below `size`.
    pub(crate) fn without_job(size: u32, own_name: Vec<u8>) -> Self {
        Self {
            // Peers that were never made take no memory.
            list: bytemuck::zeroed_slice_box(size as usize),
            end: AtomicU32::new(0),
            own_name,
            job: None,
            standings: Standings::new(size),
            listed: Mutex::default(),
            any_listed: AtomicBool::new(false),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.list.len() as u32
    }

    /// Returns true for the ranks of a job.
    pub(crate) fn are_ranks(&self) -> bool {
        self.job.is_some()
    }

    /// Returns the socket address of this process's endpoint, if it has one.
    pub(crate) fn own_address(&self) -> Option<SocketAddr> {
        socket_address::parse(&self.own_name)
    }

    /// Returns the socket addresses of the peers' endpoints: of all ranks of a job, or of the peers that there are.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match &self.job {
            Some(job) => {
                let names = job.names.iter();
                names
                    .filter_map(|name| socket_address::parse(name))
                    .collect()
            }
            None => self.all_known().filter_map(OfiPeer::at).collect(),
        }
    }

    /// Returns the socket address of a peer's endpoint, if it has one.
    pub(crate) fn address_of(&self, rank: Rank) -> Option<SocketAddr> {
        match &self.job {
            Some(job) => socket_address::parse(job.names.get(rank.index())?),
            None => self.known(rank.0)?.at(),
        }
    }

    /// Returns a peer, and makes a rank of a job on first use.
    ///
    /// # Errors
    /// [`Error::System`] if the provider does not take its address; [`Error::PeerLost`] if there is no such peer.
    #[inline]
    pub(crate) fn get(&self, fabric: &Fabric, rank: Rank) -> Result<&OfiPeer, Error> {
        match self.known(rank.0) {
            Some(peer) => Ok(peer),
            None => self.make(fabric, rank),
        }
    }

    #[cold]
    fn make(&self, fabric: &Fabric, rank: Rank) -> Result<&OfiPeer, Error> {
        let job = self.job.as_ref();
        let (job, name) = job
            .and_then(|job| Some((job, job.names.get(rank.index())?)))
            .ok_or(Error::PeerLost(rank))?;
        // The lock keeps two threads from adding the address twice.
        let _one = self.listed.lock();
        if let Some(peer) = self.known(rank.0) {
            return Ok(peer);
        }
        let address = fabric.insert(name)?;
        let known_as = Acquaintance {
            at: socket_address::parse(name),
            sessions: job.sessions(rank),
            keys: ProviderKeys::new(job.secret, rank, job.key_size),
        };
        Ok(self.add(OfiPeer::new(rank, job.own.0, address, known_as)))
    }

    /// Begins a peer without a job, with a number that was free. Its sessions are not known yet.
    pub(crate) fn begin(
        &self,
        rank: Rank,
        address: PeerAddress,
        at: Option<SocketAddr>,
    ) -> &OfiPeer {
        let nothing = crate::introduction::fresh();
        let known_as = Acquaintance {
            at,
            sessions: Sessions::new(nothing, 0, 1),
            keys: ProviderKeys::new(nothing, rank, 8),
        };
        // It is present once its sessions are known.
        self.standings.end(rank, false);
        match self.known(rank.0) {
            Some(peer) => {
                peer.reset(address, known_as);
                peer
            }
            None => self.add(OfiPeer::new(rank, u32::MAX, address, known_as)),
        }
    }

    /// Ends a peer without a job, and returns its address in the address vector.
    pub(crate) fn retire(&self, peer: &OfiPeer) -> PeerAddress {
        let address = peer.address();
        let known_as = peer.link.lock().known_as;
        let nothing = Acquaintance {
            at: None,
            sessions: Sessions::new(crate::introduction::fresh(), 0, 1),
            ..known_as
        };
        peer.reset(u64::MAX, nothing);
        address
    }

    /// Adds a peer, whose number no other thread adds.
    fn add(&self, peer: OfiPeer) -> &OfiPeer {
        let number = peer.rank.0;
        let peer = Box::into_raw(Box::new(peer));
        self.list[number as usize].store(peer, Release);
        self.end.fetch_max(number + 1, Release);
        // SAFETY: the box was just made, and lives as long as this value.
        unsafe { &*peer }
    }

    /// Returns the sessions with a rank of a job that may not have been made yet.
    pub(crate) fn sessions_with(&self, rank: u32) -> Option<Sessions> {
        if let Some(peer) = self.known(rank) {
            return Some(peer.link.lock().known_as.sessions);
        }
        let job = self.job.as_ref()?;
        (rank < self.size()).then(|| job.sessions(Rank(rank)))
    }

    /// Returns a peer if it was made before.
    #[inline]
    pub(crate) fn known(&self, rank: u32) -> Option<&OfiPeer> {
        let peer = self.list.get(rank as usize)?.load(Acquire);
        // SAFETY: the pointer is null, or that of a box that lives as long as this value.
        unsafe { peer.as_ref() }
    }

    /// Returns the peers that were made.
    pub(crate) fn all_known(&self) -> impl Iterator<Item = &OfiPeer> {
        (0..self.end.load(Acquire)).filter_map(|number| self.known(number))
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
