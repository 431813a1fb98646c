//! The ranks' membership in the job.

use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, SeqCst},
};

use parking_lot::Mutex;

use crate::{Error, Rank};

/// The conduit's knowledge about the ranks of the job, and its announcements of this rank's end.
pub trait Membership {
    /// Returns the standing of `peer`. Costs a load.
    fn standing(&self, peer: Rank) -> Standing;

    /// Returns the rank that was [lost](Standing::Lost) first. Ranks lost later may only have given
    /// up in consequence. Costs a load.
    fn first_lost(&self) -> Option<Rank>;

    /// Returns a number that grows whenever the standing of some rank changes, and with
    /// [`endings`](Self::endings). Costs a load or two.
    fn changes(&self) -> u64;

    /// Publishes a number to the ranks of the same host, in shared memory. Does nothing without
    /// shared memory. Costs a store.
    fn publish(&self, number: u64) {
        let _ = number;
    }

    /// Returns the number that a peer [published](Self::publish) last, or 0 before that. `None` for
    /// a rank without shared memory. Costs a load.
    fn published(&self, peer: Rank) -> Option<u64> {
        let _ = peer;
        None
    }

    /// Tells the peers that this rank's program has come to its end, or that it continues after
    /// all. The rank is still present, and answers. [`leave`](Self::leave) follows when no peer
    /// needs it any more. The announcement may overtake messages that were sent before.
    fn come_to_end(&self, come: bool);

    /// Returns true if a peer's program has [come to its end](Self::come_to_end). Costs a load.
    fn has_come_to_end(&self, peer: Rank) -> bool;

    /// Returns a number that grows whenever some rank announces that its program [has
    /// come](Self::come_to_end) to its end, or continues after all. Costs a load or two.
    fn endings(&self) -> u64;

    /// Tells the peers that this rank ends, in good order or not.
    fn leave(&self, orderly: bool);

    /// Puts a peer out of the job, because one of its messages follows no rule of the layer above.
    /// From now on it is [lost](Standing::Lost) to all ranks, and to itself, as if its process had
    /// ended.
    ///
    /// Does nothing where ranks are threads of one program in virtual time. There the message was
    /// dropped, and the program has a bug.
    fn expel(&self, peer: Rank) {
        let _ = peer;
    }
}

/// The standing of a rank in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The rank takes part.
    Present,
    /// The rank ended in good order.
    Left,
    /// The rank ended otherwise.
    Lost,
}

/// The standings of all ranks as this rank knows them, for conduits whose ranks hear of each
/// other's ends. Ends are final, unless an entry is [used again](Self::begin_anew).
#[derive(Debug)]
pub struct Standings {
    /// One of the constants below for each rank. [`end`](Self::end) changes it, once.
    ranks: Box<[AtomicU8]>,
    /// Twice the number of changes. It is odd during a change, so that a thread that sees the
    /// change counts it, too.
    changes: AtomicU64,
    /// Held during a change.
    changing: Mutex<()>,
    /// The rank that was lost first, plus one. 0 if none is lost.
    first_lost: AtomicU64,
    /// For each rank, the number of its announcements that its program has come to its end or
    /// continues after all. It is odd while the program has come to its end.
    words: Box<[AtomicU32]>,
    /// The number of announcements noted.
    endings: AtomicU64,
}

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const LOST: u8 = 2;

impl Standings {
    /// Makes the standings of `ranks` ranks, all of them present.
    pub fn new(ranks: u32) -> Self {
        Self {
            // Entries that nobody uses take no memory.
            ranks: bytemuck::zeroed_slice_box(ranks as usize),
            changes: AtomicU64::new(0),
            changing: Mutex::new(()),
            first_lost: AtomicU64::new(0),
            words: bytemuck::zeroed_slice_box(ranks as usize),
            endings: AtomicU64::new(0),
        }
    }

    /// Returns the standing of a rank. A rank outside the job counts as lost.
    #[inline]
    pub fn of(&self, rank: Rank) -> Standing {
        match self.ranks.get(rank.index()).map(|it| it.load(Acquire)) {
            Some(PRESENT) => Standing::Present,
            Some(LEFT) => Standing::Left,
            _ => Standing::Lost,
        }
    }

    /// # Errors
    /// [`Error::PeerLost`] if the rank is not present any more.
    #[inline]
    pub fn present(&self, rank: Rank) -> Result<(), Error> {
        match self.of(rank) {
            Standing::Present => Ok(()),
            _ => Err(Error::PeerLost(rank)),
        }
    }

