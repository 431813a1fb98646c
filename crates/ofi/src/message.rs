//! The format of messages.
//!
//! A message is a header of 40 bytes, the arguments, and the payload. Numbered messages form the stream from one rank
//! to another: they are delivered once and in order, also across a connection that breaks. Messages without a number
//! set up that stream.

use bytemuck::{Pod, Zeroable};
use hydrant_conduit::Message;

/// Most 64-bit arguments.
pub(crate) const MAX_ARGS: usize = 16;
/// Bytes of the header.
pub(crate) const HEADER: usize = size_of::<MessageHeader>();
/// Most bytes before the payload.
pub(crate) const MAX_HEAD: usize = HEADER + 8 * MAX_ARGS;

/// The role of a message in the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamRole {
    /// A request of the layer above.
    Request = 1,
    /// A reply of the layer above.
    Reply = 2,
    /// A message between conduits, in the stream; see [`ControlKind`].
    Control = 3,
    /// The counts in the header, and nothing else. Its number is that of the last message of the stream that was posted,
    /// or 0.
    Counts = 4,
    /// Asks for a session: see [`session`](crate::session). Without a number.
    Hello = 5,
    /// Answers `Hello`. Without a number.
    Welcome = 6,
    /// Tells a rank that it counts as lost. Without a number.
    Refusal = 7,
    /// Asks an endpoint without a job to be admitted: see [`introduction`](crate::introduction). Without a number.
    Introduce = 8,
    /// Answers `Introduce`. Without a number.
    Admit = 9,
    /// Answers `Introduce`, too. Without a number.
    Decline = 10,
}

/// The kind of a message between conduits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// The sender's program has come to its end, or continues after all. Argument: the announcement's number.
    Ending = 1,
    /// The sender leaves. Argument: 1 if in good order.
    Leave = 2,
    /// A rank is lost. Argument: the rank. Without a job, the receiver: the sender ends the session.
    Lost = 3,
    /// The receiver broke the protocol, and counts as lost to all.
    Expelled = 4,
    /// Wakes the receiver's sleepers.
    Wake = 5,
    /// Asks for a `FenceDone`. Argument: a number to return.
    Fence = 6,
    /// Answers `Fence`. Everything that the sender wrote before has landed.
    FenceDone = 7,
    /// Asks whether an access is permitted. Arguments: the access's index, key, address, length, 1 if it writes.
    Query = 8,
    /// Answers `Query`. Arguments: the index, the verdict, and the length of the extent.
    Verdict = 9,
}

const ROLES: [StreamRole; 10] = [
    StreamRole::Request,
    StreamRole::Reply,
    StreamRole::Control,
    StreamRole::Counts,
    StreamRole::Hello,
    StreamRole::Welcome,
    StreamRole::Refusal,
    StreamRole::Introduce,
    StreamRole::Admit,
    StreamRole::Decline,
];

const CONTROLS: [ControlKind; 9] = [
    ControlKind::Ending,
    ControlKind::Leave,
    ControlKind::Lost,
    ControlKind::Expelled,
    ControlKind::Wake,
    ControlKind::Fence,
    ControlKind::FenceDone,
    ControlKind::Query,
    ControlKind::Verdict,
];

impl ControlKind {
    pub(crate) fn of(kind: u8) -> Option<Self> {
        CONTROLS.into_iter().find(|known| *known as u8 == kind)
    }
}

/// The header of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct MessageHeader {
    /// The session's token for this direction. Strangers cannot know it.
    pub(crate) token: u64,
    /// The receiver's number of the sender.
    pub(crate) from: u32,
    /// The message's number in the stream, from 1; 0 for none. In [`StreamRole::Counts`] that of the last message before.
    pub(crate) number: u32,
    /// The number of the last message of the receiver's stream that the sender has.
    pub(crate) received: u32,
    /// How many of the receiver's requests the sender has handled.
    pub(crate) handled: u32,
    /// How many messages of the receiver the sender has delivered to its layer above.
    pub(crate) taken: u32,
    pub(crate) role: u8,
    pub(crate) kind: u8,
    pub(crate) tag: u16,
    /// The number of arguments.
    pub(crate) args: u8,
    /// Always 0.
    unused: [u8; 3],
    /// Bytes of the payload.
    payload: u32,
}

/// A message that arrived.
#[derive(Debug, PartialEq)]
pub(crate) struct StreamMessage<'a> {
    pub(crate) header: MessageHeader,
    pub(crate) role: StreamRole,
    pub(crate) args: &'a [u64],
    pub(crate) payload: &'a [u8],
}

