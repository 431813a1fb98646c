//! Exposed buffers, at their owner and at its peers. A rank lends a buffer, peers ask for its
//! address, and each access holds a [`Lease`] until it ends. The end of a loan waits for all
//! leases, here and at the peers that know the address. So any route may reach the memory:
//! firehoses, a paging NIC, messages or the own processor.
//!
//! ```text
//! request  ASK     args key                what is the address of the buffer?
//!          GONE    args key                the loan ends: answer when your last access has ended
//!          LET_GO  args key                my last access has ended
//! reply    ASK     args key, start, bytes  the address, or `NOWHERE`
//! ```
//!
//! A peer that knows the address of a buffer is told of the end before the memory is taken back.
//! New accesses fail from then on, and the peer answers when its last access has ended. A peer may
//! have told the owner before, by a message of another room, that it no longer uses the buffer.
//! Such a peer [forgets](Registration::forget) the buffer and is not asked.

#![allow(unsafe_code)] // lends memory whose owner says that it stays

use std::sync::Arc;

use hydrant_conduit::{Delivery, Key, Message, Rank, ReplyPort, Standing};
use rustc_hash::FxHashMap;

use super::{Registration, outbox::OutboxEntry, persistent::AddressRange};
use crate::{
    Error, Result,
    progress::{For, On, kind},
};

const ASK: u16 = 0;
const GONE: u16 = 1;
const LET_GO: u16 = 2;

/// The range of a buffer that is not lent.
const NOWHERE: AddressRange = (u64::MAX, u64::MAX);

/// Keeps a loan from ending until the lease is [released](Registration::let_go).
#[derive(Clone, Debug)]
#[must_use = "a loan whose lease is lost never ends"]
pub(crate) struct Lease(Arc<Terms>);

#[derive(Debug)]
struct Terms {
    owner: Rank,
    key: u64,
    place: AddressRange,
}

impl Lease {
    pub(super) fn new(owner: Rank, key: u64, place: AddressRange) -> Self {
        Self(Arc::new(Terms { owner, key, place }))
    }

    pub(super) fn place(&self) -> AddressRange {
        self.0.place
    }

    /// Returns whether this is the only lease of the loan here.
    fn is_only(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Drops the lease. Returns the owner and the key if it was the last. No lookup finds the loan
    /// by then, because the table has a lease of its own.
    pub(super) fn end(self) -> Option<(Rank, u64)> {
        Arc::into_inner(self.0).map(|terms| (terms.owner, terms.key))
    }
}

/// The exposed buffers of peers that this rank knows.
#[derive(Default)]
pub(super) struct KnownLoans {
    /// By owner and key.
    leases: FxHashMap<(Rank, u64), Lease>,
    /// Questions without an answer yet. The value is true if the loan has ended meanwhile, because
    /// the answer may still be in flight.
    asked: FxHashMap<(Rank, u64), bool>,
    /// The highest key of each owner's buffers that was [forgotten](Self::forget). Keys only grow.
    forgotten: FxHashMap<Rank, u64>,
}

impl KnownLoans {
    /// Notes a question. Returns whether it is to be sent: the buffer is unknown and not asked for.
    /// So a known buffer is never asked for, and no answer arrives after its end.
    fn ask(&mut self, name: (Rank, u64)) -> bool {
        let new = !self.asked.contains_key(&name) && !self.leases.contains_key(&name);
        if new {
            self.asked.insert(name, false);
        }
        new
    }

