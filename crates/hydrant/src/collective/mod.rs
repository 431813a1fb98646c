//! Operations of many ranks together, and the teams that do them.
//!
//! # How a collective goes
//!
//! 1. **Agreement** ([`agree`]): a dissemination (Hensgen, Finkel and Manber, 1988; the one
//!    of GASNet's barrier) in which every member tells what it calls, with which sizes, root
//!    and operation. After ⌈log₂ n⌉ rounds every member knows that all are here and whether
//!    all called the same. A barrier is that and no more.
//! 2. **Data.** What is small rides on the agreement and is there when it ends: the blocks
//!    of all members to all by Bruck's algorithm, or up a binomial tree to the one that wants them; one
//!    member's to all by spreading, or parts of it down such a tree. What is not goes
//!    in chunks through [channels](self::channel) with flow control: along a binomial [tree]
//!    (broadcast, gather, scatter), by Bruck's rounds (all-gather), from one member to the next (scans) or by
//!    [pairwise exchange](exchange) (all-to-all; and reductions, where each member folds its slice of the elements
//!    for all; of two the root folds all).
//!
//! A team is *flat* if it has 16 members at most and each maps the memory of each. Then the agreement has one
//! round, in which each tells all others, and what is not small is shown on [boards](board) from
//! which the others read it, as [streams]: they begin before the agreement ends.
//!
//! Where blocks have different lengths the members tell each other how long they are, compare that
//! with what they have room for, and agree once more, before any data moves.
//!
//! PeerScratch that is not mapped here is stored to by [messages](stores) instead. What is long goes around it, by a
//! [write](direct) from buffer to buffer, where the network registers memory and there is room for that. The rest is
//! the same.
//!
//! # Blocking or not
//!
//! Each algorithm is written once, as a future that awaits the words that others store
//! ([`awaited`]). A blocking call polls it once and waits, in that poll, as for anything else; so
//! there is neither a waker nor an allocation. A call that does not block leaves it to the team's
//! [queue].
//!
//! # What is promised
//!
//! - **Disagreement** is [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) on
//!   every member, whatever it called; nothing was changed, and the team stays usable: the
//!   next collective pairs with the next. A member whose own arguments are unfit (a root
//!   out of range, say) gets that error itself.
//! - **A lost member** is [`Error::PeerLost`](crate::Error::PeerLost) on every member that
//!   still needs the others, and where scratch is not mapped perhaps on one that has all it
//!   needs but cannot know. Buffers may be partly written, and the team is useless: later
//!   calls fail alike.
//! - **Reductions** combine by rank, from left to right, whatever the algorithm: results are
//!   those of a serial fold, bit for bit, also for floats, and the same on every rank.
//! - A team's collectives are called by one thread at a time, in the same order on every
//!   member. A second thread gets [`Error::OutOfTurn`](crate::Error::OutOfTurn).
//! - A collective returns when its result is here. Only a barrier, or a collective whose
//!   result depends on every member, says that the others are as far.
//!
//! # What it costs
//!
//! A team of n members takes, in the 16 MiB that each rank's segment keeps for this, about
//! 72 KiB × ⌈log₂ n⌉ + 64 n bytes of address space at each of its members, a flat one 512 KiB + 8.3 KiB × n; pages
//! that no collective used take no memory. So some 30 teams of 4 can be at once, or 35 of 64. When
//! a split finds no room every caller gets [`Error::OutOfMemory`](crate::Error::OutOfMemory).

mod agree;
mod all_gather;
mod all_to_all;
mod area;
mod awaited;
mod barrier;
mod blocks;
mod board;
mod board_scan;
mod broadcast;
mod by_team;
mod channel;
mod channel_fold;
#[cfg(feature = "num-complex")]
mod complex;
mod direct;
mod exchange;
mod gather;
#[cfg(feature = "half")]
mod half_precision;
mod header;
mod job_collective;
mod kind;
mod layout;
mod located;
mod non_blocking;
mod non_blocking_reductions;
mod op;
mod peer;
mod piggyback;
mod piggybacked_blocks;
mod queue;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod split;
mod stores;
mod stream_plans;
mod streams;
mod team;
mod tree;

pub use blocks::Blocks;
pub use by_team::ByTeam;
pub(crate) use header::CollectiveKind;
pub(crate) use job_collective::JobCollective;
pub use located::Located;
pub use op::{Op, Reducible};
pub(crate) use stores::Stores;
pub use team::Team;
