//! What is attached, and what is copied.

use super::{
    Choice,
    costs::{Class, TRIALS, Way},
};

/// What was missed so often lately takes the place of what was not used; what was used makes room for
/// what has paid so many times its price.
const OFTEN: u64 = 8;

/// The part of a move's time in which something else is copied: were it all of it, what the copies delay the
/// answer would count as the move's, and lengthen the next ones.
const HEAD: (u64, u64) = (3, 4);

/// A miss that may be attached.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Miss {
    pub(in crate::engine) class: Class,
    /// The peer, and the first bucket that is missing.
    pub(in crate::engine) place: (u32, u64),
    /// Buckets that are missing.
    pub(in crate::engine) count: u64,
    /// Buckets that would be attached: those, and what will be missed next if they are of a sequence.
    pub(in crate::engine) width: u64,
    /// Whether others must be given up for them.
    pub(in crate::engine) evicts: bool,
    /// Whether those have not been used for a while.
    pub(in crate::engine) is_next_unused: bool,
    /// Whether what is attached to the peer's memory is likely used again before that goes.
    pub(in crate::engine) is_reused: bool,
}

/// Which way a miss goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Verdict {
    Copy,
    Attach {
        /// Whether it is the next to be given up.
        passes: bool,
    },
}

impl Choice {
    /// Which way a miss goes.
    pub(in crate::engine) fn weigh(&mut self, miss: &Miss) -> Verdict {
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
            return Verdict::Attach { passes: false };
        }
        let Some((copy, saving)) = self.costs.saving(class) else {
            // It is copied until that is known, unless it is likely to be used again.
            return match !evicts && is_reused {
                true => Verdict::Attach { passes: false },
                false => Verdict::Copy,
            };
        };
        if saving == 0 {
            // There may be nothing that is a hit.
            self.asked(class);
            // Now and then it is found out whether that is still so.
            self.saved = self.saved.saturating_add(copy / TRIALS);
            let price = self.price(class, width, evicts, copy);
            let tries = self.costs.needs(class, Way::Hit) && self.can_try(price);
            return match tries {
                true => Verdict::Attach { passes: evicts },
                false => Verdict::Copy,
            };
        }
        let price = self.price(class, width, evicts, copy);
        let paid = self.rents.of(place);
        self.rents.pay(place, saving);
        let soon = saving.saturating_mul(width.div_ceil(count.max(1)));
        self.saved = self.saved.saturating_add(copy / TRIALS);
        if !evicts {
            // What is attached is used again before it goes, or this is.
            if is_reused || paid.saturating_add(soon) >= price / 2 {
                return Verdict::Attach { passes: false };
            }
        }
        // It has a better claim to a place than what is not used any more, if that is no accident.
        let (comes_again, is_often) = (paid >= saving / 2, paid >= OFTEN.saturating_mul(saving));
        let keeps = paid >= price || (is_next_unused && comes_again);
        let worth = match width > count || (is_next_unused && is_often) {
            true => price,
            false => price.saturating_mul(OFTEN),
        };
        // What costs less than a copy is worth it even once.
        if soon >= price || paid.saturating_add(soon) >= worth {
            return Verdict::Attach { passes: !keeps };
        }
        match self.can_try(price) {
            true => Verdict::Attach { passes: evicts },
            false => Verdict::Copy,
        }
    }

    /// Bytes of a miss that are copied while so many buckets are attached: what is copied in most of that time,
    /// half of the miss at most. Of a class whose moves are not known, none is, for it hides what they take.
    pub(in crate::engine) fn head(
        &self,
        class: Class,
        len: u64,
        (width, evicts): (u64, bool),
    ) -> u64 {
        let Some(copy) = self.costs.copying(class) else {
            return 0;
        };
        if self.costs.copies_beat_hits(class) || (evicts && self.costs.needs(class, Way::Far)) {
            return 0;
        }
        let time = self.prices.of(width, evicts, copy) / HEAD.1 * HEAD.0;
        let copied = u128::from(len) * u128::from(time) / u128::from(copy.max(1));
        u64::try_from(copied).map_or(len / 2, |copied| copied.min(len / 2))
    }

    /// What attaching so many buckets for an operation of a class adds to what it takes, which is `copy` if
    /// it is copied.
    fn price(&self, class: Class, width: u64, evicts: bool, copy: u64) -> u64 {
        let price = self.prices.of(width, evicts, copy);
        match self.costs.rent(class) {
            Some((_, more)) if evicts => price.max(more),
            _ => price,
        }
    }

    /// Whether a move of that price was paid for by a part of what operations took; then it is spent.
    fn can_try(&mut self, price: u64) -> bool {
        let can = self.saved >= price;
        if can {
            self.saved = 0;
        }
        can
    }

    /// Whether a piece is copied rather than waiting for a move under way that brings what it needs.
    pub(in crate::engine) fn overtakes(&self, class: Class) -> bool {
        (self.costs.saving(class))
            .is_none_or(|(_, saving)| saving < self.prices.of(1, false, 0) / 2)
    }

    /// Whether a piece is copied though all it needs of the peer is there.
    pub(in crate::engine) fn copies_hit(&mut self, class: Class) -> bool {
        match class.transient {
            // Nobody else finds out what these take.
            true => self.costs.pull(class, Way::Hit) == Way::Copied,
            false => {
                let needs = [Way::Hit, Way::Copied].map(|way| self.costs.needs(class, way));
                self.asked(class);
                match needs {
                    [true, _] => false,
                    [_, true] => true,
                    _ => self.costs.copies_beat_hits(class),
                }
            }
        }
    }

    /// Whether what misses of a class is copied because hits take longer, as is known well.
    pub(in crate::engine) fn copies_all(&self, class: Class) -> bool {
        let needs = [Way::Hit, Way::Copied].map(|way| self.costs.needs(class, way));
        needs == [false; 2] && self.costs.copies_beat_hits(class)
    }

    /// Which way a get goes that the peer may write here: `near` if its memory, from `place` on, is likely
    /// registered there. `room`: if it could stay so beside what else is, whether it is likely used again.
    pub(in crate::engine) fn pull(
        &mut self,
        class: Class,
        place: (u32, u64),
        near: bool,
        room: Option<bool>,
    ) -> Way {
        if near {
            return self.costs.pull(class, Way::Hit);
        }
        if self.costs.copies_beat_hits(class) {
            return self.costs.pull(class, Way::Far);
        }
        let paid = self.rents.of(place);
        // What is registered beside what is there is deregistered by nobody: it need not come often.
        if room.is_some_and(|is_reused| is_reused || paid > 0) {
            return Way::Far;
        }
        let way = self.costs.pull(class, Way::Far);
        match (way, self.costs.rent(class)) {
            (Way::Copied, Some((rent, price))) => {
                self.rents.pay(place, rent);
                if paid + rent >= price { Way::Far } else { way }
            }
            _ => way,
        }
    }
}
