//! Who takes part in the job.

use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, SeqCst},
};

use parking_lot::Mutex;

use crate::{Error, Rank};

/// What a conduit knows of the ranks of the job, and tells them of its own end.
pub trait Membership {
    /// How `peer` stands to the job. Costs a load.
    fn standing(&self, peer: Rank) -> Standing;

    /// The rank that was [lost](Standing::Lost) before all others: those lost later may only
    /// have given up for its sake. Costs a load.
    fn first_lost(&self) -> Option<Rank>;

    /// Counts up whenever some rank's standing changes, and with [`endings`](Self::endings). Costs a load or two.
    fn changes(&self) -> u64;

    /// Shows a number to the ranks of the same host, in memory that they share; nothing where they share none.
    /// Costs a store.
    fn publish(&self, number: u64) {
        let _ = number;
    }

    /// What a peer [published](Self::publish) last, 0 if it never did; none of a rank with which no memory is shared.
    /// Costs a load.
    fn published(&self, peer: Rank) -> Option<u64> {
        let _ = peer;
        None
    }

    /// Tells the peers that this rank's program has come to its end, or that it goes on after all. The rank still
    /// takes part, and answers. [`leave`](Self::leave) follows when no peer needs it any more. The news may overtake
    /// messages that were sent before.
    fn come_to_end(&self, come: bool);

    /// Returns whether a peer's program has [come to its end](Self::come_to_end). Costs a load.
    fn has_come_to_end(&self, peer: Rank) -> bool;

    /// Counts up whenever some rank announces that it [has come](Self::come_to_end) to its end, or goes on after all.
    /// Costs a load or two.
    fn endings(&self) -> u64;

    /// Tells the peers that this rank ends: in good order, or not.
    fn leave(&self, orderly: bool);

    /// Puts a peer out of the job, because a message of it follows no rule of the layer above: it is
    /// [lost](Standing::Lost) to all from now on, to itself as well, as if its process had ended.
    ///
    /// Where ranks are threads of one program in virtual time this does nothing: the message was
    /// thrown away, and the program is to be mended.
    fn expel(&self, peer: Rank) {
        let _ = peer;
    }
}

/// How a peer stands to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Taking part.
    Present,
    /// Ended in good order.
    Left,
    /// Ended otherwise.
    Lost,
}

/// How every rank stands to the job, as this one knows: for conduits whose ranks hear of each
/// other's ends. Ends are final.
#[derive(Debug)]
pub struct Standings {
    /// One of the constants below for each rank; changed by [`end`](Self::end), once.
    ranks: Box<[AtomicU8]>,
    /// Twice the changes; odd while one is made, so that who sees a change counts it, too.
    changes: AtomicU64,
    /// Held by who makes a change.
    changing: Mutex<()>,
    /// One more than the rank that was lost before all others; 0 while none is.
    first_lost: AtomicU64,
    /// For each rank, the number of its announcements that its program has come to its end or goes on after all. It
    /// is odd while the program has come to its end.
    words: Box<[AtomicU32]>,
    /// The number of announcements noted.
    endings: AtomicU64,
}

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const LOST: u8 = 2;

