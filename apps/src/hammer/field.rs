//! The memory that ranks write to: each rank owns a part of everybody's memory, divided into slots.
//!
//! The content of a slot follows from its writer, its number and the time of the write. So no copy
//! is kept, and a torn, lost, doubled or misplaced block is noticed.

use hydrant::{Error, Exposed, GlobalPtr, Job, Rank, Result, Symmetric};
use hydrant_base::{Random, mix};

use super::{die::RankPhase, log::RankLog};

/// The slots of a rank in each area of each other rank, and the words of a slot.
const SLOTS: usize = 24;
const WORDS: usize = 1024;
/// The most puts in flight at once.
const SEVERAL: usize = 6;

/// An area of memory that every rank has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldArea {
    /// Symmetric memory.
    Symmetric,
    /// A buffer that its owner exposed.
    Lent,
}

/// The known content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Its first words are those of this write; none if nothing was written yet.
    Written { time: u64, words: usize },
    /// A put into it failed.
    Unknown,
}

/// The room of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldSlot {
    which: FieldArea,
    target: Rank,
    number: usize,
}

/// All areas of all ranks, as one rank sees them.
pub(crate) struct Field {
    own: Rank,
    ranks: usize,
    symmetric: Symmetric<u64>,
    lent: Vec<GlobalPtr<u64>>,
    contents: Vec<Content>,
    times: u64,
    _exposed: Exposed<'static, u64>,
}

impl Field {
    /// Allocates the areas. Collective.
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let ranks = job.size() as usize;
        let words = ranks * SLOTS * WORDS;
        let symmetric = job.alloc(words)?;
        let exposed = job.expose(vec![0; words])?;
        let pointers = job.alloc::<GlobalPtr<u64>>(ranks)?;
        for rank in job.ranks() {
            pointers.put(rank, job.rank().index(), &[exposed.pointer(0)?])?;
        }
        job.barrier()?;
        let lent = pointers.local()?.to_vec();
        job.free(pointers)?;
        Ok(Self {
            own: job.rank(),
            ranks,
            symmetric,
            lent,
            contents: vec![Content::Written { time: 0, words: 0 }; 2 * ranks * SLOTS],
            times: 0,
            _exposed: exposed,
        })
    }

    /// Puts a block into a slot.
    pub(crate) fn put(
        &mut self,
        log: &mut RankLog,
        target: Rank,
        which: FieldArea,
        dice: &mut Random,
    ) {
        let number = dice.below(SLOTS);
        let slot = FieldSlot {
            which,
            target,
            number,
        };
        let (written, block) = self.block(slot, dice);
        // The content is unknown until the put is complete.
        *self.content(slot) = Content::Unknown;
        let index = self.index(slot);
        let put = log.attempt(RankPhase::Put, |job| match which {
            FieldArea::Symmetric => self.symmetric.put(target, index, &block),
            FieldArea::Lent => job.put_to(self.lent[target.index()].offset(index as isize), &block),
        });
        if put.is_ok() {
            *self.content(slot) = written;
            log.tally.puts += 1;
        }
    }

    /// Puts several blocks at once, to random ranks.
    pub(crate) fn put_several(&mut self, log: &mut RankLog, dice: &mut Random) {
        let mut parts: Vec<(FieldSlot, Content, Vec<u64>)> = Vec::new();
        for _ in 0..=dice.below(SEVERAL) {
            let Some(target) = log.draw(dice.word()) else {
                return;
            };
            let slot = FieldSlot {
                which: FieldArea::Symmetric,
                target,
                number: dice.below(SLOTS),
            };
            if parts.iter().all(|(other, ..)| *other != slot) {
                let (written, block) = self.block(slot, dice);
                parts.push((slot, written, block));
            }
        }
        for (slot, ..) in &parts {
            *self.content(*slot) = Content::Unknown;
        }
        let mut begun = 0;
        let outcome = log.attempt(RankPhase::Put, |job| {
            let (symmetric, begun) = (&self.symmetric, &mut begun);
            job.scope(|scope| {
                for (slot, _, block) in &parts {
                    scope.put(symmetric, slot.target, self.index(*slot), block)?;
                    *begun += 1;
                }
                Ok(())
            })
        });
        let lost = match outcome {
            Ok(()) => None,
            Err(Error::PeerLost(lost)) => Some(lost),
            Err(_) => return,
        };
        // The puts to other ranks are complete nevertheless.
        for (slot, written, _) in &parts[..begun] {
            if Some(slot.target) != lost {
                *self.content(*slot) = *written;
                log.tally.puts += 1;
            }
        }
    }

    /// Gets the content of a slot, and checks it.
    pub(crate) fn get(
        &mut self,
        log: &mut RankLog,
        target: Rank,
        which: FieldArea,
        dice: &mut Random,
    ) {
        let number = dice.below(SLOTS);
        let slot = FieldSlot {
            which,
            target,
            number,
        };
        self.check(log, slot);
    }

    /// Checks every slot that this rank wrote to, on surviving ranks.
    pub(crate) fn check_all(&mut self, log: &mut RankLog) {
        for target in (0..self.ranks as u32).map(Rank) {
            for which in [FieldArea::Symmetric, FieldArea::Lent] {
                for number in 0..SLOTS {
                    let slot = FieldSlot {
                        which,
                        target,
                        number,
                    };
                    if log.is_there(target) {
                        self.check(log, slot);
                    }
                }
            }
        }
    }

    fn check(&mut self, log: &mut RankLog, slot: FieldSlot) {
        let Content::Written { time, words } = *self.content(slot) else {
            return;
        };
        if words == 0 {
            return;
        }
        let (mut block, index) = (vec![0; words], self.index(slot));
        let got = log.attempt(RankPhase::Get, |job| match slot.which {
            FieldArea::Symmetric => self.symmetric.get(slot.target, index, &mut block),
            FieldArea::Lent => {
                let from = self.lent[slot.target.index()].offset(index as isize);
                job.get_from(from, &mut block)
            }
        });
        if got.is_err() {
            return;
        }
        log.tally.gets += 1;
        let wrong = (0..words).find(|at| block[*at] != self.word(slot, time, *at));
        log.verified(wrong.is_none(), || {
            let at = wrong.unwrap_or_default();
            let there = block[at];
            format!("word {at} of {words} of {slot:?}, written as number {time}, is {there:#x}")
        });
    }

    /// The next block for a slot, and the record that identifies it.
    fn block(&mut self, slot: FieldSlot, dice: &mut Random) -> (Content, Vec<u64>) {
        self.times += 1;
        let time = self.times;
        // All lengths, from a word to a slot, the short ones as often as the long ones.
        let most = 1 << dice.below(WORDS.ilog2() as usize + 1);
        let words = 1 + dice.below(most);
        let block = (0..words).map(|at| self.word(slot, time, at)).collect();
        (Content::Written { time, words }, block)
    }

    fn word(&self, slot: FieldSlot, time: u64, at: usize) -> u64 {
        let writer = u64::from(self.own.0) << 32 | u64::from(slot.target.0);
        let place = (slot.which as u64) << 32 | slot.number as u64;
        mix(mix(writer ^ mix(place)) ^ time << 16 ^ at as u64)
    }

    fn index(&self, slot: FieldSlot) -> usize {
        (self.own.index() * SLOTS + slot.number) * WORDS
    }

    fn content(&mut self, slot: FieldSlot) -> &mut Content {
        let area = slot.which as usize * self.ranks + slot.target.index();
        &mut self.contents[area * SLOTS + slot.number]
    }
}
