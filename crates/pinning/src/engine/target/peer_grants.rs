//! The grants that a peer holds, found by the buckets that they share with a run.

use std::collections::BTreeMap;

use crate::Run;

/// Grants, in order of their runs. The search for grants that overlap a run takes one look-up for
/// each length, counted in powers of two, however many grants there are.
#[derive(Debug, Default)]
pub(super) struct PeerGrants {
    /// The key is the number of bits of the length, then the run.
    grants: BTreeMap<(u32, Run), HeldGrant>,
}

/// A grant that a peer holds. Firehoses are attached once. Operations without firehoses may hold
/// one run several times at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldGrant {
    /// The slot of its record.
    pub(super) slot: u32,
    pub(super) times: u32,
}

impl PeerGrants {
    /// Adds one hold on a grant.
    pub(super) fn add(&mut self, run: Run, slot: u32) {
        let grant = (self.grants.entry(key(run))).or_insert(HeldGrant { slot, times: 0 });
        grant.times += 1;
    }

    /// Removes one hold on a grant, and returns its slot.
    pub(super) fn remove(&mut self, run: Run) -> Option<u32> {
        let grant = self.grants.get_mut(&key(run))?;
        let slot = grant.slot;
        grant.times -= 1;
        if grant.times == 0 {
            self.grants.remove(&key(run));
        }
        Some(slot)
    }

    pub(super) fn contains(&self, run: Run) -> bool {
        self.grants.contains_key(&key(run))
    }

    /// The grants that share a bucket with a run.
    pub(super) fn in_run(&self, run: Run) -> impl Iterator<Item = Run> {
        let mut bits = 0;
        let next_length = move || {
            let shortest = (bits, Run { first: 0, count: 0 });
            let ((found, _), _) = self.grants.range(shortest..).next()?;
            bits = found + 1;
            Some(*found)
        };
        std::iter::from_fn(next_length).flat_map(move |bits| self.of_length(bits, run))
    }

    /// The grants of one length that share a bucket with a run.
    fn of_length(&self, bits: u32, run: Run) -> impl Iterator<Item = Run> {
        // No grant of this length is longer, so none that begins earlier reaches the run.
        let longest = (1_u64 << bits) - 1;
        let from = |first| (bits, Run { first, count: 0 });
        let first = run.first.saturating_sub(longest);
        (self.grants.range(from(first)..from(run.end())))
            .map(|((_, held), _)| *held)
            .filter(move |held| held.overlaps(run))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Run, HeldGrant)> {
        (self.grants.iter()).map(|((_, run), grant)| (*run, *grant))
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }
}

/// The key of a run. A run has at least one bucket, and fewer than 2^63.
fn key(run: Run) -> (u32, Run) {
    (u64::BITS - run.count.leading_zeros(), run)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn a_run() -> impl Strategy<Value = Run> {
        (0_u64..200, prop_oneof![1_u64..4, 1_u64..60])
            .prop_map(|(first, count)| Run { first, count })
    }

    proptest! {
        #[test]
        fn whatever_shares_a_bucket_is_found_once(
            runs in prop::collection::vec((a_run(), any::<bool>()), 0..60),
            asked in prop::collection::vec(a_run(), 1..10),
        ) {
            let mut attached = PeerGrants::default();
            let mut model: Vec<Run> = Vec::new();
            for (number, (run, comes)) in runs.into_iter().enumerate() {
                let held = model.iter().position(|held| *held == run);
                prop_assert_eq!(attached.contains(run), held.is_some());
                match held {
                    Some(held) if !comes => {
                        model.swap_remove(held);
                        prop_assert!(attached.remove(run).is_some());
                    }
                    None if !comes => prop_assert!(attached.remove(run).is_none()),
                    _ => {
                        model.push(run);
                        attached.add(run, number as u32);
                    }
                }
            }
            let times: u32 = attached.iter().map(|(_, grant)| grant.times).sum();
            prop_assert_eq!(times as usize, model.len());
            model.sort_unstable();
            model.dedup();
            prop_assert_eq!(attached.len(), model.len());
            for run in asked {
                let mut found: Vec<Run> = attached.in_run(run).collect();
                found.sort_unstable();
                let right: Vec<Run> = (model.iter().copied()).filter(|held| held.overlaps(run)).collect();
                prop_assert_eq!(found, right);
            }
        }
    }
}
