//! The ranks of this host (*mates*), and their numbers in the intra-node conduit.

use hydrant_conduit::{Delivery, Error, Rank, ReplyPort, Sink, Ticket};

/// Tickets of the intra-node conduit have this bit here. Tickets of an inter-node conduit never do.
const INTRA: u64 = 1 << 62;

/// The ranks of this host.
#[derive(Debug)]
pub(crate) struct Mates {
    /// The number of each rank of the job in the intra-node conduit. `None` for ranks of other
    /// hosts.
    intra: Vec<Option<Rank>>,
    /// The ranks of this host, by their numbers in the intra-node conduit.
    global: Vec<Rank>,
}

impl Mates {
    /// Makes the mates of `me` from the host of each rank, in order.
    pub(crate) fn of(me: Rank, hosts: &[u32]) -> Self {
        let here = hosts.get(me.index());
        let mut intra = vec![None; hosts.len()];
        let mut global = Vec::new();
        for (rank, host) in (0..).map(Rank).zip(hosts) {
            if Some(host) == here {
                intra[rank.index()] = Some(Rank(global.len() as u32));
                global.push(rank);
            }
        }
        Self { intra, global }
    }

    /// Returns the number of ranks on this host.
    pub(crate) fn count(&self) -> u32 {
        self.global.len() as u32
    }

    /// Returns the number of a rank in the intra-node conduit, if it is on this host.
    #[inline]
    pub(crate) fn intra(&self, rank: Rank) -> Option<Rank> {
        *self.intra.get(rank.index())?
    }

    /// Returns the rank with this number in the intra-node conduit. That conduit uses no other
    /// numbers.
    pub(crate) fn global(&self, intra: Rank) -> Rank {
        self.global.get(intra.index()).copied().unwrap_or(intra)
    }

    /// Translates the rank in an error of the intra-node conduit.
    pub(crate) fn error(&self, error: Error) -> Error {
        match error {
            Error::PeerLost(peer) => Error::PeerLost(self.global(peer)),
            Error::Revoked { peer, key } => Error::Revoked {
                peer: self.global(peer),
                key,
            },
            Error::OutOfExtent {
                peer,
                offset,
                len,
                extent,
            } => Error::OutOfExtent {
                peer: self.global(peer),
                offset,
                len,
                extent,
            },
            Error::BadAddress { peer, addr, len } => Error::BadAddress {
                peer: self.global(peer),
                addr,
                len,
            },
            Error::Malformed { peer, what } => Error::Malformed {
                peer: self.global(peer),
                what,
            },
            other => other,
        }
    }

    /// Marks a ticket of the intra-node conduit, to tell it from those of the inter-node one.
    pub(crate) fn ticket(ticket: Ticket) -> Ticket {
        Ticket(ticket.0 | INTRA)
    }
}

/// Passes on the deliveries of the intra-node conduit, with translated ranks.
pub(crate) struct Up<'a> {
    pub(crate) mates: &'a Mates,
    pub(crate) sink: &'a mut dyn Sink,
}

impl Sink for Up<'_> {
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort) {
        let from = self.mates.global(delivery.from);
        self.sink.request(Delivery { from, ..delivery }, port);
    }

    fn reply(&mut self, delivery: Delivery<'_>) {
        let from = self.mates.global(delivery.from);
        self.sink.reply(Delivery { from, ..delivery });
    }

    fn local(&mut self, ticket: Ticket) {
        self.sink.local(Mates::ticket(ticket));
    }

    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        let result = result.map_err(|error| self.mates.error(error));
        self.sink.complete(Mates::ticket(ticket), result);
    }

    fn malformed(&mut self, error: Error) {
        self.sink.malformed(self.mates.error(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mates_are_numbered_in_their_order() {
        let mates = Mates::of(Rank(3), &[0, 1, 0, 1, 1]);
        assert_eq!(mates.count(), 3);
        let intra: Vec<_> = (0..6).map(|rank| mates.intra(Rank(rank))).collect();
        let expected = [None, Some(0), None, Some(1), Some(2), None];
        assert_eq!(intra, expected.map(|rank| rank.map(Rank)));
        assert_eq!(mates.global(Rank(2)), Rank(4));
        let error = mates.error(Error::PeerLost(Rank(0)));
        assert!(matches!(error, Error::PeerLost(Rank(1))));
    }
}
