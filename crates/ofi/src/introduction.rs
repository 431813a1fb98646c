//! Introductions: how two processes without a job get to know each other.
//!
//! A process with the locator and the key of an endpoint sends an *introduction*. It has its own address, the number that
//! it has for the endpoint, and bytes of the layer above. The endpoint *admits* it by the same fields of its own, or
//! *declines* it with a reason. Each message has a keyed hash over all of it, by the endpoint's key. So both sides prove
//! that they know the key without sending it. Both then compute the secret of their sessions from the key and the fresh
//! numbers of both. An old introduction, sent again by a stranger, opens nothing: the next message needs that secret.
//!
//! Each side tells the other the secret of the keys of its memory, under a mask that only the key gives.

use std::hash::Hasher;

use bytemuck::{Pod, Zeroable};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::session::VERSION;

/// A number or a secret of 16 bytes.
pub(crate) type Secret = [u8; 16];

/// Most bytes of the layer above.
pub(crate) const MOST_TEXT: usize = 1024;
/// Most bytes of an endpoint's address.
pub(crate) const MOST_NAME: usize = 128;

/// The steps of getting to know each other.
pub(crate) const INTRODUCE: u32 = 1;
pub(crate) const ADMIT: u32 = 2;
pub(crate) const DECLINE: u32 = 3;

/// The fields of fixed length, which come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct IntroductionHead {
    pub(crate) version: u32,
    pub(crate) step: u32,
    /// A fresh number of the one that introduces itself. It names the attempt.
    pub(crate) asked: Secret,
    /// A fresh number of the one that answers; 0 in an introduction.
    pub(crate) answered: Secret,
    /// The sender's process: a number that it drew at its start.
    pub(crate) process: Secret,
    /// The secret of the keys of the sender's memory, masked.
    pub(crate) memory: Secret,
    /// How many attempts the sender has begun so far, this one included.
    pub(crate) attempts: u64,
    /// The number that the sender has for the receiver.
    pub(crate) number: u32,
    /// Bytes of the address that follows, and of the text of the layer above behind it.
    pub(crate) name: u16,
    pub(crate) text: u16,
    /// The keyed hash of everything else.
    pub(crate) proof: Secret,
}

/// A message with which processes get to know each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FabricIntroduction {
    pub(crate) head: IntroductionHead,
    /// The address of the sender's endpoint, as the provider writes it.
    pub(crate) name: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

impl FabricIntroduction {
    /// Returns the message with its proof, as bytes.
    pub(crate) fn seal(&self, key: &Secret) -> Vec<u8> {
        let mut head = IntroductionHead {
            version: VERSION,
            name: self.name.len() as u16,
            text: self.text.len() as u16,
            proof: [0; 16],
            ..self.head
        };
        let rest = [&self.name[..], &self.text].concat();
        head.proof = proof(key, &head, &rest);
        [bytemuck::bytes_of(&head), &rest].concat()
    }

    /// Reads a message with this step. Returns `None` if its sender does not know the key.
    pub(crate) fn open(key: &Secret, bytes: &[u8], step: u32) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(size_of::<IntroductionHead>())?;
        let head: IntroductionHead = bytemuck::try_pod_read_unaligned(head).ok()?;
        let (name, text) = rest.split_at_checked(usize::from(head.name))?;
        let fits = head.version == VERSION
            && head.step == step
            && name.len() <= MOST_NAME
            && text.len() <= MOST_TEXT
            && text.len() == usize::from(head.text);
        let blank = IntroductionHead {
            proof: [0; 16],
            ..head
        };
        (fits && proof(key, &blank, rest) == head.proof).then(|| Self {
            head,
            name: name.to_vec(),
            text: text.to_vec(),
        })
    }
}

#[cfg(feature = "fuzzing")]
impl FabricIntroduction {
    /// Returns a message with the proof that its other bytes need.
    pub(crate) fn prove(key: &Secret, bytes: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = bytes.split_at_checked(size_of::<IntroductionHead>())?;
        let head: IntroductionHead = bytemuck::try_pod_read_unaligned(head).ok()?;
        let mut head = IntroductionHead {
            version: VERSION,
            proof: [0; 16],
            ..head
        };
        head.proof = proof(key, &head, rest);
        Some([bytemuck::bytes_of(&head), rest].concat())
    }
}

