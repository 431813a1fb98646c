//! Exposed buffers, from both ends: a rank lends one, its peers ask where it lies, and whoever
//! accesses it holds a [`Lease`] until the access is over. The end of a loan waits for all leases,
//! here and at the peers that were told, so that it does not matter how an access gets to memory:
//! by firehoses, by a NIC that pages, by messages or by the own processor.
//!
//! ```text
//! request  ASK     args key                where does the buffer lie?
//!          GONE    args key                it goes: say when you use it no more
//!          LET_GO  args key                it is used no more
//! reply    ASK     args key, start, bytes  there, or nowhere
//! ```
//!
//! A peer that was told where a buffer lies is told that it goes before the memory is taken back,
//! and answers when the last of its accesses is over; new ones fail then. A peer that has told the owner before,
//! by a message of another room, that it uses the buffer no more, [forgets](Registration::forget) it, and is not
//! asked.

#![allow(unsafe_code)] // lends memory whose owner says that it stays

use std::sync::Arc;

use hydrant_conduit::{Delivery, Key, Message, Rank, ReplyPort, Standing};
use rustc_hash::FxHashMap;

use super::{Registration, lent::Place, outbox::Queued};
use crate::{
    Error, Result,
    progress::{For, On, kind},
};

const ASK: u16 = 0;
const GONE: u16 = 1;
const LET_GO: u16 = 2;

/// Where a buffer lies that does not.
const NOWHERE: Place = (u64::MAX, u64::MAX);

/// Holds a loan: it does not end before each lease on it was [let go](Registration::let_go).
#[derive(Clone, Debug)]
#[must_use = "a loan whose lease is lost never ends"]
pub(crate) struct Lease(Arc<Terms>);

#[derive(Debug)]
struct Terms {
    owner: Rank,
    key: u64,
    place: Place,
}

impl Lease {
    pub(super) fn new(owner: Rank, key: u64, place: Place) -> Self {
        Self(Arc::new(Terms { owner, key, place }))
    }

    pub(super) fn place(&self) -> Place {
        self.0.place
    }

    /// Whether nobody else holds it.
    fn is_only(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Gives the lease up. Of the last one, whose loan it was: that is not found any more then,
    /// for the table that finds it has a lease of its own.
    pub(super) fn end(self) -> Option<(Rank, u64)> {
        Arc::into_inner(self.0).map(|terms| (terms.owner, terms.key))
    }
}

/// Exposed buffers of peers, as far as this rank knows of them.
#[derive(Default)]
pub(super) struct Known {
    /// By owner and key.
    leases: FxHashMap<(Rank, u64), Lease>,
    /// Questions that were not answered yet, and whether the buffer has gone since: its answer
    /// may be on its way.
    asked: FxHashMap<(Rank, u64), bool>,
    /// The highest key of each owner's buffers that was [forgotten](Self::forget). Keys only grow.
    forgotten: FxHashMap<Rank, u64>,
}

impl Known {
    /// Whether there is a question to be sent: nobody knows yet, nor asked before. So a buffer of
    /// which a lease is known is not asked for, and no answer about it comes after it went.
    fn ask(&mut self, name: (Rank, u64)) -> bool {
        let new = !self.asked.contains_key(&name) && !self.leases.contains_key(&name);
        if new {
            self.asked.insert(name, false);
        }
        new
    }

    /// An answer; `false` if nobody asked.
    fn answered(&mut self, name: (Rank, u64), place: Place) -> bool {
        match self.asked.remove(&name) {
            None => false,
            Some(gone) => {
                if !gone && place != NOWHERE {
                    let (owner, key) = name;
                    self.leases.insert(name, Lease::new(owner, key, place));
                }
                true
            }
        }
    }

    /// A buffer goes: the lease by which it was found, if it was.
    ///
    /// # Errors
    /// This rank never asked for it, or was told so before and has forgotten none that is as young.
    fn gone(&mut self, name: (Rank, u64)) -> Result<Option<Lease>, ()> {
        if let Some(lease) = self.leases.remove(&name) {
            return Ok(Some(lease));
        }
        match self.asked.get_mut(&name) {
            Some(gone) if !*gone => {
                *gone = true;
                Ok(None)
            }
            // Its owner ended the loan before it heard that.
            None if self
                .forgotten
                .get(&name.0)
                .is_some_and(|last| name.1 <= *last) =>
            {
                Ok(None)
            }
            _ => Err(()),
        }
    }

