//! The format of a message: its arguments, then its payload. The header is the 32 bits of
//! immediate data that the NIC sends beside a message:
//!
//! `class (10) | tag (16) | handled (6)`
//!
//! The class is `(role * KINDS + kind) * 17 + args`, or marks an unknown kind.

use hydrant_conduit::Message;

/// Most 64-bit arguments.
pub(crate) const MAX_ARGS: usize = 16;
/// Most bytes of arguments, which stand before the payload.
pub(crate) const MAX_ARGS_BYTES: usize = 8 * MAX_ARGS;
/// Most requests that a peer may have unhandled. Their count is sent modulo twice this number, so
/// that a late message with an older count is recognised.
pub(crate) const MAX_WINDOW: u32 = 1 << (HANDLED - 1);

/// Bits of the count of handled requests, and of the tag.
const HANDLED: u32 = 6;
const TAG: u32 = 16;

const KINDS: u32 = Message::KINDS as u32;
const ARGS: u32 = MAX_ARGS as u32 + 1;
const ROLES: u32 = 3;

/// The class of a request of an unknown kind.
const UNKNOWN_REQUEST: u32 = ROLES * KINDS * ARGS;
/// The class of any other message of an unknown kind.
const UNKNOWN: u32 = UNKNOWN_REQUEST + 1;

const _: () = assert!(UNKNOWN < 1 << (32 - TAG - HANDLED));

/// The role of a message in the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageRole {
    Request = 0,
    Reply = 1,
    /// Tells how many requests were handled, and nothing else.
    Credit = 2,
}

/// The immediate data of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Immediate(pub(crate) u32);

impl Immediate {
    /// `handled`: how many of the receiver's requests the sender has handled so far.
    #[inline]
    fn new(role: MessageRole, message: &Message<'_>, handled: u32) -> Self {
        let class = if message.kind < Message::KINDS {
            let kinds = role as u32 * KINDS + u32::from(message.kind);
            kinds * ARGS + message.args.len() as u32
        } else if role == MessageRole::Request {
            UNKNOWN_REQUEST
        } else {
            UNKNOWN
        };
        let handled = handled & ((1 << HANDLED) - 1);
        Self(class << (TAG + HANDLED) | u32::from(message.tag) << HANDLED | handled)
    }

    #[inline]
    pub(crate) fn is_request(self) -> bool {
        let class = self.0 >> (TAG + HANDLED);
        class < KINDS * ARGS || class == UNKNOWN_REQUEST
    }
}

/// Returns how many more requests the count of a message reports as handled than were `known`.
#[inline]
pub(crate) fn more_handled(count: u32, known: u32) -> u32 {
    count.wrapping_sub(known) & ((1 << HANDLED) - 1)
}

/// Encodes a message into `into`. Returns its immediate data and its length. The buffer has room,
/// and the message has at most [`MAX_ARGS`] arguments.
#[inline]
pub(crate) fn encode(
    role: MessageRole,
    message: &Message<'_>,
    handled: u32,
    into: &mut [u8],
) -> (Immediate, usize) {
    let args: &[u8] = bytemuck::cast_slice(message.args);
    let (head, rest) = into.split_at_mut(args.len());
    for (into, word) in head.chunks_exact_mut(8).zip(message.args) {
        into.copy_from_slice(&word.to_ne_bytes());
    }
    if !message.payload.is_empty() {
        rest[..message.payload.len()].copy_from_slice(message.payload);
    }
    let len = args.len() + message.payload.len();
    (Immediate::new(role, message, handled), len)
}

/// A message that arrived.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedMessage<'a> {
    pub(crate) role: MessageRole,
    pub(crate) kind: u8,
    pub(crate) tag: u16,
    /// Modulo twice [`MAX_WINDOW`].
    pub(crate) handled: u32,
    pub(crate) args: &'a [u64],
    pub(crate) payload: &'a [u8],
}

/// Decodes a message. Its first byte lies at an address that is a multiple of eight.
///
/// # Errors
/// Returns what is malformed.
#[inline]
pub(crate) fn decode(
    immediate: Immediate,
    bytes: &[u8],
) -> Result<DecodedMessage<'_>, &'static str> {
    const SHORT: &str = "it is shorter than its arguments";
    let word = immediate.0;
    let class = word >> (TAG + HANDLED);
    let (kinds, args) = (class / ARGS, class % ARGS);
    let role = match kinds / KINDS {
        0 => MessageRole::Request,
        1 => MessageRole::Reply,
        2 => MessageRole::Credit,
        _ if class <= UNKNOWN => return Err("its kind is unknown"),
        _ => return Err("it is neither a request, a reply nor a credit"),
    };
    let (args, payload) = bytes.split_at_checked(8 * args as usize).ok_or(SHORT)?;
    Ok(DecodedMessage {
        role,
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
    fn decoding_returns_the_encoded_message() {
        let mut words = aligned(400);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let args: Vec<u64> = (0..MAX_ARGS as u64).map(|it| u64::MAX - it).collect();
        for role in [
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
                        let (immediate, len) = encode(role, &message, 64 + 9, bytes);
                        assert_eq!(len, 8 * count + payload.len());
                        assert_eq!(immediate.is_request(), role == MessageRole::Request);
                        let arrived = DecodedMessage {
                            role,
                            kind,
                            tag,
                            handled: 9,
                            args,
                            payload,
                        };
                        assert_eq!(decode(immediate, &bytes[..len]), Ok(arrived));
                    }
                }
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_and_its_role_is_kept() {
        let message = Message {
            kind: Message::KINDS,
            tag: 1,
            args: &[],
            payload: &[],
        };
        for role in [MessageRole::Request, MessageRole::Reply] {
            let (immediate, len) = encode(role, &message, 0, &mut []);
            assert!(decode(immediate, &[0; 0][..len]).is_err());
            assert_eq!(immediate.is_request(), role == MessageRole::Request);
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let mut words = aligned(64);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let message = Message {
            kind: 3,
            tag: 1,
            args: &[1, 2],
            payload: &[],
        };
        let (immediate, len) = encode(MessageRole::Request, &message, 0, bytes);
        assert!(decode(immediate, &bytes[..len]).is_ok());
        assert!(decode(immediate, &bytes[..len - 1]).is_err());
        assert!(decode(Immediate(u32::MAX), &bytes[..64]).is_err());
        assert!(!Immediate(u32::MAX).is_request());
    }

    #[test]
    fn counts_of_older_messages_are_recognised() {
        assert_eq!(more_handled(3, 0), 3);
        assert_eq!(more_handled(1, 63), 2);
        assert_eq!(more_handled(70 & 63, 69), 1);
        assert!(more_handled(4, 5) > MAX_WINDOW);
    }
}