/// Returns the fresh number of the attempt that a message is about. Nothing is proved yet.
pub(crate) fn attempt_of(bytes: &[u8]) -> Option<Secret> {
    let head = bytes.get(..size_of::<IntroductionHead>())?;
    let head: IntroductionHead = bytemuck::try_pod_read_unaligned(head).ok()?;
    Some(head.asked)
}

/// Returns the secret of the sessions that begin with these fresh numbers.
pub(crate) fn session_secret(key: &Secret, asked: &Secret, answered: &Secret) -> Secret {
    hash(key, &[b"session", asked, answered])
}

/// Masks the secret of the keys of the memory of the sender of this step, or removes the mask.
pub(crate) fn mask(
    key: &Secret,
    asked: &Secret,
    answered: &Secret,
    step: u32,
    secret: Secret,
) -> Secret {
    let mask = hash(key, &[b"memory", asked, answered, &step.to_ne_bytes()]);
    std::array::from_fn(|at| mask[at] ^ secret[at])
}

fn proof(key: &Secret, head: &IntroductionHead, rest: &[u8]) -> Secret {
    hash(key, &[b"introduction", bytemuck::bytes_of(head), rest])
}

fn hash(key: &Secret, parts: &[&[u8]]) -> Secret {
    let mut hasher = SipHasher24::new_with_key(key);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}

/// Returns a number of 16 bytes that nobody can guess.
pub(crate) fn fresh() -> Secret {
    let halves = [crate::session::fresh(), crate::session::fresh()];
    bytemuck::cast(halves)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction() -> FabricIntroduction {
        let (name, text) = (b"at home".to_vec(), b"a cache".to_vec());
        FabricIntroduction {
            head: IntroductionHead {
                version: VERSION,
                step: INTRODUCE,
                asked: [9; 16],
                number: 77,
                attempts: 3,
                name: name.len() as u16,
                text: text.len() as u16,
                ..IntroductionHead::zeroed()
            },
            name,
            text,
        }
    }

    #[test]
    fn an_introduction_is_believed_only_with_the_key_and_unchanged() {
        let (key, other) = ([1; 16], [2; 16]);
        let sealed = introduction().seal(&key);
        let opened = FabricIntroduction::open(&key, &sealed, INTRODUCE).expect("a proof");
        assert_eq!(
            (&opened.name, &opened.text),
            (&introduction().name, &introduction().text)
        );
        assert_eq!((opened.head.number, opened.head.attempts), (77, 3));
        assert_eq!(FabricIntroduction::open(&other, &sealed, INTRODUCE), None);
        assert_eq!(FabricIntroduction::open(&key, &sealed, ADMIT), None);
        for byte in 0..sealed.len() {
            assert_eq!(
                FabricIntroduction::open(&key, &sealed[..byte], INTRODUCE),
                None
            );
            let mut changed = sealed.clone();
            changed[byte] ^= 1;
            assert_eq!(
                FabricIntroduction::open(&key, &changed, INTRODUCE),
                None,
                "byte {byte}"
            );
        }
    }

    #[test]
    fn a_long_introduction_is_refused() {
        let key = [1; 16];
        let long = FabricIntroduction {
            text: vec![0; MOST_TEXT + 1],
            ..introduction()
        };
        assert_eq!(
            FabricIntroduction::open(&key, &long.seal(&key), INTRODUCE),
            None
        );
    }

    #[test]
    fn secrets_depend_on_all_numbers() {
        let (key, asked, answered) = ([1; 16], [2; 16], [3; 16]);
        let secret = session_secret(&key, &asked, &answered);
        assert_ne!(secret, session_secret(&[0; 16], &asked, &answered));
        assert_ne!(secret, session_secret(&key, &answered, &asked));
        let masked = mask(&key, &asked, &answered, ADMIT, [5; 16]);
        assert_ne!(masked, mask(&key, &asked, &answered, INTRODUCE, [5; 16]));
        assert_eq!(mask(&key, &asked, &answered, ADMIT, masked), [5; 16]);
    }
}
