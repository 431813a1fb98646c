//! Memory that a predictor expects to be needed soon, or not soon (Li §3.2). It is registered ahead
//! of its use, and evicted after it. Neither holds anything, so the rules of victims apply: memory
//! in use stays, and unused memory goes where room is short. A bucket that two buffers share can be
//! [set apart](Self::set_apart). Then it stays when one of them is evicted, and does not keep the
//! other registered.

use super::{LocalTable, Requester, exact_need};
use crate::{Action, Decisions, Run, Use};

/// The outcome of an eviction on request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// All registered extents of the memory are being deregistered.
    All,
    /// Somebody uses the memory or a part of it, or it is being registered.
    InUse,
    /// No extent of the memory was registered by itself.
    Nothing,
}

/// The most buckets that are set apart; others are registered with their neighbours.
const MAX_APART: usize = 1024;

impl LocalTable {
    /// Sets a bucket apart, so that it is registered and evicted by itself; or ends that.
    pub(in crate::engine) fn set_apart(&mut self, bucket: u64, is_apart: bool) {
        if !is_apart {
            self.apart.remove(&bucket);
        } else if self.apart.len() < MAX_APART {
            self.apart.insert(bucket);
        }
    }

    /// Returns true if an extent is a single bucket that is apart.
    pub(super) fn is_apart(&self, extent: Run) -> bool {
        extent.count == 1 && self.apart.contains(&extent.first)
    }

    /// The end of the first registration of a run, before or behind a bucket that is apart.
    pub(super) fn piece_end(&self, run: Run) -> u64 {
        let next = self.apart.range(run.first..run.end()).next();
        match next.copied() {
            Some(apart) if apart == run.first => apart + 1,
            Some(apart) => apart,
            None => run.end(),
        }
    }

    /// Registers memory where it is not registered, if there is room for it now.
    pub(in crate::engine) fn foresee(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.request(
            Requester::Foreseen(id),
            vec![exact_need(run)],
            Use::Read,
            out,
        );
    }

    /// Registers memory that no operation may use for long, if that evicts nothing. All of it must fit into M together with
    /// the rest that is registered, so that peers may hold it at once. Returns whether it began.
    pub(in crate::engine) fn register_ahead(
        &mut self,
        id: u64,
        run: Run,
        out: &mut Decisions,
    ) -> bool {
        let there = (self.editor.extents_in(run).iter())
            .map(|it| it.end().min(run.end()) - it.first.max(run.first))
            .sum();
        let missing = run.count.saturating_sub(there);
        let within_m = self.peers_limit.saturating_sub(self.planned);
        if missing > self.room().min(within_m) {
            return false;
        }
        let requester = Requester::Background(id);
        self.request(requester, vec![exact_need(run)], Use::Read, out);
        true
    }

    /// Answers a request for foreseen memory. Nothing holds the memory from now on.
    pub(in crate::engine) fn answer_foreseen(
        &mut self,
        id: u64,
        request: u64,
        out: &mut Decisions,
    ) {
        let Some(it) = self.get(request) else {
            return self
                .impossible
                .note("memory was foreseen for a request that is over");
        };
        let result = match it.refused.first() {
            None => Ok(it.holds.iter().map(super::LocalHold::grant).collect()),
            Some((run, why)) => Err(self.no_room_error(*run, *why)),
        };
        // A part of the memory would be of no use.
        self.end(request, result.is_err(), out);
        out.actions.push(Action::Pinned { id, result });
    }

    /// Evicts the extents that lie within a run and that nobody uses.
    pub(in crate::engine) fn give_up_unused(&mut self, run: Run, out: &mut Decisions) -> GivenUp {
        let mut extents: Vec<Run> = self.editor.extents_in(run);
        extents.retain(|extent| run.contains(*extent) && !self.is_apart(*extent));
        self.give_up_those(&extents, run, out)
    }

    /// Evicts a bucket that is apart, if it is registered by itself and nobody uses it.
    pub(in crate::engine) fn give_up_apart(&mut self, bucket: Run, out: &mut Decisions) -> GivenUp {
        let mut extents: Vec<Run> = self.editor.extents_in(bucket);
        extents.retain(|extent| self.is_apart(*extent));
        self.give_up_those(&extents, bucket, out)
    }

    /// Evicts these extents of a run, where nobody uses them.
    fn give_up_those(&mut self, extents: &[Run], run: Run, out: &mut Decisions) -> GivenUp {
        let mut outcome = GivenUp::Nothing;
        for extent in extents {
            let Some(slot) = self.editor.get(extent.first) else {
                continue;
            };
            outcome = match (self.evict(slot, out), outcome) {
                (true, GivenUp::Nothing | GivenUp::All) => GivenUp::All,
                _ => GivenUp::InUse,
            };
        }
        if outcome != GivenUp::Nothing {
            self.retry(out);
        } else if self.is_changing(run) {
            // A request is about to use the run.
            outcome = GivenUp::InUse;
        }
        outcome
    }

