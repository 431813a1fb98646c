//! The conduit.

#![allow(unsafe_code)] // implements the contract's unsafe methods, by handing them on

use std::{sync::Arc, time::Duration};

use hydrant_conduit::{
    Access, Caps, Clock, Conduit, Error, Key, Membership, Message, Operation, Permission, Posted,
    Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper, Standing, Standings, WakeWord, Window,
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

/// A near conduit for the ranks of this host and a far one for the rest, as one.
pub struct Mixed {
    near: Arc<dyn Conduit>,
    far: Arc<dyn Conduit>,
    mates: Mates,
    caps: Caps,
    standings: Joint,
    relay: Arc<Relay>,
    /// Where every rank has its segment, if the far conduit reaches it by address.
    segments: Option<Box<[u64]>>,
    /// Last but for what it uses: it ends before the conduits do.
    _thread: Thread,
}

impl Mixed {
    /// Joins the two. Collective.
    ///
    /// `hosts` says which host each rank is on; `near` joins the ranks of this one, in order,
    /// and `far` all of the job. The segments are those of `near`.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the conduits are not of such ranks, or `far` can reach no
    /// memory but its own segments.
    pub fn join(
        bootstrap: &mut dyn Bootstrap,
        hosts: &[u32],
        name: &'static str,
        near: Box<dyn Conduit>,
        far: Box<dyn Conduit>,
    ) -> Result<Self, Error> {
        let (near, far): (Arc<dyn Conduit>, Arc<dyn Conduit>) = (near.into(), far.into());
        let rank = Rank(bootstrap.rank());
        let mates = Mates::of(rank, hosts);
        let numbers = [far.size(), hosts.len() as u32];
        let fits = numbers.iter().all(|n| *n == bootstrap.size()) && near.size() == mates.count();
        if !fits || far.rank() != rank || mates.near(rank) != Some(near.rank()) {
            let what = "the conduits within hosts and between them are not of the same ranks";
            return Err(Error::Unreachable(what.to_owned()));
        }
        let caps = caps(name, near.caps(), far.caps());
        let segments = match far.caps() {
            Caps {
                registration: Some(_),
                ..
            } => None,
            Caps {
                any_address: true, ..
            } => Some(exchange(bootstrap, &*near)?),
            _ => {
                let what = "the conduit between hosts reaches no memory of the one within them";
                return Err(Error::Unreachable(what.to_owned()));
            }
        };
        let relay = Arc::new(Relay::new());
        let thread = Thread::start(&relay, &near, &far, rank)?;
        Ok(Self {
            standings: Joint::new(far.size()),
            near,
            far,
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
        (self.standings).look(&*self.near, &*self.far, &self.mates)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer takes part: either conduit may not know yet.
    #[inline]
    fn alive(&self, peer: Rank) -> Result<(), Error> {
        self.standings().present(peer)
    }

    /// A place as the far conduit knows it: it has not the segments, but their addresses.
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
        self.mates.near(peer).filter(|_| segment)
    }

    fn begun(&self, posted: Result<Posted, Error>) -> Result<Posted, Error> {
        if let Ok(Posted::Pending(_)) = posted {
            self.relay.note();
        }
        posted
    }

    fn begun_near(&self, posted: Result<Posted, Error>) -> Result<Posted, Error> {
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
fn caps(name: &'static str, near: &Caps, far: &Caps) -> Caps {
    Caps {
        name,
        registration: far.registration,
        reads: far.reads,
        any_address: far.any_address,
        stores_wake: near.stores_wake && far.stores_wake,
        // Host mates change words by their processors.
        atomics: None,
        max_args: near.max_args.min(far.max_args),
        max_payload: near.max_payload.min(far.max_payload),
        segment: near.segment,
        bytes_per_rank: near.bytes_per_rank + far.bytes_per_rank,
        bytes_per_pair: near.bytes_per_pair.max(far.bytes_per_pair),
    }
}

/// Tells the others where the own segment lies, and learns where theirs do.
fn exchange(bootstrap: &mut dyn Bootstrap, near: &dyn Conduit) -> Result<Box<[u64]>, Error> {
    let unreachable = |cause: hydrant_launch::Error| Error::Unreachable(cause.to_string());
    let own = near.window(near.rank()).ok_or_else(|| {
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

// SAFETY: 1. Either conduit does so, and `Mates::ticket` tells the tickets of the near one apart.
//         2. Extents are the far conduit's.
//         3. Segments are the near one's; the far one reaches them as extents of its own or, by
//            `place`, only within them.
//         4. They are the far one's, and capabilities and mates that do not change.
unsafe impl Conduit for Mixed {
    fn rank(&self) -> Rank {
        self.far.rank()
    }

    fn size(&self) -> u32 {
        self.far.size()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: the same contract.
        unsafe { self.far.register(addr, len, permission) }
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.far.deregister(key)
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
            return self.begun_near(unsafe { self.near.post(&access) });
        }
        let remote = self.place(peer, access.remote, access.len)?;
        let access = Access { remote, ..*access };
        // SAFETY: 1. as the caller promised.
        //         2. Where the place became an address, it is in the segment of the peer, which
        //            can bear the change as under the key of the segment.
        self.begun(unsafe { self.far.post(&access) })
    }

    #[inline]
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.alive(peer)?;
        self.caps.check(message)?;
        match self.mates.near(peer) {
            Some(mate) => (self.near.send(mate, message)).map_err(|error| self.mates.error(error)),
            None => self.far.send(peer, message),
        }
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        match self.mates.near(peer) {
            Some(mate) => self.near.handled(mate),
            None => self.far.handled(peer),
        }
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let mut sink = self.limited(sink);
        let near = self.near.poll(&mut self.up(&mut sink));
        let far = self.far.poll(&mut sink);
        if far > 0 {
            self.relay.note();
        }
        near + far
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut sink = self.limited(sink);
        let near = self.near.drain(&mut self.up(&mut sink));
        let far = self.far.drain(&mut sink);
        if far > 0 {
            self.relay.note();
        }
        near + far
    }
}

impl Segments for Mixed {
    fn window(&self, peer: Rank) -> Option<&Window> {
        self.near.window(self.mates.near(peer)?)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        (self.near.commit(offset, len)).map_err(|error| self.mates.error(error))
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        (self.near.commit_huge(offset, len)).map_err(|error| self.mates.error(error))
    }

    fn decommit(&self, offset: usize, len: usize) {
        self.near.decommit(offset, len);
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
        self.standings().changes()
    }

    fn leave(&self, orderly: bool) {
        if !orderly {
            // This rank may give up for the sake of a mate, whose end the far conduit has not found
            // yet: all are to hear of the mate's end first.
            let ranks = (0..self.size()).map(Rank);
            for (rank, mate) in ranks.filter_map(|rank| Some((rank, self.mates.near(rank)?))) {
                let by_far = self.far.standing(rank);
                if self.near.standing(mate) == Standing::Lost && by_far == Standing::Present {
                    self.far.expel(rank);
                }
            }
        }
        // In this order: who hears of it and leaves for its sake is heard of later by all.
        self.far.leave(orderly);
        self.near.leave(orderly);
    }

    fn expel(&self, peer: Rank) {
        // The far conduit joins all ranks, so all hear of it.
        self.far.expel(peer);
        if let Some(mate) = self.mates.near(peer) {
            self.near.expel(mate);
        }
    }
}

impl Sleep for Mixed {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        self.near.wake_word(self.mates.near(peer)?)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        (self.relay).wait(&*self.near, &*self.far, sleeper, timeout, ready);
    }

    fn notify(&self, peer: Rank) {
        match self.mates.near(peer) {
            Some(mate) => self.near.notify(mate),
            None => self.far.notify(peer),
        }
    }

    fn wake(&self, peer: Rank) {
        match self.mates.near(peer) {
            Some(mate) => self.near.wake(mate),
            None => self.far.wake(peer),
        }
    }
}

impl Clock for Mixed {
    fn now(&self) -> Duration {
        self.near.now()
    }
}
