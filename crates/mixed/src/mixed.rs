//! The conduit that combines an intra-node and an inter-node conduit.

#![allow(unsafe_code)] // implements the contract's unsafe methods through two conduits

use std::{sync::Arc, time::Duration};

use hydrant_base::words::only;
use hydrant_conduit::{
    Access, AccessKind, Caps, Clock, Conduit, Delivery, Error, Footprint, Key, Membership, Message,
    Permission, Posted, Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper, Standing, Standings,
    WakeWord, Window,
};
use hydrant_launch::Bootstrap;

use crate::{
    limits::Limited,
    mates::{Mates, Up},
    relay::{Relay, RelayThread},
    standings::Joint,
};

/// The key under which ranks put the addresses of their segments.
const SEGMENT: &str = "mixed-segment";

/// An intra-node conduit for the ranks of this host and an inter-node one for all ranks, combined
/// into one.
pub struct Mixed {
    /// Joins the ranks of this host, with the numbers in `mates`.
    intra: Arc<dyn Conduit>,
    /// Joins all ranks of the job.
    inter: Arc<dyn Conduit>,
    /// The ranks of this host.
    mates: Mates,
    /// The capabilities that both conduits share.
    caps: Caps,
    /// The standings of the ranks, combined from both conduits. Each query updates them.
    standings: Joint,
    /// The state shared by the sleepers and the thread that sleeps in the inter-node conduit.
    relay: Arc<Relay>,
    /// The addresses of all segments, if the inter-node conduit reaches them by address.
    segments: Option<Box<[u64]>>,
    /// The last field except those it uses: it ends before the conduits do.
    _thread: RelayThread,
}

impl Mixed {
    /// Combines two conduits. Collective.
    ///
    /// `hosts` has the host of each rank. `intra` joins the ranks of this host, in order, and
    /// `inter` all ranks of the job. The segments are those of `intra`.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the conduits do not join these ranks, or `inter` can reach only
    /// its own segments.
    pub fn join(
        bootstrap: &mut dyn Bootstrap,
        hosts: &[u32],
        name: &'static str,
        intra: Box<dyn Conduit>,
        inter: Box<dyn Conduit>,
    ) -> Result<Self, Error> {
        let (intra, inter): (Arc<dyn Conduit>, Arc<dyn Conduit>) = (intra.into(), inter.into());
        let rank = Rank(bootstrap.rank());
        let mates = Mates::of(rank, hosts);
        let numbers = [inter.size(), hosts.len() as u32];
        let fits = numbers.iter().all(|n| *n == bootstrap.size()) && intra.size() == mates.count();
        if !fits || inter.rank() != rank || mates.intra(rank) != Some(intra.rank()) {
            let what = "the conduits within hosts and between them are not of the same ranks";
            return Err(Error::Unreachable(what.to_owned()));
        }
        let caps = caps(name, intra.caps(), inter.caps());
        let segments = match inter.caps() {
            Caps {
                registration: Some(_),
                ..
            } => None,
            Caps {
                any_address: true, ..
            } => Some(exchange(bootstrap, &*intra)?),
            _ => {
                let what = "the conduit between hosts reaches no memory of the one within them";
                return Err(Error::Unreachable(what.to_owned()));
            }
        };
        let relay = Arc::new(Relay::new());
        let thread = RelayThread::start(&relay, &intra, &inter, rank)?;
        Ok(Self {
            standings: Joint::new(inter.size()),
            intra,
            inter,
            mates,
            caps,
            relay,
            segments,
            _thread: thread,
        })
    }

