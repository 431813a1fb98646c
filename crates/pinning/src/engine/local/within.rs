//! A soft limit on registered own memory, below the hard limits. It goes beyond Li §3.2, where new
//! memory is registered beside the old. The predictor says how many bytes are needed. An operation
//! that registers evicts unused memory above that. Memory in use stays, so that nothing waits and
//! nothing fails.

use rustc_hash::FxHashMap;

use super::{HoldCount, LocalTable, Requester};
use crate::{Decisions, Run};

/// The most runs remembered until [`take_crowded_out`](LocalTable::take_crowded_out).
const MAX_CROWDED_OUT: usize = 256;

/// The memory evicted for operations because more was registered than needed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CrowdedOut {
    /// The evicted buckets: at most 256 runs, the first ones since the last call.
    pub runs: Vec<Run>,
    /// The most buckets above the limit that there would have been.
    pub short: u64,
    /// The most buckets in use at once, where that was above the limit.
    pub needed: u64,
}

/// The soft limit, and the extents evicted for it.
#[derive(Debug)]
pub(super) struct Within {
    /// The limit, in buckets.
    most: u64,
    crowded_out: CrowdedOut,
}

impl Within {
    /// The limit, in buckets.
    pub(super) fn most(&self) -> u64 {
        self.most
    }
}

impl Default for Within {
    fn default() -> Self {
        Self {
            most: u64::MAX,
            crowded_out: CrowdedOut::default(),
        }
    }
}

/// Returns true if the request's maker sees to its room.
fn is_planned(requester: Requester) -> bool {
    matches!(
        requester,
        Requester::Foreseen(_)
            | Requester::Background(_)
            | Requester::Pin(_)
            | Requester::Keep(_)
            | Requester::Own(_)
    )
}

impl LocalTable {
    /// Sets the soft limit, in buckets.
    pub(in crate::engine) fn keep_within(&mut self, buckets: u64) {
        self.within.most = buckets;
    }

    /// Takes the runs evicted for the limit since the last call.
    pub(in crate::engine) fn take_crowded_out(&mut self) -> CrowdedOut {
        std::mem::take(&mut self.within.crowded_out)
    }

    /// Evicts unused extents, the oldest first, if `count` more buckets exceed the limit.
    pub(super) fn crowd_out(
        &mut self,
        count: u64,
        (id, requester): (u64, Requester),
        out: &mut Decisions,
    ) {
        let short = self.too_many(count);
        if is_planned(requester) || short == 0 {
            return;
        }
        while self.too_many(count) > 0 {
            let Some(run) = self.evict_oldest(id, out) else {
                let needed = self.needed().saturating_add(count);
                let list = &mut self.within.crowded_out;
                list.needed = list.needed.max(needed);
                return;
            };
            self.note_crowded_out(run, short);
        }
    }

    /// As [`crowd_out`](Self::crowd_out), for extents that share buckets with a run and would be
    /// held with it. Returns the last of those evicted: after its deregistration, the run is
    /// registered as a whole.
    pub(super) fn crowd_out_beside(
        &mut self,
        run: Run,
        requester: Requester,
        out: &mut Decisions,
    ) -> Option<Run> {
        if is_planned(requester) || self.too_many(run.count) == 0 {
            return None;
        }
        let extents = self.editor.extents_in(run);
        let shared = |it: &Run| it.end().min(run.end()) - it.first.max(run.first);
        let there: u64 = extents.iter().map(shared).sum();
        let missing = run.count.saturating_sub(there);
        let short = self.too_many(missing);
        // If all of the run is registered, nothing more is.
        if missing == 0 || short == 0 {
            return None;
        }
        let mut last = None;
        for it in extents.into_iter().filter(|it| !run.contains(*it)) {
            let slot = self.editor.get(it.first);
            if slot.is_some_and(|slot| self.evict(slot, out)) {
                self.note_crowded_out(it, short);
                last = Some(it);
            }
        }
        last
    }

    /// The number of buckets above the limit, if `count` more were registered.
    fn too_many(&self, count: u64) -> u64 {
        let all = self.planned.saturating_add(count);
        all.saturating_sub(self.within.most)
    }

    fn note_crowded_out(&mut self, run: Run, short: u64) {
        let list = &mut self.within.crowded_out;
        list.short = list.short.max(short);
        if list.runs.len() < MAX_CROWDED_OUT {
            list.runs.push(run);
        }
    }

