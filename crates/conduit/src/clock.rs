//! Time, which may be virtual.

use std::time::Duration;

use crate::Sink;

/// The clock of a conduit. In real time it only tells the time. In virtual time the application
/// must report its work, because only reported work takes time there.
pub trait Clock {
    /// Returns the time since the job started, on the conduit's clock.
    fn now(&self) -> Duration;

    /// Reports that the application computes this many operations. Does nothing in real time, where
    /// the computation itself takes time. In virtual time the clock advances by the cost of the
    /// computation. Messages that arrive meanwhile are delivered as the host attends to them. So
    /// are the ends of operations that others [wait for](Sink::is_awaited). The computation ends at
    /// the latest when the clock does.
    fn compute(&self, operations: u64, sink: &mut dyn Sink) {
        let _ = (operations, sink);
    }

    /// Reports that the caller polls memory that others change. Does nothing in real time, where
    /// memory changes by itself. In virtual time the poll takes a moment, and earlier events happen
    /// first. Nothing is delivered.
    fn poll_memory(&self) {}

    /// Registers the calling thread as a part of this rank. Does nothing in real time. In virtual
    /// time the thread then has a clock, which begins at the rank's time. Its first turn comes at
    /// that time, whenever its first call is made, and later actions of others wait for that. Call
    /// this while another thread of the rank is active and waits for it.
    fn take_part(&self) {}

    /// Reports that the layer above copied this many bytes in memory. Payloads of messages are not
    /// reported: their copies at both ends are counted already. Does nothing in real time, like
    /// [`compute`](Self::compute).
    fn copied(&self, bytes: usize) {
        let _ = bytes;
    }
}
