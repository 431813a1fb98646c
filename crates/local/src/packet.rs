//! The format of packets. A packet is one byte that names its kind, and the fields of that kind.

use hydrant_base::words::{Fixed, Malformed};

use crate::{area::GrantName, proof::Bytes16};

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;
/// The most bytes of an introduction.
pub const MAX_INTRODUCTION: usize = 4096;
/// The most bytes of data in a packet.
pub const MAX_PAYLOAD: usize = 32 << 10;
/// The most bytes of a packet.
pub(crate) const MAX_PACKET: usize = MAX_PAYLOAD + 128;

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants tell what their fields hold")]
pub enum WirePacket<'a> {
    /// The first packet of a connection, from the process that listens.
    Challenge { version: u32, nonce: Bytes16 },
    /// The answer: a proof over both numbers, and an introduction. `word` is the address of a word whose value is `value`.
    Hello {
        version: u32,
        nonce: Bytes16,
        proof: Bytes16,
        word: u64,
        value: u64,
        introduction: &'a [u8],
    },
    /// The connection is made. The descriptor of the area comes along.
    Welcome {
        proof: Bytes16,
        word: u64,
        value: u64,
        introduction: &'a [u8],
    },
    /// The connection is refused.
    Denied { cause: u8, text: &'a [u8] },
    /// A question of the layer above.
    Ask { request: u64, question: &'a [u8] },
    /// The answer: a grant, and from where in the file that comes along, if one does.
    Granted {
        request: u64,
        grant: GrantName,
        file_offset: u64,
    },
    /// The answer: no.
    NotGranted {
        request: u64,
        cause: u8,
        text: &'a [u8],
    },
    /// The sender uses a grant no more.
    Release { grant: GrantName },
    /// A part of a message, and if more parts follow.
    Message { more: bool, bytes: &'a [u8] },
    /// The receiver of messages has taken so many bytes more.
    Credit { bytes: u64 },
    /// The sender leaves.
    Leave,
}

impl<'a> WirePacket<'a> {
    /// Appends the packet to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Challenge { version, nonce } => (1_u8, (version, nonce)).put(to),
            Self::Hello {
                version,
                nonce,
                proof,
                word,
                value,
                introduction,
            } => {
                (2_u8, ((version, nonce, proof), (word, value))).put(to);
                to.extend_from_slice(introduction);
            }
            Self::Welcome {
                proof,
                word,
                value,
                introduction,
            } => {
                (3_u8, (proof, word, value)).put(to);
                to.extend_from_slice(introduction);
            }
            Self::Denied { cause, text } => {
                (4_u8, cause).put(to);
                to.extend_from_slice(text);
            }
            Self::Ask { request, question } => {
                (5_u8, request).put(to);
                to.extend_from_slice(question);
            }
            Self::Granted {
                request,
                grant,
                file_offset,
            } => (6_u8, (request, grant, file_offset)).put(to),
            Self::NotGranted {
                request,
                cause,
                text,
            } => {
                (7_u8, (request, cause)).put(to);
                to.extend_from_slice(text);
            }
            Self::Release { grant } => (8_u8, grant).put(to),
            Self::Message { more, bytes } => {
                (9_u8, more).put(to);
                to.extend_from_slice(bytes);
            }
            Self::Credit { bytes } => (10_u8, bytes).put(to),
            Self::Leave => 11_u8.put(to),
        }
    }

    /// Parses a packet.
    ///
    /// # Errors
    /// [`Malformed`](hydrant_base::words::Malformed).
    pub fn parse(mut from: &'a [u8]) -> Result<Self, Malformed> {
        let rest = &mut from;
        let packet = match u8::take(rest)? {
            1 => {
                let (version, nonce) = Fixed::take(rest)?;
                // Later versions may add fields.
                return Ok(Self::Challenge { version, nonce });
            }
            2 => {
                let ((version, nonce, proof), (word, value)) = Fixed::take(rest)?;
                let introduction = all(rest, MAX_INTRODUCTION)?;
                Self::Hello {
                    version,
                    nonce,
                    proof,
                    word,
                    value,
                    introduction,
                }
            }
            3 => {
                let (proof, word, value) = Fixed::take(rest)?;
                let introduction = all(rest, MAX_INTRODUCTION)?;
                Self::Welcome {
                    proof,
                    word,
                    value,
                    introduction,
                }
            }
            4 => Self::Denied {
                cause: Fixed::take(rest)?,
                text: all(rest, MAX_INTRODUCTION)?,
            },
            5 => Self::Ask {
                request: Fixed::take(rest)?,
                question: all(rest, MAX_INTRODUCTION)?,
            },
            6 => {
                let (request, grant, file_offset) = Fixed::take(rest)?;
                Self::Granted {
                    request,
                    grant,
                    file_offset,
                }
            }
            7 => {
                let (request, cause) = Fixed::take(rest)?;
                let text = all(rest, MAX_INTRODUCTION)?;
                Self::NotGranted {
                    request,
                    cause,
                    text,
                }
            }
            8 => Self::Release {
                grant: Fixed::take(rest)?,
            },
            9 => Self::Message {
                more: Fixed::take(rest)?,
                bytes: all(rest, MAX_PAYLOAD)?,
            },
            10 => Self::Credit {
                bytes: Fixed::take(rest)?,
            },
            11 => Self::Leave,
            _ => return Err(Malformed("an unknown kind of packet")),
        };
        if rest.is_empty() {
            Ok(packet)
        } else {
            Err(Malformed("a packet that is too long"))
        }
    }
}

