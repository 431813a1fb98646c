//! The messages between endpoints.

use hydrant_conduit::{Delivery, OwnedMessage};

use super::LentName;

/// Bytes of a chunk of lent memory. The last chunk of a range may be shorter.
pub(super) const CHUNK: u64 = 4 << 20;

const TEXT: u8 = 1;
const ASK: u8 = 2;
const GRANT: u8 = 3;
const REFUSE: u8 = 4;
const RECALL: u8 = 5;
const RETURN: u8 = 6;

/// A chunk of a range of lent memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ChunkName {
    pub(super) lent: LentName,
    pub(super) index: u64,
}

/// The reason why an owner grants a chunk not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChunkRefusal {
    Revoked = 1,
    OutOfBounds = 2,
    NoRights = 3,
    /// It could not be registered.
    NotRegistered = 4,
    /// The time for which it was lent is over.
    Expired = 5,
}

/// The memory of a chunk, as its owner registered it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChunkMemory {
    pub(super) key: u64,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) writable: bool,
}

/// A message between endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndpointMessage<'a> {
    Text(&'a [u8]),
    /// Asks for a grant, to write or only to read.
    Ask(ChunkName, bool),
    Grant(ChunkName, ChunkMemory),
    Refuse(ChunkName, ChunkRefusal),
    Recall(ChunkName),
    Return(ChunkName),
}

/// Encodes a message of the layer above.
pub(super) fn text(bytes: &[u8]) -> OwnedMessage {
    encode(EndpointMessage::Text(bytes))
}

pub(super) fn encode(message: EndpointMessage<'_>) -> OwnedMessage {
    let name = |name: ChunkName| [name.lent.0, name.index];
    let (kind, args, payload): (u8, Vec<u64>, &[u8]) = match message {
        EndpointMessage::Text(bytes) => (TEXT, Vec::new(), bytes),
        EndpointMessage::Ask(it, writes) => (ASK, [&name(it)[..], &[writes.into()]].concat(), &[]),
        EndpointMessage::Grant(it, memory) => {
            let ChunkMemory {
                key,
                addr,
                len,
                writable,
            } = memory;
            let rest = [key, addr, len, writable.into()];
            (GRANT, [&name(it)[..], &rest].concat(), &[])
        }
        EndpointMessage::Refuse(it, why) => (REFUSE, [&name(it)[..], &[why as u64]].concat(), &[]),
        EndpointMessage::Recall(it) => (RECALL, name(it).to_vec(), &[]),
        EndpointMessage::Return(it) => (RETURN, name(it).to_vec(), &[]),
    };
    OwnedMessage {
        kind,
        tag: 0,
        args: args.into(),
        payload: payload.into(),
    }
}

/// Decodes a message. Returns `None` for one that no endpoint of this version sends.
pub(super) fn decode<'a>(delivery: &Delivery<'a>) -> Option<EndpointMessage<'a>> {
    let name = |lent: u64, index: u64| ChunkName {
        lent: LentName(lent),
        index,
    };
    match (delivery.kind, delivery.args) {
        (TEXT, []) => Some(EndpointMessage::Text(delivery.payload)),
        (ASK, &[lent, index, writes]) => Some(EndpointMessage::Ask(name(lent, index), writes != 0)),
        (GRANT, &[lent, index, key, addr, len, writable]) => {
            let memory = ChunkMemory {
                key,
                addr,
                len,
                writable: writable != 0,
            };
            let is_plausible = (1..=CHUNK).contains(&len) && addr.checked_add(len).is_some();
            is_plausible.then_some(EndpointMessage::Grant(name(lent, index), memory))
        }
        (REFUSE, &[lent, index, why]) => {
            let known = [
                ChunkRefusal::Revoked,
                ChunkRefusal::OutOfBounds,
                ChunkRefusal::NoRights,
                ChunkRefusal::NotRegistered,
                ChunkRefusal::Expired,
            ];
            let why = known.into_iter().find(|known| *known as u64 == why)?;
            Some(EndpointMessage::Refuse(name(lent, index), why))
        }
        (RECALL, &[lent, index]) => Some(EndpointMessage::Recall(name(lent, index))),
        (RETURN, &[lent, index]) => Some(EndpointMessage::Return(name(lent, index))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::Rank;

    use super::*;

    #[test]
    fn messages_are_read_back() {
        let name = ChunkName {
            lent: LentName(7),
            index: 3,
        };
        let memory = ChunkMemory {
            key: 1,
            addr: 2,
            len: CHUNK,
            writable: true,
        };
        for message in [
            EndpointMessage::Text(b"hello"),
            EndpointMessage::Ask(name, true),
            EndpointMessage::Grant(name, memory),
            EndpointMessage::Refuse(name, ChunkRefusal::NoRights),
            EndpointMessage::Recall(name),
            EndpointMessage::Return(name),
        ] {
            let encoded = encode(message);
            assert_eq!(decode(&encoded.delivery(Rank(1))), Some(message));
            let mut longer = encoded.clone();
            longer.args = [&encoded.args[..], &[1]].concat().into();
            assert_eq!(decode(&longer.delivery(Rank(1))), None);
        }
        let huge = ChunkMemory {
            len: CHUNK + 1,
            ..memory
        };
        let encoded = encode(EndpointMessage::Grant(name, huge));
        assert_eq!(decode(&encoded.delivery(Rank(1))), None);
    }
}
