//! The messages of ranks about two-sided messages, each in the arguments of one active message.

use hydrant_conduit::{Delivery, Key, Message};

use crate::progress::kind;

/// A message about two-sided messages. The tag of the active message names its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WireMessage<'a> {
    /// A whole message, as the payload. `send` is the number of a send that waits for the receive,
    /// or 0.
    Eager { tag: u64, send: u64 },
    /// A whole message of so few bytes that they are arguments, on the cache line of the header.
    Few { tag: u64, send: u64, data: &'a [u8] },
    /// The next piece of a message of `len` bytes, as the payload. All pieces of the message have
    /// these arguments. `awaited`: the sender waits for the receive.
    Piece {
        tag: u64,
        send: u64,
        len: u64,
        awaited: bool,
    },
    /// A message of `len` bytes waits at its sender until it is asked for.
    Announce {
        tag: u64,
        send: u64,
        len: u64,
        copied: bool,
    },
    /// An announced message was matched, and is cleared for this route.
    Clear {
        send: u64,
        receive: u64,
        clear: Clear,
    },
    /// A part of an announced message, as the payload.
    Part { receive: u64, offset: u64 },
    /// The cleared part of an announced message is complete.
    Written { receive: u64 },
    /// An eager message was received.
    Received { send: u64 },
    /// Messages and bytes that have left the memory for unexpected messages.
    Credit { messages: u64, bytes: u64 },
    /// A message will not be received, because the program has come to its end.
    Refused { send: u64 },
    /// The program has come to its end, and this many of its messages are still to come.
    Owed { messages: u64 },
}

/// The route for which a message is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clear {
    /// The rest of the message, copied in parts.
    Parts,
    /// The whole message, written under the key of a loan.
    Loan(u64),
    /// The next bytes of the message, as many as the landing takes.
    Landing(LandingSpan),
}

impl Clear {
    /// Returns whether the route names a loan or a registration, if it names memory at all, and not all memory of the
    /// receiver.
    pub(super) fn names_only_the_buffer(&self) -> bool {
        match self {
            Clear::Parts => true,
            Clear::Loan(key) => ![Key::ANY, Key::SEGMENT].contains(&Key(*key)),
            // A landing may be in the receiver's segment, under its key.
            Clear::Landing(place) => Key(place.key) != Key::ANY,
        }
    }
}

/// The registered part of a receive's buffer, as its sender sees it. The next `before` bytes of the
/// message are copied in parts, the following `len` bytes are written, and the `after` bytes behind
/// are copied in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LandingSpan {
    /// The network's key.
    pub(super) key: u64,
    /// The offset under the key of the first of the `before` bytes.
    pub(super) offset: u64,
    pub(super) before: u64,
    pub(super) len: u64,
    pub(super) after: u64,
}

impl LandingSpan {
    /// Returns the bytes of the message that the landing takes. Returns `None` if the sum
    /// overflows.
    pub(super) fn bytes(&self) -> Option<u64> {
        let written = self.before.checked_add(self.len)?;
        written.checked_add(self.after)
    }
}

/// Words of data that fit into the arguments.
const WORDS: usize = MOST_ARGS - 2;
/// The limit of arguments of a message.
const MOST_ARGS: usize = 7;
const WORD: usize = size_of::<u64>();
/// The limit of bytes of a message in arguments.
pub(super) const FEW_BYTES: usize = WORDS * WORD;

const EAGER: u16 = 0;
const ANNOUNCE: u16 = 1;
const CLEAR: u16 = 2;
const PART: u16 = 3;
const WRITTEN: u16 = 4;
const RECEIVED: u16 = 5;
const CREDIT: u16 = 6;
const REFUSED: u16 = 7;
const OWED: u16 = 8;
const PIECE: u16 = 9;
/// The first of the tags for few bytes. The length is added.
const FEW: u16 = 0x100;

/// The tag and the arguments of an active message. The first `count` arguments are sent.
pub(super) struct Encoded {
    tag: u16,
    args: [u64; MOST_ARGS],
    count: usize,
}

impl Encoded {
    /// Returns the active message, with this payload.
    #[inline]
    pub(super) fn message<'a>(&'a self, payload: &'a [u8]) -> Message<'a> {
        Message {
            kind: kind::TWO_SIDED,
            tag: self.tag,
            args: &self.args[..self.count],
            payload,
        }
    }
}

/// Encodes a whole message of [few](FEW_BYTES) bytes.
#[inline]
pub(super) fn encode_few(tag: u64, send: u64, data: &[u8]) -> Encoded {
    let mut args = [tag, send, 0, 0, 0, 0, 0];
    bytemuck::cast_slice_mut(&mut args[2..])[..data.len()].copy_from_slice(data);
    Encoded {
        tag: FEW + data.len() as u16,
        args,
        count: 2 + data.len().div_ceil(WORD),
    }
}

