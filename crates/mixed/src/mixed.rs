//! The conduit.

#![allow(unsafe_code)] // implements the contract's unsafe methods, by handing them on

use std::{sync::Arc, time::Duration};

use hydrant_conduit::{
    Access, Caps, Clock, Conduit, Delivery, Error, Footprint, Key, Membership, Message, Operation,
    Permission, Posted, Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper, Standing, Standings,
    WakeWord, Window,
};
use hydrant_launch::Bootstrap;

use crate::{
    limits::Limited,
    mates::{Mates, Up},
    relay::{Relay, Thread},
    standings::Joint,
};

/// The key under which ranks leave where their segments lie.
const SEGMENT: &str = "mixed-segment";

/// An intra-node conduit for the ranks of this host and an inter-node one for the rest, as one.
pub struct Mixed {
    /// Joins the ranks of this host, numbered as `mates` says.
    intra: Arc<dyn Conduit>,
    /// Joins all ranks of the job.
    inter: Arc<dyn Conduit>,
    /// Who is on this host.
    mates: Mates,
    /// What both conduits can do.
    caps: Caps,
    /// Who takes part, as both conduits say; brought up to date by whoever asks.
    standings: Joint,
    /// What those who sleep share with the thread that sleeps in the inter-node conduit.
    relay: Arc<Relay>,
    /// Where every rank has its segment, if the inter-node conduit reaches it by address.
    segments: Option<Box<[u64]>>,
    /// Last but for what it uses: it ends before the conduits do.
    _thread: Thread,
}

impl Mixed {
    /// Joins the two. Collective.
    ///
    /// `hosts` says which host each rank is on; `intra` joins the ranks of this one, in order,
    /// and `inter` all of the job. The segments are those of `intra`.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the conduits are not of such ranks, or `inter` can reach no
    /// memory but its own segments.
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
        let thread = Thread::start(&relay, &intra, &inter, rank)?;
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

    /// What is known of the ranks, up to date.
    #[inline]
    fn standings(&self) -> &Standings {
        (self.standings).look(&*self.intra, &*self.inter, &self.mates)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer takes part: either conduit may not know yet.
    #[inline]
    fn alive(&self, peer: Rank) -> Result<(), Error> {
        self.standings().present(peer)
    }

    /// A place as the inter-node conduit knows it: it has not the segments, but their addresses.
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

    /// The number of a mate whose segment is meant, where that needs no registration.
    fn mate_of(&self, peer: Rank, key: Key) -> Option<Rank> {
        let segment = key == Key::SEGMENT && self.segments.is_some();
        self.mates.intra(peer).filter(|_| segment)
    }

    fn begun(&self, posted: Result<Posted, Error>) -> Result<Posted, Error> {
        if let Ok(Posted::Pending(_)) = posted {
            self.relay.note();
        }
        posted
    }

    fn begun_intra(&self, posted: Result<Posted, Error>) -> Result<Posted, Error> {
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

/// What both can do.
fn caps(name: &'static str, intra: &Caps, inter: &Caps) -> Caps {
    Caps {
        name,
        registration: inter.registration,
        reads: inter.reads,
        any_address: inter.any_address,
        host_ranks: intra.host_ranks,
        stores_wake: intra.stores_wake && inter.stores_wake,
        // Host mates change words by their processors.
        atomics: None,
        max_args: intra.max_args.min(inter.max_args),
        max_payload: intra.max_payload.min(inter.max_payload),
        segment: intra.segment,
    }
}

/// Tells the others where the own segment lies, and learns where theirs do.
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
            let base = base.try_into().map(u64::from_le_bytes);
            base.map_err(|_| {
                Error::Unreachable(format!("rank {rank} published no address of its segment"))
            })
        })
        .collect()
}

// SAFETY: 1. Either conduit does so, and `Mates::ticket` tells the tickets of the intra-node one
//            apart.
//         2. Extents are the inter-node conduit's.
//         3. Segments are the intra-node one's; the inter-node one reaches them as extents of its
//            own or, by `place`, only within them.
//         4. They are the inter-node one's, and capabilities and mates that do not change.
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
        // SAFETY: the same contract.
        unsafe { self.inter.register(addr, len, permission) }
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.inter.deregister(key)
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        if let Operation::Atomic(_) = access.operation {
            return Err(self.caps.no_atomics());
        }
        let peer = access.peer;
        self.alive(peer)?;
        if let Some(mate) = self.mate_of(peer, access.remote.key) {
            let access = Access {
                peer: mate,
                ..*access
            };
            // SAFETY: 1. and 2. as the caller promised, of the same memory: only the number of the
            //         peer is another.
            return self.begun_intra(unsafe { self.intra.post(&access) });
        }
        let remote = self.place(peer, access.remote, access.len)?;
        let access = Access { remote, ..*access };
        // SAFETY: 1. as the caller promised.
        //         2. Where the place became an address, it is in the segment of the peer, which
        //            can bear the change as under the key of the segment.
        self.begun(unsafe { self.inter.post(&access) })
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
            self.relay.note();
        }
        intra + inter
    }

    /// Of this host, as [`take`](Self::take).
    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        let mate = of.map(|of| self.mates.intra(of));
        if mate == Some(None) {
            return self.poll(sink);
        }
        let mut sink = self.limited(sink);
        let intra = (self.intra).poll_past(kind, mate.flatten(), &mut self.up(&mut sink));
        let inter = self.inter.poll(&mut sink);
        if inter > 0 {
            self.relay.note();
        }
        intra + inter
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut sink = self.limited(sink);
        let intra = self.intra.drain(&mut self.up(&mut sink));
        let inter = self.inter.drain(&mut sink);
        if inter > 0 {
            self.relay.note();
        }
        intra + inter
    }

    /// Of this host. What comes from other hosts is looked for where that does not find enough.
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
        // Both conduits report a mate's end, which is one report too many and no harm.
        self.intra.endings().wrapping_add(self.inter.endings())
    }

    fn leave(&self, orderly: bool) {
        if !orderly {
            // This rank may give up for the sake of a mate, whose end the inter-node conduit has
            // not found yet: all are to hear of the mate's end first.
            let ranks = (0..self.size()).map(Rank);
            for (rank, mate) in ranks.filter_map(|rank| Some((rank, self.mates.intra(rank)?))) {
                let by_inter = self.inter.standing(rank);
                if self.intra.standing(mate) == Standing::Lost && by_inter == Standing::Present {
                    self.inter.expel(rank);
                }
            }
        }
        // In this order: who hears of it and leaves for its sake is heard of later by all.
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
