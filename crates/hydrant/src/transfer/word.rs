//! Atomic operations of NICs on words of symmetric memory. Only the owner's NIC changes such a
//! word, which must be registered.
//!
//! No other route changes a word that cannot be registered. A hit is posted to the conduit at once.
//! On a miss, a read of the eight bytes attaches a firehose to their bucket. If the peer was short
//! of room, or has not finished the allocation, the data comes without a firehose, and the read is
//! repeated. The engine holds an own word as a part of the memory beside M.

#![allow(unsafe_code)] // lends memory for the results to the conduit until the operations are complete

use std::{future::poll_fn, sync::Arc, time::Instant};

use hydrant_conduit::{Access, Atomic, Key, Posted, Remote, Ticket};

use super::{OperationHolds, Transfer, begin, turns::TaskTurns};
use crate::{
    Rank, Result,
    counters::Count,
    progress,
    registration::{PATIENCE, Registration, not_registered},
};

const WORD: u64 = size_of::<u64>() as u64;

impl Transfer {
    /// Has the NIC of `rank` change the word at `offset` of its segment. Returns the old value. The
    /// own word needs no peer, so handlers may change it.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost),
    /// [`Error::ResultLost`](crate::Error::ResultLost),
    /// [`Error::WordNotRegistered`](crate::Error::WordNotRegistered),
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub(crate) fn atomic(&self, rank: Rank, offset: u64, operation: Atomic) -> Result<u64> {
        if rank != self.progress.rank {
            progress::may_wait("an atomic operation that goes through the network")?;
        }
        self.progress.tally.one(Count::NicAtomics);
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let Some(registration) = &self.registration else {
            return self.change(rank, place, operation, OperationHolds::nothing());
        };
        let (addr, _) = registration.address(rank, place, WORD)?;
        if rank == self.progress.rank {
            return self.change_own(registration, addr, operation);
        }
        let mut since = None;
        loop {
            if let Some(hit) = registration.hold_remote_unless_crowded(rank, addr, WORD) {
                let key = Key(hit.remote_key);
                let place = Remote { key, offset: addr };
                return self.change(
                    rank,
                    place,
                    operation,
                    OperationHolds::new(Some(hit.keep()), None, None),
                );
            }
            let started = since.get_or_insert_with(Instant::now);
            if started.elapsed() > PATIENCE {
                return Err(not_registered(rank));
            }
            registration.want(rank, addr);
            self.word(rank, offset)?;
        }
    }

    /// Reads a word of a peer's segment.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn word(&self, rank: Rank, offset: u64) -> Result<u64> {
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let mut word = [0; WORD as usize];
        self.read(rank, place, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// As [`atomic`](Self::atomic), for tasks.
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic), except [`Error::InHandler`](crate::Error::InHandler).
    pub(crate) async fn atomic_later(
        self: &Arc<Self>,
        rank: Rank,
        offset: u64,
        operation: Atomic,
    ) -> Result<u64> {
        self.progress.tally.one(Count::NicAtomics);
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let Some(registration) = &self.registration else {
            return self
                .change_later(rank, place, operation, OperationHolds::nothing())
                .await;
        };
        let (addr, _) = registration.address(rank, place, WORD)?;
        if rank == self.progress.rank {
            // The wait is short: only this rank's NIC is involved.
            return self.change_own(registration, addr, operation);
        }
        let (mut turn, mut since) = (None, None);
        loop {
            // The task may go on in another thread, which a kept hit may do.
            let hit = registration.hold_remote_unless_crowded(rank, addr, WORD);
            if let Some(hit) = hit.map(|hit| hit.keep()) {
                let key = Key(hit.remote_key);
                let place = Remote { key, offset: addr };
                let held = OperationHolds::new(Some(hit), None, None);
                drop(turn);
                return self.change_later(rank, place, operation, held).await;
            }
            let started = *since.get_or_insert_with(Instant::now);
            // With more tasks than firehoses, no task would still find its own firehose.
            if turn.is_none() {
                turn = Some(self.turns_of(rank).take().await);
            } else if started.elapsed() > PATIENCE {
                return Err(not_registered(rank));
            }
            registration.want(rank, addr);
            self.word_later(rank, offset).await?;
        }
    }

    fn turns_of(&self, rank: Rank) -> &TaskTurns {
        let ranks = 0..self.progress.size;
        &(self.words).get_or_init(|| ranks.map(|_| TaskTurns::default()).collect())[rank.index()]
    }

