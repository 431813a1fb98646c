//! How every rank stands to the job, as this one knows.

use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, SeqCst},
};

use hydrant_conduit::{Error, Rank, Standing};
use parking_lot::Mutex;

pub(crate) struct Standings {
    /// By rank: present, left or lost. Changed once, with `changing` held.
    ranks: Box<[AtomicU8]>,
    /// Twice the changes; odd while one is made, so that who sees a change counts it, too.
    changes: AtomicU64,
    /// Held while a rank's standing is changed.
    changing: Mutex<()>,
    /// One more than the rank that was lost before all others.
    first_lost: AtomicU64,
}

impl Standings {
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            ranks: (0..ranks).map(|_| AtomicU8::new(PRESENT)).collect(),
            changes: AtomicU64::new(0),
            changing: Mutex::default(),
            first_lost: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn of(&self, rank: Rank) -> Standing {
        match self.ranks.get(rank.index()).map(|it| it.load(Acquire)) {
            Some(PRESENT) => Standing::Present,
            Some(LEFT) => Standing::Left,
            _ => Standing::Lost,
        }
    }

    /// # Errors
    /// [`Error::PeerLost`] if it does not take part any more.
    #[inline]
    pub(crate) fn present(&self, rank: Rank) -> Result<(), Error> {
        match self.of(rank) {
            Standing::Present => Ok(()),
            _ => Err(Error::PeerLost(rank)),
        }
    }

    /// A rank ends: whether it had not before.
    pub(crate) fn end(&self, rank: Rank, orderly: bool) -> bool {
        let end = if orderly { LEFT } else { LOST };
        let Some(standing) = self.ranks.get(rank.index()) else {
            return false;
        };
        let _changing = self.changing.lock();
        if standing.load(SeqCst) != PRESENT {
            return false;
        }
        self.changes.fetch_add(1, SeqCst);
        standing.store(end, SeqCst);
        if !orderly {
            let first = u64::from(rank.0) + 1;
            let _ = self.first_lost.compare_exchange(0, first, SeqCst, SeqCst);
        }
        self.changes.fetch_add(1, SeqCst);
        true
    }

    pub(crate) fn changes(&self) -> u64 {
        loop {
            let twice = self.changes.load(SeqCst);
            if twice.is_multiple_of(2) {
                return twice / 2;
            }
            std::hint::spin_loop();
        }
    }

    pub(crate) fn first_lost(&self) -> Option<Rank> {
        let first = self.first_lost.load(SeqCst).checked_sub(1)?;
        Some(Rank(first as u32))
    }
}

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const LOST: u8 = 2;