/// Takes the bytes that are left, at most `most`.
fn all<'a>(rest: &mut &'a [u8], most: usize) -> Result<&'a [u8], Malformed> {
    if rest.len() > most {
        return Err(Malformed("a packet that is too long"));
    }
    Ok(std::mem::take(rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRANT: GrantName = GrantName { index: 8, state: 9 };

    fn samples() -> Vec<WirePacket<'static>> {
        let (nonce, proof) = ([3; 16], [4; 16]);
        let (word, value) = (5, 6);
        let introduction = b"who".as_slice();
        vec![
            WirePacket::Challenge { version: 9, nonce },
            WirePacket::Hello {
                version: 9,
                nonce,
                proof,
                word,
                value,
                introduction,
            },
            WirePacket::Welcome {
                proof,
                word,
                value,
                introduction,
            },
            WirePacket::Denied {
                cause: 2,
                text: b"no",
            },
            WirePacket::Ask {
                request: 7,
                question: b"where",
            },
            WirePacket::Granted {
                request: 7,
                grant: GRANT,
                file_offset: 10,
            },
            WirePacket::NotGranted {
                request: 7,
                cause: 1,
                text: b"",
            },
            WirePacket::Release { grant: GRANT },
            WirePacket::Message {
                more: false,
                bytes: b"data",
            },
            WirePacket::Credit { bytes: 11 },
            WirePacket::Leave,
        ]
    }

    #[test]
    fn each_packet_arrives_as_it_was_sent() {
        for packet in samples() {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            assert_eq!(WirePacket::parse(&bytes), Ok(packet));
            assert!(WirePacket::parse(&bytes[..1]).is_err() || bytes.len() == 1 || bytes.len() < 6);
        }
    }

    #[test]
    fn what_is_too_long_is_malformed() {
        let mut bytes = Vec::new();
        let long = vec![0; MAX_PAYLOAD + 1];
        let packet = WirePacket::Message {
            more: false,
            bytes: &long,
        };
        packet.encode(&mut bytes);
        assert!(WirePacket::parse(&bytes).is_err());
        assert!(WirePacket::parse(&[11, 0]).is_err());
        assert!(WirePacket::parse(&[]).is_err());
        assert!(WirePacket::parse(&[99]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packet) = WirePacket::parse(&bytes) {
                let mut again = Vec::new();
                packet.encode(&mut again);
                prop_assert!(bytes.starts_with(&again));
            }
        }
    }
}