    /// Returns true if a request uses a part of an extent, or is about to.
    fn is_needed_by(&self, id: u64, extent: Run) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(|it| it.needs.iter().any(|need| need.run.overlaps(extent)))
    }

    /// Evicts the oldest victim that is not apart and that the request does not need. Returns its
    /// run. A bucket that is apart has two users.
    fn evict_oldest(&mut self, id: u64, out: &mut Decisions) -> Option<Run> {
        // An extent that was hit goes to the end of the queue once, and so does one that is apart.
        let mut looks = 2 * self.editor.queued();
        loop {
            let slot = self.editor.next_victim()?;
            let run = self.extent(slot);
            if self.is_apart(run) || self.is_needed_by(id, run) {
                looks = looks.checked_sub(1)?;
                self.editor.postpone(slot);
            } else if self.evict(slot, out) {
                return Some(run);
            }
        }
    }

    /// The buckets that are registered or about to be, except those being registered ahead of need.
    fn needed(&self) -> u64 {
        let is_ahead = |id: &u64| {
            let request = self.requests.get(id);
            request.is_none_or(|it| it.requester.is_ahead())
        };
        let all = self.registering.values();
        let ahead = all.filter(|it| it.waiters.iter().all(|(id, _)| is_ahead(id)));
        let ahead: u64 = ahead.map(|it| it.preferred.count).sum();
        self.planned
            .saturating_sub(ahead)
            .saturating_sub(self.beside())
    }

    /// The unused buckets of extents that are held in part: they are registered for others.
    fn beside(&self) -> u64 {
        let mut used: FxHashMap<u64, HoldCount> = self.outside.clone();
        for hold in self.requests.values().flat_map(|it| &it.holds) {
            let base = self.editor.extent(hold.slot).base;
            let held = used.entry(base).or_default();
            held.count += 1;
            held.most = held.most.max(hold.run.count);
        }
        let rest = used.iter().filter_map(|(base, held)| {
            let extent = self.extent(self.editor.get(*base)?);
            let records = extent.buckets().filter_map(|it| self.editor.get(it));
            let references: u32 = records.map(|it| self.editor.references(it)).sum();
            // Nothing more is known of further holders.
            (references == held.count).then(|| extent.count.saturating_sub(held.most))
        });
        rest.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Config, Engine, RegisteredExtent, Strategy, wire::Need};

    const PAGE: u64 = 4096;

    fn engine() -> Engine {
        let config = Config {
            strategy: Strategy::Foresight,
            m: 64 * PAGE,
            maxvictim: 64 * PAGE,
            ..Config::firehose_paper(0, 2)
        };
        Engine::new(config).unwrap()
    }

    /// Performs the engine's actions in order. Returns the runs, each with true for a registration
    /// and false for a deregistration.
    fn perform(engine: &mut Engine, mut out: Decisions) -> Vec<(bool, u64, u64)> {
        let mut done = Vec::new();
        while !out.actions.is_empty() {
            for action in std::mem::take(&mut out.actions) {
                match action {
                    Action::Register { id, preferred, .. } => {
                        done.push((true, preferred.first, preferred.count));
                        let got = RegisteredExtent {
                            run: preferred,
                            key: id,
                            writable: true,
                        };
                        engine.registered(id, Ok(got), &mut out);
                    }
                    Action::Deregister { id, run, .. } => {
                        done.push((false, run.first, run.count));
                        engine.deregistered(id, &mut out);
                    }
                    Action::Pinned { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        done
    }

    /// Begins an operation on pages. Returns the actions that it took, and its request.
    fn begins(engine: &mut Engine, first: u64, count: u64) -> (Vec<(bool, u64, u64)>, u64) {
        let mut out = Decisions::default();
        let run = Run { first, count };
        let need = Need {
            run,
            preferred: run,
        };
        let used = crate::Use::Read;
        let request = engine
            .local
            .request(Requester::Piece(0), vec![need], used, &mut out);
        let done = perform(engine, out);
        engine.local.take_done();
        (done, request)
    }

    fn ends(engine: &mut Engine, request: u64) {
        let mut out = Decisions::default();
        engine.local.end(request, false, &mut out);
        assert_eq!(perform(engine, out), []);
    }

    fn uses(engine: &mut Engine, first: u64, count: u64) -> Vec<(bool, u64, u64)> {
        let (done, request) = begins(engine, first, count);
        ends(engine, request);
        done
    }

    fn crowded_out(engine: &mut Engine) -> (Vec<u64>, u64, u64) {
        let it = engine.take_crowded_out();
        let runs = it.runs.iter().map(|run| run.first).collect();
        (runs, it.short, it.needed)
    }

    #[test]
    fn unused_memory_is_evicted_first_and_no_more_than_needed() {
        let mut engine = engine();
        assert_eq!(uses(&mut engine, 0, 4), [(true, 0, 4)]);
        assert_eq!(uses(&mut engine, 10, 4), [(true, 10, 4)]);
        engine.keep_within(9 * PAGE);
        // The old memory goes before the new comes.
        let expected = [(false, 0, 4), (true, 20, 4)];
        assert_eq!(uses(&mut engine, 20, 4), expected);
        assert_eq!(crowded_out(&mut engine), (vec![0], 3, 0));
        assert_eq!(crowded_out(&mut engine), (vec![], 0, 0));
        assert_eq!(uses(&mut engine, 20, 4), []);
        engine.keep_within(u64::MAX);
        assert_eq!(uses(&mut engine, 30, 4), [(true, 30, 4)]);
        assert_eq!(engine.stats().local.registered, 12);
    }

    #[test]
    fn memory_in_use_stays_and_no_request_waits_for_it() {
        let mut engine = engine();
        engine.keep_within(0);
        let (_, first) = begins(&mut engine, 0, 4);
        let (done, second) = begins(&mut engine, 10, 2);
        assert_eq!(done, [(true, 10, 2)]);
        assert_eq!(crowded_out(&mut engine), (vec![], 0, 6));
        ends(&mut engine, first);
        ends(&mut engine, second);
    }

    #[test]
    fn memory_registered_ahead_does_not_count_as_needed() {
        let mut engine = engine();
        engine.keep_within(4 * PAGE);
        let mut ahead = Decisions::default();
        engine.foresee(1, 0, 4 * PAGE, &mut ahead).unwrap();
        // The registration is in flight when another page is used.
        let (done, request) = begins(&mut engine, 10, 4);
        assert_eq!(done, [(true, 10, 4)]);
        assert_eq!(crowded_out(&mut engine), (vec![], 0, 4));
        assert_eq!(perform(&mut engine, ahead), [(true, 0, 4)]);
        ends(&mut engine, request);
    }

    #[test]
    fn an_extent_that_shares_a_bucket_is_evicted_rather_than_held() {
        let mut engine = engine();
        uses(&mut engine, 0, 4);
        engine.keep_within(4 * PAGE);
        let expected = [(false, 0, 4), (true, 3, 4)];
        assert_eq!(uses(&mut engine, 3, 4), expected);
        // Where there is room for both, the extent stays.
        engine.keep_within(8 * PAGE);
        assert_eq!(uses(&mut engine, 6, 4), [(true, 7, 3)]);
    }

    #[test]
    fn a_bucket_that_is_apart_is_registered_by_itself_and_stays() {
        let mut engine = engine();
        engine.set_apart(3 * PAGE, true).unwrap();
        let all = [(true, 0, 3), (true, 3, 1), (true, 4, 2)];
        assert_eq!(uses(&mut engine, 0, 6), all);
        let mut out = Decisions::default();
        let given_up = engine.give_up(0, 4 * PAGE, &mut out).unwrap();
        assert_eq!(given_up, crate::GivenUp::All);
        assert_eq!(perform(&mut engine, out), [(false, 0, 3)]);
        engine.keep_within(0);
        assert_eq!(uses(&mut engine, 20, 2), [(false, 4, 2), (true, 20, 2)]);
        assert_eq!(uses(&mut engine, 0, 4), [(false, 20, 2), (true, 0, 3)]);
        // The bucket is not apart any more once it was evicted.
        engine.set_apart(3 * PAGE, false).unwrap();
        assert_eq!(uses(&mut engine, 20, 2).len(), 3);
        assert_eq!(uses(&mut engine, 0, 6)[1..], [(true, 0, 6)]);
    }

    #[test]
    fn an_extent_around_a_run_serves_it_without_further_room() {
        let mut engine = engine();
        assert_eq!(uses(&mut engine, 0, 16), [(true, 0, 16)]);
        engine.keep_within(16 * PAGE);
        // Nothing more is registered for a part of an extent.
        assert_eq!(uses(&mut engine, 4, 2), []);
        assert_eq!(uses(&mut engine, 0, 16), []);
        assert_eq!(crowded_out(&mut engine), (vec![], 0, 0));
    }

    #[test]
    fn an_extent_that_the_run_needs_makes_no_room_for_its_rest() {
        let mut engine = engine();
        assert_eq!(uses(&mut engine, 16, 48), [(true, 16, 48)]);
        engine.keep_within(48 * PAGE);
        assert_eq!(uses(&mut engine, 0, 64), [(true, 0, 16)]);
    }
}
