//! Collectives in the background, of all ranks and of half of them, beside everything else. All
//! ranks begin the same ones; each rank ends them in its own order and way.

use std::mem;

use hydrant::{BackgroundHandle, Job, Op, Rank, Result, Team, TeamRank};
use hydrant_base::block_on;

use super::{hand::Hand, round::Round};

/// The most that begin at once, and the most in flight before some are ended.
const AT_ONCE: usize = 4;
const UNDER_WAY: usize = 9;

/// The collectives in flight.
pub(crate) struct Background {
    /// The team of ranks with the same parity as this one.
    half: Team,
    under_way: Vec<PendingCollective>,
}

/// One collective, and its expected result.
struct PendingCollective {
    what: String,
    begun: BackgroundHandle<Vec<u64>>,
    expected: Vec<u64>,
}

impl Background {
    /// Makes the team. Collective.
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let own = job.rank().0;
        let half = job.world().split(Some(own % 2), own)?;
        Ok(Self {
            half: half.ok_or(hydrant::Error::NothingToWaitFor)?,
            under_way: Vec::new(),
        })
    }

    /// Begins some, the same on all ranks, and ends some, drawn by this rank alone.
    pub(crate) fn step(&mut self, hand: &mut Hand, round: &Round) -> Result<()> {
        for nth in 0..=round.draw(0) as usize % AT_ONCE {
            let drawn = round.draw(1 + nth as u64);
            let team = if drawn.is_multiple_of(2) {
                hand.job.world()
            } else {
                &self.half
            };
            let begun = begin(hand, team, round, drawn / 2)?;
            self.under_way.push(begun);
            if hand.dice.one_in(8) {
                hand.compute();
            }
        }
        let keep = hand.dice.below(UNDER_WAY);
        while self.under_way.len() > keep {
            let drawn = hand.dice.below(self.under_way.len());
            let one = self.under_way.swap_remove(drawn);
            one.end(hand)?;
        }
        Ok(())
    }

    /// Ends all of them.
    pub(crate) fn finish(&mut self, hand: &mut Hand) -> Result<()> {
        for one in mem::take(&mut self.under_way) {
            one.end(hand)?;
        }
        Ok(())
    }
}

fn begin(hand: &mut Hand, team: &Team, round: &Round, drawn: u64) -> Result<PendingCollective> {
    let (members, own) = (team.members(), hand.job.rank());
    let root = TeamRank((drawn / 8) as u32 % team.size());
    let mine = round.words(own);
    let all = || -> Vec<u64> { members.iter().flat_map(|rank| round.words(*rank)).collect() };
    let kind = drawn % 5;
    let name = [
        "broadcast",
        "all_reduce",
        "all_gather",
        "scan",
        "all_to_all",
    ][kind as usize];
    let what = format!("{name}_nb of {} words among {}", mine.len(), members.len());
    let (begun, expected) = match kind {
        0 => (
            hand.attempt(&what, |_| team.broadcast_nb(root, mine))?,
            round.words(members[root.index()]),
        ),
        1 => (
            hand.attempt(&what, |_| team.all_reduce_nb(mine, Op::Sum))?,
            round.sum(members.iter().copied()),
        ),
        2 => (hand.attempt(&what, |_| team.all_gather_nb(mine))?, all()),
        3 => (
            hand.attempt(&what, |_| team.scan_nb(mine, Op::Sum))?,
            round.sum(members[..=team.rank().index()].iter().copied()),
        ),
        _ => {
            let part = |from: Rank, to: Rank| round.part(from, to, round.len);
            let parts = members.iter().flat_map(|to| part(own, *to)).collect();
            (
                hand.attempt(&what, |_| team.all_to_all_nb(parts))?,
                members.iter().flat_map(|from| part(*from, own)).collect(),
            )
        }
    };
    Ok(PendingCollective {
        what,
        begun,
        expected,
    })
}

impl PendingCollective {
    fn end(self, hand: &mut Hand) -> Result<()> {
        let Self {
            what,
            mut begun,
            expected,
        } = self;
        let got = match hand.dice.below(6) {
            0 => return Ok(()),
            1 => hand.attempt(&what, |_| {
                for _ in 0..20 {
                    if begun.test()? {
                        break;
                    }
                }
                begun.wait()
            })?,
            2 => hand.attempt(&what, |job| job.wait_for(begun)?)?,
            3 => hand.attempt(&what, |_| block_on(begun))?,
            _ => hand.attempt(&what, |_| begun.wait())?,
        };
        hand.check(got == expected, || format!("{what}: the result is wrong"));
        Ok(())
    }
}