impl<'a> WireMessage<'a> {
    /// Returns a whole message, and the payload.
    #[inline]
    pub(super) fn whole(tag: u64, send: u64, data: &'a [u8]) -> (Self, &'a [u8]) {
        if data.len() > FEW_BYTES {
            (WireMessage::Eager { tag, send }, data)
        } else {
            (WireMessage::Few { tag, send, data }, &[])
        }
    }

    /// Encodes the message.
    #[inline]
    pub(super) fn encode(self) -> Encoded {
        let of = |tag, some: &[u64]| {
            let mut args = [0; MOST_ARGS];
            args[..some.len()].copy_from_slice(some);
            Encoded {
                tag,
                args,
                count: some.len(),
            }
        };
        match self {
            WireMessage::Eager { tag, send } => of(EAGER, &[tag, send]),
            WireMessage::Few { tag, send, data } => encode_few(tag, send, data),
            WireMessage::Piece {
                tag,
                send,
                len,
                awaited,
            } => of(PIECE, &[tag, send, len, u64::from(awaited)]),
            WireMessage::Announce {
                tag,
                send,
                len,
                copied,
            } => of(ANNOUNCE, &[tag, send, len, u64::from(copied)]),
            WireMessage::Clear {
                send,
                receive,
                clear,
            } => match clear {
                Clear::Parts => of(CLEAR, &[send, receive]),
                Clear::Loan(key) => of(CLEAR, &[send, receive, key]),
                Clear::Landing(LandingSpan {
                    key,
                    offset,
                    before,
                    len,
                    after,
                }) => of(CLEAR, &[send, receive, key, offset, before, len, after]),
            },
            WireMessage::Part { receive, offset } => of(PART, &[receive, offset]),
            WireMessage::Written { receive } => of(WRITTEN, &[receive]),
            WireMessage::Received { send } => of(RECEIVED, &[send]),
            WireMessage::Credit { messages, bytes } => of(CREDIT, &[messages, bytes]),
            WireMessage::Refused { send } => of(REFUSED, &[send]),
            WireMessage::Owed { messages } => of(OWED, &[messages]),
        }
    }

    /// Decodes a message of a peer, if it is valid.
    #[inline(always)]
    pub(super) fn decode(delivery: &'a Delivery<'_>) -> Option<Self> {
        let bare = delivery.payload.is_empty();
        if delivery.tag >= FEW {
            return Self::decode_few(delivery).filter(|_| bare);
        }
        Some(match (delivery.tag, delivery.args) {
            (EAGER, &[tag, send]) => WireMessage::Eager { tag, send },
            (ANNOUNCE, &[tag, send, len, copied @ (0 | 1)]) if bare => WireMessage::Announce {
                tag,
                send,
                len,
                copied: copied == 1,
            },
            (PIECE, &[tag, send, len, awaited @ (0 | 1)]) if !bare => WireMessage::Piece {
                tag,
                send,
                len,
                awaited: awaited == 1,
            },
            (CLEAR, &[send, receive, ref clear @ ..]) if bare => WireMessage::Clear {
                send,
                receive,
                clear: match *clear {
                    [] => Clear::Parts,
                    [key] => Clear::Loan(key),
                    [key, offset, before, len, after] => Clear::Landing(LandingSpan {
                        key,
                        offset,
                        before,
                        len,
                        after,
                    }),
                    _ => return None,
                },
            },
            (PART, &[receive, offset]) if !bare => WireMessage::Part { receive, offset },
            (WRITTEN, &[receive]) if bare => WireMessage::Written { receive },
            (RECEIVED, &[send]) if bare => WireMessage::Received { send },
            (CREDIT, &[messages, bytes]) if bare => WireMessage::Credit { messages, bytes },
            (REFUSED, &[send]) if bare => WireMessage::Refused { send },
            (OWED, &[messages]) if bare => WireMessage::Owed { messages },
            _ => return None,
        })
    }

    /// Decodes a whole message in arguments.
    #[inline]
    fn decode_few(delivery: &'a Delivery<'_>) -> Option<Self> {
        let [tag, send, words @ ..] = delivery.args else {
            return None;
        };
        let len = usize::from(delivery.tag - FEW);
        if words.len() != len.div_ceil(WORD) || words.len() > WORDS {
            return None;
        }
        let (data, rest) = bytemuck::cast_slice(words).split_at(len);
        let few = WireMessage::Few {
            tag: *tag,
            send: *send,
            data,
        };
        rest.iter().all(|byte| *byte == 0).then_some(few)
    }
}