    /// As [`word`](Self::word), for tasks.
    ///
    /// # Errors
    /// As [`word`](Self::word).
    pub(crate) async fn word_later(self: &Arc<Self>, rank: Rank, offset: u64) -> Result<u64> {
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let mut word = WordOperation::new(self);
        word.begin_to_read(rank, place)?;
        word.end().await
    }

    async fn change_later(
        self: &Arc<Self>,
        rank: Rank,
        place: Remote,
        operation: Atomic,
        held: OperationHolds,
    ) -> Result<u64> {
        let mut word = WordOperation::new(self);
        word.begin_to_change(rank, place, operation, held)?;
        word.end().await
    }

    fn change(
        &self,
        rank: Rank,
        place: Remote,
        operation: Atomic,
        held: OperationHolds,
    ) -> Result<u64> {
        let conduit = self.progress.conduit();
        let mut was = 0;
        self.progress.abort_on_unwind(|| {
            let access = Access::atomic(rank, place, operation, &raw mut was);
            // SAFETY: `was` stays until `finish` returns, and `finish` returns only when the
            // operation is complete.
            let posted = unsafe { conduit.post(&access) };
            match posted {
                Ok(Posted::Pending(ticket)) => {
                    self.note_posted(ticket, held, false);
                    self.finish(Posted::Pending(ticket))
                }
                done => {
                    self.give_back(held, done.is_ok());
                    Ok(done.map(drop)?)
                }
            }
        })?;
        Ok(was)
    }

    fn change_own(&self, registration: &Registration, addr: u64, operation: Atomic) -> Result<u64> {
        let word = registration.hold_own(addr, WORD)?;
        let place = Remote {
            key: word.key(),
            offset: addr,
        };
        let outcome = self.change(
            self.progress.rank,
            place,
            operation,
            OperationHolds::nothing(),
        );
        registration.give_up_own(word);
        outcome
    }
}

/// A word that the network writes, and the operation that writes it.
struct WordOperation {
    transfer: Arc<Transfer>,
    /// The ticket, until the operation is known to be complete.
    open: Option<Ticket>,
    /// One word, untouched while the operation is open.
    value: Vec<u64>,
}

impl WordOperation {
    fn new(transfer: &Arc<Transfer>) -> Self {
        Self {
            transfer: Arc::clone(transfer),
            open: None,
            value: vec![0],
        }
    }

    fn begin_to_read(&mut self, rank: Rank, place: Remote) -> Result<()> {
        let access = begin::get(rank, place, bytemuck::cast_slice_mut(&mut self.value));
        // SAFETY: 1. The drop abandons the operation together with the word, which stays until its
        // end. 2. The key is that of the segment.
        self.open = match unsafe { self.transfer.begin(&access)? } {
            Posted::Pending(ticket) => Some(ticket),
            Posted::Done => None,
        };
        Ok(())
    }

    /// Has the NIC of `rank` change the word at `place`.
    fn begin_to_change(
        &mut self,
        rank: Rank,
        place: Remote,
        operation: Atomic,
        held: OperationHolds,
    ) -> Result<()> {
        let transfer = &self.transfer;
        transfer.progress.abort_on_unwind(|| {
            let access = Access::atomic(rank, place, operation, self.value.as_mut_ptr());
            // SAFETY: The drop abandons the operation together with the word, which stays until its
            // end.
            let posted = unsafe { transfer.progress.conduit().post(&access) };
            match posted {
                Ok(Posted::Pending(ticket)) => {
                    transfer.note_posted(ticket, held, false);
                    self.open = Some(ticket);
                    Ok(())
                }
                done => {
                    transfer.give_back(held, done.is_ok());
                    Ok(done.map(drop)?)
                }
            }
        })
    }

    /// Returns the value of the word when the operation is complete.
    async fn end(mut self) -> Result<u64> {
        if let Some(ticket) = self.open {
            let outcome = poll_fn(|context| self.transfer.poll_outcome(ticket, context)).await;
            self.open = None;
            outcome?;
        }
        Ok(self.value[0])
    }
}

impl Drop for WordOperation {
    fn drop(&mut self) {
        if let Some(ticket) = self.open.take() {
            self.transfer
                .abandon(ticket, std::mem::take(&mut self.value));
        }
    }
}