    /// Nothing is known of a buffer any more, unless an access to it is under way: whether that is so.
    fn forget(&mut self, name: (Rank, u64)) -> bool {
        match self.leases.get(&name) {
            Some(lease) if !lease.is_only() => false,
            None => true,
            // Its owner hears of that by other means.
            Some(_) => {
                self.leases.remove(&name);
                let last = self.forgotten.entry(name.0).or_default();
                *last = name.1.max(*last);
                true
            }
        }
    }

    /// A peer has ended.
    fn without(&mut self, peer: Rank) {
        self.leases.retain(|(owner, _), _| *owner != peer);
        self.asked.retain(|(owner, _), _| *owner != peer);
        self.forgotten.remove(&peer);
    }
}

impl Registration {
    /// Lends a buffer to peers: the key by which they name it.
    ///
    /// # Safety
    /// Until [`unlend`](Self::unlend) returns `true`:
    /// 1. The buffer stays allocated.
    /// 2. It is only accessed as shared memory.
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) unsafe fn lend(&self, addr: *mut u8, len: usize) -> Result<Key> {
        self.begin_to_last(addr.expose_provenance() as u64, len as u64)?;
        // SAFETY: handed on.
        Ok(unsafe { self.lend_at_once(addr, len) })
    }

    /// As [`lend`](Self::lend), of memory that [is ready](Self::make_ready) for that.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn lend_at_once(&self, addr: *mut u8, len: usize) -> Key {
        Key((self.lent).lend((addr.expose_provenance() as u64, len as u64)))
    }

    /// Begins what is to be done before memory is lent, if anything is: when that is [taken
    /// back](Self::is_taken_back), the memory is ready.
    pub(crate) fn make_ready(&self, addr: u64, len: u64) -> Option<u64> {
        if self.shares_buckets() {
            self.begin_to_take_back(addr, len)
        } else {
            None
        }
    }

    /// Ends a loan. `true`: nobody touches the buffer any more. `false`: that cannot be known
    /// here, in a handler, and the buffer must never be freed.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn unlend(&self, key: Key) -> bool {
        let Some((start, len)) = self.begin_to_unlend(key) else {
            return true;
        };
        if crate::progress::may_wait("the end of an exposed buffer").is_err() {
            tracing::warn!("an exposed buffer was taken back in a handler: it is leaked");
            return false;
        }
        self.finish_unlending(key, (start, len))
    }

    /// Waits for the end of a loan that has [begun to end](Self::begin_to_unlend), of memory that lies
    /// there.
    pub(crate) fn finish_unlending(&self, key: Key, (start, len): Place) -> bool {
        let over = (self.progress).wait(On::Nobody, For::Message, || self.is_unlent(key));
        over.is_ok() && self.take_back(start, len)
    }

    /// Whether nobody uses a buffer any more whose loan was to end.
    pub(crate) fn is_unlent(&self, key: Key) -> bool {
        self.lent.is_over(key.0)
    }

    /// Begins to end a loan: when it [is over](Self::is_unlent) the memory is to be [taken
    /// back](Self::take_back), which lies there. None if the loan has ended before.
    pub(crate) fn begin_to_unlend(&self, key: Key) -> Option<Place> {
        // To a rank that is lost itself nobody answers.
        let alone = self.progress.is_lost_itself();
        let present = |rank| !alone && self.progress.conduit().standing(rank) == Standing::Present;
        let ended = self.lent.end(key.0, present)?;
        let place = ended.lease.place();
        for peer in ended.informed {
            self.queue_about(peer, GONE, key.0);
        }
        self.let_go(Some(ended.lease));
        self.flush();
        Some(place)
    }

    /// Lends memory to peers that name it by its address: it stays registered for them.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub(crate) fn lend_steady(&self, place: Place) -> Result<Key> {
        self.begin_to_last(place.0, place.1)?;
        Ok(Key(self.lent.lend_steady(place)))
    }

    /// Ends what [`lend_steady`](Self::lend_steady) lent; `false` in a handler, where peers cannot
    /// be waited for.
    #[must_use = "the memory may still be registered"]
    pub(crate) fn unlend_steady(&self, key: Key) -> bool {
        match self.lent.end_steady(key.0) {
            None => true,
            Some((start, len)) => {
                crate::progress::may_wait("the end of a loan").is_ok() && self.take_back(start, len)
            }
        }
    }

    /// Memory is about to be kept registered. Where a bucket is several pages, some of them may
    /// have been registered before they were what they are now: that is given up first.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub(super) fn begin_to_last(&self, addr: u64, len: u64) -> Result<()> {
        if self.shares_buckets() {
            crate::progress::may_wait("lending a buffer in buckets of several pages")?;
            self.take_back(addr, len);
        }
        Ok(())
    }

    /// Takes own memory back from peers: they hold no firehose on it when this returns, and none
    /// of it is registered.
    pub(crate) fn take_back(&self, addr: u64, len: u64) -> bool {
        let Some(id) = self.begin_to_take_back(addr, len) else {
            return true;
        };
        let over = || self.is_taken_back(id);
        self.progress.wait(On::Nobody, For::Message, over).is_ok()
    }

    /// Begins to take own memory back, until it [is](Self::is_taken_back). None if nothing is to be
    /// done.
    pub(crate) fn begin_to_take_back(&self, addr: u64, len: u64) -> Option<u64> {
        let id = self.name();
        let run = match self.geometry.span(addr, len) {
            Ok(run) if run.count > 0 => run,
            _ => return None,
        };
        self.step(&[], |engine, out| engine.revoke(id, run, out));
        Some(id)
    }

    /// Whether memory was taken back; said once.
    pub(crate) fn is_taken_back(&self, id: u64) -> bool {
        self.revoked.lock().remove(&id).is_some()
    }

    /// Where `len` bytes at `offset` of an exposed buffer lie at its owner, for as long as the
    /// lease is held.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Conduit`] with the extent's bounds, [`Error::PeerLost`].
    pub(crate) fn exposed_at(
        &self,
        rank: Rank,
        key: u64,
        offset: u64,
        len: u64,
    ) -> Result<(u64, Lease)> {
        let lease = self.lease(rank, key)?;
        let (start, size) = lease.place();
        if len > size || offset > size - len {
            self.let_go(Some(lease));
            return Err(Error::from(hydrant_conduit::Error::OutOfExtent {
                peer: rank,
                offset,
                len,
                extent: size,
            }));
        }
        Ok((start + offset, lease))
    }

    fn lease(&self, rank: Rank, key: u64) -> Result<Lease> {
        let revoked = || Error::Revoked { rank };
        if rank == self.progress.rank {
            return self.lent.lease(key).ok_or_else(revoked);
        }
        let name = (rank, key);
        let known = || self.known().leases.get(&name).cloned();
        if let Some(lease) = known() {
            return Ok(lease);
        }
        crate::progress::may_wait("the first use of an exposed buffer")?;
        self.ask_for(rank, key);
        let mut lease = None;
        let waited = self.progress.wait(On::Rank(rank), For::Message, || {
            let known = self.known();
            lease = known.leases.get(&name).cloned();
            lease.is_some() || !known.asked.contains_key(&name)
        });
        if let Err(Error::PeerLost(_) | Error::JobOver) = waited {
            // No answer will come.
            self.change_known(|known| known.asked.remove(&name));
        }
        waited?;
        lease.ok_or_else(|| self.why_unknown(rank))
    }

    /// Whether the owner of a peer's buffer waits until its leases are let go.
    pub(crate) fn is_over(&self, lease: &Lease) -> bool {
        let Terms { owner, key, .. } = *lease.0;
        owner != self.progress.rank && !self.known().leases.contains_key(&(owner, key))
    }

    /// Asks where a peer's buffer lies, if that is not known and nobody asked before.
    pub(crate) fn ask_for(&self, rank: Rank, key: u64) {
        if self.change_known(|known| known.ask((rank, key))) {
            self.queue_about(rank, ASK, key);
            self.flush();
        }
    }

    /// Whether it is known where a buffer lies that was [asked for](Self::ask_for); none while the
    /// answer is to come.
    pub(crate) fn knows(&self, rank: Rank, key: u64) -> Option<bool> {
        let (known, name) = (self.known(), (rank, key));
        match known.leases.contains_key(&name) {
            true => Some(true),
            false if known.asked.contains_key(&name) => None,
            false => Some(false),
        }
    }

    /// Forgets where a peer's buffer lies, unless an access to it is under way: whether that is so. The owner is to
    /// be told, which then [expects no answer](Self::is_forgotten_by) about it.
    pub(crate) fn forget(&self, rank: Rank, key: u64) -> bool {
        self.change_known(|known| known.forget((rank, key)))
    }

    /// A peer has said that it uses an own loan no more: it is not told when that ends.
    pub(crate) fn is_forgotten_by(&self, peer: Rank, key: Key) {
        self.lent.forgotten_by(peer, key.0);
    }

    /// Why it is not known where a buffer of a peer lies.
    pub(crate) fn why_unknown(&self, rank: Rank) -> Error {
        match self.progress.conduit().standing(rank) {
            _ if self.progress.is_lost_itself() => Error::Expelled(self.progress.rank),
            Standing::Present => Error::Revoked { rank },
            // What was asked for was forgotten with the rank.
            Standing::Left | Standing::Lost => self.progress.gone(rank),
        }
    }

    /// An access is over. The last one to a buffer that goes tells its owner.
    #[inline]
    pub(crate) fn let_go(&self, lease: Option<Lease>) {
        if let Some((owner, key)) = lease.and_then(Lease::end) {
            self.let_last_go(owner, key);
        }
    }

    #[cold]
    fn let_last_go(&self, owner: Rank, key: u64) {
        if owner == self.progress.rank {
            self.lent.let_go_here(key);
            self.progress.wake_sleepers();
        } else {
            self.queue_about(owner, LET_GO, key);
            self.flush();
        }
    }

    fn queue_about(&self, to: Rank, tag: u16, key: u64) {
        let queued = Queued::Loan {
            tag,
            key,
            // Whatever a peer says of a loan that goes, it is told that the loan is used no more.
            is_answer: tag == LET_GO,
        };
        self.outbox.lock().push(to.0, queued);
    }

    /// A peer asks where an exposed buffer lies, says that one of its own goes, or that it uses
    /// one no more; `false` if it does none of these.
    pub(crate) fn loan_asked(&self, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) -> bool {
        let &[key] = delivery.args else {
            return false;
        };
        let from = delivery.from;
        match delivery.tag {
            ASK => {
                let (start, len) = self.lent.tell(from, key).unwrap_or(NOWHERE);
                let answer = Message {
                    kind: kind::LOAN,
                    tag: ASK,
                    args: &[key, start, len],
                    payload: &[],
                };
                if let Err(cause) = port.reply(&answer) {
                    tracing::error!(%cause, "a peer was not told where a buffer lies");
                }
                true
            }
            GONE => {
                match self.change_known(|known| known.gone((from, key))) {
                    Ok(Some(lease)) => self.let_go(Some(lease)),
                    Ok(None) => self.let_last_go(from, key),
                    Err(()) => return false,
                }
                true
            }
            LET_GO => self.lent.let_go_by(from, key),
            _ => false,
        }
    }

    /// A peer says where its buffer lies, or that it lies nowhere; `false` if nobody asked, or if no
    /// memory lies there.
    pub(crate) fn loan_answered(&self, delivery: &Delivery<'_>) -> bool {
        let &[key, start, len] = delivery.args else {
            return false;
        };
        let name = (delivery.from, key);
        if (start, len) != NOWHERE && start.checked_add(len).is_none() {
            return false;
        }
        self.change_known(|known| known.answered(name, (start, len)))
    }

    /// A peer has ended: what it knew and what is known of it is forgotten.
    pub(super) fn forget_loans(&self, peer: Rank) {
        self.lent.without(peer);
        self.change_known(|known| known.without(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: (Rank, u64) = (Rank(1), 7);

    #[test]
    fn an_answer_that_comes_after_the_end_is_none() {
        let mut known = Known::default();
        assert!(known.ask(NAME));
        assert!(!known.ask(NAME), "it was asked before");
        assert!(known.gone(NAME).expect("it was asked for").is_none());
        assert!(known.gone(NAME).is_err(), "it was said before");
        assert!(known.answered(NAME, (0x1000, 10)));
        assert!(known.leases.is_empty());
        assert!(!known.answered(NAME, (0x1000, 10)), "nobody asked again");
    }

    #[test]
    fn what_is_in_use_is_not_forgotten() {
        let mut known = Known::default();
        assert!(known.forget(NAME), "it was never known");
        assert!(known.ask(NAME) && known.answered(NAME, (0x1000, 10)));
        let held = known.leases[&NAME].clone();
        assert!(!known.forget(NAME), "it is held");
        assert!(held.end().is_none(), "the table has one");
        assert!(known.forget(NAME) && known.leases.is_empty());
        // Its owner did not know that yet.
        assert!(known.gone(NAME).is_ok_and(|lease| lease.is_none()));
        let younger = (NAME.0, NAME.1 + 1);
        assert!(known.gone(younger).is_err(), "nobody knew of it");
    }

    #[test]
    fn what_is_known_is_not_asked_for() {
        let mut known = Known::default();
        assert!(known.ask(NAME) && known.answered(NAME, (0x1000, 10)));
        assert!(!known.ask(NAME));
        let lease = known.leases[&NAME].clone();
        let found = known.gone(NAME).expect("it was known").expect("a lease");
        assert!(found.end().is_none(), "it is held");
        assert_eq!(lease.end(), Some(NAME));
        assert!(known.ask(NAME) && known.answered(NAME, NOWHERE));
        assert!(known.leases.is_empty() && known.asked.is_empty());
    }
}
