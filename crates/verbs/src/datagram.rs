//! The datagrams that ranks exchange beside their connections.

use bytemuck::{Pod, Zeroable};

/// Marks a datagram as Hydrant's.
const MAGIC: u64 = u64::from_le_bytes(*b"hydrantv");

/// The kind of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatagramKind {
    /// Asks for a queue pair that answers the sender's requests. May carry a key that was refused,
    /// to learn why.
    Connect,
    /// Answers `Connect`.
    Accept,
    /// The sender's connection broke. Asks for the PSN that the receiver expects next.
    QueryPsn,
    /// Answers `QueryPsn`.
    ExpectedPsn,
    /// Asks whether the receiver is alive.
    Ping,
    /// Answers `Ping`.
    Pong,
    /// The sender's program has come to its end, or continues after all.
    Ending,
    /// Answers `Ending`.
    EndingAck,
    /// The sender leaves the job.
    Leave,
    /// Answers `Leave`.
    LeaveAck,
    /// A rank is lost. To the lost rank itself: the sender cannot reach it.
    Lost,
    /// Answers `Lost`.
    LostAck,
    /// Asks the receiver to wake its sleeping threads.
    Wake,
    /// Answers `Wake`.
    WakeAck,
    /// The receiver broke the protocol; the sender reports it lost to all ranks.
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

/// A datagram. Fields that its kind does not use are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Datagram {
    pub(crate) magic: u64,
    /// The job's secret, which strangers do not know.
    pub(crate) secret: [u8; 16],
    pub(crate) kind: u32,
    pub(crate) from: u32,
    /// The number of the connection, of a wake, or of an announcement about a program's end.
    pub(crate) epoch: u32,
    /// The sender's queue pair.
    pub(crate) pair: u32,
    /// The first PSN, or the PSN that is expected next.
    pub(crate) psn: u32,
    /// The rank that the datagram is about, or 1 for yes.
    pub(crate) about: u32,
    /// The key that was refused, and the bounds of the extent that it opens.
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

    /// Parses a datagram. Returns `None` if it is not of this job or is malformed.
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
    fn datagrams_of_strangers_are_ignored() {
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
