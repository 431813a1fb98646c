//! Memory that may come and go unseen: what is registered of it may point at pages that are not
//! its own any more as soon as the operation is over for which it was registered.
//!
//! So such an extent is *open* exactly as long as the request that had it registered holds it: until
//! then the operation's buffer keeps every page of it mapped, and others that touch one of
//! these pages may share it. Then nobody finds it any more, and it is deregistered when the
//! last who shared it is done. Peers never get hold of it: they would keep it longer.
//!
//! Where a bucket is several pages, the buffer keeps some of them mapped and nothing is known of
//! the others: there no such operation uses what was registered before it, for whomever. And
//! memory that begins to last in such a bucket takes back first what is registered of it.

use super::{Lasting, Local, Requester, only};
use crate::{Decisions, Run};

impl Local {
    /// Whether a requester may use an extent that is there.
    pub(super) fn may_share(&self, requester: Requester, base: u64) -> bool {
        match requester {
            Requester::Move(_) | Requester::Pin(_) | Requester::Keep(_) => {
                !self.transient.contains_key(&base)
            }
            Requester::Transient(_) | Requester::Held(_, Lasting::No) => {
                self.limits.geometry.pages() == 1
            }
            Requester::Piece(_)
            | Requester::Pull(_)
            | Requester::Ahead
            | Requester::Own(_)
            | Requester::Held(_, Lasting::Yes)
            | Requester::Foreseen(_) => true,
        }
    }

    /// Whether a requester waits until an operation that has a bucket of its memory is over: what
    /// is pinned for good is there or it is an error, and such an operation ends.
    pub(super) fn waits_for_transient(&self, requester: Requester, base: u64) -> bool {
        let for_good = matches!(requester, Requester::Pin(_) | Requester::Keep(_));
        for_good && self.transient.contains_key(&base)
    }

    /// An extent has come that the first of those who wait for it had registered.
    pub(super) fn arrived_transient(
        &mut self,
        base: u64,
        waiters: &[(u64, Run)],
        out: &mut Decisions,
    ) {
        let Some(((owner, run), others)) = waiters.split_first() else {
            return self
                .impossible
                .note("an extent has come that nobody waits for");
        };
        self.transient.insert(base, *owner);
        self.resume(*owner, only(*run), out);
        if !self.is_held_by(*owner, base) {
            // Its operation is over, or cannot use it.
            self.end_transient(base, out);
        }
        for (id, run) in others {
            self.resume(*id, only(*run), out);
        }
    }

    /// The request that had an extent registered holds it no more: it goes, at once or when nobody
    /// uses it.
    pub(super) fn end_transient(&mut self, base: u64, out: &mut Decisions) {
        let Some(slot) = (self.editor.get(base)).filter(|_| self.transient.contains_key(&base))
        else {
            return;
        };
        if self.evict(slot, out) {
            return;
        }
        self.editor.close(slot);
        // What held it may have let go before it was closed, and nobody was told.
        if !self.evict(slot, out) {
            self.ending_transient.insert(base);
        }
    }

    /// What was used still when its request ended may be used no more.
    pub(super) fn sweep(&mut self, out: &mut Decisions) {
        if self.ending_transient.is_empty() {
            return;
        }
        for base in self.ending_transient.clone() {
            if let Some(slot) = self.editor.get(base) {
                self.evict(slot, out);
            }
        }
    }

    pub(super) fn is_held_by(&self, request: u64, base: u64) -> bool {
        let holds = self
            .requests
            .get(&request)
            .map(|request| request.holds.as_slice());
        (holds.unwrap_or_default().iter()).any(|it| self.editor.extent(it.slot).base == base)
    }
}
