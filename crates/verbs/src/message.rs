//! A message as it travels: a header, the arguments, the payload.

use bytemuck::{Pod, Zeroable};
use hydrant_conduit::Message;

/// Most 64-bit arguments.
pub(crate) const MAX_ARGS: usize = 16;
/// Bytes before the payload, at most.
pub(crate) const FRONT: usize = size_of::<Header>() + 8 * MAX_ARGS;

/// Which way a message goes in the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Request = 1,
    Reply = 2,
    /// Says how many requests were handled, and nothing else.
    Credit = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    sort: u8,
    kind: u8,
    tag: u16,
    args: u8,
    zero: [u8; 3],
    payload: u32,
    /// How many requests of the receiver's the sender has handled, so far, modulo 2^32.
    pub(crate) handled: u32,
}

/// Writes a message: how long it is. There is room for it.
pub(crate) fn encode(sort: Sort, message: &Message<'_>, handled: u32, into: &mut [u8]) -> usize {
    let header = Header {
        sort: sort as u8,
        kind: message.kind,
        tag: message.tag,
        args: message.args.len() as u8,
        zero: [0; 3],
        payload: message.payload.len() as u32,
        handled,
    };
    let mut at = 0;
    for part in [
        bytemuck::bytes_of(&header),
        bytemuck::cast_slice(message.args),
        message.payload,
    ] {
        into[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at
}

/// A message that arrived.
#[derive(Debug, PartialEq)]
pub(crate) struct Arrived<'a> {
    pub(crate) sort: Sort,
    pub(crate) kind: u8,
    pub(crate) tag: u16,
    pub(crate) handled: u32,
    pub(crate) args: &'a [u64],
    pub(crate) payload: &'a [u8],
}

/// Reads a message, which begins at an address that is a multiple of eight.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Arrived<'_>, &'static str> {
    const SHORT: &str = "it is shorter than it says";
    let (header, rest) = bytes.split_at_checked(size_of::<Header>()).ok_or(SHORT)?;
    let header: &Header = bytemuck::try_from_bytes(header).map_err(|_| SHORT)?;
    let sort = match header.sort {
        1 => Sort::Request,
        2 => Sort::Reply,
        3 => Sort::Credit,
        _ => return Err("it is no request, no reply and no credit"),
    };
    if header.kind >= Message::KINDS {
        return Err("it is of a kind that there is not");
    }
    if usize::from(header.args) > MAX_ARGS {
        return Err("it has more arguments than a message may have");
    }
    let (args, payload) = rest
        .split_at_checked(8 * usize::from(header.args))
        .ok_or(SHORT)?;
    if payload.len() != header.payload as usize {
        return Err("its payload is not as long as it says");
    }
    Ok(Arrived {
        sort,
        kind: header.kind,
        tag: header.tag,
        handled: header.handled,
        args: bytemuck::try_cast_slice(args).map_err(|_| SHORT)?,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligned(len: usize) -> Vec<u64> {
        vec![0; len.div_ceil(8)]
    }

    #[test]
    fn what_is_written_is_read() {
        let message = Message {
            kind: 7,
            tag: 515,
            args: &[1, u64::MAX],
            payload: b"abc",
        };
        let mut words = aligned(200);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let len = encode(Sort::Reply, &message, 9, bytes);
        assert_eq!(len, 16 + 16 + 3);
        let arrived = decode(&bytes[..len]).unwrap();
        assert_eq!(
            (arrived.sort, arrived.kind, arrived.tag),
            (Sort::Reply, 7, 515)
        );
        assert_eq!(
            (arrived.args, arrived.payload),
            (&[1, u64::MAX][..], &b"abc"[..])
        );
        assert_eq!(arrived.handled, 9);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut words = aligned(64);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        assert!(decode(&bytes[..16]).is_err());
        assert!(decode(&bytes[..3]).is_err());
        let message = Message {
            kind: Message::KINDS,
            tag: 0,
            args: &[],
            payload: &[],
        };
        let len = encode(Sort::Request, &message, 0, bytes);
        assert!(decode(&bytes[..len]).is_err());
        let message = Message { kind: 0, ..message };
        let len = encode(Sort::Request, &message, 0, bytes);
        assert!(decode(&bytes[..len]).is_ok());
        assert!(decode(&bytes[..len + 1]).is_err());
        bytes[4] = 17;
        assert!(decode(&bytes[..len]).is_err());
    }
}
