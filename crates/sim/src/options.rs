//! Options and fault injection of a world, and the statistics of a rank.

use std::time::Duration;

use hydrant_conduit::Rank;

/// How a world is set up.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Bytes of the segment of each rank: address space that becomes memory when touched.
    pub segment: usize,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Faults to inject.
    pub faults: Faults,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            segment: 64 << 20,
            seed: 1,
            faults: Faults::default(),
        }
    }
}

/// Faults to inject, in virtual time.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The probability that a packet is lost, beside the profile's own. A lost packet is sent again
    /// after the profile's time, with all later packets to the same peer.
    pub loss: f64,
    /// Each packet is late by a random time below this.
    pub delay: Duration,
    /// Ranks that die, and when. From then on peers see them as lost. Each of their calls unwinds
    /// with [`Died`], as a killed process would end in it.
    pub deaths: Vec<(Rank, Duration)>,
    /// Ranks that compute without attending to messages: rank, from, until.
    pub busy: Vec<(Rank, Duration, Duration)>,
}

/// The panic payload with which the threads of a rank unwind that dies by [`Faults::deaths`].
#[derive(Debug, Clone, Copy)]
pub struct Died(pub Rank);

/// Counts of a rank's work so far.
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
    /// Pages that the NIC had to page in.
    pub page_faults: u64,
    /// Packets lost on the way to this rank.
    pub lost_packets: u64,
    /// Time spent in registering and deregistering.
    pub registering: Duration,
    /// Time spent in computing.
    pub computing: Duration,
}