/// Encodes a message into `into`, and returns its length. The buffer has room. The sender, the counts, the token and the
/// number are [stamped](stamp) later.
#[inline]
pub(crate) fn encode(role: StreamRole, message: &Message<'_>, into: &mut [u8]) -> usize {
    let header = MessageHeader {
        token: 0,
        from: 0,
        number: 0,
        received: 0,
        handled: 0,
        taken: 0,
        role: role as u8,
        kind: message.kind,
        tag: message.tag,
        args: message.args.len() as u8,
        unused: [0; 3],
        payload: message.payload.len() as u32,
    };
    into[..HEADER].copy_from_slice(bytemuck::bytes_of(&header));
    let args: &[u8] = bytemuck::cast_slice(message.args);
    let at = HEADER + args.len();
    into[HEADER..at].copy_from_slice(args);
    let end = at + message.payload.len();
    into[at..end].copy_from_slice(message.payload);
    end
}

/// The counts of a message; see [`MessageHeader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReportedCounts {
    pub(crate) received: u32,
    pub(crate) handled: u32,
    pub(crate) taken: u32,
}

/// Stores what is known only when a message is posted.
#[inline]
pub(crate) fn stamp(bytes: &mut [u8], token: u64, from: u32, number: u32, counts: ReportedCounts) {
    bytes[..8].copy_from_slice(&token.to_ne_bytes());
    bytes[8..12].copy_from_slice(&from.to_ne_bytes());
    bytes[12..16].copy_from_slice(&number.to_ne_bytes());
    bytes[16..20].copy_from_slice(&counts.received.to_ne_bytes());
    bytes[20..24].copy_from_slice(&counts.handled.to_ne_bytes());
    bytes[24..28].copy_from_slice(&counts.taken.to_ne_bytes());
}

/// Decodes a message. Its first byte lies at an address that is a multiple of eight. Returns `None` for bytes that no
/// rank of this version sends.
#[inline]
pub(crate) fn decode(bytes: &[u8]) -> Option<StreamMessage<'_>> {
    let (head, rest) = bytes.split_at_checked(HEADER)?;
    let header: MessageHeader = bytemuck::try_pod_read_unaligned(head).ok()?;
    let role = *ROLES.get(usize::from(header.role).checked_sub(1)?)?;
    if usize::from(header.args) > MAX_ARGS {
        return None;
    }
    let (args, payload) = rest.split_at_checked(8 * usize::from(header.args))?;
    (payload.len() == header.payload as usize).then_some(StreamMessage {
        header,
        role,
        args: bytemuck::try_cast_slice(args).ok()?,
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
        let mut words = aligned(500);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let args: Vec<u64> = (0..MAX_ARGS as u64).map(|it| u64::MAX - it).collect();
        for role in ROLES {
            for count in 0..=MAX_ARGS {
                for (tag, payload) in [(0, &b""[..]), (515, b"abc"), (u16::MAX, &[7; 200])] {
                    let args = &args[..count];
                    let (kind, from) = (5, 77);
                    let message = Message {
                        kind,
                        tag,
                        args,
                        payload,
                    };
                    let len = encode(role, &message, bytes);
                    let counts = ReportedCounts {
                        received: 8,
                        handled: 9,
                        taken: 10,
                    };
                    stamp(bytes, 0x1234_5678_9abc_def0, from, 7, counts);
                    let read = decode(&bytes[..len]).expect("a message");
                    assert_eq!((read.role, read.args, read.payload), (role, args, payload));
                    let header = read.header;
                    assert_eq!((header.from, header.kind, header.tag), (from, kind, tag));
                    let counts = (header.token, header.number, header.received, header.handled);
                    assert_eq!(counts, (0x1234_5678_9abc_def0, 7, 8, 9));
                }
            }
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let mut words = aligned(100);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let message = Message {
            kind: 1,
            tag: 2,
            args: &[3, 4],
            payload: b"xyz",
        };
        let len = encode(StreamRole::Request, &message, bytes);
        assert!(decode(&bytes[..len]).is_some());
        for cut in 0..len {
            assert_eq!(decode(&bytes[..cut]), None, "{cut} bytes");
        }
        let mut wrong = bytes[..len].to_vec();
        wrong[28] = 0;
        assert_eq!(decode(&wrong), None);
        wrong[28] = ROLES.len() as u8 + 1;
        assert_eq!(decode(&wrong), None);
        wrong[28] = 1;
        wrong[32] = MAX_ARGS as u8 + 1;
        assert_eq!(decode(&wrong), None);
    }
}
