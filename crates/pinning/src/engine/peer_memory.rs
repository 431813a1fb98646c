//! Memory of peers outside operations: firehoses that move ahead of need, and memory that is
//! registered for good.

use super::{Attached, Detached, Engine};
use crate::{Decisions, Direction, Error, RegionNumber, Violation, wire::Grant};

impl Engine {
    /// Moves firehoses to memory of a peer that is expected to be needed soon, where they are
    /// missing. Nothing holds them then. It works under the strategy `foresight` alone, and only
    /// with firehoses that are attached to nothing. [`attached`](Self::attached) returns the
    /// outcome. If a part is refused, nothing stays.
    ///
    /// # Errors
    /// [`Error::Overflow`], [`Error::NoPeer`], [`Error::PeerLost`].
    pub fn attach(
        &mut self,
        (peer, region): (u32, RegionNumber),
        (addr, len): (u64, u64),
        direction: Direction,
        out: &mut Decisions,
    ) -> Result<Attached, Error> {
        self.common.check_peer(peer)?;
        let run = self.limits().geometry.span(addr, len)?;
        let (initiator, _, cx) = &mut self.rooms(out);
        let attached = initiator.attach_ahead((peer, region, run), direction, cx);
        self.pump(out);
        Ok(attached)
    }

    /// Returns the state of the firehoses on memory of a peer, for data in that direction.
    pub fn attached(
        &mut self,
        peer: u32,
        (addr, len): (u64, u64),
        direction: Direction,
    ) -> Attached {
        match self.limits().geometry.span(addr, len) {
            Ok(run) => self.initiator.attached(peer, run, direction),
            Err(_) => Attached::No,
        }
    }

    /// Gives back the firehoses on memory of a peer that is not expected to be needed soon, for the
    /// extents that lie within it. Firehoses in use go after their last use, and firehoses in
    /// flight go when they have come.
    ///
    /// # Errors
    /// [`Error::Overflow`], [`Error::NoPeer`], [`Error::PeerLost`].
    pub fn detach(
        &mut self,
        peer: u32,
        (addr, len): (u64, u64),
        out: &mut Decisions,
    ) -> Result<Detached, Error> {
        self.common.check_peer(peer)?;
        let run = self.limits().geometry.span(addr, len)?;
        let (initiator, _, cx) = &mut self.rooms(out);
        let given_up = initiator.detach(peer, run, cx);
        self.pump(out);
        Ok(given_up)
    }

    /// Adds memory of a peer that is registered for good, until the peer [takes it
    /// back](Self::revoke).
    ///
    /// # Errors
    /// [`Error::NoPeer`], [`Error::PeerLost`]; [`Error::Malformed`] for more buckets than `most`,
    /// or for buckets that do not exist.
    pub fn add_static(&mut self, peer: u32, grants: &[Grant], most: u64) -> Result<(), Error> {
        self.common.check_peer(peer)?;
        let fits = |grant: &Grant| grant.run.is_sane() && grant.run.count <= most;
        if !grants.iter().all(fits) {
            return Err(Error::Malformed {
                peer,
                what: Violation::TooMuchMemory,
            });
        }
        self.initiator.add_static(peer, grants);
        Ok(())
    }

    /// Returns true if a peer takes memory back that this rank has not given back yet.
    pub fn is_asked_back(&self) -> bool {
        self.initiator.is_asked_back()
    }
}
