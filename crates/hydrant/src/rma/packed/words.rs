//! The words of a message that name runs of memory: written by the rank that asks, and checked by the owner, who copies
//! the runs into and out of a window.
//!
//! A word with a length names a run. One without names repetitions of the last run named so far, and the word behind it
//! how far they lie apart. They never overlap. So a column of any height takes three words.

use hydrant_base::words::{Fixed, values};
use hydrant_conduit::{Window, memory::Runs};

use super::{LENGTH_BITS, LONGEST, WORD};

/// The words for runs that are added one after the other.
#[derive(Default)]
pub(in crate::rma) struct RunWords {
    words: Vec<u64>,
    runs: usize,
    last: LastRun,
}

/// The run that was added last.
#[derive(Default)]
struct LastRun {
    at: u64,
    /// Its bytes; zero if there is no run.
    len: usize,
    /// The bytes from the start of the run before it; zero if they may not be repeated.
    step: u64,
    /// True if it has no word of its own, but is a repetition.
    is_repetition: bool,
}

impl RunWords {
    /// Adds a run of `len` bytes: at least one, and at most [`LONGEST`]. Takes one more word at most.
    pub(in crate::rma) fn push(&mut self, at: u64, len: usize) {
        debug_assert!((1..=LONGEST).contains(&len), "{len} bytes");
        self.runs += 1;
        let before = std::mem::take(&mut self.last);
        let step = (before.len == len).then(|| at.checked_sub(before.at));
        let step = (step.flatten()).filter(|step| *step >= len as u64);
        let step = step.unwrap_or(0);
        let repeats = step != 0 && step == before.step;
        self.last = LastRun {
            at,
            len,
            step,
            is_repetition: repeats,
        };
        match (repeats, &mut *self.words) {
            (true, [.., repetitions, _]) if before.is_repetition => {
                *repetitions += 1 << LENGTH_BITS;
            }
            // The run before it has a word, and is the first repetition from now on.
            (true, [.., run]) => {
                *run = 2 << LENGTH_BITS;
                self.words.push(step);
            }
            _ => self.words.push(at << LENGTH_BITS | len as u64),
        }
    }

    /// Returns the number of words.
    pub(in crate::rma) fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns the bytes of the words if one more run is added, at most.
    pub(in crate::rma) fn bytes_with_next(&self) -> usize {
        (self.len() + 1) * WORD
    }

    pub(in crate::rma) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the number of runs.
    pub(in crate::rma) fn runs(&self) -> usize {
        self.runs
    }

    /// Writes the words behind the bytes of a message.
    pub(in crate::rma) fn put(&self, payload: &mut Vec<u8>) {
        payload.reserve_exact(self.len() * WORD);
        self.words.iter().for_each(|word| word.put(payload));
    }
}

/// Equal runs at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunRow {
    /// The start of the first.
    at: usize,
    /// The bytes of each: not zero.
    len: usize,
    count: usize,
    /// The bytes from one start to the next: at least `len` if there are several.
    step: usize,
}

impl RunRow {
    /// Returns the bytes of each run.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the start of each run.
    pub(super) fn starts(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |number| self.at + number * self.step)
    }

    fn bytes(&self) -> usize {
        self.count * self.len
    }

    /// Sets `runs` to these runs, and to consecutive runs of a message.
    fn fill(&self, runs: &mut Runs) -> Option<()> {
        runs.reset(self.len);
        runs.repeat(self.count, self.step, self.len).ok()
    }
}

/// Returns the runs that the words name, if they lie in the window and have at most `most` bytes.
fn parse(window: &Window, words: &[u8], most: usize) -> Option<Vec<RunRow>> {
    let mut rows: Vec<RunRow> = Vec::with_capacity(words.len() / WORD);
    let mut words = values(words).map(Result::ok);
    // The last run so far, which has no bytes if there is none.
    let (mut last, mut len) = (0_usize, 0);
    let mut left = most;
    while let Some(word) = words.next() {
        let word: u64 = word?;
        let high = usize::try_from(word >> LENGTH_BITS).ok()?;
        let row = match word as usize & LONGEST {
            0 => {
                let step = usize::try_from(words.next()??).ok()?;
                if len == 0 || high == 0 || step < len {
                    return None;
                }
                RunRow {
                    at: last.checked_add(step)?,
                    len,
                    count: high,
                    step,
                }
            }
            len => RunRow {
                at: high,
                len,
                count: 1,
                step: len,
            },
        };
        last = row.at.checked_add((row.count - 1).checked_mul(row.step)?)?;
        len = row.len;
        if last.checked_add(len)? > window.len() {
            return None;
        }
        left = left.checked_sub(row.count.checked_mul(len)?)?;
        rows.push(row);
    }
    Some(rows)
}

