//! Splits long runs into parts that fit messages.

use super::{LONGEST, WORD};
use crate::rma::unmapped::ByteRun;

/// Returns a function that splits a run into parts that fit a message. Each part has whole elements
/// of `element` bytes.
pub(super) fn split(limit: usize, element: usize) -> impl Fn(ByteRun) -> RunParts {
    let most = (limit.saturating_sub(WORD)).clamp(1, LONGEST);
    let most = (most / element * element).max(element);
    move |rest| RunParts { rest, most }
}

/// The parts of a run, in order.
pub(super) struct RunParts {
    rest: ByteRun,
    most: usize,
}

impl Iterator for RunParts {
    type Item = ByteRun;

    fn next(&mut self) -> Option<ByteRun> {
        let len = self.rest.len.min(self.most);
        let part = ByteRun { len, ..self.rest };
        self.rest = ByteRun {
            there: part.there + len,
            here: part.here + len,
            len: self.rest.len - len,
        };
        (len > 0).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_split() {
        let run = ByteRun {
            there: 100,
            here: 5,
            len: 25,
        };
        let parts: Vec<ByteRun> = split(10 + WORD, 1)(run).collect();
        let parts: Vec<_> = parts.iter().map(|it| (it.there, it.here, it.len)).collect();
        assert_eq!(parts, [(100, 5, 10), (110, 15, 10), (120, 25, 5)]);
        assert_eq!(split(100, 1)(run).count(), 1);
        // A message shorter than a word could hold no byte. The split still ends.
        assert_eq!(split(1, 1)(run).count(), 25);
        // Elements stay whole.
        let parts: Vec<usize> = split(10 + WORD, 4)(run).map(|it| it.len).collect();
        assert_eq!(parts, [8, 8, 8, 1]);
    }
}
