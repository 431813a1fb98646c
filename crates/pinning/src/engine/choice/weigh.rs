//! The decision to attach a miss or to copy it.

use super::{
    RouteChoice,
    costs::{OperationClass, PieceRoute},
};

/// A bucket that was missed this often recently may replace unused ones. Used ones yield to a
/// bucket that has paid so many times its price.
const OFTEN: u64 = 8;

/// The part of a move's time in which its head is copied. If the copies lasted as long as the move,
/// their delay of the answer would count as the move's, and lengthen the next heads.
const HEAD: (u64, u64) = (3, 4);

/// A miss that may be attached.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Miss {
    pub(in crate::engine) class: OperationClass,
    /// The peer, and the first missing bucket.
    pub(in crate::engine) place: (u32, u64),
    /// The number of missing buckets.
    pub(in crate::engine) count: u64,
    /// The number of buckets that would be attached: the missing ones, and the next ones of a
    /// sequence.
    pub(in crate::engine) width: u64,
    /// True if other buckets must be evicted for them.
    pub(in crate::engine) evicts: bool,
    /// True if the next victims have not been used for a while.
    pub(in crate::engine) is_next_unused: bool,
    /// True if buckets attached at this peer are likely used again before their memory goes.
    pub(in crate::engine) is_reused: bool,
}

/// The decision about a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum MissDecision {
    Copy,
    Attach {
        /// True if the bucket is the next victim.
        passes: bool,
    },
}

impl RouteChoice {
    /// Decides about a miss.
    pub(in crate::engine) fn weigh(&mut self, miss: &Miss) -> MissDecision {
        let Miss {
            class,
            place,
            count,
            width,
            evicts,
            is_next_unused,
            is_reused,
        } = *miss;
        if let Some(at) = self.wanted.iter().position(|wanted| *wanted == place) {
            self.wanted.swap_remove(at);
            return MissDecision::Attach { passes: false };
        }
        let Some((copy, saving)) = self.costs.saving(class) else {
            // The miss is copied to measure copies, unless the bucket is likely used again.
            return if !evicts && is_reused {
                MissDecision::Attach { passes: false }
            } else {
                MissDecision::Copy
            };
        };
        if saving == 0 {
            // Perhaps no operation hits, so this one counts for the measurement.
            self.count_measured(class);
            // A trial finds out now and then if that is still so.
            self.saved.earn(copy);
            let price = self.price(class, width, evicts, copy);
            let tries = self.costs.needs(class, PieceRoute::Hit) && self.saved.spend(price);
            return if tries {
                MissDecision::Attach { passes: evicts }
            } else {
                MissDecision::Copy
            };
        }
        let price = self.price(class, width, evicts, copy);
        let paid = self.rents.of(place);
        self.rents.pay(place, saving);
        let soon = saving.saturating_mul(width.div_ceil(count.max(1)));
        self.saved.earn(copy);
        if !evicts {
            // The attached buckets are used again before their memory goes, or this one is.
            if is_reused || paid.saturating_add(soon) >= price / 2 {
                return MissDecision::Attach { passes: false };
            }
        }
        // A bucket that was missed before has a better claim than an unused one.
        let (comes_again, is_often) = (paid >= saving / 2, paid >= OFTEN.saturating_mul(saving));
        let keeps = paid >= price || (is_next_unused && comes_again);
        let worth = if width > count || (is_next_unused && is_often) {
            price
        } else {
            price.saturating_mul(OFTEN)
        };
        // A move that costs less than a copy is worth it for one use.
        if soon >= price || paid.saturating_add(soon) >= worth {
            return MissDecision::Attach { passes: !keeps };
        }
        if self.saved.spend(price) {
            MissDecision::Attach { passes: evicts }
        } else {
            MissDecision::Copy
        }
    }

    /// Returns the bytes of a miss to copy while `width` buckets are attached: as many as are
    /// copied in most of that time, but at most half. Returns 0 for a class whose moves are not
    /// known, because a head hides their time.
    pub(in crate::engine) fn head(
        &self,
        class: OperationClass,
        len: u64,
        (width, evicts): (u64, bool),
    ) -> u64 {
        let Some(copy) = self.costs.expected_copy(class) else {
            return 0;
        };
        if self.costs.copies_beat_hits(class)
            || (evicts && self.costs.needs(class, PieceRoute::PeerRegisters))
        {
            return 0;
        }
        let time = self.prices.of(width, evicts, copy) / HEAD.1 * HEAD.0;
        let copied = u128::from(len) * u128::from(time) / u128::from(copy.max(1));
        u64::try_from(copied).map_or(len / 2, |copied| copied.min(len / 2))
    }

    /// The price of attaching so many buckets for an operation whose copy takes `copy`.
    fn price(&self, class: OperationClass, width: u64, evicts: bool, copy: u64) -> u64 {
        let price = self.prices.of(width, evicts, copy);
        match self.costs.rent(class) {
            Some((_, more)) if evicts => price.max(more),
            _ => price,
        }
    }

    /// Returns true if a piece is copied rather than waiting for a move in flight that brings its
    /// buckets.
    pub(in crate::engine) fn copies_rather_than_joins(&self, class: OperationClass) -> bool {
        (self.costs.saving(class))
            .is_none_or(|(_, saving)| saving < self.prices.of(1, false, 0) / 2)
    }

    /// Decides if a piece is copied although all it needs of the peer is registered.
    pub(in crate::engine) fn choose_copy_over_hit(&mut self, class: OperationClass) -> bool {
        match class.transient {
            // No other path measures these.
            true => self.costs.choose_pull(class, PieceRoute::Hit) == PieceRoute::Copied,
            false => {
                let needs = [PieceRoute::Hit, PieceRoute::Copied]
                    .map(|route| self.costs.needs(class, route));
                self.count_measured(class);
                match needs {
                    [true, _] => false,
                    [_, true] => true,
                    _ => self.costs.copies_beat_hits(class),
                }
            }
        }
    }

    /// Returns true if all misses of a class are copied, because hits are known to take longer.
    pub(in crate::engine) fn copies_all(&self, class: OperationClass) -> bool {
        let needs =
            [PieceRoute::Hit, PieceRoute::Copied].map(|route| self.costs.needs(class, route));
        needs == [false; 2] && self.costs.copies_beat_hits(class)
    }

    /// Decides the route of a get that the peer may write here. `near` says that the peer has
    /// likely registered the memory from `place` on. `room` is `None` if it could not stay
    /// registered, and else true if it is likely used again.
    pub(in crate::engine) fn choose_pull_route(
        &mut self,
        class: OperationClass,
        place: (u32, u64),
        near: bool,
        room: Option<bool>,
    ) -> PieceRoute {
        if near {
            return self.costs.choose_pull(class, PieceRoute::Hit);
        }
        if self.costs.copies_beat_hits(class) {
            return self.costs.choose_pull(class, PieceRoute::PeerRegisters);
        }
        let paid = self.rents.of(place);
        // The peer registers it without evicting, so it need not be pulled often.
        if room.is_some_and(|is_reused| is_reused || paid > 0) {
            return PieceRoute::PeerRegisters;
        }
        let route = self.costs.choose_pull(class, PieceRoute::PeerRegisters);
        match (route, self.costs.rent(class)) {
            (PieceRoute::Copied, Some((rent, price))) => {
                self.rents.pay(place, rent);
                if paid + rent >= price {
                    PieceRoute::PeerRegisters
                } else {
                    route
                }
            }
            _ => route,
        }
    }
}
