//! Moments of the caller's clock: nothing here reads one.

/// A moment, in nanoseconds of whatever clock the caller uses throughout: the processor's
/// time stamp counter, virtual time, or the computing time of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

impl Time {
    /// The last moment there is.
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment so many nanoseconds later.
    #[inline]
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }

    /// The moment so many nanoseconds earlier, or the clock's first.
    #[inline]
    pub fn before(self, ns: u64) -> Time {
        Time(self.0.saturating_sub(ns))
    }

    /// The nanoseconds since `earlier`; none where the clock was set back.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