/// Returns the runs that the words name, if they lie in the window and have as many bytes as
/// `bytes`.
pub(super) fn parse_exactly(window: &Window, words: &[u8], bytes: &[u8]) -> Option<Vec<RunRow>> {
    let rows = parse(window, words, bytes.len())?;
    let all = rows.iter().map(RunRow::bytes).sum::<usize>();
    (all == bytes.len()).then_some(rows)
}

/// Writes the bytes of the runs that the words name. Nothing is written if a run lies outside the
/// window.
pub(super) fn unpack(window: &Window, words: &[u8], bytes: &[u8]) -> Option<()> {
    let (mut from, mut runs) = (0, Runs::new(0));
    for row in parse_exactly(window, words, bytes)? {
        row.fill(&mut runs)?;
        window.write_runs(row.at, bytes, from, &runs).ok()?;
        from += row.bytes();
    }
    Some(())
}

/// Returns the bytes of the runs that the words name.
pub(super) fn pack(window: &Window, words: &[u8], most: usize) -> Option<Vec<u8>> {
    let rows = parse(window, words, most)?;
    let mut bytes = vec![0; rows.iter().map(RunRow::bytes).sum()];
    let (mut to, mut runs) = (0, Runs::new(0));
    for row in rows {
        row.fill(&mut runs)?;
        window.read_runs(row.at, &mut bytes, to, &runs).ok()?;
        to += row.bytes();
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(runs: &[(u64, u64)]) -> Vec<u8> {
        let words = runs.iter().map(|(at, len)| at << LENGTH_BITS | len);
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn written(runs: &[(usize, usize)]) -> RunWords {
        let mut words = RunWords::default();
        (runs.iter()).for_each(|(at, len)| words.push(*at as u64, *len));
        words
    }

    fn bytes_of(words: &RunWords) -> Vec<u8> {
        let mut bytes = Vec::new();
        words.put(&mut bytes);
        bytes
    }

    fn named(rows: &[RunRow]) -> Vec<(usize, usize)> {
        let runs = |row: &RunRow| {
            let len = row.len();
            row.starts().map(move |at| (at, len))
        };
        rows.iter().flat_map(runs).collect()
    }

    #[test]
    fn runs_are_read_back_as_they_were_written() {
        let window = Window::private(64);
        let runs = words(&[(60, 4), (0, 1), (8, 1), (10, 2)]);
        assert_eq!(unpack(&window, &runs, b"abcdefgh"), Some(()));
        assert_eq!(pack(&window, &runs, 8).unwrap(), b"abcdefgh");
        let mut all = [0; 64];
        window.read(0, &mut all).unwrap();
        assert_eq!(&all[60..], b"abcd");
        assert_eq!((all[0], all[8], &all[10..12]), (b'e', b'f', &b"gh"[..]));
    }

    #[test]
    fn a_column_takes_three_words_whatever_its_height() {
        let column: Vec<_> = (0..512).map(|row| (8 + 2064 * row, 8)).collect();
        let words = written(&column);
        assert_eq!(
            words.words,
            [8 << LENGTH_BITS | 8, 511 << LENGTH_BITS, 2064]
        );
        assert_eq!((words.len(), words.runs()), (3, 512));
        let window = Window::private(512 * 2064);
        let data: Vec<u8> = (0..4096).map(|at| at as u8).collect();
        assert_eq!(unpack(&window, &bytes_of(&words), &data), Some(()));
        assert_eq!(pack(&window, &bytes_of(&words), 4096), Some(data));
        // Each column of a block of several has a word more for its start.
        let columns = (0..3).flat_map(|at| column.iter().map(move |run| (run.0 + 24 * at, 8)));
        assert_eq!(written(&columns.collect::<Vec<_>>()).len(), 9);
        // Runs that share bytes are each named.
        assert_eq!(written(&[(9, 4); 50]).len(), 50);
        assert_eq!(written(&[(0, 4), (3, 4), (6, 4), (9, 4)]).len(), 4);
    }

    #[test]
    fn runs_that_do_not_fit_change_nothing() {
        let window = Window::private(64);
        const LAST: u64 = (1 << 48) - 1;
        for (runs, bytes) in [
            (&[(0, 4), (61, 4)][..], 8),
            (&[(64, 1)], 1),
            (&[(LAST, 65535)], 65535),
            (&[(0, 4)], 3),
            (&[(0, 4)], 5),
            (&[], 1),
        ] {
            assert_eq!(unpack(&window, &words(runs), &vec![7; bytes]), None);
        }
        // Repetitions: of nothing, none, no distance, an overlap, beyond the window, beyond all memory, of more bytes
        // than there are.
        let step = |bytes: u64| (bytes >> LENGTH_BITS, bytes & LONGEST as u64);
        for (runs, bytes) in [
            (&[(1, 0), step(4)][..], 0),
            (&[(0, 4), (0, 0), step(4)], 4),
            (&[(0, 4), (1, 0)], 8),
            (&[(0, 4), (1, 0), step(3)], 8),
            (&[(0, 4), (1, 0), step(0)], 8),
            (&[(0, 4), (15, 0), step(5)], 64),
            (&[(60, 4), (1, 0), step(4)], 8),
            (&[(0, 4), (1, 0), step(u64::MAX)], 8),
            (&[(0, 4), (1, 0), step(u64::MAX - 3)], 8),
            (&[(4, 4), (LAST, 0), step(1 << 16)], 8),
            (&[(4, 1), (LAST, 0), step(1)], 8),
            (&[(0, 4), (1 << 46, 0), step(1 << 18)], 8),
            (&[(0, 4), (2, 0), step(4)], 8),
            (&[(0, 4), (2, 0), step(4)], 16),
        ] {
            assert_eq!(
                unpack(&window, &words(runs), &vec![7; bytes]),
                None,
                "{runs:?}"
            );
        }
        let mut all = [0; 64];
        window.read(0, &mut all).unwrap();
        assert_eq!(all, [0; 64]);
        // Nor is memory allocated for more than a message holds.
        assert_eq!(pack(&window, &words(&[(0, 40); 3]), 100), None);
        assert_eq!(pack(&window, &words(&[(30, 40)]), 100), None);
        assert_eq!(pack(&window, &words(&[(0, 1), (63, 0), step(1)]), 63), None);
        assert_eq!(
            pack(&window, &words(&[(0, 1), (63, 0), step(1)]), 64),
            Some(vec![0; 64])
        );
    }

    proptest! {
        /// Whatever is added comes back in its order, in no more words than there are runs.
        #[test]
        fn words_name_the_runs_that_were_added(
            rows in prop::collection::vec((0_usize..500, 1_usize..9, 0_usize..20, 1_usize..6), 0..8),
        ) {
            let runs: Vec<_> = (rows.iter())
                .flat_map(|&(at, len, step, count)| (0..count).map(move |number| (at + number * step, len)))
                .collect();
            let words = written(&runs);
            prop_assert!(words.len() <= runs.len());
            prop_assert_eq!(words.runs(), runs.len());
            let window = Window::private(1000);
            let bytes = runs.iter().map(|run| run.1).sum();
            let rows = parse(&window, &bytes_of(&words), bytes).expect("they lie in the window");
            prop_assert_eq!(named(&rows), runs);
        }

        /// Arbitrary words name runs in the window, no more than allowed, or nothing.
        #[test]
        fn arbitrary_words_stay_in_the_window(
            words in prop::collection::vec((0_u64..70, 0_u64..20), 0..12),
            most in 0_usize..200,
        ) {
            let window = Window::private(64);
            let bytes: Vec<u8> = (words.iter())
                .flat_map(|(high, low)| (high << LENGTH_BITS | low.saturating_sub(10)).to_le_bytes())
                .collect();
            if let Some(rows) = parse(&window, &bytes, most) {
                let runs = named(&rows);
                prop_assert!(runs.iter().all(|(at, len)| at + len <= 64));
                prop_assert!(runs.iter().map(|run| run.1).sum::<usize>() <= most);
                prop_assert!(rows.iter().all(|row| row.count == 1 || row.step >= row.len));
            }
        }
    }
}
