//! Whether the counts of the local bucket table agree with what is there.

use rustc_hash::FxHashMap;

use super::{Local, run_of};
use crate::engine::agree::agree;

impl Local {
    /// `outside` and `near`: references by record that peers and hits hold.
    pub(in crate::engine) fn audit(
        &self,
        mut outside: FxHashMap<u32, u32>,
        mut near: FxHashMap<u32, u32>,
    ) -> Result<(), String> {
        for slot in self.kept.values() {
            *outside.entry(*slot).or_default() += 1;
        }
        for hold in self.claims.values().flat_map(|claim| &claim.holds) {
            *near.entry(hold.slot).or_default() += 1;
        }
        let (mut extents, mut attached, mut records) = (0, 0, 0);
        for (bucket, slot) in self.editor.iter() {
            let extent = run_of(&self.editor.extent(slot));
            records += 1;
            let of = |map: &FxHashMap<u32, u32>, slot| map.get(&slot).copied().unwrap_or(0);
            let held = of(&outside, slot) + of(&near, slot);
            agree(
                &format!("references on bucket {bucket}"),
                self.editor.references(slot),
                held,
            )?;
            if bucket != extent.first {
                continue;
            }
            extents += extent.count;
            let parts = extent
                .buckets()
                .filter_map(|bucket| self.editor.get(bucket));
            let by_peers = parts.map(|slot| of(&outside, slot)).sum();
            let counted = self.outside.get(&extent.first).copied().unwrap_or(0);
            agree(&format!("peers on extent {extent:?}"), counted, by_peers)?;
            if by_peers > 0 {
                attached += extent.count;
            }
        }
        agree("records of extents", records, extents)?;
        let coming = |started: bool| -> u64 {
            (self.coming.values())
                .filter(|coming| coming.started || !started)
                .map(|coming| coming.welcome.count)
                .sum()
        };
        let pledged = self.coming.values().filter(|coming| coming.pledged);
        let leaving: u64 = self.leaving.values().map(|leaving| leaving.run.count).sum();
        agree("buckets planned", self.planned, extents + coming(false))?;
        let actual = extents + coming(true) + leaving;
        agree("buckets registered", self.actual, actual)?;
        agree("buckets attached", self.attached, attached)?;
        let pledged: u64 = pledged.map(|coming| coming.welcome.count).sum();
        agree("buckets pledged", self.pledged, pledged)?;
        self.audit_passing()?;
        self.audit_waiting()
    }

    /// What was registered for one operation is there for it, or for those that shared it.
    fn audit_passing(&self) -> Result<(), String> {
        for (base, owner) in &self.passing {
            let is_used = |slot: u32| {
                let extent = run_of(&self.editor.extent(slot));
                (extent.buckets())
                    .filter_map(|bucket| self.editor.get(bucket))
                    .any(|slot| self.editor.references(slot) > 0)
            };
            let ends = self.ending.contains(base);
            if !(self.editor.get(*base).is_some_and(is_used)
                && (ends || self.is_held_by(*owner, *base)))
            {
                return Err(format!("bucket {base} outlived its operation"));
            }
        }
        let passing = |base: &&u64| self.passing.contains_key(base);
        let there = self.ending.iter().filter(passing).count();
        agree("extents that end", self.ending.len(), there)
    }

    /// Who waits, waits for something.
    fn audit_waiting(&self) -> Result<(), String> {
        let mut pending: FxHashMap<u64, u32> = FxHashMap::default();
        let coming = self.coming.values().flat_map(|coming| &coming.waiters);
        let leaving = self.leaving.values().flat_map(|leaving| &leaving.waiters);
        for id in coming.map(|it| it.0).chain(leaving.map(|it| it.0)) {
            *pending.entry(id).or_default() += 1;
        }
        for (id, claim) in &self.claims {
            let there = pending.get(id).copied().unwrap_or(0);
            agree(&format!("what claim {id} waits for"), claim.pending, there)?;
        }
        Ok(())
    }

    pub(in crate::engine) fn entries(&self) -> usize {
        let waiters = |coming: &super::Coming| coming.waiters.len();
        self.claims.len()
            + self.outside.len()
            + self.kept.len()
            + self.passing.len()
            + self.coming.values().map(waiters).sum::<usize>()
            + self.leaving.len()
            + self.starting.len()
    }
}
