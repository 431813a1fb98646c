//! Batcher's bitonic network over a hypercube of ranks (Batcher, *Sorting networks and their
//! applications*, 1968), with runs in place of keys: compare-exchange becomes compare-split.

use hydrant::Rank;

use super::Half;
use crate::shape::Hypercube;

/// One step of one rank: the rank and its partner split all their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareSplit {
    /// The partner.
    pub partner: Rank,
    /// The half that it keeps.
    pub keep: Half,
}

/// The steps of a rank. They turn runs that are sorted in themselves into runs sorted along the
/// ranks.
pub fn network(cube: Hypercube, rank: Rank) -> Vec<CompareSplit> {
    let mut steps = Vec::new();
    for stage in 1..=cube.dimensions() {
        // Each stage sorts groups of 2^stage ranks, alternately upwards and downwards; the last
        // stage sorts upwards. (No rank has a bit beyond the dimensions.)
        let upwards = u64::from(rank.0) >> stage & 1 == 0;
        for dimension in (0..stage).rev() {
            let below = rank.0 >> dimension & 1 == 0;
            steps.push(CompareSplit {
                partner: Rank(rank.0 ^ 1 << dimension),
                keep: if below == upwards {
                    Half::Low
                } else {
                    Half::High
                },
            });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sort::merge;

    proptest! {
        /// Runs the network in one thread in place of all ranks.
        #[test]
        fn runs_become_sorted_along_the_ranks(
            dimensions in 0_u32..5, run in 0_usize..9, keys in prop::collection::vec(-9_i64..9, 16 * 9),
        ) {
            let ranks = 1_u32 << dimensions;
            let cube = Hypercube::new(ranks).unwrap();
            let mut runs: Vec<Vec<i64>> = (0..ranks as usize)
                .map(|rank| keys[rank * run..][..run].to_vec())
                .collect();
            let mut expected = runs.concat();
            expected.sort_unstable();
            runs.iter_mut().for_each(|run| run.sort_unstable());
            let steps: Vec<_> = (0..ranks).map(|rank| network(cube, Rank(rank))).collect();
            let depth = (dimensions * (dimensions + 1) / 2) as usize;
            prop_assert!(steps.iter().all(|steps| steps.len() == depth));
            for step in 0..depth {
                let now: Vec<CompareSplit> = steps.iter().map(|steps| steps[step]).collect();
                let split = |(rank, CompareSplit { partner, keep }): (usize, &CompareSplit)| {
                    let back = now[partner.index()];
                    assert_eq!(back.partner.index(), rank);
                    assert_ne!(back.keep, *keep);
                    let mut kept = vec![0; run];
                    merge(*keep, &runs[rank], &runs[partner.index()], &mut kept);
                    kept
                };
                runs = now.iter().enumerate().map(split).collect();
            }
            prop_assert_eq!(runs.concat(), expected);
        }
    }
}
