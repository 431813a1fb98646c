//! Sessions: proof of the job's secret, and the tokens of messages.
//!
//! A session is the state of a connection between two ranks. Either rank asks for it by a *hello*, and the other answers
//! by a *welcome*. Both carry a fresh number and a keyed hash over all their fields. So each proves that it knows the
//! job's secret, without sending it. Both then compute a token for each direction, and every message of the session
//! carries it. A token depends on both numbers, so that an old hello, sent again by a stranger, opens nothing: the
//! stranger cannot compute the token that confirms it.
//!
//! Messages are not encrypted. Whoever sees the traffic of a session sees its tokens and keys, too.

use std::hash::Hasher;

use bytemuck::{Pod, Zeroable};
use siphasher::sip128::{Hasher128, SipHasher24};

/// The version of the protocol between ranks.
pub(crate) const VERSION: u32 = 2;

/// The fields of a hello or a welcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Greeting {
    pub(crate) version: u32,
    /// The receiver's number of the sender, and the sender's of the receiver: ranks in a job.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// 1 in a hello, 2 in a welcome, 3 in a refusal.
    pub(crate) step: u32,
    /// A fresh number of the rank that asks.
    pub(crate) asked: u64,
    /// A fresh number of the rank that answers; 0 in a hello.
    pub(crate) answered: u64,
    /// How many of the receiver's writes the sender has seen.
    pub(crate) writes: u64,
    /// The number of the last message of the receiver's stream that the sender has.
    pub(crate) received: u32,
    /// Always 0.
    pub(crate) unused: u32,
    /// The keyed hash of all other fields.
    pub(crate) proof: [u8; 16],
}

/// The steps of a greeting.
pub(crate) const HELLO: u32 = 1;
pub(crate) const WELCOME: u32 = 2;
pub(crate) const REFUSAL: u32 = 3;

/// Computes the proofs and tokens of the sessions with one peer.
#[derive(Clone, Copy)]
pub(crate) struct Sessions {
    secret: [u8; 16],
    /// The names of both sides in hashes: ranks in a job.
    own: u32,
    other: u32,
}

impl Sessions {
    pub(crate) fn new(secret: [u8; 16], own: u32, other: u32) -> Self {
        Self { secret, own, other }
    }

    /// Returns true if this side's hello counts when both sides ask at once.
    pub(crate) fn leads(&self) -> bool {
        self.own < self.other
    }

    /// Returns the greeting with its proof.
    pub(crate) fn sign(&self, greeting: Greeting) -> Greeting {
        let proof = self.proof(&greeting);
        Greeting { proof, ..greeting }
    }

    /// Returns true if the sender of a greeting knows the secret.
    pub(crate) fn believes(&self, greeting: &Greeting) -> bool {
        self.proof(greeting) == greeting.proof
    }

    /// Returns the token of messages to the peer in the session with these numbers. It is not 0.
    pub(crate) fn token_there(&self, asked: u64, answered: u64) -> u64 {
        self.token(self.own, self.other, asked, answered)
    }

    /// Returns the token of messages of the peer, likewise.
    pub(crate) fn token_here(&self, asked: u64, answered: u64) -> u64 {
        self.token(self.other, self.own, asked, answered)
    }

    fn token(&self, from: u32, to: u32, asked: u64, answered: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(b"token");
        hasher.write_u32(from);
        hasher.write_u32(to);
        hasher.write_u64(asked);
        hasher.write_u64(answered);
        hasher.finish128().h1 | 1
    }

    fn proof(&self, greeting: &Greeting) -> [u8; 16] {
        let blank = Greeting {
            proof: [0; 16],
            ..*greeting
        };
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(b"greeting");
        hasher.write(bytemuck::bytes_of(&blank));
        hasher.finish128().as_bytes()
    }
}

/// Parses a greeting of this version with this step. Its sender has proved nothing yet.
pub(crate) fn parse(bytes: &[u8], step: u32) -> Option<Greeting> {
    let greeting: Greeting = bytemuck::try_pod_read_unaligned(bytes).ok()?;
    (greeting.version == VERSION && greeting.step == step).then_some(greeting)
}

/// Returns a number that nobody can guess.
pub(crate) fn fresh() -> u64 {
    let mut bytes = [0; 8];
    // The kernel has random numbers by the time programs run. Without them the token would still need the secret.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Greeting {
        Greeting {
            version: VERSION,
            from: 3,
            to: 1,
            step: HELLO,
            asked: 99,
            ..Greeting::zeroed()
        }
    }

    #[test]
    fn a_greeting_is_believed_only_with_the_secret() {
        let (ours, other) = (Sessions::new([7; 16], 1, 3), Sessions::new([8; 16], 1, 3));
        let signed = ours.sign(hello());
        let bytes = bytemuck::bytes_of(&signed);
        assert_eq!(parse(bytes, HELLO), Some(signed));
        assert!(ours.believes(&signed) && !other.believes(&signed));
        assert_eq!(parse(bytes, WELCOME), None);
        assert_eq!(parse(&bytes[1..], HELLO), None);
        for byte in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[byte] ^= 1;
            let read = parse(&changed, HELLO);
            assert!(!read.is_some_and(|it| ours.believes(&it)), "byte {byte}");
        }
    }

    #[test]
    fn a_token_depends_on_its_direction_and_both_numbers() {
        let (here, there) = (Sessions::new([7; 16], 0, 1), Sessions::new([7; 16], 1, 0));
        let token = here.token_there(5, 6);
        assert_eq!(token, there.token_here(5, 6));
        assert_ne!(token, here.token_here(5, 6));
        assert_ne!(token, here.token_there(5, 7));
        assert_ne!(token, here.token_there(4, 6));
        assert_ne!(token, Sessions::new([8; 16], 0, 1).token_there(5, 6));
        assert!(here.leads() && !there.leads());
    }
}
