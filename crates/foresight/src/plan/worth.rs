//! Bounds the cost of deregistering memory. The helper steps back if deregistering is not worth its cost.
//!
//! A deregistered region costs its registration if the next use was not foreseen, or came too early. That cost is
//! charged at deregistration, and refunded if the next use finds the region registered. Charges stay below a part of
//! the time so far. Beyond that, regions stay registered as if pinned, and are deregistered once enough time has
//! passed.
//!
//! A program whose uses are foreseen gets its charges back. Other programs, also those that compute little between
//! uses, lose only a small part of their time, and are tried again all along.

use crate::time::Time;

/// The amount charged, and the bound on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// One part in so many of the time may be lost; zero means no bound.
    part: u64,
    charged_ns: u64,
}

impl Worth {
    pub(super) fn new(part: u64) -> Self {
        Self {
            part,
            charged_ns: 0,
        }
    }

    /// True if there is a bound.
    pub(super) fn is_bounded(&self) -> bool {
        self.part != 0
    }

    /// True if this amount may be charged as well.
    pub(super) fn affords(&self, ns: u64, now: Time) -> bool {
        let charged = self.charged_ns.saturating_add(ns);
        now.0
            .checked_div(self.part)
            .is_none_or(|most| charged <= most)
    }

    /// The time from which this amount may be charged as well, if nothing is charged meanwhile.
    pub(super) fn affords_from(&self, ns: u64) -> Option<Time> {
        let charged = self.charged_ns.saturating_add(ns);
        charged.checked_mul(self.part).map(Time)
    }

    pub(super) fn charge(&mut self, ns: u64) {
        if self.is_bounded() {
            self.charged_ns = self.charged_ns.saturating_add(ns);
        }
    }

    pub(super) fn refund(&mut self, ns: u64) {
        self.charged_ns = self.charged_ns.saturating_sub(ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_charged_than_a_part_of_the_time() {
        let mut worth = Worth::new(100);
        assert!(worth.is_bounded() && !worth.affords(1, Time(99)));
        assert!(worth.affords(1, Time(100)));
        worth.charge(5);
        assert_eq!(worth.affords_from(2), Some(Time(700)));
        assert!(!worth.affords(2, Time(699)) && worth.affords(2, Time(700)));
        worth.refund(5);
        assert!(worth.affords(2, Time(200)));
    }

    #[test]
    fn without_a_bound_all_is_affordable() {
        let mut worth = Worth::new(0);
        worth.charge(u64::MAX);
        assert!(worth.affords(u64::MAX, Time(0)) && !worth.is_bounded());
    }
}
