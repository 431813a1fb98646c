//! What ranks say to each other about two-sided messages, in the arguments of one active message each.

use hydrant_conduit::{Delivery, Message};

use crate::progress::kind;

/// What a message of this kind is, by the tag of the active message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said<'a> {
    /// A whole message, as the payload. `send`: who wants to know that it was received, if not 0.
    Eager { tag: u64, send: u64 },
    /// The same, of so few bytes that they are arguments, too: they come on the line that says so.
    Few { tag: u64, send: u64, data: &'a [u8] },
    /// A message of `len` bytes waits at its sender until it is asked for.
    Announce {
        tag: u64,
        send: u64,
        len: u64,
        copied: bool,
    },
    /// An announced message was matched, and goes this way.
    Clear { send: u64, receive: u64, way: Clear },
    /// A part of an announced message, as the payload.
    Part { receive: u64, offset: u64 },
    /// What was cleared of an announced message was brought, all of it.
    Written { receive: u64 },
    /// A message that was sent at once was received.
    Received { send: u64 },
    /// So many messages and bytes were taken out of the buffers for unexpected ones.
    Credit { messages: u64, bytes: u64 },
    /// A message will not be received: the program has come to its end.
    Refused { send: u64 },
    /// The program has come to its end, and this many of its messages are still to come.
    Owed { messages: u64 },
}

/// How a message goes that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clear {
    /// In parts, what is left of it.
    Parts,
    /// All of it under the key of a loan.
    Loan(u64),
    /// So much of it as this place takes.
    Place(Place),
}

/// A place for some bytes of a message that were not sent yet: `before` of them, which go in parts; then `len`, which
/// are written; then `after`, which go in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The network's key.
    pub(super) key: u64,
    /// Under that key, where the first of the `before` bytes would be.
    pub(super) offset: u64,
    pub(super) before: u64,
    pub(super) len: u64,
    pub(super) after: u64,
}

impl Place {
    /// Bytes that it is for, if there can be so many.
    pub(super) fn bytes(&self) -> Option<u64> {
        let written = self.before.checked_add(self.len)?;
        written.checked_add(self.after)
    }
}

/// Words of data that fit beside the others.
const WORDS: usize = MOST_ARGS - 2;
/// Arguments of a message at most.
const MOST_ARGS: usize = 7;
const WORD: usize = size_of::<u64>();
/// Bytes of a message that goes as arguments, at most.
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
/// And up to the bytes of [`WORDS`] more, one for each length.
const FEW: u16 = 0x100;

/// What is said, as the tag and the arguments of an active message, of which the first `count` are sent.
pub(super) struct Encoded {
    tag: u16,
    args: [u64; MOST_ARGS],
    count: usize,
}

impl Encoded {
    /// The active message, with this payload.
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

/// A whole message of [few](FEW_BYTES) bytes.
#[inline]
pub(super) fn few(tag: u64, send: u64, data: &[u8]) -> Encoded {
    let mut args = [tag, send, 0, 0, 0, 0, 0];
    bytemuck::cast_slice_mut(&mut args[2..])[..data.len()].copy_from_slice(data);
    Encoded {
        tag: FEW + data.len() as u16,
        args,
        count: 2 + data.len().div_ceil(WORD),
    }
}

impl<'a> Said<'a> {
    /// A whole message, and what of it is the payload.
    #[inline]
    pub(super) fn whole(tag: u64, send: u64, data: &'a [u8]) -> (Self, &'a [u8]) {
        match data.len() > FEW_BYTES {
            true => (Said::Eager { tag, send }, data),
            false => (Said::Few { tag, send, data }, &[]),
        }
    }

    /// The active message's tag and arguments.
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
            Said::Eager { tag, send } => of(EAGER, &[tag, send]),
            Said::Few { tag, send, data } => few(tag, send, data),
            Said::Announce {
                tag,
                send,
                len,
                copied,
            } => of(ANNOUNCE, &[tag, send, len, u64::from(copied)]),
            Said::Clear { send, receive, way } => match way {
                Clear::Parts => of(CLEAR, &[send, receive]),
                Clear::Loan(key) => of(CLEAR, &[send, receive, key]),
                Clear::Place(Place {
                    key,
                    offset,
                    before,
                    len,
                    after,
                }) => of(CLEAR, &[send, receive, key, offset, before, len, after]),
            },
            Said::Part { receive, offset } => of(PART, &[receive, offset]),
            Said::Written { receive } => of(WRITTEN, &[receive]),
            Said::Received { send } => of(RECEIVED, &[send]),
            Said::Credit { messages, bytes } => of(CREDIT, &[messages, bytes]),
            Said::Refused { send } => of(REFUSED, &[send]),
            Said::Owed { messages } => of(OWED, &[messages]),
        }
    }

    /// What a peer said, if it is anything.
    #[inline(always)]
    pub(super) fn decode(delivery: &'a Delivery<'_>) -> Option<Self> {
        let bare = delivery.payload.is_empty();
        if delivery.tag >= FEW {
            return Self::decode_few(delivery).filter(|_| bare);
        }
        Some(match (delivery.tag, delivery.args) {
            (EAGER, &[tag, send]) => Said::Eager { tag, send },
            (ANNOUNCE, &[tag, send, len, copied @ (0 | 1)]) if bare => Said::Announce {
                tag,
                send,
                len,
                copied: copied == 1,
            },
            (CLEAR, &[send, receive, ref way @ ..]) if bare => Said::Clear {
                send,
                receive,
                way: match *way {
                    [] => Clear::Parts,
                    [key] => Clear::Loan(key),
                    [key, offset, before, len, after] => Clear::Place(Place {
                        key,
                        offset,
                        before,
                        len,
                        after,
                    }),
                    _ => return None,
                },
            },
            (PART, &[receive, offset]) if !bare => Said::Part { receive, offset },
            (WRITTEN, &[receive]) if bare => Said::Written { receive },
            (RECEIVED, &[send]) if bare => Said::Received { send },
            (CREDIT, &[messages, bytes]) if bare => Said::Credit { messages, bytes },
            (REFUSED, &[send]) if bare => Said::Refused { send },
            (OWED, &[messages]) if bare => Said::Owed { messages },
            _ => return None,
        })
    }

    /// What a peer said whose tag is that of a few bytes.
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
        let few = Said::Few {
            tag: *tag,
            send: *send,
            data,
        };
        rest.iter().all(|byte| *byte == 0).then_some(few)
    }
}