    /// Takes an answer. Returns `false` if there was no question.
    fn take_answer(&mut self, name: (Rank, u64), place: AddressRange) -> bool {
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

    /// Removes a buffer whose loan ends. Returns the lease of the table, if there was one.
    ///
    /// # Errors
    /// If this rank never asked for the buffer, or was told before and has forgotten none with a
    /// key as high.
    fn end_loan(&mut self, name: (Rank, u64)) -> Result<Option<Lease>, ()> {
        if let Some(lease) = self.leases.remove(&name) {
            return Ok(Some(lease));
        }
        match self.asked.get_mut(&name) {
            Some(gone) if !*gone => {
                *gone = true;
                Ok(None)
            }
            // The owner ended the loan before it heard that this rank forgot it.
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

    /// Forgets a buffer, unless an access to it is in flight. Returns whether the buffer is unknown
    /// now.
    fn forget(&mut self, name: (Rank, u64)) -> bool {
        match self.leases.get(&name) {
            Some(lease) if !lease.is_only() => false,
            None => true,
            // The owner hears of that by another message.
            Some(_) => {
                self.leases.remove(&name);
                let last = self.forgotten.entry(name.0).or_default();
                *last = name.1.max(*last);
                true
            }
        }
    }

    /// Removes the buffers of a peer that has ended.
    fn remove_peer(&mut self, peer: Rank) {
        self.leases.retain(|(owner, _), _| *owner != peer);
        self.asked.retain(|(owner, _), _| *owner != peer);
        self.forgotten.remove(&peer);
    }
}

impl Registration {
    /// Lends a buffer to peers. Returns the key by which they name it.
    ///
    /// # Safety
    /// Until [`unlend`](Self::unlend) returns `true`:
    /// 1. The buffer stays allocated.
    /// 2. It is only accessed as shared memory.
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) unsafe fn lend(&self, addr: *mut u8, len: usize) -> Result<Key> {
        self.prepare_to_lend(addr.expose_provenance() as u64, len as u64)?;
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        Ok(unsafe { self.lend_at_once(addr, len) })
    }

    /// As [`lend`](Self::lend), for memory that [is ready](Self::make_ready) to be lent.
    ///
    /// # Safety
    /// 1. and 2. as [`lend`](Self::lend).
    pub(crate) unsafe fn lend_at_once(&self, addr: *mut u8, len: usize) -> Key {
        let place = (addr.expose_provenance() as u64, len as u64);
        self.learn_before_use(place);
        Key((self.lent).lend(place))
    }

    /// Begins the revocation that must come before memory is lent, if there is any to do. The
    /// memory is ready once the revocation [is done](Self::take_revoked).
    pub(crate) fn make_ready(&self, addr: u64, len: u64) -> Option<u64> {
        if self.shares_buckets() {
            self.begin_to_take_back(addr, len)
        } else {
            None
        }
    }

    /// Ends a loan. Returns `true` if no access to the buffer is left. Returns `false` in a
    /// handler, which cannot wait for that; the buffer must then never be freed.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn unlend(&self, key: Key) -> bool {
        let Some((start, len)) = self.begin_to_unlend(key) else {
            return true;
        };
        if crate::progress::may_wait("the end of an exposed buffer").is_err() {
            tracing::warn!(
                "the loan of an exposed buffer ended in a handler: the buffer is leaked"
            );
            return false;
        }
        self.finish_unlending(key, (start, len))
    }

    /// Waits for the end of a loan that has [begun to end](Self::begin_to_unlend), and revokes its
    /// memory.
    pub(crate) fn finish_unlending(&self, key: Key, (start, len): AddressRange) -> bool {
        let over = (self.progress).wait(On::Nobody, For::Message, || self.is_unlent(key));
        over.is_ok() && self.take_back(start, len)
    }

    /// Returns whether no access is left to a buffer whose loan was ended.
    pub(crate) fn is_unlent(&self, key: Key) -> bool {
        self.lent.is_over(key.0)
    }

    /// Begins to end a loan. Returns the range of the buffer, which must be [taken
    /// back](Self::take_back) once the loan [is over](Self::is_unlent). Returns `None` if the loan
    /// has ended before.
    pub(crate) fn begin_to_unlend(&self, key: Key) -> Option<AddressRange> {
        // Nobody answers a rank that counts as lost.
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

    /// Lends memory to peers that name it by its address. It stays registered for them.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub(crate) fn lend_steady(&self, place: AddressRange) -> Result<Key> {
        self.prepare_to_lend(place.0, place.1)?;
        self.learn_before_use(place);
        Ok(Key(self.lent.lend_steady(place)))
    }

    /// Ends a loan of [`lend_steady`](Self::lend_steady). Returns `false` in a handler, which
    /// cannot wait for peers.
    #[must_use = "the memory may still be registered"]
    pub(crate) fn unlend_steady(&self, key: Key) -> bool {
        match self.lent.end_steady(key.0) {
            None => true,
            Some((start, len)) => {
                crate::progress::may_wait("the end of a loan").is_ok() && self.take_back(start, len)
            }
        }
    }

    /// Prepares memory that is to be kept registered. If a bucket has several pages, some of them
    /// may have been registered with an earlier mapping, so those registrations are revoked first.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub(super) fn prepare_to_lend(&self, addr: u64, len: u64) -> Result<()> {
        if self.shares_buckets() {
            crate::progress::may_wait("lending a buffer in buckets of several pages")?;
            self.take_back(addr, len);
        }
        Ok(())
    }

