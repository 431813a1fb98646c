//! Checks that keys are sorted, and are still the same keys.

use hydrant_base::mix;

/// The error of keys that are not sorted correctly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsorted {
    /// A key differs from the serial answer.
    #[error("the keys are wrong first at position {at}: {found} instead of {expected}")]
    Key {
        /// Its position.
        at: usize,
        /// The key found.
        found: i64,
        /// The serial answer.
        expected: i64,
    },

    /// The number of keys changed.
    #[error("{found} keys came out of {expected}")]
    Count {
        /// The number of keys after.
        found: usize,
        /// The number of keys before.
        expected: usize,
    },

    /// A key is followed by a smaller one.
    #[error("the keys are out of order first at position {at}: {before} comes before {after}")]
    Order {
        /// The position of the smaller key.
        at: usize,
        /// The larger key.
        before: i64,
        /// The smaller key.
        after: i64,
    },

    /// The keys are in order, but are not the original keys.
    #[error(
        "the keys are in order but not those to be sorted: their checksum is {found:#x} instead \
         of {expected:#x}"
    )]
    Keys {
        /// The checksum after.
        found: u64,
        /// The checksum before.
        expected: u64,
    },
}

/// Compares `sorted` with `keys` as one rank sorts them: by the standard library's stable merge
/// sort. The ranks use its unstable quick sort and their own merges.
///
/// # Errors
/// [`Unsorted::Key`], [`Unsorted::Count`].
pub fn compare(mut keys: Vec<i64>, sorted: &[i64]) -> Result<(), Unsorted> {
    if keys.len() != sorted.len() {
        return Err(Unsorted::Count {
            found: sorted.len(),
            expected: keys.len(),
        });
    }
    keys.sort();
    let differ = keys
        .iter()
        .zip(sorted)
        .position(|(key, other)| key != other);
    differ.map_or(Ok(()), |at| {
        Err(Unsorted::Key {
            at,
            found: sorted[at],
            expected: keys[at],
        })
    })
}

/// Checks that a run from position `start` on is in order. Its first key must not be smaller than
/// `before`, the last key of the previous rank.
///
/// # Errors
/// [`Unsorted::Order`].
pub fn quick(before: Option<i64>, start: usize, run: &[i64]) -> Result<(), Unsorted> {
    let out_of_order = |at, before, after| Err(Unsorted::Order { at, before, after });
    if let Some((before, first)) = before.zip(run.first().copied())
        && before > first
    {
        return out_of_order(start, before, first);
    }
    match run.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(at) => out_of_order(start + at + 1, run[at], run[at + 1]),
        None => Ok(()),
    }
}

/// A sum that does not depend on the order of the keys. The sums of parts add up to the sum of the
/// whole.
pub fn checksum(keys: &[i64]) -> u64 {
    (keys.iter()).fold(0, |sum, key| sum.wrapping_add(mix(key.cast_unsigned())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sorted_keys_pass_and_others_are_found(
            keys in prop::collection::vec(any::<i64>(), 1..50), at: prop::sample::Index,
        ) {
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            prop_assert_eq!(compare(keys.clone(), &sorted), Ok(()));
            prop_assert_eq!(quick(None, 0, &sorted), Ok(()));
            prop_assert_eq!(checksum(&keys), checksum(&sorted));

            let at = at.index(sorted.len());
            sorted[at] = sorted[at].wrapping_sub(1);
            prop_assert_ne!(checksum(&keys), checksum(&sorted));
            match compare(keys, &sorted) {
                Err(Unsorted::Key { at: found, .. }) => prop_assert_eq!(found, at),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn the_first_key_out_of_order_is_named() {
        let order = |at, before, after| Err(Unsorted::Order { at, before, after });
        assert_eq!(quick(Some(5), 10, &[4, 6]), order(10, 5, 4));
        assert_eq!(quick(Some(4), 10, &[4, 6, 5, 1]), order(12, 6, 5));
        assert_eq!(quick(Some(9), 10, &[]), Ok(()));
        assert_eq!(
            compare(vec![1, 2], &[1]),
            Err(Unsorted::Count {
                found: 1,
                expected: 2
            })
        );
    }
}
