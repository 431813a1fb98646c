//! Two-sided messages on every network that ranks of one process can have, with every protocol, and
//! with the registration strategies that treat message buffers differently.

mod basics;
mod beside;
mod counted;
mod direct;
mod errors;
mod flood;
mod landings;
mod model;
mod pieces;
mod probes;

use hydrant::{ConduitKind, Job, JobBuilder, MessageProtocol, Rank, Result, Strategy};

/// Strategies that register the buffers of long messages, where the network needs that.
const STRATEGIES: [Strategy; 5] = [
    Strategy::Auto,
    Strategy::Firehose,
    Strategy::Bounce,
    Strategy::PinDown,
    Strategy::OnDemand {
        leave_pinned: false,
    },
];

/// A job on shared memory, with a small heap.
fn builder() -> JobBuilder {
    let builder = Job::builder().expect("the settings are valid");
    builder.heap(16 << 20).conduit(ConduitKind::Smp)
}

/// A job on played NICs, with little memory to register.
fn pinned(strategy: Strategy) -> JobBuilder {
    let builder = builder().conduit(ConduitKind::Pinned);
    builder
        .m(1 << 20)
        .maxvictim(256 << 10)
        .registration(strategy)
}

/// A job in virtual time.
fn simulated(profile: &str) -> JobBuilder {
    builder().conduit(ConduitKind::Sim(profile.to_owned()))
}

/// Bytes that an active message carries in [`in_pieces`].
const PIECE: usize = 4 << 10;
/// Bytes of the longest message in pieces.
const MOST_IN_PIECES: usize = 128 << 10;

/// A job whose messages of up to [`MOST_IN_PIECES`] bytes are sent at once, in pieces.
fn in_pieces() -> JobBuilder {
    let builder = pinned(Strategy::Auto).ring_payload(4 * PIECE);
    builder.messages_eager(MOST_IN_PIECES)
}

/// Networks whose ranks may have several threads.
fn real() -> Vec<JobBuilder> {
    let pinned = STRATEGIES.into_iter().map(pinned);
    let all = [builder(), in_pieces()];
    all.into_iter().chain(pinned).collect()
}

/// All networks.
fn all() -> Vec<JobBuilder> {
    let played = ["myrinet-gm", "connectx"].map(simulated);
    let in_pieces = simulated("connectx").messages_eager(MOST_IN_PIECES);
    (real().into_iter().chain(played))
        .chain([in_pieces])
        .collect()
}

/// Runs `n` ranks on each network with each protocol. Every rank must succeed.
fn by_each(networks: Vec<JobBuilder>, n: u32, body: impl Fn(&Job) -> Result<()> + Sync) {
    for network in networks {
        for protocol in MessageProtocol::ALL {
            good(network.clone().messages(protocol).run_local(n, &body));
        }
    }
}

/// Runs `n` ranks on shared memory. Every rank must succeed.
fn local(n: u32, body: impl Fn(&Job) -> Result<()> + Sync) {
    good(builder().run_local(n, body));
}

/// Panics unless all ranks have succeeded.
fn good(ends: Vec<Result<()>>) {
    for (rank, end) in ends.into_iter().enumerate() {
        end.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
    }
}

/// Returns numbers that tell their sender and tag.
fn numbers(job: &Job, tag: u64, count: usize) -> Vec<u32> {
    numbers_of(job.rank(), tag, count)
}

/// As [`numbers`], for another rank.
fn numbers_of(rank: Rank, tag: u64, count: usize) -> Vec<u32> {
    let first = rank.0 * 1_000_003 + tag as u32 * 7919;
    (0..count as u32)
        .map(|index| first.wrapping_add(index * 31))
        .collect()
}
