//! Who shares this host, and how the near conduit numbers them.

use hydrant_conduit::{Delivery, Error, Rank, ReplyPort, Sink, Ticket};

/// Tickets of the near conduit have this bit here; a far one's never do.
const NEAR: u64 = 1 << 62;

/// The ranks of this host.
#[derive(Debug)]
pub(crate) struct Mates {
    /// The number of each rank of the job in the near conduit, if it is of this host.
    near: Vec<Option<Rank>>,
    /// The ranks of this host, by their numbers there.
    global: Vec<Rank>,
}

impl Mates {
    /// The ranks that `hosts` has on the host of `me`, in order.
    pub(crate) fn of(me: Rank, hosts: &[u32]) -> Self {
        let here = hosts.get(me.index());
        let mut near = vec![None; hosts.len()];
        let mut global = Vec::new();
        for (rank, host) in (0..).map(Rank).zip(hosts) {
            if Some(host) == here {
                near[rank.index()] = Some(Rank(global.len() as u32));
                global.push(rank);
            }
        }
        Self { near, global }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.global.len() as u32
    }

    /// The number of a rank in the near conduit, if it is of this host.
    #[inline]
    pub(crate) fn near(&self, rank: Rank) -> Option<Rank> {
        *self.near.get(rank.index())?
    }

    /// The rank that the near conduit numbers so. It numbers no other.
    pub(crate) fn global(&self, near: Rank) -> Rank {
        self.global.get(near.index()).copied().unwrap_or(near)
    }

    /// An error of the near conduit, with the rank of the job in it.
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

    /// A ticket of the near conduit, apart from those of the far one.
    pub(crate) fn ticket(ticket: Ticket) -> Ticket {
        Ticket(ticket.0 | NEAR)
    }
}

/// Hands up what the near conduit delivers.
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
        let near: Vec<_> = (0..6).map(|rank| mates.near(Rank(rank))).collect();
        let expected = [None, Some(0), None, Some(1), Some(2), None];
        assert_eq!(near, expected.map(|rank| rank.map(Rank)));
        assert_eq!(mates.global(Rank(2)), Rank(4));
        let error = mates.error(Error::PeerLost(Rank(0)));
        assert!(matches!(error, Error::PeerLost(Rank(1))));
    }
}