/// Decodes a message and encodes it again.
///
/// # Panics
/// Panics if the result differs.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_message(tag: u16, args: &[u64], payload: &[u8]) {
    let delivery = Delivery {
        from: hydrant_conduit::Rank(0),
        kind: kind::TWO_SIDED,
        tag,
        args,
        payload,
    };
    if let Some(message) = WireMessage::decode(&delivery) {
        let again = message.encode();
        let again = again.message(payload);
        assert_eq!((again.tag, again.args), (tag, args), "{message:?}");
    }
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::Rank;

    use super::*;

    fn delivery<'a>(tag: u16, args: &'a [u64], payload: &'a [u8]) -> Delivery<'a> {
        Delivery {
            from: Rank(1),
            kind: 9,
            tag,
            args,
            payload,
        }
    }

    #[test]
    fn every_message_is_decoded_and_no_other() {
        let all = [
            WireMessage::Eager { tag: 7, send: 0 },
            WireMessage::whole(7, 3, &[]).0,
            WireMessage::whole(7, 3, &[1; 8]).0,
            WireMessage::whole(7, 3, &[1; 9]).0,
            WireMessage::whole(7, 3, &[1; FEW_BYTES]).0,
            WireMessage::Announce {
                tag: 7,
                send: 3,
                len: 1 << 40,
                copied: true,
            },
            WireMessage::Clear {
                send: 3,
                receive: 4,
                clear: Clear::Landing(LandingSpan {
                    key: 1,
                    offset: u64::MAX,
                    before: 2,
                    len: 3,
                    after: 4,
                }),
            },
            WireMessage::Written { receive: 4 },
            WireMessage::Received { send: 3 },
            WireMessage::Credit {
                messages: 1,
                bytes: 2,
            },
            WireMessage::Refused { send: 3 },
            WireMessage::Owed { messages: 5 },
        ];
        for message in all {
            let Encoded { tag, args, count } = message.encode();
            assert_eq!(
                WireMessage::decode(&delivery(tag, &args[..count], &[])),
                Some(message)
            );
            assert_eq!(
                WireMessage::decode(&delivery(tag, &args[..count - 1], &[])),
                None
            );
            if tag != EAGER {
                assert_eq!(
                    WireMessage::decode(&delivery(tag, &args[..count], &[1])),
                    None
                );
            }
        }
        assert_eq!(WireMessage::decode(&delivery(PART, &[1, 2], &[])), None);
        let piece = WireMessage::Piece {
            tag: 7,
            send: 3,
            len: 1 << 40,
            awaited: true,
        };
        let Encoded { tag, args, count } = piece.encode();
        let args = &args[..count];
        assert_eq!(WireMessage::decode(&delivery(tag, args, &[1])), Some(piece));
        assert_eq!(WireMessage::decode(&delivery(tag, args, &[])), None);
        let shorter = &args[..count - 1];
        assert_eq!(WireMessage::decode(&delivery(tag, shorter, &[1])), None);
        assert_eq!(
            WireMessage::decode(&delivery(PIECE, &[7, 3, 4, 2], &[1])),
            None
        );
        assert_eq!(
            WireMessage::decode(&delivery(ANNOUNCE, &[1, 2, 3, 2], &[])),
            None
        );
        for (args, clear) in [(&[3, 4][..], Clear::Parts), (&[3, 4, 0], Clear::Loan(0))] {
            let message = WireMessage::Clear {
                send: 3,
                receive: 4,
                clear,
            };
            let Encoded { args: sent, .. } = message.encode();
            assert_eq!(&sent[..args.len()], args);
            assert_eq!(
                WireMessage::decode(&delivery(CLEAR, args, &[])),
                Some(message)
            );
            assert_eq!(WireMessage::decode(&delivery(CLEAR, args, &[1])), None);
        }
        assert_eq!(WireMessage::decode(&delivery(CLEAR, &[3], &[])), None);
        assert_eq!(
            WireMessage::decode(&delivery(CLEAR, &[3, 4, 1, 2], &[])),
            None
        );
        assert_eq!(WireMessage::decode(&delivery(CLEAR, &[1; 6], &[])), None);
        assert_eq!(WireMessage::decode(&delivery(99, &[], &[])), None);
        // One byte, and more in its word; two bytes in no word; more than there is room for.
        assert_eq!(
            WireMessage::decode(&delivery(FEW + 1, &[3, 4, 256], &[])),
            None
        );
        assert_eq!(WireMessage::decode(&delivery(FEW + 2, &[3, 4], &[])), None);
        assert_eq!(WireMessage::decode(&delivery(FEW + 48, &[0; 8], &[])), None);
        assert_eq!(WireMessage::decode(&delivery(u16::MAX, &[0; 7], &[])), None);
        let long = [1; FEW_BYTES + 1];
        let message = WireMessage::whole(7, 3, &long);
        assert_eq!(message, (WireMessage::Eager { tag: 7, send: 3 }, &long[..]));
    }
}