    /// Revokes own memory. When this returns, no peer holds a firehose on it, and none of it is
    /// registered.
    pub(crate) fn take_back(&self, addr: u64, len: u64) -> bool {
        let Some(id) = self.begin_to_take_back(addr, len) else {
            return true;
        };
        let over = || self.take_revoked(id);
        if self.progress.wait(On::Nobody, For::Message, over).is_err() {
            return false;
        }
        let Ok(run) = self.geometry.span(addr, len) else {
            return true;
        };
        // A thread in the background may be making pages, which must not come after they were given back.
        let is_left = || !self.is_in_the_background(run);
        (self.progress.wait(On::Nobody, For::Message, is_left)).is_ok()
    }

    /// Begins to revoke own memory. The revocation is done once it [says so](Self::take_revoked).
    /// Returns `None` if there is nothing to revoke.
    pub(crate) fn begin_to_take_back(&self, addr: u64, len: u64) -> Option<u64> {
        let id = self.name();
        let run = match self.geometry.span(addr, len) {
            Ok(run) if run.count > 0 => run,
            _ => return None,
        };
        self.leave_unregistered(run);
        self.step(&[], |engine, out| engine.revoke(id, run, out));
        Some(id)
    }

    /// Takes the report that a revocation is done. Returns `true` once.
    pub(crate) fn take_revoked(&self, id: u64) -> bool {
        self.revoked.lock().remove(&id).is_some()
    }

