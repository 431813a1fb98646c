//! Half of a merge.

/// The half of two runs that a rank keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The smaller keys.
    Low,
    /// The larger keys.
    High,
}

/// Merges two sorted runs until `into`, as long as each of them, is full: with the smaller keys
/// from the front, or the larger from the back.
///
/// # Panics
/// If the lengths of the three differ.
pub fn merge<T: Ord + Copy>(keep: Half, mine: &[T], theirs: &[T], into: &mut [T]) {
    assert!(mine.len() == into.len() && theirs.len() == into.len());
    match keep {
        Half::Low => {
            // Both together have taken fewer keys than `into` holds, so neither runs out.
            let (mut i, mut j) = (0, 0);
            for slot in into {
                let (a, b) = (mine[i], theirs[j]);
                let first = a <= b;
                *slot = if first { a } else { b };
                i += usize::from(first);
                j += usize::from(!first);
            }
        }
        Half::High => {
            let (mut i, mut j) = (mine.len(), theirs.len());
            for slot in into.iter_mut().rev() {
                let (a, b) = (mine[i - 1], theirs[j - 1]);
                let first = a >= b;
                *slot = if first { a } else { b };
                i -= usize::from(first);
                j -= usize::from(!first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn halves_are_those_of_the_whole(keys in prop::collection::vec(-20_i64..20, 0..80)) {
            let run = keys.len() / 2;
            let mut whole = keys[..2 * run].to_vec();
            let (mine, theirs) = whole.split_at_mut(run);
            mine.sort_unstable();
            theirs.sort_unstable();
            let (mut low, mut high) = (vec![0; run], vec![0; run]);
            merge(Half::Low, mine, theirs, &mut low);
            merge(Half::High, mine, theirs, &mut high);
            whole.sort_unstable();
            prop_assert_eq!([low, high].concat(), whole);
        }
    }
}
