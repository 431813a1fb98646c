//! A clock that the operations in flight share. It is slower while there are more of them, so that
//! each is charged its part of the time.

/// The shared clock.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::engine) struct Meter {
    /// The driver's clock at the last call, in nanoseconds.
    told: Option<u64>,
    shared: u64,
    idle: u64,
}

/// The part, one in so many, that is charged for time hidden under a transfer.
const HIDDEN: u64 = 4;

impl Meter {
    /// Advances the clock to `now`. Since the last call `in_flight` operations were in flight, and
    /// `moved` says if the network moved data of any.
    pub(in crate::engine) fn tell(&mut self, now: u64, in_flight: usize, moved: bool) {
        if let Some(told) = self.told {
            let passed = now.saturating_sub(told);
            self.shared += passed / in_flight.max(1) as u64;
            self.idle += passed / if moved { HIDDEN } else { 1 };
        }
        self.told = Some(now);
    }

    /// Returns true once the driver tells the time.
    pub(super) fn is_running(&self) -> bool {
        self.told.is_some()
    }

    /// The time in which the network was idle, plus a small part of the rest.
    pub(super) fn idle(&self) -> u64 {
        self.idle
    }

    /// The time that one of the operations in flight was charged.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_in_flight_share_the_time() {
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