    /// Returns the address of `len` bytes at `offset` of an exposed buffer, which holds as long as
    /// the lease is held.
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
        let known = || self.known_loans().leases.get(&name).cloned();
        if let Some(lease) = known() {
            return Ok(lease);
        }
        crate::progress::may_wait("the first use of an exposed buffer")?;
        self.ask_for(rank, key);
        let mut lease = None;
        let waited = self.progress.wait(On::Rank(rank), For::Message, || {
            let known = self.known_loans();
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

    /// Returns whether the owner of a peer's buffer waits for the release of its leases.
    pub(crate) fn is_over(&self, lease: &Lease) -> bool {
        let Terms { owner, key, .. } = *lease.0;
        owner != self.progress.rank && !self.known_loans().leases.contains_key(&(owner, key))
    }

    /// Asks for the address of a peer's buffer, unless it is known or asked for.
    pub(crate) fn ask_for(&self, rank: Rank, key: u64) {
        if self.change_known(|known| known.ask((rank, key))) {
            self.queue_about(rank, ASK, key);
            self.flush();
        }
    }

    /// Returns whether the address of a buffer that was [asked for](Self::ask_for) is known, or
    /// `None` until the answer arrives.
    pub(crate) fn has_address(&self, rank: Rank, key: u64) -> Option<bool> {
        let (known, name) = (self.known_loans(), (rank, key));
        if known.leases.contains_key(&name) {
            Some(true)
        } else if known.asked.contains_key(&name) {
            None
        } else {
            Some(false)
        }
    }

    /// Forgets the address of a peer's buffer, unless an access to it is in flight. Returns whether
    /// it did. The caller then tells the owner, which [expects no answer](Self::note_forgotten_by)
    /// about the buffer.
    pub(crate) fn forget(&self, rank: Rank, key: u64) -> bool {
        self.change_known(|known| known.forget((rank, key)))
    }

    /// Notes that a peer no longer uses an own loan. The peer is not told when the loan ends.
    pub(crate) fn note_forgotten_by(&self, peer: Rank, key: Key) {
        self.lent.forgotten_by(peer, key.0);
    }

    /// Returns the reason why the address of a peer's buffer is unknown.
    pub(crate) fn why_unknown(&self, rank: Rank) -> Error {
        match self.progress.conduit().standing(rank) {
            _ if self.progress.is_lost_itself() => Error::Expelled(self.progress.rank),
            Standing::Present => Error::Revoked { rank },
            // Questions to a rank are forgotten when it ends.
            Standing::Left | Standing::Lost => self.progress.why_gone(rank),
        }
    }

    /// Releases the lease of an access that has ended. The last lease on a buffer whose loan ends
    /// is reported to the owner.
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
        let entry = OutboxEntry::Loan {
            tag,
            key,
            // A peer may report the end of a loan at any time, and is always answered.
            is_answer: tag == LET_GO,
        };
        self.outbox.lock().push(to.0, entry);
    }

    /// Handles a request about a loan: a question for an address, the end of a loan of the peer, or
    /// the end of the peer's use. Returns `false` if it is none of these.
    pub(crate) fn loan_asked(&self, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) -> bool {
        let &[key] = delivery.args else {
            return false;
        };
        let from = delivery.from;
        match delivery.tag {
            ASK => {
                let (start, len) = self.lent.inform(from, key).unwrap_or(NOWHERE);
                let answer = Message {
                    kind: kind::LOAN,
                    tag: ASK,
                    args: &[key, start, len],
                    payload: &[],
                };
                if let Err(cause) = port.reply(&answer) {
                    tracing::error!(%cause, "a peer was not told the address of a buffer");
                }
                true
            }
            GONE => {
                match self.change_known(|known| known.end_loan((from, key))) {
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

    /// Handles a peer's answer to a question for an address. Returns `false` if nobody asked, or if
    /// the range is invalid.
    pub(crate) fn loan_answered(&self, delivery: &Delivery<'_>) -> bool {
        let &[key, start, len] = delivery.args else {
            return false;
        };
        let name = (delivery.from, key);
        if (start, len) != NOWHERE && start.checked_add(len).is_none() {
            return false;
        }
        self.change_known(|known| known.take_answer(name, (start, len)))
    }

    /// Forgets the loans of a peer that has ended, and its use of own loans.
    pub(super) fn forget_loans(&self, peer: Rank) {
        self.lent.remove_peer(peer);
        self.change_known(|known| known.remove_peer(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: (Rank, u64) = (Rank(1), 7);

    #[test]
    fn an_answer_after_the_end_of_the_loan_is_ignored() {
        let mut known = KnownLoans::default();
        assert!(known.ask(NAME));
        assert!(!known.ask(NAME), "it is asked for already");
        assert!(known.end_loan(NAME).expect("it was asked for").is_none());
        assert!(known.end_loan(NAME).is_err(), "its end is known already");
        assert!(known.take_answer(NAME, (0x1000, 10)));
        assert!(known.leases.is_empty());
        assert!(!known.take_answer(NAME, (0x1000, 10)), "nobody asked again");
    }

    #[test]
    fn a_buffer_in_use_is_not_forgotten() {
        let mut known = KnownLoans::default();
        assert!(known.forget(NAME), "it was never known");
        assert!(known.ask(NAME) && known.take_answer(NAME, (0x1000, 10)));
        let held = known.leases[&NAME].clone();
        assert!(!known.forget(NAME), "it is held");
        assert!(held.end().is_none(), "the table has one");
        assert!(known.forget(NAME) && known.leases.is_empty());
        // The owner did not know that yet.
        assert!(known.end_loan(NAME).is_ok_and(|lease| lease.is_none()));
        let younger = (NAME.0, NAME.1 + 1);
        assert!(known.end_loan(younger).is_err(), "nobody knew of it");
    }

    #[test]
    fn a_known_buffer_is_not_asked_for() {
        let mut known = KnownLoans::default();
        assert!(known.ask(NAME) && known.take_answer(NAME, (0x1000, 10)));
        assert!(!known.ask(NAME));
        let lease = known.leases[&NAME].clone();
        let found = known
            .end_loan(NAME)
            .expect("it was known")
            .expect("a lease");
        assert!(found.end().is_none(), "it is held");
        assert_eq!(lease.end(), Some(NAME));
        assert!(known.ask(NAME) && known.take_answer(NAME, NOWHERE));
        assert!(known.leases.is_empty() && known.asked.is_empty());
    }
}
