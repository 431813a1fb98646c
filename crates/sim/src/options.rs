//! What a world is started with, beside its profile.

use std::time::Duration;

use hydrant_conduit::Rank;

/// How a world is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of the segment of each rank: address space that becomes memory when touched.
    pub segment: usize,
    /// What all chance follows from.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment: 64 << 20,
            seed: 1,
            faults: Faults::default(),
        }
    }
}

/// What goes wrong, in virtual time.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The probability that a packet is lost, beside the profile's own; it is sent again
    /// after the profile's time, with all that was sent to the same peer after it.
    pub loss: f64,
    /// Each packet is late by a random time below this.
    pub delay: Duration,
    /// Ranks that die: from then on the peers see them lost, and each call of theirs unwinds
    /// with [`Died`] as a killed process would end in it.
    pub deaths: Vec<(Rank, Duration)>,
    /// Ranks that compute and attend to nothing in between: rank, from, until.
    pub busy: Vec<(Rank, Duration, Duration)>,
}

/// What the threads of a rank that dies by [`Faults::deaths`] unwind with.
#[derive(Debug, Clone, Copy)]
pub struct Died(pub Rank);

/// What a rank did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Requests and replies sent.
    pub messages: u64,
    /// One-sided writes begun.
    pub writes: u64,
    /// One-sided reads begun.
    pub reads: u64,
    /// Bytes of data sent, written and read.
    pub bytes: u64,
    /// Registrations made.
    pub registrations: u64,
    /// Registrations undone.
    pub deregistrations: u64,
    /// Bytes registered now, in whole pages.
    pub registered: u64,
    /// Bytes registered at most.
    pub registered_peak: u64,
    /// Pages that the NIC had to bring in.
    pub page_faults: u64,
    /// Packets lost on the way to this rank.
    pub lost_packets: u64,
    /// Time spent in registering and deregistering.
    pub registering: Duration,
    /// Time spent in computing.
    pub computing: Duration,
}
