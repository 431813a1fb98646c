//! Moments of the caller's clock; this crate reads no clock.

/// A moment, in nanoseconds of the caller's clock: the processor's time stamp counter, virtual time, or the computing
/// time of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

impl Time {
    /// The last representable moment.
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment `ns` nanoseconds later.
    #[inline]
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }

    /// The moment `ns` nanoseconds earlier, or the clock's first.
    #[inline]
    pub fn before(self, ns: u64) -> Time {
        Time(self.0.saturating_sub(ns))
    }

    /// The nanoseconds since `earlier`; zero if the clock was set back.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