/// Reads what a peer may have said, and says it again.
///
/// # Panics
/// If that differs.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_said(tag: u16, args: &[u64], payload: &[u8]) {
    let delivery = Delivery {
        from: hydrant_conduit::Rank(0),
        kind: kind::TWO_SIDED,
        tag,
        args,
        payload,
    };
    if let Some(said) = Said::decode(&delivery) {
        let again = said.encode();
        let again = again.message(payload);
        assert_eq!((again.tag, again.args), (tag, args), "{said:?}");
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
    fn what_is_said_is_understood_and_nothing_else() {
        let all = [
            Said::Eager { tag: 7, send: 0 },
            Said::whole(7, 3, &[]).0,
            Said::whole(7, 3, &[1; 8]).0,
            Said::whole(7, 3, &[1; 9]).0,
            Said::whole(7, 3, &[1; FEW_BYTES]).0,
            Said::Announce {
                tag: 7,
                send: 3,
                len: 1 << 40,
                copied: true,
            },
            Said::Clear {
                send: 3,
                receive: 4,
                way: Clear::Place(Place {
                    key: 1,
                    offset: u64::MAX,
                    before: 2,
                    len: 3,
                    after: 4,
                }),
            },
            Said::Written { receive: 4 },
            Said::Received { send: 3 },
            Said::Credit {
                messages: 1,
                bytes: 2,
            },
            Said::Refused { send: 3 },
            Said::Owed { messages: 5 },
        ];
        for said in all {
            let Encoded { tag, args, count } = said.encode();
            assert_eq!(
                Said::decode(&delivery(tag, &args[..count], &[])),
                Some(said)
            );
            assert_eq!(Said::decode(&delivery(tag, &args[..count - 1], &[])), None);
            if tag != EAGER {
                assert_eq!(Said::decode(&delivery(tag, &args[..count], &[1])), None);
            }
        }
        assert_eq!(Said::decode(&delivery(PART, &[1, 2], &[])), None);
        assert_eq!(Said::decode(&delivery(ANNOUNCE, &[1, 2, 3, 2], &[])), None);
        for (args, way) in [(&[3, 4][..], Clear::Parts), (&[3, 4, 0], Clear::Loan(0))] {
            let said = Said::Clear {
                send: 3,
                receive: 4,
                way,
            };
            let Encoded { args: sent, .. } = said.encode();
            assert_eq!(&sent[..args.len()], args);
            assert_eq!(Said::decode(&delivery(CLEAR, args, &[])), Some(said));
            assert_eq!(Said::decode(&delivery(CLEAR, args, &[1])), None);
        }
        assert_eq!(Said::decode(&delivery(CLEAR, &[3], &[])), None);
        assert_eq!(Said::decode(&delivery(CLEAR, &[3, 4, 1, 2], &[])), None);
        assert_eq!(Said::decode(&delivery(CLEAR, &[1; 6], &[])), None);
        assert_eq!(Said::decode(&delivery(99, &[], &[])), None);
        // One byte, and more in its word; two bytes in no word; more than there is room for.
        assert_eq!(Said::decode(&delivery(FEW + 1, &[3, 4, 256], &[])), None);
        assert_eq!(Said::decode(&delivery(FEW + 2, &[3, 4], &[])), None);
        assert_eq!(Said::decode(&delivery(FEW + 48, &[0; 8], &[])), None);
        assert_eq!(Said::decode(&delivery(u16::MAX, &[0; 7], &[])), None);
        let long = [1; FEW_BYTES + 1];
        let said = Said::whole(7, 3, &long);
        assert_eq!(said, (Said::Eager { tag: 7, send: 3 }, &long[..]));
    }
}
