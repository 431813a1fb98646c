//! Copies runs into and out of a window, as the words of a message name them.

use hydrant_base::words::values;
use hydrant_conduit::Window;

use super::{LENGTH_BITS, LONGEST};

/// Returns the runs that the words name, if they lie in the window and have at most `most` bytes.
fn parse(window: &Window, words: &[u8], most: usize) -> Option<Vec<(usize, usize)>> {
    let mut bytes = 0;
    let runs = values(words).map(|word| {
        let word: u64 = word.ok()?;
        let (at, len) = ((word >> LENGTH_BITS) as usize, word as usize & LONGEST);
        bytes += len;
        (at + len <= window.len() && bytes <= most).then_some((at, len))
    });
    runs.collect()
}

/// Returns the runs that the words name, if they lie in the window and have as many bytes as
/// `bytes`.
pub(super) fn parse_exactly(
    window: &Window,
    words: &[u8],
    bytes: &[u8],
) -> Option<Vec<(usize, usize)>> {
    let runs = parse(window, words, bytes.len())?;
    let all = runs.iter().map(|(_, len)| len).sum::<usize>();
    (all == bytes.len()).then_some(runs)
}

/// Writes the bytes of the runs that the words name. Nothing is written if a run lies outside the
/// window.
pub(super) fn unpack(window: &Window, words: &[u8], mut bytes: &[u8]) -> Option<()> {
    let runs = parse_exactly(window, words, bytes)?;
    for (at, len) in runs {
        let (run, rest) = bytes.split_at(len);
        window.write(at, run).ok()?;
        bytes = rest;
    }
    Some(())
}

/// Returns the bytes of the runs that the words name.
pub(super) fn pack(window: &Window, words: &[u8], most: usize) -> Option<Vec<u8>> {
    let runs = parse(window, words, most)?;
    let mut bytes = vec![0; runs.iter().map(|(_, len)| len).sum()];
    let mut rest = bytes.as_mut_slice();
    for (at, len) in runs {
        let (run, others) = rest.split_at_mut(len);
        window.read(at, run).ok()?;
        rest = others;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(runs: &[(u64, u64)]) -> Vec<u8> {
        let words = runs.iter().map(|(at, len)| at << LENGTH_BITS | len);
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn runs_are_read_back_as_they_were_written() {
        let window = Window::private(64);
        let runs = words(&[(60, 4), (0, 1), (8, 0), (10, 3)]);
        assert_eq!(unpack(&window, &runs, b"abcdefgh"), Some(()));
        assert_eq!(pack(&window, &runs, 8).unwrap(), b"abcdefgh");
        let mut all = [0; 64];
        window.read(0, &mut all).unwrap();
        assert_eq!(&all[60..], b"abcd");
        assert_eq!((all[0], &all[10..13]), (b'e', &b"fgh"[..]));
    }

    #[test]
    fn runs_that_do_not_fit_change_nothing() {
        let window = Window::private(64);
        for (runs, bytes) in [
            (&[(0, 4), (61, 4)][..], 8),
            (&[(64, 1)], 1),
            (&[((1 << 48) - 1, 65535)], 65535),
            (&[(0, 4)], 3),
            (&[(0, 4)], 5),
            (&[], 1),
        ] {
            assert_eq!(unpack(&window, &words(runs), &vec![7; bytes]), None);
        }
        let mut all = [0; 64];
        window.read(0, &mut all).unwrap();
        assert_eq!(all, [0; 64]);
        // Nor is memory allocated for more than a message holds.
        assert_eq!(pack(&window, &words(&[(0, 40); 3]), 100), None);
        assert_eq!(pack(&window, &words(&[(30, 40)]), 100), None);
    }
}
