//! A message as it travels: its arguments and its payload, and nothing else. What there is to
//! know of them goes in the 32 bits that a NIC sends along with a message, its immediate data:
//!
//! `front (10) | tag (16) | handled (6)`, where the front is `(sort * KINDS + kind) * 17 + args`, or
//! says that the message is of a kind that there is not.

use hydrant_conduit::Message;

/// Most 64-bit arguments.
pub(crate) const MAX_ARGS: usize = 16;
/// Bytes before the payload, at most.
pub(crate) const MAX_ARGS_BYTES: usize = 8 * MAX_ARGS;
/// Most requests that a peer may have unhandled: their number is counted modulo twice as many, so
/// that what an older message says is told from what a newer one does.
pub(crate) const MAX_WINDOW: u32 = 1 << (HANDLED - 1);

/// Bits that count requests handled, and that are the tag.
const HANDLED: u32 = 6;
const TAG: u32 = 16;

const KINDS: u32 = Message::KINDS as u32;
const ARGS: u32 = MAX_ARGS as u32 + 1;
const SORTS: u32 = 3;

/// The fronts of a request, and of anything else, of a kind that there is not.
const UNKNOWN_REQUEST: u32 = SORTS * KINDS * ARGS;
const UNKNOWN: u32 = UNKNOWN_REQUEST + 1;

const _: () = assert!(UNKNOWN < 1 << (32 - TAG - HANDLED));

/// Which way a message goes in the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageRole {
    Request = 0,
    Reply = 1,
    /// Says how many requests were handled, and nothing else.
    Credit = 2,
}

/// What goes along with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Immediate(pub(crate) u32);

impl Immediate {
    /// `handled`: how many requests of the receiver's the sender has handled so far.
    #[inline]
    fn new(sort: MessageRole, message: &Message<'_>, handled: u32) -> Self {
        let front = if message.kind < Message::KINDS {
            let kinds = sort as u32 * KINDS + u32::from(message.kind);
            kinds * ARGS + message.args.len() as u32
        } else if sort == MessageRole::Request {
            UNKNOWN_REQUEST
        } else {
            UNKNOWN
        };
        let handled = handled & ((1 << HANDLED) - 1);
        Self(front << (TAG + HANDLED) | u32::from(message.tag) << HANDLED | handled)
    }

    #[inline]
    pub(crate) fn is_request(self) -> bool {
        let front = self.0 >> (TAG + HANDLED);
        front < KINDS * ARGS || front == UNKNOWN_REQUEST
    }
}

/// How many requests more are handled by the count of a message than were `known` to be.
#[inline]
pub(crate) fn more_handled(count: u32, known: u32) -> u32 {
    count.wrapping_sub(known) & ((1 << HANDLED) - 1)
}

/// Writes a message: what goes along with it, and how long it is. There is room for it; its
/// arguments are at most [`MAX_ARGS`].
#[inline]
pub(crate) fn encode(
    sort: MessageRole,
    message: &Message<'_>,
    handled: u32,
    into: &mut [u8],
) -> (Immediate, usize) {
    let args: &[u8] = bytemuck::cast_slice(message.args);
    let (front, rest) = into.split_at_mut(args.len());
    for (into, word) in front.chunks_exact_mut(8).zip(message.args) {
        into.copy_from_slice(&word.to_ne_bytes());
    }
    if !message.payload.is_empty() {
        rest[..message.payload.len()].copy_from_slice(message.payload);
    }
    let len = args.len() + message.payload.len();
    (Immediate::new(sort, message, handled), len)
}

/// A message that arrived.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedMessage<'a> {
    pub(crate) sort: MessageRole,
    pub(crate) kind: u8,
    pub(crate) tag: u16,
    /// Modulo twice [`MAX_WINDOW`].
    pub(crate) handled: u32,
    pub(crate) args: &'a [u64],
    pub(crate) payload: &'a [u8],
}

/// Reads a message, which begins at an address that is a multiple of eight.
///
/// # Errors
/// What is wrong with it.
#[inline]
pub(crate) fn decode(front: Immediate, bytes: &[u8]) -> Result<DecodedMessage<'_>, &'static str> {
    const SHORT: &str = "it is shorter than it says";
    let word = front.0;
    let front = word >> (TAG + HANDLED);
    let (kinds, args) = (front / ARGS, front % ARGS);
    let sort = match kinds / KINDS {
        0 => MessageRole::Request,
        1 => MessageRole::Reply,
        2 => MessageRole::Credit,
        _ if front <= UNKNOWN => return Err("it is of a kind that there is not"),
        _ => return Err("it is no request, no reply and no credit"),
    };
    let (args, payload) = bytes.split_at_checked(8 * args as usize).ok_or(SHORT)?;
    Ok(DecodedMessage {
        sort,
        kind: (kinds % KINDS) as u8,
        tag: (word >> HANDLED) as u16,
        handled: word & ((1 << HANDLED) - 1),
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
        let mut words = aligned(400);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let args: Vec<u64> = (0..MAX_ARGS as u64).map(|it| u64::MAX - it).collect();
        for sort in [
            MessageRole::Request,
            MessageRole::Reply,
            MessageRole::Credit,
        ] {
            for kind in 0..Message::KINDS {
                for count in 0..=MAX_ARGS {
                    for (tag, payload) in [(0, &b""[..]), (515, b"abc"), (u16::MAX, &[7; 200])] {
                        let args = &args[..count];
                        let message = Message {
                            kind,
                            tag,
                            args,
                            payload,
                        };
                        let (front, len) = encode(sort, &message, 64 + 9, bytes);
                        assert_eq!(len, 8 * count + payload.len());
                        assert_eq!(front.is_request(), sort == MessageRole::Request);
                        let arrived = DecodedMessage {
                            sort,
                            kind,
                            tag,
                            handled: 9,
                            args,
                            payload,
                        };
                        assert_eq!(decode(front, &bytes[..len]), Ok(arrived));
                    }
                }
            }
        }
    }

    #[test]
    fn a_kind_that_there_is_not_is_refused_and_a_request_all_the_same() {
        let message = Message {
            kind: Message::KINDS,
            tag: 1,
            args: &[],
            payload: &[],
        };
        for sort in [MessageRole::Request, MessageRole::Reply] {
            let (front, len) = encode(sort, &message, 0, &mut []);
            assert!(decode(front, &[0; 0][..len]).is_err());
            assert_eq!(front.is_request(), sort == MessageRole::Request);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut words = aligned(64);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let message = Message {
            kind: 3,
            tag: 1,
            args: &[1, 2],
            payload: &[],
        };
        let (front, len) = encode(MessageRole::Request, &message, 0, bytes);
        assert!(decode(front, &bytes[..len]).is_ok());
        assert!(decode(front, &bytes[..len - 1]).is_err());
        assert!(decode(Immediate(u32::MAX), &bytes[..64]).is_err());
        assert!(!Immediate(u32::MAX).is_request());
    }

    #[test]
    fn what_older_messages_say_is_told_from_what_newer_ones_do() {
        assert_eq!(more_handled(3, 0), 3);
        assert_eq!(more_handled(1, 63), 2);
        assert_eq!(more_handled(70 & 63, 69), 1);
        assert!(more_handled(4, 5) > MAX_WINDOW);
    }
}
