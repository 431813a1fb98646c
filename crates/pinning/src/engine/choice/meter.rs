//! A clock that several operations under way share: while there are more of them, it is slower, so
//! that what each takes by it is its part of the whole.

/// The shared clock.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::engine) struct Meter {
    /// The driver's clock when it was last told, in nanoseconds.
    told: Option<u64>,
    shared: u64,
    idle: u64,
}

/// What happens under a transfer costs one part in so many of its time.
const HIDDEN: u64 = 4;

impl Meter {
    /// The time is `now`, and since it was told last so many were under way, and the network `moved`
    /// data of some of them or not.
    pub(in crate::engine) fn tell(&mut self, now: u64, under_way: usize, moved: bool) {
        if let Some(told) = self.told {
            let passed = now.saturating_sub(told);
            self.shared += passed / under_way.max(1) as u64;
            self.idle += passed / if moved { HIDDEN } else { 1 };
        }
        self.told = Some(now);
    }

    /// Whether somebody tells the time.
    pub(super) fn is_running(&self) -> bool {
        self.told.is_some()
    }

    /// The time in which the network moved nothing; little of the other counts.
    pub(super) fn idle(&self) -> u64 {
        self.idle
    }

    /// The time that one of those under way had so far.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_under_way_share_the_time() {
        let mut meter = Meter::default();
        assert!(!meter.is_running());
        meter.tell(1000, 0, false);
        let begun = meter.shared();
        meter.tell(1400, 1, false);
        meter.tell(1600, 4, true);
        assert_eq!(meter.shared() - begun, 450);
        assert_eq!(meter.idle(), 450);
        // A clock that goes back takes nothing away.
        meter.tell(10, 1, false);
        assert_eq!(meter.shared() - begun, 450);
    }
}
