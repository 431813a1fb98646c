//! Long runs in parts that fit messages.

use super::{LONGEST, WORD};
use crate::rma::unmapped::Run;

/// Parts of a run that fit a message, of whole elements of so many bytes.
pub(super) fn split(limit: usize, element: usize) -> impl Fn(Run) -> Parts {
    let most = (limit.saturating_sub(WORD)).clamp(1, LONGEST);
    let most = (most / element * element).max(element);
    move |rest| Parts { rest, most }
}

/// Parts of a run, one after the other.
pub(super) struct Parts {
    rest: Run,
    most: usize,
}

impl Iterator for Parts {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let len = self.rest.len.min(self.most);
        let part = Run { len, ..self.rest };
        self.rest = Run {
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
        let run = Run {
            there: 100,
            here: 5,
            len: 25,
        };
        let parts: Vec<Run> = split(10 + WORD, 1)(run).collect();
        let parts: Vec<_> = parts.iter().map(|it| (it.there, it.here, it.len)).collect();
        assert_eq!(parts, [(100, 5, 10), (110, 15, 10), (120, 25, 5)]);
        assert_eq!(split(100, 1)(run).count(), 1);
        // A message of less than a word would hold nothing: no endless loop at least.
        assert_eq!(split(1, 1)(run).count(), 25);
        // Elements stay whole.
        let parts: Vec<usize> = split(10 + WORD, 4)(run).map(|it| it.len).collect();
        assert_eq!(parts, [8, 8, 8, 1]);
    }
}
