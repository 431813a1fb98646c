//! Messages between engines, which travel as messages of their endpoints.
//!
//! ```text
//! version(1)  kind(1)  request(8)   1 ask:     addr(8) len(8)
//!                                   2 region:  start(8) len(8) descriptor
//!                                   3 refused: refusal(1) end(8)
//!                                   4 notify:  name length(4) name text      request 0: no answer is wanted
//!                                   5 noted:   taken(1)
//! ```

use hydrant_base::words::Fixed;
use hydrant_endpoint::MAX_MESSAGE;

const VERSION: u8 = 1;

/// The most bytes of a notification, name and text together.
pub(crate) const MAX_NOTIFICATION: usize = MAX_MESSAGE - 14;

/// A message between engines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MooncakeMessage<'a> {
    /// The number of a question, which its answer repeats.
    pub(crate) request: u64,
    pub(crate) body: MessageBody<'a>,
}

/// The contents of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MessageBody<'a> {
    /// The question for the registered memory that has this range.
    Ask { addr: u64, len: u64 },
    /// The registered memory.
    Region {
        start: u64,
        len: u64,
        descriptor: &'a [u8],
    },
    /// There is no such memory.
    Refused(RangeRefusal),
    /// A notification.
    Notify { name: &'a [u8], text: &'a [u8] },
    /// The fate of a notification.
    Noted { taken: bool },
}

/// The reason why a range is not given to peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeRefusal {
    /// It does not begin in registered memory.
    NotRegistered,
    /// The registered memory that it begins in ends here.
    PastTheEnd { end: u64 },
    /// The memory was registered without access for peers.
    NotAccessible,
}

impl MooncakeMessage<'_> {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kind: u8 = match self.body {
            MessageBody::Ask { .. } => 1,
            MessageBody::Region { .. } => 2,
            MessageBody::Refused(_) => 3,
            MessageBody::Notify { .. } => 4,
            MessageBody::Noted { .. } => 5,
        };
        let mut to = Vec::with_capacity(64);
        (VERSION, kind, self.request).put(&mut to);
        match self.body {
            MessageBody::Ask { addr, len } => (addr, len).put(&mut to),
            MessageBody::Region {
                start,
                len,
                descriptor,
            } => {
                (start, len).put(&mut to);
                to.extend_from_slice(descriptor);
            }
            MessageBody::Refused(refusal) => match refusal {
                RangeRefusal::NotRegistered => (1_u8, 0_u64).put(&mut to),
                RangeRefusal::PastTheEnd { end } => (2_u8, end).put(&mut to),
                RangeRefusal::NotAccessible => (3_u8, 0_u64).put(&mut to),
            },
            MessageBody::Notify { name, text } => {
                (name.len() as u32).put(&mut to);
                to.extend_from_slice(name);
                to.extend_from_slice(text);
            }
            MessageBody::Noted { taken } => to.push(taken.into()),
        }
        to
    }
}

impl<'a> MooncakeMessage<'a> {
    /// Parses a message of a peer. Returns `None` if it is none.
    pub(crate) fn parse(mut bytes: &'a [u8]) -> Option<Self> {
        let rest = &mut bytes;
        let (version, kind, request) = <(u8, u8, u64)>::take(rest).ok()?;
        if version != VERSION {
            return None;
        }
        let body = match kind {
            1 => {
                let (addr, len) = Fixed::take(rest).ok()?;
                MessageBody::Ask { addr, len }
            }
            2 => {
                let (start, len) = Fixed::take(rest).ok()?;
                let descriptor = std::mem::take(rest);
                MessageBody::Region {
                    start,
                    len,
                    descriptor,
                }
            }
            3 => {
                let (refusal, end) = <(u8, u64)>::take(rest).ok()?;
                MessageBody::Refused(match refusal {
                    1 => RangeRefusal::NotRegistered,
                    2 => RangeRefusal::PastTheEnd { end },
                    3 => RangeRefusal::NotAccessible,
                    _ => return None,
                })
            }
            4 => {
                let len = usize::try_from(u32::take(rest).ok()?).ok()?;
                let (name, text) = std::mem::take(rest).split_at_checked(len)?;
                MessageBody::Notify { name, text }
            }
            5 => match u8::take(rest).ok()? {
                taken @ 0..=1 => MessageBody::Noted { taken: taken == 1 },
                _ => return None,
            },
            _ => return None,
        };
        rest.is_empty().then_some(Self { request, body })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_survive_the_way_and_cut_ones_are_none() {
        let end = 9;
        let bodies = [
            MessageBody::Ask { addr: 1, len: 2 },
            MessageBody::Refused(RangeRefusal::NotRegistered),
            MessageBody::Refused(RangeRefusal::PastTheEnd { end }),
            MessageBody::Refused(RangeRefusal::NotAccessible),
            MessageBody::Noted { taken: true },
            MessageBody::Region {
                start: 3,
                len: 4,
                descriptor: b"",
            },
            MessageBody::Notify {
                name: b"me",
                text: b"",
            },
        ];
        for body in bodies {
            let message = MooncakeMessage { request: 7, body };
            let bytes = message.to_bytes();
            assert_eq!(MooncakeMessage::parse(&bytes), Some(message));
            for len in 0..bytes.len() {
                assert_eq!(MooncakeMessage::parse(&bytes[..len]), None, "{len}");
            }
            let mut other = bytes.clone();
            other[0] += 1;
            assert_eq!(MooncakeMessage::parse(&other), None);
        }
    }

    #[test]
    fn the_longest_notification_fits_a_message() {
        let (name, text) = (b"name".as_slice(), vec![7; MAX_NOTIFICATION - 4]);
        let body = MessageBody::Notify { name, text: &text };
        let message = MooncakeMessage { request: 7, body };
        assert_eq!(message.to_bytes().len(), MAX_MESSAGE);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(
            mut bytes in prop::collection::vec(any::<u8>(), 10..80), kind in 0_u8..7,
        ) {
            bytes[..2].copy_from_slice(&[VERSION, kind]);
            if let Some(message) = MooncakeMessage::parse(&bytes)
                && !matches!(message.body, MessageBody::Refused(_))
            {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
