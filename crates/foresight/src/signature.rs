//! Signatures: a hash identifies each recurring use of a buffer (§3.1, §4.2).
//!
//! The same buffer is used from several call sites, with different periods. The same call site recurs in different
//! contexts, as on entering an inner loop and within it (Figure 4). So a signature hashes the call stack, the
//! buffer's address, and the types and addresses of the communications just before, in a sliding window. Only the raw
//! words are recorded on the critical path; the helper does the hashing.

use std::collections::VecDeque;

use hydrant_base::mix;

use crate::communication::{Communication, CommunicationKind};

/// The longest possible window.
pub const MAX_WINDOW: usize = 64;

/// The paper's window: the two communications before (§3.1).
pub const DEFAULT_WINDOW: usize = 2;

/// The hash of one recurring use of a buffer in its context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Signature(pub u64);

/// The communication stream of one thread, as far back as signatures look.
///
/// Threads have contexts of their own: their streams interleave by chance.
#[derive(Clone, Debug)]
pub struct SignatureContext {
    /// Type and address of the communications before, oldest first.
    window: VecDeque<u64>,
    /// The number of communications before that a signature includes.
    length: usize,
    /// Low bits of addresses that signatures leave out.
    grain_bits: u32,
}

impl SignatureContext {
    /// Makes a context with a window of `length` communications, [`MAX_WINDOW`] at most. Addresses that differ only
    /// in their lowest `grain_bits` bits count as the same buffer. The paper's addresses are exact, which is 0.
    pub fn new(length: usize, grain_bits: u32) -> Self {
        let length = length.min(MAX_WINDOW);
        Self {
            window: VecDeque::with_capacity(length + 1),
            length,
            grain_bits: grain_bits.min(63),
        }
    }

    /// The signature of the next communication of the stream, which then joins the window.
    pub fn sign(&mut self, next: &Communication) -> Signature {
        let addr = next.addr >> self.grain_bits;
        let site = next.stack.iter().fold(0, |hash, &frame| join(hash, frame));
        let own = join(site, addr);
        // The order counts: the window's oldest entry is hashed first.
        let hash = self.window.iter().fold(own, |hash, &it| join(hash, it));
        self.remember(next.kind, addr);
        Signature(hash)
    }

    fn remember(&mut self, kind: CommunicationKind, addr: u64) {
        if self.length == 0 {
            return;
        }
        if self.window.len() == self.length {
            self.window.pop_front();
        }
        self.window.push_back(join(u64::from(kind.0), addr));
    }
}

/// Joins a word to a hash.
fn join(hash: u64, word: u64) -> u64 {
    mix(hash.rotate_left(5) ^ word)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::communication::{FRAMES, PageRun, RegistrationOutcome};
    use crate::time::Time;
    use proptest::prelude::*;

    fn communication(kind: u16, site: u64, addr: u64) -> Communication {
        Communication {
            begun: Time(0),
            kind: CommunicationKind(kind),
            outcome: RegistrationOutcome::Found,
            addr,
            bytes: 1 << 20,
            region: PageRun::default(),
            stack: [site; FRAMES],
        }
    }

    fn signatures(window: usize, stream: &[(u16, u64, u64)]) -> Vec<Signature> {
        let mut context = SignatureContext::new(window, 0);
        let sign = |&(kind, site, addr): &_| context.sign(&communication(kind, site, addr));
        stream.iter().map(sign).collect()
    }

    #[test]
    fn the_first_round_of_an_inner_loop_differs_from_the_others() {
        // Figure 4: loop 1 uses buffer 10, loop 2 buffer 20.
        let stream = [
            (1, 1, 10),
            (1, 1, 10),
            (1, 1, 10),
            (1, 2, 20),
            (1, 1, 10),
            (1, 1, 10),
        ];
        let without = signatures(0, &stream);
        assert_eq!(without[1], without[4]);
        let with = signatures(1, &stream);
        assert_ne!(with[1], with[4]);
        assert_eq!(with[1], with[5]);
    }

    #[test]
    fn call_sites_addresses_and_kinds_before_tell_signatures_apart() {
        let base = signatures(1, &[(1, 1, 10), (1, 1, 10)])[1];
        for other in [
            [(1, 1, 10), (1, 2, 10)],
            [(1, 1, 10), (1, 1, 11)],
            [(2, 1, 10), (1, 1, 10)],
        ] {
            assert_ne!(signatures(1, &other)[1], base, "{other:?}");
        }
        // The call site of an earlier communication does not count (§3.1).
        assert_eq!(signatures(1, &[(1, 9, 10), (1, 1, 10)])[1], base);
    }

    #[test]
    fn a_grain_makes_shifted_addresses_one_buffer() {
        let mut context = SignatureContext::new(0, 12);
        let first = context.sign(&communication(1, 1, 0x7000_1010));
        assert_eq!(context.sign(&communication(1, 1, 0x7000_1ffc)), first);
        assert_ne!(context.sign(&communication(1, 1, 0x7000_2000)), first);
    }

    proptest! {
        /// A signature is a function of the last `window` communications and its own.
        #[test]
        fn nothing_before_the_window_counts(
            before in prop::collection::vec((0u16..3, 0u64..3, 0u64..3), 0..6),
            within in prop::collection::vec((0u16..3, 0u64..3, 0u64..3), 4),
        ) {
            let all: Vec<_> = before.iter().chain(&within).copied().collect();
            let (long, short) = (signatures(3, &all), signatures(3, &within));
            prop_assert_eq!(long.last(), short.last());
        }
    }
}