impl Standings {
    /// So many ranks, all of which take part.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks: (0..ranks).map(|_| AtomicU8::new(PRESENT)).collect(),
            changes: AtomicU64::new(0),
            changing: Mutex::new(()),
            first_lost: AtomicU64::new(0),
            words: (0..ranks).map(|_| AtomicU32::new(0)).collect(),
            endings: AtomicU64::new(0),
        }
    }

    /// How a rank stands to the job; one that there is not counts as lost.
    #[inline]
    pub fn of(&self, rank: Rank) -> Standing {
        match self.ranks.get(rank.index()).map(|it| it.load(Acquire)) {
            Some(PRESENT) => Standing::Present,
            Some(LEFT) => Standing::Left,
            _ => Standing::Lost,
        }
    }

    /// # Errors
    /// [`Error::PeerLost`] if it does not take part any more.
    #[inline]
    pub fn present(&self, rank: Rank) -> Result<(), Error> {
        match self.of(rank) {
            Standing::Present => Ok(()),
            _ => Err(Error::PeerLost(rank)),
        }
    }

    /// A rank ends, in good order or not: whether it had not before.
    pub fn end(&self, rank: Rank, orderly: bool) -> bool {
        self.change(rank, if orderly { LEFT } else { LOST }, rank)
    }

    /// A rank is lost: whether it had not ended before. If it is the first of which this is known,
    /// it is `first` that was lost before all others.
    pub fn lose(&self, rank: Rank, first: Rank) -> bool {
        self.change(rank, LOST, first)
    }

    fn change(&self, rank: Rank, end: u8, first: Rank) -> bool {
        let Some(standing) = self.ranks.get(rank.index()) else {
            return false;
        };
        let _changing = self.changing.lock();
        if standing.load(SeqCst) != PRESENT {
            return false;
        }
        self.changes.fetch_add(1, SeqCst);
        if end == LOST {
            // Before anybody can see the loss and give up, too.
            let first = u64::from(first.0) + 1;
            let _ = self.first_lost.compare_exchange(0, first, SeqCst, SeqCst);
        }
        standing.store(end, SeqCst);
        self.changes.fetch_add(1, SeqCst);
        true
    }

    /// The number of changes of standing, and of announcements about ends, so far.
    #[inline]
    pub fn changes(&self) -> u64 {
        loop {
            let twice = self.changes.load(SeqCst);
            if twice.is_multiple_of(2) {
                return twice / 2 + self.endings();
            }
            std::hint::spin_loop();
        }
    }

    /// Notes that this rank has come to its end, or goes on after all. Returns the number of the announcement, for
    /// the peers to [note](Self::note), unless it was made before.
    pub fn say(&self, rank: Rank, come: bool) -> Option<u32> {
        let word = self.words.get(rank.index())?;
        let next = |number: u32| (has_come(number) != come).then_some(number + 1);
        let before = word.fetch_update(SeqCst, SeqCst, next).ok()?;
        self.endings.fetch_add(1, SeqCst);
        Some(before + 1)
    }

    /// Notes a rank's announcement with this number. An older one that arrives late changes nothing.
    pub fn note(&self, rank: Rank, number: u32) {
        let Some(word) = self.words.get(rank.index()) else {
            return;
        };
        if word.fetch_max(number, SeqCst) < number {
            self.endings.fetch_add(1, SeqCst);
        }
    }

    /// Returns whether a rank has come to its end, by its last announcement.
    #[inline]
    pub fn has_come(&self, rank: Rank) -> bool {
        (self.words.get(rank.index())).is_some_and(|word| has_come(word.load(Acquire)))
    }

    /// The number of announcements about ends that were noted.
    #[inline]
    pub fn endings(&self) -> u64 {
        self.endings.load(SeqCst)
    }

    /// The rank that was lost before all others.
    pub fn first_lost(&self) -> Option<Rank> {
        let first = self.first_lost.load(SeqCst).checked_sub(1)?;
        Some(Rank(first as u32))
    }
}

/// Returns whether the announcement with that number says that a rank has come to its end.
fn has_come(number: u32) -> bool {
    number % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_about_an_end_counts() {
        let (own, theirs) = (Standings::new(2), Standings::new(2));
        let come = own.say(Rank(0), true);
        assert_eq!((come, own.say(Rank(0), true)), (Some(1), None));
        let goes_on = own.say(Rank(0), false);
        assert_eq!(goes_on, Some(2));
        assert!(!own.has_come(Rank(0)));
        // The later announcement arrives first.
        theirs.note(Rank(0), 2);
        theirs.note(Rank(0), 1);
        assert!(!theirs.has_come(Rank(0)));
        theirs.note(Rank(0), 3);
        assert!(theirs.has_come(Rank(0)) && !theirs.has_come(Rank(1)));
        assert_eq!((own.endings(), theirs.endings()), (2, 2));
        assert_eq!(theirs.of(Rank(0)), Standing::Present);
    }

    #[test]
    fn an_end_is_final_and_counted_once() {
        let standings = Standings::new(3);
        assert!(standings.end(Rank(1), true));
        assert!(!standings.end(Rank(1), false));
        assert_eq!(standings.of(Rank(1)), Standing::Left);
        assert_eq!((standings.changes(), standings.first_lost()), (1, None));
        assert!(standings.lose(Rank(2), Rank(0)));
        assert!(standings.end(Rank(0), false));
        assert_eq!(standings.first_lost(), Some(Rank(0)));
        assert_eq!(standings.changes(), 3);
        assert!(standings.present(Rank(2)).is_err());
        assert_eq!(
            standings.of(Rank(3)),
            Standing::Lost,
            "there is no such rank"
        );
    }
}
