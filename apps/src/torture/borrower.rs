//! A thread's use of the buffers that others lend: through pointers of now, and through those of
//! old, which must be refused.

use hydrant::{Error, GlobalPtr, Result, Symmetric};

use super::{
    hand::Hand,
    lender::{self, State},
    stamp::Buffer,
};

/// Pointers that are kept for each owner.
const KEPT: usize = 5;

/// Accesses in a row, at most.
const ROW: usize = 8;

/// A buffer that this thread was told of.
struct Known {
    buffer: Buffer,
    words: usize,
    pointer: GlobalPtr<u64>,
    /// Whether its owner has said that it is over.
    ended: bool,
    /// What is in the thread's own place, if it is known.
    model: Option<Vec<u64>>,
}

/// What a thread knows of all buffers.
pub(crate) struct Borrower {
    board: Symmetric<u64>,
    known: Vec<Vec<Known>>,
    times: u64,
}

impl Borrower {
    pub(crate) fn new(board: &Symmetric<u64>, hand: &Hand) -> Self {
        Self {
            board: board.clone(),
            known: (0..hand.crew.workers()).map(|_| Vec::new()).collect(),
            times: 0,
        }
    }

    /// Puts to a buffer or gets from it, be it still lent or not.
    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        let owner = hand.dice.below(hand.crew.workers());
        self.learn(hand, owner)?;
        let count = self.known[owner].len();
        if count == 0 {
            return Ok(());
        }
        // The newest half of the time.
        let which = match hand.dice.one_in(2) {
            true => count - 1,
            false => hand.dice.below(count),
        };
        let mut known = self.known[owner].swap_remove(which);
        // Without rest, so that some are on their way when the loan ends.
        let mut outcome = Ok(());
        for _ in 0..=hand.dice.below(ROW) {
            outcome = outcome.and_then(|()| self.access(hand, &mut known));
        }
        self.known[owner].push(known);
        let last = self.known[owner].len() - 1;
        self.known[owner].swap(which, last);
        outcome
    }

    /// Looks at the own board for what an owner says.
    fn learn(&mut self, hand: &mut Hand, owner: usize) -> Result<()> {
        let Some(record) = lender::read(&self.board, owner)? else {
            return Ok(());
        };
        let (known, crew) = (&mut self.known[owner], hand.crew);
        for old in known.iter_mut() {
            let generation = old.buffer.generation;
            let over = generation < record.generation
                || generation == record.generation && record.state == State::Ended;
            old.ended |= over && !lender::is_leaked(crew, generation);
        }
        let newest = known.iter().map(|known| known.buffer.generation).max();
        let is_new = newest.is_none_or(|newest| newest < record.generation);
        let pointer = record.pointer();
        // Who was not given the pointer has one of nothing.
        if record.state != State::Lent
            || !is_new
            || pointer.rank() != lender::rank_of(crew, owner)
            || !record.has_pointer()
        {
            return Ok(());
        }
        let buffer = Buffer {
            owner,
            generation: record.generation,
        };
        let (start, each) = place(hand, record.words);
        known.push(Known {
            buffer,
            words: record.words,
            pointer,
            ended: false,
            model: Some((start..start + each).map(|at| buffer.blank(at)).collect()),
        });
        if known.len() > KEPT {
            known.remove(0);
        }
        Ok(())
    }

    fn access(&mut self, hand: &mut Hand, known: &mut Known) -> Result<()> {
        let (start, each) = place(hand, known.words);
        let at = hand.dice.below(each);
        let len = 1 + hand.dice.below(each - at);
        let to = known.pointer.offset((start + at) as isize);
        let scoped = hand.dice.one_in(3);
        let buffer = known.buffer;
        let of = format!(
            "{len} words at {} of {} of {buffer:?}",
            start + at,
            known.words
        );
        if hand.dice.one_in(2) || known.model.is_none() {
            self.times += 1;
            let word = |at| buffer.word(start + at, hand.worker, self.times);
            let data: Vec<u64> = (at..at + len).map(word).collect();
            let what = format!("lent_put of {of}");
            let put = hand.attempt(&what, |job| match scoped {
                true => job.scope(|scope| scope.put_to(to, &data).map(drop)),
                false => job.put_to(to, &data),
            });
            let done = self.judge(hand, known, &what, put)?;
            if let Some(model) = &mut known.model {
                match done {
                    true => model[at..at + len].copy_from_slice(&data),
                    // It may have been done in part.
                    false => known.model = None,
                }
            }
        } else {
            let mut data = vec![0xeeee; len];
            let what = format!("lent_get of {of}");
            let got = hand.attempt(&what, |job| match scoped {
                true => job.scope(|scope| scope.get_from(to, &mut data).map(drop)),
                false => job.get_from(to, &mut data),
            });
            let done = self.judge(hand, known, &what, got)?;
            if let Some(model) = known.model.as_ref().filter(|_| done) {
                let expected = &model[at..at + len];
                let differing = || (0..len).filter(|at| data[*at] != expected[*at]);
                let first = differing().next();
                hand.check(first.is_none(), || {
                    let first = first.unwrap_or_default();
                    format!(
                        "{what}: {} words are wrong; word {first} is of {}",
                        differing().count(),
                        buffer.origin(start + at + first, data[first])
                    )
                });
                if first.is_some() {
                    known.model = None;
                }
            }
        }
        Ok(())
    }

    /// Whether an access was done. It must be if the buffer is lent, and must not if the owner
    /// had said before that it is over.
    fn judge(
        &self,
        hand: &mut Hand,
        known: &Known,
        what: &str,
        outcome: Result<()>,
    ) -> Result<bool> {
        match outcome {
            Ok(()) => {
                hand.check(!known.ended, || {
                    format!("{what}: done, although the loan was over before")
                });
                Ok(true)
            }
            Err(Error::Revoked { .. }) => {
                let owner = known.buffer.owner;
                let still = lender::read(&self.board, owner)?.is_some_and(|record| {
                    record.generation == known.buffer.generation && record.state == State::Lent
                });
                let leaked = lender::is_leaked(hand.crew, known.buffer.generation);
                // Who is told of a loss takes everything back without a word.
                hand.check_unless_lost(!still && !leaked, || {
                    format!("{what}: refused as taken back, although it is lent")
                });
                Ok(false)
            }
            Err(cause) => hand.complain(what, cause).map(|()| false),
        }
    }
}

/// The thread's place in a buffer of so many words: where it begins, and its words.
fn place(hand: &Hand, words: usize) -> (usize, usize) {
    let each = words / hand.crew.workers();
    (hand.worker * each, each)
}