    /// Returns the standings of the ranks, up to date.
    #[inline]
    fn standings(&self) -> &Standings {
        (self.standings).updated(&*self.intra, &*self.inter, &self.mates)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer is present. One of the conduits may not know that yet.
    #[inline]
    fn alive(&self, peer: Rank) -> Result<(), Error> {
        self.standings().present(peer)
    }

    /// Translates remote memory for the inter-node conduit, which knows segments only by their
    /// addresses.
    fn place(&self, peer: Rank, at: Remote, len: usize) -> Result<Remote, Error> {
        let base = (self.segments.as_ref()).and_then(|segments| segments.get(peer.index()));
        let (Some(base), Key::SEGMENT) = (base, at.key) else {
            return Ok(at);
        };
        let (len, extent) = (len as u64, self.caps.segment as u64);
        if len > extent || at.offset > extent - len {
            return Err(Error::OutOfExtent {
                peer,
                offset: at.offset,
                len,
                extent,
            });
        }
        Ok(Remote {
            key: Key::ANY,
            offset: base + at.offset,
        })
    }

    /// Returns the mate's number if the key is that of its segment, and the segment needs no
    /// registration.
    fn mate_of(&self, peer: Rank, key: Key) -> Option<Rank> {
        let segment = key == Key::SEGMENT && self.segments.is_some();
        self.mates.intra(peer).filter(|_| segment)
    }

    fn posted_by_inter(&self, posted: Result<Posted, Error>) -> Result<Posted, Error> {
        if let Ok(Posted::Pending(_)) = posted {
            self.relay.note_activity();
        }
        posted
    }

    fn posted_by_intra(&self, posted: Result<Posted, Error>) -> Result<Posted, Error> {
        match posted {
            Ok(Posted::Done) => Ok(Posted::Done),
            Ok(Posted::Pending(ticket)) => Ok(Posted::Pending(Mates::ticket(ticket))),
            Err(error) => Err(self.mates.error(error)),
        }
    }

    fn limited<'a>(&'a self, sink: &'a mut dyn Sink) -> Limited<'a> {
        Limited {
            caps: &self.caps,
            sink,
        }
    }

    fn up<'a>(&'a self, sink: &'a mut dyn Sink) -> Up<'a> {
        Up {
            mates: &self.mates,
            sink,
        }
    }
}

/// Combines the capabilities of both conduits.
fn caps(name: &'static str, intra: &Caps, inter: &Caps) -> Caps {
    Caps {
        name,
        registration: inter.registration,
        reads: inter.reads,
        any_address: inter.any_address,
        host_ranks: intra.host_ranks,
        stores_wake: intra.stores_wake && inter.stores_wake,
        // Mates on a host change words by their processors.
        atomics: None,
        max_args: intra.max_args.min(inter.max_args),
        max_payload: intra.max_payload.min(inter.max_payload),
        segment: intra.segment,
    }
}

/// Publishes the address of this rank's segment, and returns those of all ranks.
fn exchange(bootstrap: &mut dyn Bootstrap, intra: &dyn Conduit) -> Result<Box<[u64]>, Error> {
    let unreachable = |cause: hydrant_launch::Error| Error::Unreachable(cause.to_string());
    let own = intra.window(intra.rank()).ok_or_else(|| {
        Error::Unreachable("the conduit within hosts does not map the own segment".to_owned())
    })?;
    let base = own.as_ptr().addr() as u64;
    (bootstrap.put(SEGMENT, &base.to_le_bytes())).map_err(unreachable)?;
    bootstrap.fence().map_err(unreachable)?;
    (0..bootstrap.size())
        .map(|rank| {
            let base = bootstrap.get(rank, SEGMENT).map_err(unreachable)?;
            only(&base).map_err(|_| {
                Error::Unreachable(format!("rank {rank} published no address of its segment"))
            })
        })
        .collect()
}

// SAFETY: 1. both conduits promise it, and `Mates::ticket` tells the tickets of the intra-node one
// apart.
// 2. Extents belong to the inter-node conduit, which promises it.
// 3. Segments belong to the intra-node conduit. The inter-node one reaches them as extents of its
//    own, or through `place`, which keeps within them.
// 4. The inter-node conduit promises it for rank and size. The capabilities and the mates never
//    change.
unsafe impl Conduit for Mixed {
    fn rank(&self) -> Rank {
        self.inter.rank()
    }

    fn size(&self) -> u32 {
        self.inter.size()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn port(&self) -> String {
        self.inter.port()
    }

    fn footprint(&self) -> Footprint {
        let (intra, inter) = (self.intra.footprint(), self.inter.footprint());
        Footprint {
            per_rank: intra.per_rank + inter.per_rank,
            per_pair: intra.per_pair.max(inter.per_pair),
        }
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: 1. and 2. the conditions of this function.
        unsafe { self.inter.register(addr, len, permission) }
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.inter.deregister(key)
    }

    unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
        // SAFETY: the condition of this function; ranks of this host do not use the key.
        unsafe { self.inter.deregister_unused(key) }
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        if let AccessKind::Atomic(_) = access.kind {
            return Err(self.caps.no_atomics());
        }
        let peer = access.peer;
        self.alive(peer)?;
        if let Some(mate) = self.mate_of(peer, access.remote.key) {
            let access = Access {
                peer: mate,
                ..*access
            };
            // SAFETY: 1. and 2. the conditions of this function, for the same memory: only the
            // number of the peer differs.
            return self.posted_by_intra(unsafe { self.intra.post(&access) });
        }
        let remote = self.place(peer, access.remote, access.len)?;
        let access = Access { remote, ..*access };
        // SAFETY: 1. condition 1 of this function.
        // 2. If `place` returned an address, it is in the peer's segment, which tolerates the
        //    change as under the segment's key. Otherwise condition 2 of this function.
        self.posted_by_inter(unsafe { self.inter.post(&access) })
    }

    #[inline]
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.alive(peer)?;
        self.caps.check(message)?;
        match self.mates.intra(peer) {
            Some(mate) => (self.intra.send(mate, message)).map_err(|error| self.mates.error(error)),
            None => self.inter.send(peer, message),
        }
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        match self.mates.intra(peer) {
            Some(mate) => self.intra.handled(mate),
            None => self.inter.handled(peer),
        }
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let mut sink = self.limited(sink);
        let intra = self.intra.poll(&mut self.up(&mut sink));
        let inter = self.inter.poll(&mut sink);
        if inter > 0 {
            self.relay.note_activity();
        }
        intra + inter
    }