    /// Notes that a rank ended, in good order or not. Returns true if it was present before.
    pub fn end(&self, rank: Rank, orderly: bool) -> bool {
        self.change(rank, if orderly { LEFT } else { LOST }, rank)
    }

    /// Notes that a rank was lost. Returns true if it was present before. If this is the first
    /// known loss, `first` becomes the rank that was lost before all others.
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
            // The first loss is stored before any thread can see the loss and give up in
            // consequence.
            let first = u64::from(first.0) + 1;
            let _ = self.first_lost.compare_exchange(0, first, SeqCst, SeqCst);
        }
        standing.store(end, SeqCst);
        self.changes.fetch_add(1, SeqCst);
        true
    }

    /// Notes that the number of a rank that ended belongs to another process from now on, which is
    /// present. Only for peers without a job: the ranks of a job keep their numbers.
    pub fn begin_anew(&self, rank: Rank) {
        let Some(standing) = self.ranks.get(rank.index()) else {
            return;
        };
        let _changing = self.changing.lock();
        self.changes.fetch_add(1, SeqCst);
        if let Some(word) = self.words.get(rank.index()) {
            word.store(0, SeqCst);
        }
        standing.store(PRESENT, SeqCst);
        self.changes.fetch_add(1, SeqCst);
    }

    /// Returns the number of changes of standing and of announcements about ends.
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

    /// Notes that this rank's program has come to its end, or continues after all. Returns the
    /// number of the announcement, which the peers [note](Self::note_end), unless it was made
    /// before.
    pub fn announce_end(&self, rank: Rank, come: bool) -> Option<u32> {
        let word = self.words.get(rank.index())?;
        let next = |number: u32| (has_come(number) != come).then_some(number + 1);
        let before = word.fetch_update(SeqCst, SeqCst, next).ok()?;
        self.endings.fetch_add(1, SeqCst);
        Some(before + 1)
    }

    /// Notes a rank's announcement with this number. An older announcement that arrives late
    /// changes nothing.
    pub fn note_end(&self, rank: Rank, number: u32) {
        let Some(word) = self.words.get(rank.index()) else {
            return;
        };
        if word.fetch_max(number, SeqCst) < number {
            self.endings.fetch_add(1, SeqCst);
        }
    }

    /// Returns true if a rank's program has come to its end, by its last announcement.
    #[inline]
    pub fn has_come_to_end(&self, rank: Rank) -> bool {
        (self.words.get(rank.index())).is_some_and(|word| has_come(word.load(Acquire)))
    }

    /// Returns the number of noted announcements about ends.
    #[inline]
    pub fn endings(&self) -> u64 {
        self.endings.load(SeqCst)
    }

    /// Returns the rank that was lost first.
    pub fn first_lost(&self) -> Option<Rank> {
        let first = self.first_lost.load(SeqCst).checked_sub(1)?;
        Some(Rank(first as u32))
    }
}

/// Returns true if the announcement with this number says that a program has come to its end.
fn has_come(number: u32) -> bool {
    number % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_announcement_of_an_end_counts() {
        let (own, theirs) = (Standings::new(2), Standings::new(2));
        let come = own.announce_end(Rank(0), true);
        assert_eq!((come, own.announce_end(Rank(0), true)), (Some(1), None));
        let continues = own.announce_end(Rank(0), false);
        assert_eq!(continues, Some(2));
        assert!(!own.has_come_to_end(Rank(0)));
        // The later announcement arrives first.
        theirs.note_end(Rank(0), 2);
        theirs.note_end(Rank(0), 1);
        assert!(!theirs.has_come_to_end(Rank(0)));
        theirs.note_end(Rank(0), 3);
        assert!(theirs.has_come_to_end(Rank(0)) && !theirs.has_come_to_end(Rank(1)));
        assert_eq!((own.endings(), theirs.endings()), (2, 2));
        assert_eq!(theirs.of(Rank(0)), Standing::Present);
    }

    #[test]
    fn a_number_belongs_to_another_process() {
        let standings = Standings::new(2);
        standings.note_end(Rank(1), 1);
        assert!(standings.end(Rank(1), false));
        let before = standings.changes();
        standings.begin_anew(Rank(1));
        assert_eq!(standings.of(Rank(1)), Standing::Present);
        assert!(!standings.has_come_to_end(Rank(1)));
        assert!(standings.changes() > before);
        assert!(standings.end(Rank(1), true));
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
