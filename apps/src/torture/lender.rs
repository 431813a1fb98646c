//! Buffers that a thread lends to all others for a while, and the check of their content
//! afterwards.
//!
//! The thread announces each buffer to all ranks on the board, and again just before and after the
//! end of the loan. So a peer knows which of its accesses must be refused, and keeps trying old
//! pointers. A returned buffer is filled with private data, checked once more some buffers later,
//! and freed, so that the next buffer likely reuses its address.

use hydrant::{Exposed, GlobalPtr, Rank, Result, Symmetric};

use super::{
    hand::{Crew, Hand},
    stamp::StampedBuffer,
};

/// Words of a record.
pub(crate) const RECORD: usize = 8;
/// The words for each thread in a buffer; one of these is drawn.
const SIZES: [usize; 4] = [2, 40, 300, 700];
/// One buffer in this many is leaked with its guard, up to a limit.
const LEAKED: u64 = 32;
const MOST_LEAKED: u64 = 6;
/// Buffers of one size that are lent in a row, so that one reuses the address of the last.
const ROW: usize = 6;
/// Buffers that were taken back and are checked later.
const KEPT: usize = 2;
const PRIVATE: u64 = 0x7072_6976_6174_6521;

/// The newest buffer of a thread, as announced on a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoanRecord {
    pub(crate) generation: u64,
    pub(crate) words: usize,
    pub(crate) state: LoanState,
    /// The parts of the pointer.
    pointer: [u64; 4],
}

/// The state of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoanState {
    /// Not announced yet.
    Nothing,
    /// Lent.
    Lent,
    /// Just before the end.
    Ending,
    /// Every access must be refused.
    Ended,
}

impl LoanRecord {
    pub(crate) fn pointer(&self) -> GlobalPtr<u64> {
        bytemuck::cast(self.pointer)
    }

    /// True if this rank got the pointer.
    pub(crate) fn has_pointer(&self) -> bool {
        self.pointer != [0; 4]
    }

    fn to_words(self) -> [u64; RECORD] {
        let mut words = [0; RECORD];
        words[0] = self.generation;
        words[1] = self.words as u64;
        words[2] = self.state as u64;
        words[3..7].copy_from_slice(&self.pointer);
        words[7] = proof(&words[..7]);
        words
    }

    /// Parses a record. Returns none while it is being written.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let state = match words[2] {
            0 => LoanState::Nothing,
            1 => LoanState::Lent,
            2 => LoanState::Ending,
            _ => LoanState::Ended,
        };
        let whole = words.iter().all(|word| *word == 0) || words[7] == proof(&words[..7]);
        whole.then(|| Self {
            generation: words[0],
            words: words[1] as usize,
            state,
            pointer: [words[3], words[4], words[5], words[6]],
        })
    }
}

fn proof(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(1, |sum, word| hydrant_base::mix(sum ^ word))
}

/// True if the guard of that buffer was leaked, so that its loan never ends.
pub(crate) fn is_leaked(crew: Crew, generation: u64) -> bool {
    crew.leaks && generation % LEAKED == LEAKED - 1 && generation / LEAKED < MOST_LEAKED
}

/// The thread whose range contains a word of a buffer.
pub(crate) fn place(crew: Crew, words: usize, index: usize) -> Option<usize> {
    let each = words / crew.workers();
    (each > 0 && index / each < crew.workers()).then(|| index / each)
}

/// The buffers of a thread.
pub(crate) struct Lender {
    board: Symmetric<u64>,
    generation: u64,
    lent: Option<Exposed<'static, u64>>,
    kept: Vec<Box<[u64]>>,
}

impl Lender {
    pub(crate) fn new(board: &Symmetric<u64>) -> Self {
        Self {
            board: board.clone(),
            generation: 0,
            lent: None,
            kept: Vec::new(),
        }
    }

