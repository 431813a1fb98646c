//! What the application writes down of one communication, in as few stores as it can.

use crate::time::Time;

/// How many return addresses of the call stack are recorded, innermost first.
#[cfg(not(loom))]
pub const FRAMES: usize = 6;
/// How many return addresses of the call stack are recorded: fewer words, fewer interleavings.
#[cfg(loom)]
pub const FRAMES: usize = 1;

/// The words of a raw record.
pub(crate) const WORDS: usize = 6 + FRAMES;

/// The type of a communication, by a number the caller chooses: put, get, send, receive and so on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind(pub u16);

/// Memory that is registered as a whole: whole pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Region {
    /// Its first byte.
    pub addr: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Region {
    /// The whole pages that a buffer is on.
    pub fn of_pages(page_bytes: u64, addr: u64, bytes: u64) -> Self {
        let mask = page_bytes.wrapping_sub(1);
        let start = addr & !mask;
        let last = addr.saturating_add(bytes.max(1) - 1) | mask;
        // All of the address space has one byte more than can be counted.
        Self {
            addr: start,
            bytes: (last - start).saturating_add(1),
        }
    }

    /// Where it ends.
    pub(crate) fn end(self) -> u64 {
        self.addr.saturating_add(self.bytes)
    }
}

/// How the buffer of a communication got registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Not at all, because it is too short to be worth it: it was copied (§2, "smaller than a
    /// threshold"). It is recorded because its place in the stream tells what comes next.
    Copied,
    /// It was found registered.
    Found,
    /// The application registered it, on the critical path.
    OnDemand,
    /// It should have been, and was copied because the limit on registered bytes was reached.
    Refused,
}

impl Way {
    /// Whether the communication wanted its buffer registered.
    pub fn wants_registration(self) -> bool {
        self != Way::Copied
    }
}

/// One communication, as it is recorded after its completion (§3.2, "Memory Deregistration").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Communication {
    /// When it began: the moment at which its buffer had to be registered.
    pub begun: Time,
    /// Its type.
    pub kind: Kind,
    /// How its buffer got registered.
    pub way: Way,
    /// The first byte of the buffer.
    pub addr: u64,
    /// The bytes of the buffer.
    pub bytes: u64,
    /// The region that was registered for it, maybe larger than it; if that was refused, the region that
    /// it would have been. Of no meaning if it was copied.
    pub region: Region,
    /// Return addresses of the call, innermost first, zero where there are no more. Any other
    /// words that tell call sites apart do as well, such as the address of a `Location`.
    pub stack: [u64; FRAMES],
}

impl Communication {
    /// The record as plain words, unhashed: hashing is the helper's part (§3.1).
    #[inline]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = self.begun.0;
        words[1] = self.addr;
        words[2] = self.bytes;
        words[3] = u64::from(self.kind.0) | (self.way as u64) << 16;
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
            region: Region {
                addr: words[4],
                bytes: words[5],
            },
            kind: Kind(words[3] as u16),
            way: match words[3] >> 16 {
                0 => Way::Copied,
                1 => Way::Found,
                2 => Way::OnDemand,
                _ => Way::Refused,
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
            let it = Region::of_pages(PAGE, addr, bytes);
            (it.addr, it.bytes)
        };
        assert_eq!(region(u64::MAX - 10, 100), (u64::MAX - 4095, PAGE));
        assert_eq!(region(100, 0), (0, PAGE));
        assert_eq!(region(4095, 2), (0, 2 * PAGE));
        assert_eq!(region(0, u64::MAX), (0, u64::MAX));
    }

    #[test]
    fn words_say_what_was_recorded() {
        for way in [Way::Copied, Way::Found, Way::OnDemand, Way::Refused] {
            let communication = Communication {
                begun: Time(u64::MAX - 1),
                kind: Kind(u16::MAX),
                way,
                addr: 1 << 47,
                bytes: 17 << 10,
                region: Region::of_pages(4096, 1 << 47, 17 << 10),
                stack: [1, 2, 3, 4, 5, u64::MAX],
            };
            let words = communication.to_words();
            assert_eq!(Communication::from_words(&words), communication);
        }
    }
}
