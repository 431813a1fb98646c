//! The audit of the local bucket table's counts.

use rustc_hash::FxHashMap;

use super::{LocalTable, run_of};
use crate::engine::agree::agree;

impl LocalTable {
    /// Checks the counts; `outside` and `own` are the references of peers and hits, by slot.
    pub(in crate::engine) fn audit(
        &self,
        mut outside: FxHashMap<u32, u32>,
        mut own: FxHashMap<u32, u32>,
    ) -> Result<(), String> {
        for slot in self.kept.values() {
            *outside.entry(*slot).or_default() += 1;
        }
        for hold in self.requests.values().flat_map(|request| &request.holds) {
            *own.entry(hold.slot).or_default() += 1;
        }
        let (mut extents, mut attached, mut records) = (0, 0, 0);
        for (bucket, slot) in self.editor.iter() {
            let extent = run_of(&self.editor.extent(slot));
            records += 1;
            let of = |map: &FxHashMap<u32, u32>, slot| map.get(&slot).copied().unwrap_or(0);
            let held = of(&outside, slot) + of(&own, slot);
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
            let counted = self.outside.get(&extent.first).map_or(0, |it| it.count);
            agree(&format!("peers on extent {extent:?}"), counted, by_peers)?;
            if by_peers > 0 {
                attached += extent.count;
            }
        }
        agree("records of extents", records, extents)?;
        let registering = |started: bool| -> u64 {
            (self.registering.values())
                .filter(|registering| registering.started || !started)
                .map(|registering| registering.preferred.count)
                .sum()
        };
        let pledged = self
            .registering
            .values()
            .filter(|registering| registering.pledged);
        let deregistering: u64 = self
            .deregistering
            .values()
            .map(|deregistering| deregistering.run.count)
            .sum();
        agree(
            "buckets planned",
            self.planned,
            extents + registering(false),
        )?;
        let actual = extents + registering(true) + deregistering;
        agree("buckets registered", self.actual, actual)?;
        agree("buckets attached", self.attached, attached)?;
        let pledged: u64 = pledged.map(|registering| registering.preferred.count).sum();
        agree("buckets pledged", self.pledged, pledged)?;
        self.audit_transient()?;
        self.audit_waiting()
    }

    /// Checks that each transient extent is held by its operation, or by others that shared it.
    fn audit_transient(&self) -> Result<(), String> {
        for (base, owner) in &self.transient {
            let is_used = |slot: u32| {
                let extent = run_of(&self.editor.extent(slot));
                (extent.buckets())
                    .filter_map(|bucket| self.editor.get(bucket))
                    .any(|slot| self.editor.references(slot) > 0)
            };
            let ends = self.ending_transient.contains(base);
            if !(self.editor.get(*base).is_some_and(is_used)
                && (ends || self.is_held_by(*owner, *base)))
            {
                return Err(format!("bucket {base} outlived its operation"));
            }
        }
        let transient = |base: &&u64| self.transient.contains_key(base);
        let there = self.ending_transient.iter().filter(transient).count();
        agree("extents that end", self.ending_transient.len(), there)
    }

    /// Checks that each waiting request waits for something.
    fn audit_waiting(&self) -> Result<(), String> {
        let mut pending: FxHashMap<u64, u32> = FxHashMap::default();
        let registering = self
            .registering
            .values()
            .flat_map(|registering| &registering.waiters);
        let deregistering = self
            .deregistering
            .values()
            .flat_map(|deregistering| &deregistering.waiters);
        for id in registering
            .map(|it| it.0)
            .chain(deregistering.map(|it| it.0))
        {
            *pending.entry(id).or_default() += 1;
        }
        for (id, request) in &self.requests {
            let there = pending.get(id).copied().unwrap_or(0);
            agree(
                &format!("what request {id} waits for"),
                request.pending,
                there,
            )?;
        }
        Ok(())
    }

    pub(in crate::engine) fn entries(&self) -> usize {
        let waiters = |registering: &super::PendingRegistration| registering.waiters.len();
        self.requests.len()
            + self.outside.len()
            + self.kept.len()
            + self.transient.len()
            + self.registering.values().map(waiters).sum::<usize>()
            + self.deregistering.len()
            + self.starting.len()
    }
}