    /// Skips only messages of this host, like [`take`](Self::take).
    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        let mate = of.map(|of| self.mates.intra(of));
        if mate == Some(None) {
            return self.poll(sink);
        }
        let mut sink = self.limited(sink);
        let intra = (self.intra).poll_past(kind, mate.flatten(), &mut self.up(&mut sink));
        let inter = self.inter.poll(&mut sink);
        if inter > 0 {
            self.relay.note_activity();
        }
        intra + inter
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut sink = self.limited(sink);
        let intra = self.intra.drain(&mut self.up(&mut sink));
        let inter = self.inter.drain(&mut sink);
        if inter > 0 {
            self.relay.note_activity();
        }
        intra + inter
    }

    /// Takes only messages of this host. If these do not suffice, the caller polls for those of
    /// other hosts.
    fn take(&self, kind: u8, take: &mut dyn FnMut(&Delivery<'_>) -> bool) -> bool {
        let mut wants = true;
        let others = self.intra.take(kind, &mut |delivery| {
            let from = self.mates.global(delivery.from);
            wants = take(&Delivery { from, ..*delivery });
            wants
        });
        others || wants
    }
}

impl Segments for Mixed {
    fn window(&self, peer: Rank) -> Option<&Window> {
        self.intra.window(self.mates.intra(peer)?)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        (self.intra.commit(offset, len)).map_err(|error| self.mates.error(error))
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        (self.intra.commit_huge(offset, len)).map_err(|error| self.mates.error(error))
    }

    fn decommit(&self, offset: usize, len: usize) {
        self.intra.decommit(offset, len);
    }

    fn attaches(&self, peer: Rank) -> bool {
        (self.mates.intra(peer)).is_some_and(|mate| self.intra.attaches(mate))
    }

    fn read_attached(&self, peer: Rank, addr: u64, into: &mut [u8]) -> Result<(), Error> {
        let mate = self.mates.intra(peer).ok_or(Error::PeerLost(peer))?;
        (self.intra.read_attached(mate, addr, into)).map_err(|error| self.mates.error(error))
    }
}

impl Membership for Mixed {
    fn standing(&self, peer: Rank) -> Standing {
        self.standings().of(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.standings().first_lost()
    }

    fn changes(&self) -> u64 {
        self.standings().changes().wrapping_add(self.endings())
    }

    fn publish(&self, number: u64) {
        self.intra.publish(number);
    }

    fn published(&self, peer: Rank) -> Option<u64> {
        self.intra.published(self.mates.intra(peer)?)
    }

    fn come_to_end(&self, come: bool) {
        self.inter.come_to_end(come);
        self.intra.come_to_end(come);
    }

    fn has_come_to_end(&self, peer: Rank) -> bool {
        match self.mates.intra(peer) {
            Some(mate) => self.intra.has_come_to_end(mate),
            None => self.inter.has_come_to_end(peer),
        }
    }

    fn endings(&self) -> u64 {
        // Both conduits report a mate's end. One report too many does no harm.
        self.intra.endings().wrapping_add(self.inter.endings())
    }

    fn leave(&self, orderly: bool) {
        if !orderly {
            // This rank may give up because of a lost mate whose end the inter-node conduit has not
            // noticed yet. All ranks must hear of the mate's end first.
            let ranks = (0..self.size()).map(Rank);
            for (rank, mate) in ranks.filter_map(|rank| Some((rank, self.mates.intra(rank)?))) {
                let by_inter = self.inter.standing(rank);
                if self.intra.standing(mate) == Standing::Lost && by_inter == Standing::Present {
                    self.inter.expel(rank);
                }
            }
        }
        // In this order, a rank that hears of this end and leaves in consequence is noticed later
        // by all.
        self.inter.leave(orderly);
        self.intra.leave(orderly);
    }

    fn expel(&self, peer: Rank) {
        // The inter-node conduit joins all ranks, so all hear of it.
        self.inter.expel(peer);
        if let Some(mate) = self.mates.intra(peer) {
            self.intra.expel(mate);
        }
    }
}

impl Sleep for Mixed {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        self.intra.wake_word(self.mates.intra(peer)?)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        (self.relay).wait(&*self.intra, &*self.inter, sleeper, timeout, ready);
    }

    fn notify(&self, peer: Rank) {
        match self.mates.intra(peer) {
            Some(mate) => self.intra.notify(mate),
            None => self.inter.notify(peer),
        }
    }

    fn wake(&self, peer: Rank) {
        match self.mates.intra(peer) {
            Some(mate) => self.intra.wake(mate),
            None => self.inter.wake(peer),
        }
    }
}

impl Clock for Mixed {
    fn now(&self) -> Duration {
        self.intra.now()
    }
}
