//! Memory that somebody predicts to be needed soon, or not soon (Li §3.2): registered ahead of its use,
//! and given up after it. Neither holds anything, so that the rules of victims go on: what is in use
//! stays, and what nobody uses goes where room is short. A bucket that two buffers share can be [set
//! apart](Local::set_apart): it stays when one of them is given up, and does not keep the other registered.

use super::{Local, Requester, only};
use crate::{Action, Decisions, Run, Use};

/// What became of memory that was to be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// All of it that was registered is being deregistered.
    All,
    /// Somebody uses it, or a part of it, or it is being registered.
    InUse,
    /// Nothing of it was registered by itself.
    Nothing,
}

/// The most buckets that are set apart; others are registered with what lies beside them.
const MAX_APART: usize = 1024;

impl Local {
    /// A bucket is registered by itself from now on, and not given up with what lies beside it; or no longer.
    pub(in crate::engine) fn set_apart(&mut self, bucket: u64, is_apart: bool) {
        if !is_apart {
            self.apart.remove(&bucket);
        } else if self.apart.len() < MAX_APART {
            self.apart.insert(bucket);
        }
    }

    /// Whether an extent is a bucket that is apart.
    pub(super) fn is_apart(&self, extent: Run) -> bool {
        extent.count == 1 && self.apart.contains(&extent.first)
    }

    /// Where the first registration of a run ends, because of a bucket that is apart.
    pub(super) fn piece_end(&self, run: Run) -> u64 {
        let next = self.apart.range(run.first..run.end()).next();
        match next.copied() {
            Some(apart) if apart == run.first => apart + 1,
            Some(apart) => apart,
            None => run.end(),
        }
    }

    /// Registers memory as far as it is not, if there is room for it now.
    pub(in crate::engine) fn foresee(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.request(Requester::Foreseen(id), vec![only(run)], Use::Read, out);
    }

    /// What was foreseen is registered, or was refused. Nothing holds it from now on.
    pub(in crate::engine) fn was_foreseen(&mut self, id: u64, request: u64, out: &mut Decisions) {
        let Some(it) = self.get(request) else {
            return self
                .impossible
                .note("memory was foreseen for a request that is over");
        };
        let result = match it.refused.first() {
            None => Ok(it.holds.iter().map(super::Hold::grant).collect()),
            Some((run, why)) => Err(self.no_room(*run, *why)),
        };
        // Part of it would be of no use.
        self.end(request, result.is_err(), out);
        out.actions.push(Action::Pinned { id, result });
    }

    /// Gives up the extents that lie in a run and that nobody uses.
    pub(in crate::engine) fn give_up_unused(&mut self, run: Run, out: &mut Decisions) -> GivenUp {
        let mut extents: Vec<Run> = self.editor.extents_in(run);
        extents.retain(|extent| run.contains(*extent) && !self.is_apart(*extent));
        self.give_up_those(&extents, run, out)
    }

    /// Gives up a bucket that is apart, if it is registered by itself and nobody uses it.
    pub(in crate::engine) fn give_up_apart(&mut self, bucket: Run, out: &mut Decisions) -> GivenUp {
        let mut extents: Vec<Run> = self.editor.extents_in(bucket);
        extents.retain(|extent| self.is_apart(*extent));
        self.give_up_those(&extents, bucket, out)
    }

    /// Gives up these extents in a run, as far as nobody uses them.
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
            // Somebody is about to use it.
            outcome = GivenUp::InUse;
        }
        outcome
    }

    /// What is registered with a run, if all of it is: the extent that has all of it, or it alone. Of several extents
    /// those at its ends may be those of its neighbours, which share a bucket with it.
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
        Config, Engine, Error, Message, Region, Registered, Strategy, Verdict,
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

    /// Does what the engine says, until it says nothing more: what was pinned, and how many registrations
    /// and deregistrations it took.
    fn perform(engine: &mut Engine, mut out: Decisions) -> (Vec<Result<(), Error>>, [usize; 2]) {
        let (mut pinned, mut counts) = (Vec::new(), [0; 2]);
        while !out.actions.is_empty() {
            for action in std::mem::take(&mut out.actions) {
                match action {
                    Action::Register { id, preferred, .. } => {
                        counts[0] += 1;
                        let key = id + 100;
                        let got = Registered {
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
    fn what_is_foreseen_is_registered_once_and_given_up_as_a_whole() {
        let mut engine = engine(16);
        assert_eq!(foresee(&mut engine, 2, 4), (vec![Ok(())], [1, 0]));
        assert_eq!(foresee(&mut engine, 3, 2), (vec![Ok(())], [0, 0]));
        assert_eq!(
            engine.registered_with(3 * PAGE + 5, 1),
            Some((2 * PAGE, 4 * PAGE))
        );
        assert_eq!(engine.registered_with(5 * PAGE, 2 * PAGE), None);
        // What takes a neighbour's page, too, is by itself: the neighbour is used for its own sake.
        assert_eq!(foresee(&mut engine, 5, 4), (vec![Ok(())], [1, 0]));
        let alone = Some((5 * PAGE, 4 * PAGE));
        assert_eq!(engine.registered_with(5 * PAGE, 4 * PAGE), alone);
        assert_eq!(give_up(&mut engine, 5, 4), GivenUp::All);
        assert_eq!(engine.stats().local.registered, 4);
        // A part of it is somebody else's.
        assert_eq!(give_up(&mut engine, 3, 2), GivenUp::Nothing);
        assert_eq!(engine.stats().local.registered, 4);
        assert_eq!(give_up(&mut engine, 1, 6), GivenUp::All);
        assert_eq!(engine.stats().local.registered, 0);
        assert_eq!(give_up(&mut engine, 2, 4), GivenUp::Nothing);
    }

    #[test]
    fn what_is_in_use_is_not_given_up() {
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
    fn the_limit_holds_for_what_is_foreseen() {
        let mut engine = engine(7);
        foresee(&mut engine, 0, 4);
        // Nobody uses it, so that it makes room; an extent has as many pages as there may be victims.
        assert_eq!(foresee(&mut engine, 10, 8), (vec![Ok(())], [2, 1]));
        let (pinned, _) = foresee(&mut engine, 30, 9);
        assert!(
            matches!(pinned[..], [Err(Error::PastLimit { .. })]),
            "{pinned:?}"
        );
        assert!(engine.stats().local.peak <= 8);
    }

    /// A peer moves a firehose to one page ahead of need.
    fn hold(engine: &mut Engine, id: u64, page: u64) {
        let run = Run {
            first: page,
            count: 1,
        };
        let wanted = Move {
            id,
            region: Region::default(),
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
        let outcome = engine.message(1, Message::Move(wanted), Verdict::Fine, &mut out);
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
        // Two of the four firehoses that the peer owns: each keeps a whole extent registered.
        hold(&mut engine, 1, 0);
        hold(&mut engine, 2, 8);
        assert_eq!(foresee(&mut engine, 20, 1).0, vec![Ok(())]);
    }
}