    /// Lends the next buffer, or takes the lent one back.
    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        if self.lent.is_some() {
            self.take_back(hand)
        } else {
            match hand.dice.below(6) {
                0 | 1 => self.lend_borrowed(hand),
                2 => self.lend_in_a_row(hand),
                _ => self.lend(hand),
            }
        }
    }

    /// Lends buffers in a row at the same address: an access in flight to one must not reach the
    /// next.
    fn lend_in_a_row(&mut self, hand: &mut Hand) -> Result<()> {
        for _ in 0..ROW {
            self.lend(hand)?;
            hand.compute();
            self.take_back(hand)?;
            self.kept.pop();
        }
        Ok(())
    }

    fn next(&mut self, hand: &mut Hand) -> (StampedBuffer, Vec<u64>) {
        self.generation += 1;
        let buffer = self.buffer(hand);
        // At times with unused words at the end.
        let rest = hand.dice.below(3);
        let words = SIZES[hand.dice.below(SIZES.len())] * hand.crew.workers() + rest;
        (
            buffer,
            (0..words).map(|index| buffer.blank(index)).collect(),
        )
    }

    fn buffer(&self, hand: &Hand) -> StampedBuffer {
        StampedBuffer {
            owner: hand.worker,
            generation: self.generation,
        }
    }

    fn lend(&mut self, hand: &mut Hand) -> Result<()> {
        let (buffer, words) = self.next(hand);
        let len = words.len();
        let what = format!("expose of {len} words as {buffer:?}");
        let Some(lent) = hand.must(&what, |job| job.expose(words))? else {
            return Ok(());
        };
        let pointer = lent.pointer(0)?;
        self.announce(hand, len, LoanState::Lent, Some(pointer))?;
        if is_leaked(hand.crew, self.generation) {
            std::mem::forget(lent)
        } else {
            self.lent = Some(lent)
        }
        Ok(())
    }

    /// Drops the guard of the lent buffer in a forked child, where that ends no loan.
    pub(crate) fn drop_guard(&mut self) {
        self.lent = None;
    }

    pub(crate) fn take_back(&mut self, hand: &mut Hand) -> Result<()> {
        let Some(lent) = self.lent.take() else {
            return Ok(());
        };
        let len = lent.len();
        self.announce(hand, len, LoanState::Ending, None)?;
        let what = format!("take_back of {len} words of {:?}", self.buffer(hand));
        let back = hand.must(&what, |_| Ok(lent.take_back()))?;
        self.announce(hand, len, LoanState::Ended, None)?;
        let Some(mut back) = back else {
            return Ok(());
        };
        self.examine(hand, &back);
        back.fill(PRIVATE);
        self.kept.push(back);
        if self.kept.len() > KEPT {
            let old = self.kept.remove(0);
            self.examine_private(hand, &old);
        }
        Ok(())
    }

    /// Lends a borrowed buffer until the end of a scope, at times with its guard leaked.
    fn lend_borrowed(&mut self, hand: &mut Hand) -> Result<()> {
        let (buffer, mut words) = self.next(hand);
        let len = words.len();
        if is_leaked(hand.crew, self.generation) {
            // Other ranks treat it as leaked, and nobody hears of it.
            return Ok(());
        }
        let leaks = hand.crew.leaks && hand.dice.one_in(2);
        let what = format!("scope that lends {len} words as {buffer:?}");
        // The body of a scope needs the hand, which only one owner can have at a time.
        let ended = hand.job.scope(|scope| {
            let lent = scope.expose(&mut words)?;
            self.announce(hand, len, LoanState::Lent, Some(lent.pointer(0)?))?;
            hand.compute();
            self.announce(hand, len, LoanState::Ending, None)?;
            if leaks {
                std::mem::forget(lent);
            }
            Ok(())
        });
        if let Err(cause) = ended {
            hand.complain(&what, cause)?;
        }
        self.announce(hand, len, LoanState::Ended, None)?;
        self.examine(hand, &words);
        words.fill(PRIVATE);
        hand.compute();
        self.examine_private(hand, &words);
        Ok(())
    }

    /// Announces the state on all boards. Some ranks never get the pointer.
    fn announce(
        &mut self,
        hand: &mut Hand,
        words: usize,
        state: LoanState,
        pointer: Option<GlobalPtr<u64>>,
    ) -> Result<()> {
        for rank in hand.job.ranks() {
            let given = pointer.filter(|_| !hand.dice.one_in(4));
            let record = LoanRecord {
                generation: self.generation,
                words,
                state,
                pointer: given.map_or([0; 4], bytemuck::cast),
            };
            let at = hand.worker * RECORD;
            let what = format!("tell rank {rank} of a loan");
            let _ = hand.must(&what, |_| self.board.put(rank, at, &record.to_words()))?;
        }
        Ok(())
    }

    /// Checks that a returned buffer holds only words that were put into this buffer.
    fn examine(&self, hand: &mut Hand, back: &[u64]) {
        let (buffer, crew) = (self.buffer(hand), hand.crew);
        let wrong = |(index, word): &(usize, &u64)| {
            !buffer.may_hold(*index, **word, place(crew, back.len(), *index))
        };
        let first = back.iter().enumerate().find(wrong);
        hand.check(first.is_none(), || {
            let count = back.iter().enumerate().filter(wrong).count();
            let (index, word) = first.unwrap_or((0, &0));
            format!(
                "of {} words of {buffer:?} {count} were wrong when it was back; word {index} is of {}",
                back.len(),
                buffer.origin(index, *word)
            )
        });
    }

    /// Checks that nobody wrote to a returned buffer.
    fn examine_private(&self, hand: &mut Hand, words: &[u64]) {
        let changed = words.iter().filter(|word| **word != PRIVATE).count();
        let newest = self.generation;
        hand.check(changed == 0, || {
            format!(
                "{changed} of {} words changed after the end of a loan, until buffer {newest}",
                words.len()
            )
        });
    }

    /// Takes the lent buffer back, and checks all kept buffers.
    pub(crate) fn finish(&mut self, hand: &mut Hand) -> Result<()> {
        self.take_back(hand)?;
        for kept in std::mem::take(&mut self.kept) {
            self.examine_private(hand, &kept);
        }
        Ok(())
    }
}

/// Reads the record of a thread on a rank's own board.
pub(crate) fn read(board: &Symmetric<u64>, owner: usize) -> Result<Option<LoanRecord>> {
    let mut words = [0; RECORD];
    board.local()?.read(owner * RECORD, &mut words)?;
    Ok(LoanRecord::from_words(&words))
}

/// The rank of a thread.
pub(crate) fn rank_of(crew: Crew, worker: usize) -> Rank {
    Rank((worker / crew.threads) as u32)
}
