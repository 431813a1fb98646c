//! Words that name their buffer, its generation, and their writer.

use hydrant_base::mix;

/// The buffer that a word belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StampedBuffer {
    /// The thread that owns it.
    pub(crate) owner: usize,
    /// Its number among the owner's buffers.
    pub(crate) generation: u64,
}

/// The writer of the initial content: the owner.
pub(crate) const OWNER: usize = 0xff;
/// The numbers of writes wrap around to 1.
const TIMES: u64 = 1 << 24;

impl StampedBuffer {
    /// The word that `writer` puts at `index` as its write number `time`.
    pub(crate) fn word(self, index: usize, writer: usize, time: u64) -> u64 {
        let time = time % TIMES;
        let place = (self.owner as u64) << 48 ^ self.generation << 20 ^ index as u64;
        let proof = mix(mix(place) ^ (writer as u64) << 32 ^ time) & 0xffff_ffff;
        time << 40 | (writer as u64) << 32 | proof
    }

    /// The initial word at `index`.
    pub(crate) fn blank(self, index: usize) -> u64 {
        self.word(index, OWNER, 0)
    }

    /// True if `word` may be at `index`: the owner's initial word, or a word of `writer`.
    pub(crate) fn may_hold(self, index: usize, word: u64, writer: Option<usize>) -> bool {
        let (time, by) = (word >> 40, (word >> 32) as usize & 0xff);
        match writer {
            Some(writer) if by == writer => word == self.word(index, writer, time),
            _ => word == self.blank(index),
        }
    }

    /// The origin of a word that should not be here.
    pub(crate) fn origin(self, index: usize, word: u64) -> String {
        let (time, by) = (word >> 40, (word >> 32) as usize & 0xff);
        for generation in (self.generation.saturating_sub(40)..self.generation + 10).rev() {
            let other = Self { generation, ..self };
            if word == other.word(index, by, time) {
                return if generation == self.generation {
                    format!("thread {by}, whose place it is not")
                } else {
                    format!("thread {by}, meant for buffer {generation} of the same owner")
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
    fn a_word_is_valid_only_at_its_own_index() {
        let buffer = StampedBuffer {
            owner: 3,
            generation: 70,
        };
        let word = buffer.word(5, 2, 9);
        assert!(buffer.may_hold(5, word, Some(2)));
        assert!(buffer.may_hold(5, buffer.blank(5), Some(2)));
        assert!(!buffer.may_hold(5, word, Some(1)));
        assert!(!buffer.may_hold(5, word, None));
        assert!(!buffer.may_hold(6, word, Some(2)));
        let next = StampedBuffer {
            generation: 71,
            ..buffer
        };
        assert!(!next.may_hold(5, word, Some(2)));
        assert!(next.origin(5, word).contains("buffer 70"));
    }
}
