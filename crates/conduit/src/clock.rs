//! Time, which may be virtual.

use std::time::Duration;

use crate::Sink;

/// The clock of a conduit. In real time it does nothing but tell the time. In virtual time what the
/// application does has to be told to it, for that is what takes time there.
pub trait Clock {
    /// Time since the job started, on the clock of the conduit.
    fn now(&self) -> Duration;

    /// The application computes so many operations. In real time that takes what it takes
    /// and this does nothing; in virtual time it is what computing costs, and messages that
    /// arrive meanwhile, and the ends of operations that others
    /// [wait for](Sink::is_awaited), are delivered as the host attends to them. What would end after
    /// all time that the clock has ends before.
    fn compute(&self, operations: u64, sink: &mut dyn Sink) {
        let _ = (operations, sink);
    }

    /// The caller polls memory that others change. In virtual time that takes a moment, and what
    /// is earlier happens first; nothing is delivered. Does nothing in real time, where memory
    /// changes by itself.
    fn poll_memory(&self) {}

    /// The calling thread takes part in what this rank does from now on. In virtual time it has a clock
    /// from then on, which shows what the rank's shows, and its first turn comes at that time, whenever
    /// it makes its first call: what others do later waits for that. To be called while another
    /// thread of the rank is about something and waits for it. Does nothing in real time.
    fn take_part(&self) {}

    /// The layer above copied so many bytes in memory, beside what messages carry: those are
    /// copied once where they are sent and once where they are received, and that is counted
    /// already. Does nothing in real time, as [`compute`](Self::compute).
    fn copied(&self, bytes: usize) {
        let _ = bytes;
    }
}
