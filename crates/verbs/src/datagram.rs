//! What ranks say to each other beside their connections.

use bytemuck::{Pod, Zeroable};

/// Says that a datagram is ours.
const MAGIC: u64 = u64::from_le_bytes(*b"hydrantv");

/// What a datagram is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatagramKind {
    /// Answer me: make a queue pair for what I ask of you. May ask why a key was refused.
    Connect,
    /// The answer to it.
    Accept,
    /// The connection broke: how far did you get?
    QueryPsn,
    /// The answer to it.
    ExpectedPsn,
    /// Are you there?
    Ping,
    /// The answer to it.
    Pong,
    /// My program has come to its end, or goes on after all.
    Ending,
    /// The answer to it.
    EndingAck,
    /// I end.
    Leave,
    /// The answer to it.
    LeaveAck,
    /// A rank is lost; if it is the one that hears this: I cannot reach you.
    Lost,
    /// The answer to it.
    LostAck,
    /// Wake your sleepers.
    Wake,
    /// The answer to it.
    WakeAck,
    /// You sent me what follows no rule: I tell everybody that you are lost.
    Expelled,
}

const KINDS: [DatagramKind; 15] = [
    DatagramKind::Connect,
    DatagramKind::Accept,
    DatagramKind::QueryPsn,
    DatagramKind::ExpectedPsn,
    DatagramKind::Ping,
    DatagramKind::Pong,
    DatagramKind::Ending,
    DatagramKind::EndingAck,
    DatagramKind::Leave,
    DatagramKind::LeaveAck,
    DatagramKind::Lost,
    DatagramKind::LostAck,
    DatagramKind::Wake,
    DatagramKind::WakeAck,
    DatagramKind::Expelled,
];

/// A datagram; what its kind does not use is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Datagram {
    pub(crate) magic: u64,
    /// Strangers do not know it.
    pub(crate) secret: [u8; 16],
    pub(crate) kind: u32,
    pub(crate) from: u32,
    /// The number of the connection that is made, of a wake, or of an announcement about a program's end.
    pub(crate) epoch: u32,
    /// The queue pair of who sends it.
    pub(crate) pair: u32,
    /// The first PSN, or the one that is expected next.
    pub(crate) psn: u32,
    /// The rank it is about, or 1 for yes.
    pub(crate) about: u32,
    /// The key that was refused, and the extent it opens.
    pub(crate) key: u64,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Datagram {
    pub(crate) const BYTES: usize = size_of::<Self>();

    pub(crate) fn new(kind: DatagramKind, from: u32) -> Self {
        Self {
            magic: MAGIC,
            kind: kind as u32,
            from,
            ..Self::zeroed()
        }
    }

    pub(crate) fn wake(from: u32, number: u32) -> Self {
        Self {
            epoch: number,
            ..Self::new(DatagramKind::Wake, from)
        }
    }

    pub(crate) fn with_secret(mut self, secret: [u8; 16]) -> Self {
        self.secret = secret;
        self
    }

    /// What arrived, if it is of this job and makes sense.
    pub(crate) fn parse(
        bytes: &[u8],
        secret: [u8; 16],
        ranks: u32,
    ) -> Option<(DatagramKind, Self)> {
        let datagram: Self = bytemuck::try_pod_read_unaligned(bytes).ok()?;
        let ours = datagram.magic == MAGIC && datagram.secret == secret && datagram.from < ranks;
        let kind = KINDS
            .into_iter()
            .find(|kind| *kind as u32 == datagram.kind)?;
        ours.then_some((kind, datagram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_not_heard() {
        let (secret, wrong) = ([7; 16], [8; 16]);
        let datagram = Datagram::new(DatagramKind::Ping, 3).with_secret(secret);
        let bytes = bytemuck::bytes_of(&datagram);
        assert_eq!(
            Datagram::parse(bytes, secret, 4),
            Some((DatagramKind::Ping, datagram))
        );
        assert_eq!(Datagram::parse(bytes, wrong, 4), None);
        assert_eq!(Datagram::parse(bytes, secret, 3), None);
        assert_eq!(Datagram::parse(&bytes[1..], secret, 4), None);
        let unknown = Datagram {
            kind: 99,
            ..datagram
        };
        assert_eq!(
            Datagram::parse(bytemuck::bytes_of(&unknown), secret, 4),
            None
        );
        for kind in KINDS {
            let datagram = Datagram::new(kind, 0).with_secret(secret);
            let read = Datagram::parse(bytemuck::bytes_of(&datagram), secret, 1);
            assert_eq!(read.map(|(kind, _)| kind), Some(kind));
        }
    }
}
