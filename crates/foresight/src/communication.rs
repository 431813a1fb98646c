//! The record of one communication, written in as few stores as possible.

use crate::time::Time;

/// The number of recorded return addresses of the call stack, innermost first.
#[cfg(not(loom))]
pub const FRAMES: usize = 6;
/// The number of recorded return addresses; one under loom, for fewer interleavings.
#[cfg(loom)]
pub const FRAMES: usize = 1;

/// The words of a raw record.
pub(crate) const WORDS: usize = 6 + FRAMES;

/// The type of a communication, a number of the caller's choice: put, get, send, receive and so on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommunicationKind(pub u16);

/// A run of whole pages that is registered as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PageRun {
    /// Its first byte.
    pub addr: u64,
    /// Its length.
    pub bytes: u64,
}

impl PageRun {
    /// The whole pages that contain a buffer.
    pub fn of_pages(page_bytes: u64, addr: u64, bytes: u64) -> Self {
        let mask = page_bytes.wrapping_sub(1);
        let start = addr & !mask;
        let last = addr.saturating_add(bytes.max(1) - 1) | mask;
        // The whole address space has one byte more than 64 bits can count.
        Self {
            addr: start,
            bytes: (last - start).saturating_add(1),
        }
    }

    /// The address after its last byte.
    pub(crate) fn end(self) -> u64 {
        self.addr.saturating_add(self.bytes)
    }
}

/// The registration state that a communication found for its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegistrationOutcome {
    /// The buffer is too short to be worth registering, and was copied (§2, "smaller than a threshold"). It is
    /// recorded because its position in the stream helps to predict later uses.
    Copied,
    /// The buffer was registered already.
    Found,
    /// The application registered the buffer, on the critical path.
    OnDemand,
    /// The limit on registered bytes was reached, so the buffer was copied.
    Refused,
}

impl RegistrationOutcome {
    /// True if the communication wanted its buffer registered.
    pub fn wants_registration(self) -> bool {
        self != RegistrationOutcome::Copied
    }
}

/// One communication, as it is recorded after its completion (§3.2, "Memory Deregistration").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Communication {
    /// The time of its begin, at which its buffer had to be registered.
    pub begun: Time,
    /// Its type.
    pub kind: CommunicationKind,
    /// The registration state that its buffer had.
    pub outcome: RegistrationOutcome,
    /// The first byte of the buffer.
    pub addr: u64,
    /// The bytes of the buffer.
    pub bytes: u64,
    /// The region registered for the buffer, which may be larger. If registration was refused, the region that
    /// would have been registered. Meaningless if the buffer was copied.
    pub region: PageRun,
    /// Return addresses of the call, innermost first, padded with zeros. Any other words that tell call sites apart
    /// will do, such as the address of a `Location`.
    pub stack: [u64; FRAMES],
}

impl Communication {
    /// The record as plain words, unhashed: the helper does the hashing (§3.1).
    #[inline]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = self.begun.0;
        words[1] = self.addr;
        words[2] = self.bytes;
        words[3] = u64::from(self.kind.0) | (self.outcome as u64) << 16;
        words[4] = self.region.addr;
        words[5] = self.region.bytes;
        words[6..].copy_from_slice(&self.stack);
        words
    }

    pub(crate) fn from_words(words: &[u64; WORDS]) -> Self {
        let mut stack = [0; FRAMES];
        stack.copy_from_slice(&words[6..]);
        Self {
            begun: Time(words[0]),
            addr: words[1],
            bytes: words[2],
            region: PageRun {
                addr: words[4],
                bytes: words[5],
            },
            kind: CommunicationKind(words[3] as u16),
            outcome: match words[3] >> 16 {
                0 => RegistrationOutcome::Copied,
                1 => RegistrationOutcome::Found,
                2 => RegistrationOutcome::OnDemand,
                _ => RegistrationOutcome::Refused,
            },
            stack,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn regions_are_whole_pages_to_the_end_of_memory() {
        let region = |addr, bytes| {
            let it = PageRun::of_pages(PAGE, addr, bytes);
            (it.addr, it.bytes)
        };
        assert_eq!(region(u64::MAX - 10, 100), (u64::MAX - 4095, PAGE));
        assert_eq!(region(100, 0), (0, PAGE));
        assert_eq!(region(4095, 2), (0, 2 * PAGE));
        assert_eq!(region(0, u64::MAX), (0, u64::MAX));
    }

    #[test]
    fn words_round_trip() {
        for outcome in [
            RegistrationOutcome::Copied,
            RegistrationOutcome::Found,
            RegistrationOutcome::OnDemand,
            RegistrationOutcome::Refused,
        ] {
            let communication = Communication {
                begun: Time(u64::MAX - 1),
                kind: CommunicationKind(u16::MAX),
                outcome,
                addr: 1 << 47,
                bytes: 17 << 10,
                region: PageRun::of_pages(4096, 1 << 47, 17 << 10),
                stack: [1, 2, 3, 4, 5, u64::MAX],
            };
            let words = communication.to_words();
            assert_eq!(Communication::from_words(&words), communication);
        }
    }
}