    /// The registration around a run, if all of the run is registered: the extent that has all of
    /// it, or the run alone. Among several extents, those at the ends may belong to neighbours that
    /// share a bucket.
    pub(in crate::engine) fn covered(&self, run: Run) -> Option<Run> {
        let first = self.extent(self.editor.get(run.first)?);
        let mut bucket = first.end();
        while bucket < run.end() {
            bucket = self.editor.extent(self.editor.get(bucket)?).end;
        }
        Some(if first.contains(run) { first } else { run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AccessVerdict, Config, Engine, EngineMessage, Error, RegionNumber, RegisteredExtent,
        Strategy,
        wire::{Move, Need},
    };

    const PAGE: u64 = 4096;

    fn engine(victims: u64) -> Engine {
        Engine::new(Config {
            strategy: Strategy::Foresight,
            m: PAGE,
            maxvictim: victims * PAGE,
            adaptive_victims: true,
            ..Config::firehose_paper(0, 2)
        })
        .unwrap()
    }

    /// Performs the engine's actions until there is none. Returns the pinned results, and the
    /// number of registrations and deregistrations.
    fn perform(engine: &mut Engine, mut out: Decisions) -> (Vec<Result<(), Error>>, [usize; 2]) {
        let (mut pinned, mut counts) = (Vec::new(), [0; 2]);
        while !out.actions.is_empty() {
            for action in std::mem::take(&mut out.actions) {
                match action {
                    Action::Register { id, preferred, .. } => {
                        counts[0] += 1;
                        let key = id + 100;
                        let got = RegisteredExtent {
                            run: preferred,
                            key,
                            writable: true,
                        };
                        engine.registered(id, Ok(got), &mut out);
                    }
                    Action::Deregister { id, .. } => {
                        counts[1] += 1;
                        engine.deregistered(id, &mut out);
                    }
                    Action::Pinned { result, .. } => pinned.push(result.map(drop)),
                    other => panic!("{other:?}"),
                }
            }
        }
        (pinned, counts)
    }

    fn foresee(engine: &mut Engine, page: u64, pages: u64) -> (Vec<Result<(), Error>>, [usize; 2]) {
        let mut out = Decisions::default();
        engine
            .foresee(7, page * PAGE, pages * PAGE, &mut out)
            .unwrap();
        perform(engine, out)
    }

    fn give_up(engine: &mut Engine, page: u64, pages: u64) -> GivenUp {
        let mut out = Decisions::default();
        let outcome = engine.give_up(page * PAGE, pages * PAGE, &mut out).unwrap();
        perform(engine, out);
        outcome
    }

    #[test]
    fn foreseen_memory_is_registered_once_and_evicted_as_a_whole() {
        let mut engine = engine(16);
        assert_eq!(foresee(&mut engine, 2, 4), (vec![Ok(())], [1, 0]));
        assert_eq!(foresee(&mut engine, 3, 2), (vec![Ok(())], [0, 0]));
        assert_eq!(
            engine.registered_with(3 * PAGE + 5, 1),
            Some((2 * PAGE, 4 * PAGE))
        );
        assert_eq!(engine.registered_with(5 * PAGE, 2 * PAGE), None);
        // A run that shares a neighbour's page is registered by itself, because the neighbour has
        // its own use.
        assert_eq!(foresee(&mut engine, 5, 4), (vec![Ok(())], [1, 0]));
        let alone = Some((5 * PAGE, 4 * PAGE));
        assert_eq!(engine.registered_with(5 * PAGE, 4 * PAGE), alone);
        assert_eq!(give_up(&mut engine, 5, 4), GivenUp::All);
        assert_eq!(engine.stats().local.registered, 4);
        // A part of the extent belongs to another buffer.
        assert_eq!(give_up(&mut engine, 3, 2), GivenUp::Nothing);
        assert_eq!(engine.stats().local.registered, 4);
        assert_eq!(give_up(&mut engine, 1, 6), GivenUp::All);
        assert_eq!(engine.stats().local.registered, 0);
        assert_eq!(give_up(&mut engine, 2, 4), GivenUp::Nothing);
    }

    #[test]
    fn memory_in_use_is_not_evicted() {
        let mut engine = engine(16);
        foresee(&mut engine, 0, 2);
        let mut out = Decisions::default();
        engine.hold_own(1, PAGE, 8, &mut out).unwrap();
        perform(&mut engine, out);
        assert_eq!(give_up(&mut engine, 0, 2), GivenUp::InUse);
        let mut out = Decisions::default();
        engine.release_own(1, &mut out);
        perform(&mut engine, out);
        assert_eq!(give_up(&mut engine, 0, 2), GivenUp::All);
    }

    #[test]
    fn the_limit_holds_for_foreseen_memory() {
        let mut engine = engine(7);
        foresee(&mut engine, 0, 4);
        // Nobody uses the first memory, so it makes room. An extent has as many pages as there may
        // be victims.
        assert_eq!(foresee(&mut engine, 10, 8), (vec![Ok(())], [2, 1]));
        let (pinned, _) = foresee(&mut engine, 30, 9);
        assert!(
            matches!(pinned[..], [Err(Error::PastLimit { .. })]),
            "{pinned:?}"
        );
        assert!(engine.stats().local.peak <= 8);
    }

    fn register_ahead(engine: &mut Engine, page: u64, pages: u64, out: &mut Decisions) -> bool {
        let begun = engine.register_ahead(9, page * PAGE, pages * PAGE, out);
        begun.unwrap()
    }

    #[test]
    fn memory_registered_in_the_background_evicts_nothing_and_fits_into_m() {
        let mut engine = Engine::new(Config {
            strategy: Strategy::Auto,
            m: 8 * PAGE,
            maxvictim: 4 * PAGE,
            adaptive_victims: true,
            ..Config::firehose_paper(0, 2)
        })
        .unwrap();
        let mut ahead = |page, pages| {
            let mut out = Decisions::default();
            let begun = register_ahead(&mut engine, page, pages, &mut out);
            let done = perform(&mut engine, out);
            engine.audit(&[]).unwrap();
            (begun, done)
        };
        assert_eq!(ahead(0, 6), (true, (vec![Ok(())], [1, 0])));
        assert_eq!(ahead(20, 3), (false, (vec![], [0, 0])));
        // Registered parts take no further room.
        assert_eq!(ahead(4, 4), (true, (vec![Ok(())], [1, 0])));
        assert_eq!(ahead(20, 1), (false, (vec![], [0, 0])));
        assert_eq!(engine.stats().local.registered, 8);
    }

    #[test]
    fn a_refusal_in_the_background_evicts_nothing_and_serves_the_others() {
        let mut engine = Engine::new(Config::firehose_paper(0, 2)).unwrap();
        foresee(&mut engine, 100, 4);
        let mut out = Decisions::default();
        assert!(register_ahead(&mut engine, 0, 8, &mut out));
        let Some(Action::Register { id, preferred, .. }) = out.actions.pop() else {
            panic!("{out:?}");
        };
        assert_eq!(preferred.count, 8);
        // A word within it is needed meanwhile.
        engine.hold_own(1, 3 * PAGE, 8, &mut out).unwrap();
        assert!(out.is_empty(), "it waits");
        engine.registered(id, Err(crate::Refusal::Exhausted), &mut out);
        let (pinned, counts) = perform(&mut engine, out);
        // The word is registered by itself.
        assert_eq!(counts, [1, 0]);
        assert_eq!(pinned.iter().filter(|it| it.is_ok()).count(), 1);
        assert_eq!(engine.stats().local.registered, 4 + 1);
        engine.audit(&[]).unwrap();
    }

    /// Moves a peer's firehose to one page ahead of need.
    fn hold(engine: &mut Engine, id: u64, page: u64) {
        let run = Run {
            first: page,
            count: 1,
        };
        let wanted = Move {
            id,
            region: RegionNumber::default(),
            write: true,
            hold: true,
            borrow: 0,
            releases: Vec::new(),
            needs: vec![Need {
                run,
                preferred: run,
            }],
            piggyback: None,
        };
        let mut out = Decisions::default();
        let outcome = engine.message(
            1,
            EngineMessage::Move(wanted),
            AccessVerdict::Fine,
            &mut out,
        );
        outcome.unwrap();
        perform(engine, out);
    }

    #[test]
    fn firehoses_leave_room_for_own_operations() {
        let mut engine = Engine::new(Config {
            strategy: Strategy::Foresight,
            m: 4 * PAGE,
            maxvictim: 4 * PAGE,
            ..Config::firehose_paper(0, 2)
        })
        .unwrap();
        foresee(&mut engine, 0, 4);
        foresee(&mut engine, 8, 4);
        // The peer takes two of its four firehoses, and each keeps a whole extent registered.
        hold(&mut engine, 1, 0);
        hold(&mut engine, 2, 8);
        assert_eq!(foresee(&mut engine, 20, 1).0, vec![Ok(())]);
    }
}
