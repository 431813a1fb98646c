//! Transient memory, which may come and go unseen. Its registration may point at foreign pages as
//! soon as the operation is over for which it was registered.
//!
//! So a transient extent is *open* exactly as long as the request that registered it holds it.
//! Until then the operation's buffer keeps every page of it mapped, and others that touch one of
//! these pages may share it. Afterwards nobody finds it any more, and the last sharer's release
//! deregisters it. Peers never get hold of it, because they would keep it longer.
//!
//! A bucket of several pages is only partly kept mapped by the buffer, and nothing is known of its
//! other pages. There no such operation uses an earlier registration, whoever made it. And memory
//! that begins to last in such a bucket first takes back the bucket's registrations.

use super::{Lifetime, LocalTable, Requester, exact_need};
use crate::{Decisions, Run, wire::Need};

impl LocalTable {
    /// Returns true if a requester may use a registered extent.
    pub(super) fn may_share(&self, requester: Requester, base: u64) -> bool {
        match requester {
            Requester::Move(_) | Requester::Pin(_) | Requester::Keep(_) => {
                !self.transient.contains_key(&base)
            }
            Requester::Transient(_) | Requester::Held(_, Lifetime::Transient) => {
                self.limits.geometry.pages() == 1
            }
            Requester::Piece(_)
            | Requester::Pull(_)
            | Requester::Ahead
            | Requester::Own(_)
            | Requester::Held(_, Lifetime::Persistent)
            | Requester::Foreseen(_)
            | Requester::Background(_) => true,
        }
    }

    /// Returns true if a requester may use no earlier registration of its buckets, and there is one.
    pub(super) fn is_kept_from(&self, requester: Requester, needs: &[Need]) -> bool {
        requester.is_transient()
            && self.limits.geometry.pages() > 1
            && (needs.iter()).any(|need| !self.editor.extents_in(need.run).is_empty())
    }

    /// Returns true if a requester waits for the operation that registered a transient extent.
    /// Pinned memory must be there or it is an error, and such an operation ends.
    pub(super) fn waits_for_transient(&self, requester: Requester, base: u64) -> bool {
        let for_good = matches!(requester, Requester::Pin(_) | Requester::Keep(_));
        for_good && self.transient.contains_key(&base)
    }

    /// Records a transient extent, which belongs to the first of its waiters.
    pub(super) fn record_transient(
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
        self.resume(*owner, exact_need(*run), out);
        if !self.is_held_by(*owner, base) {
            // The operation is over, or cannot use the extent.
            self.end_transient(base, out);
        }
        for (id, run) in others {
            self.resume(*id, exact_need(*run), out);
        }
    }

    /// Ends a transient extent that its request no longer holds: it is evicted at once, or when
    /// nobody uses it.
    pub(super) fn end_transient(&mut self, base: u64, out: &mut Decisions) {
        let Some(slot) = (self.editor.get(base)).filter(|_| self.transient.contains_key(&base))
        else {
            return;
        };
        if self.evict(slot, out) {
            return;
        }
        self.editor.close(slot);
        // A holder may have let go before the extent was closed, when nobody awaited that.
        if !self.evict(slot, out) {
            self.ending_transient.insert(base);
        }
    }

    /// Evicts the ended transient extents that nobody uses any more.
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
