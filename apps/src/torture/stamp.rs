//! Words that say for themselves whose memory they are in, since when, and who wrote them.

use crate::seed::mix;

/// What a word belongs to: a buffer of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// The thread that owns it.
    pub(crate) owner: usize,
    /// The how many-th of it.
    pub(crate) generation: u64,
}

/// Nobody has written yet, but the owner as it made the buffer.
pub(crate) const OWNER: usize = 0xff;
/// Writing numbers count round from 1.
const TIMES: u64 = 1 << 24;

impl Buffer {
    /// What `writer` puts at `index` as the `time`-th thing it puts at all.
    pub(crate) fn word(self, index: usize, writer: usize, time: u64) -> u64 {
        let time = time % TIMES;
        let place = (self.owner as u64) << 48 ^ self.generation << 20 ^ index as u64;
        let proof = mix(mix(place) ^ (writer as u64) << 32 ^ time) & 0xffff_ffff;
        time << 40 | (writer as u64) << 32 | proof
    }

    /// What the owner begins with.
    pub(crate) fn blank(self, index: usize) -> u64 {
        self.word(index, OWNER, 0)
    }

    /// Whether a word may be at `index`: as the owner left it, or as `writer` does.
    pub(crate) fn may_hold(self, index: usize, word: u64, writer: Option<usize>) -> bool {
        let (time, by) = (word >> 40, (word >> 32) as usize & 0xff);
        match writer {
            Some(writer) if by == writer => word == self.word(index, writer, time),
            _ => word == self.blank(index),
        }
    }

    /// Where a word comes from that should not be here.
    pub(crate) fn origin(self, index: usize, word: u64) -> String {
        let (time, by) = (word >> 40, (word >> 32) as usize & 0xff);
        for generation in (self.generation.saturating_sub(40)..self.generation + 10).rev() {
            let other = Self { generation, ..self };
            if word == other.word(index, by, time) {
                return match generation == self.generation {
                    true => format!("thread {by}, whose place it is not"),
                    false => {
                        format!("thread {by}, meant for buffer {generation} of the same owner")
                    }
                };
            }
        }
        format!("nobody known ({word:#x})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_known_in_its_place_alone() {
        let buffer = Buffer {
            owner: 3,
            generation: 70,
        };
        let word = buffer.word(5, 2, 9);
        assert!(buffer.may_hold(5, word, Some(2)));
        assert!(buffer.may_hold(5, buffer.blank(5), Some(2)));
        assert!(!buffer.may_hold(5, word, Some(1)));
        assert!(!buffer.may_hold(5, word, None));
        assert!(!buffer.may_hold(6, word, Some(2)));
        let next = Buffer {
            generation: 71,
            ..buffer
        };
        assert!(!next.may_hold(5, word, Some(2)));
        assert!(next.origin(5, word).contains("buffer 70"));
    }
}
