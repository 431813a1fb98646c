//! A thread's accesses to the buffers that others lend: through current pointers, and through old
//! ones, which must be refused.

use hydrant::{Error, GlobalPtr, Result, Symmetric};

use super::{
    hand::Hand,
    lender::{self, LoanState},
    stamp::StampedBuffer,
};

/// The number of pointers kept for each owner.
const KEPT: usize = 5;

/// The most accesses in a row.
const ROW: usize = 8;

/// A buffer that this thread heard of.
struct KnownBuffer {
    buffer: StampedBuffer,
    words: usize,
    pointer: GlobalPtr<u64>,
    /// True if its owner has announced the end of the loan.
    ended: bool,
    /// The content of the thread's own range, if it is known.
    model: Option<Vec<u64>>,
}

/// A thread's knowledge of all buffers.
pub(crate) struct Borrower {
    board: Symmetric<u64>,
    known: Vec<Vec<KnownBuffer>>,
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

    /// Puts to a buffer or gets from it, whether it is still lent or not.
    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        let owner = hand.dice.below(hand.crew.workers());
        self.learn(hand, owner)?;
        let count = self.known[owner].len();
        if count == 0 {
            return Ok(());
        }
        // The newest buffer, half of the time.
        let which = if hand.dice.one_in(2) {
            count - 1
        } else {
            hand.dice.below(count)
        };
        let mut known = self.known[owner].swap_remove(which);
        // Without pauses, so that some accesses are in flight when the loan ends.
        let mut outcome = Ok(());
        for _ in 0..=hand.dice.below(ROW) {
            outcome = outcome.and_then(|()| self.access(hand, &mut known));
        }
        self.known[owner].push(known);
        let last = self.known[owner].len() - 1;
        self.known[owner].swap(which, last);
        outcome
    }

    /// Reads the own board for news of an owner.
    fn learn(&mut self, hand: &mut Hand, owner: usize) -> Result<()> {
        let Some(record) = lender::read(&self.board, owner)? else {
            return Ok(());
        };
        let (known, crew) = (&mut self.known[owner], hand.crew);
        for old in known.iter_mut() {
            let generation = old.buffer.generation;
            let over = generation < record.generation
                || generation == record.generation && record.state == LoanState::Ended;
            old.ended |= over && !lender::is_leaked(crew, generation);
        }
        let newest = known.iter().map(|known| known.buffer.generation).max();
        let is_new = newest.is_none_or(|newest| newest < record.generation);
        let pointer = record.pointer();
        // A thread that did not get the pointer has an empty one.
        if record.state != LoanState::Lent
            || !is_new
            || pointer.rank() != lender::rank_of(crew, owner)
            || !record.has_pointer()
        {
            return Ok(());
        }
        let buffer = StampedBuffer {
            owner,
            generation: record.generation,
        };
        let (start, each) = place(hand, record.words);
        known.push(KnownBuffer {
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

    fn access(&mut self, hand: &mut Hand, known: &mut KnownBuffer) -> Result<()> {
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
            let put = hand.attempt(&what, |job| {
                if scoped {
                    job.scope(|scope| scope.put_to(to, &data).map(drop))
                } else {
                    job.put_to(to, &data)
                }
            });
            let done = self.judge(hand, known, &what, put)?;
            if let Some(model) = &mut known.model {
                if done {
                    model[at..at + len].copy_from_slice(&data)
                } else {
                    // A part of the access may have happened.
                    known.model = None
                }
            }
        } else {
            let mut data = vec![0xeeee; len];
            let what = format!("lent_get of {of}");
            let got = hand.attempt(&what, |job| {
                if scoped {
                    job.scope(|scope| scope.get_from(to, &mut data).map(drop))
                } else {
                    job.get_from(to, &mut data)
                }
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

    /// Judges whether an access succeeded. It must if the buffer is lent, and it must not if the
    /// owner had announced the end before.
    fn judge(
        &self,
        hand: &mut Hand,
        known: &KnownBuffer,
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
                    record.generation == known.buffer.generation && record.state == LoanState::Lent
                });
                let leaked = lender::is_leaked(hand.crew, known.buffer.generation);
                // A rank that hears of a loss takes everything back without notice.
                hand.check_unless_lost(!still && !leaked, || {
                    format!("{what}: refused as taken back, although it is lent")
                });
                Ok(false)
            }
            Err(cause) => hand.complain(what, cause).map(|()| false),
        }
    }
}

/// The thread's range in a buffer of `words` words: its start and its length.
fn place(hand: &Hand, words: usize) -> (usize, usize) {
    let each = words / hand.crew.workers();
    (hand.worker * each, each)
}
