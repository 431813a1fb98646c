//! Teams, and the collectives of their members.
//!
//! # Which file does what
//!
//! | step | files |
//! |---|---|
//! | calls of users | [`all_gather`], [`all_to_all`], [`barrier`], [`broadcast`], [`gather`], [`reduce`], [`reduce_scatter`], [`scan`], [`scatter`], [`split`]; [`non_blocking`] and [`non_blocking_reductions`] begin the same futures; [`job_collective`] for the job itself |
//! | arguments | [`op`], [`located`], [`kind`]: reductions and types; [`blocks`]: uneven blocks; [`by_team`]: puts and gets by team rank |
//! | agreement | [`header`]: the call that members compare; [`agree`]: the rounds; [`piggyback`]: short data on them; [`piggybacked_blocks`]: reads and folds that data |
//! | long data, flat team | [`board`]: slots in scratch; [`streams`]: moves slots; [`stream_plans`]: the streams of each collective; [`board_scan`] |
//! | long data, other teams | [`channel`]: chunks with credit; [`direct`]: writes from buffer to buffer; [`channel_fold`]; schedules over them: [`tree`], [`exchange`] |
//! | scratch | [`layout`]: offsets; [`area`]: allocation; [`peer`]: access to other members' scratch; [`stores`]: the same by messages |
//! | waiting | [`team`]: state and turns; [`awaited`]: the condition waited for; [`queue`]: collectives in the background |
//!
//! A *flat* team has 2 to 16 members, and each maps the memory of all others.
//!
//! A collective `x` of users has a future `x_async`, which serves blocking and background calls. Short data is
//! piggybacked within it. The rest is a future `x_long`, boxed so that the first one is short.
//!
//! # The path of an all-reduce
//!
//! [`Team::all_reduce`] (`reduce`) takes the team's turn (`team`) and polls `all_reduce_async` (`reduce`) once,
//! which waits inside.
//!
//! - **8 B.** `piggyback_blocks` (`piggybacked_blocks`) runs the rounds of the agreement (`agree`). In a
//!   flat team the bytes lie inside the lines. In other teams `piggyback` says which blocks go with each round.
//!   Then `fold_all` (`piggybacked_blocks`) folds the blocks in the order of members.
//! - **4 KiB** is the most that a flat team piggybacks. The path is the same, but `agree` writes the block to this
//!   member's scratch, and `fold_all` reads the blocks there. Other teams piggyback as long as all blocks
//!   together have at most 8 KiB: 4 KiB with two members. Longer data takes the path of 1 MiB.
//! - **1 MiB** does not fit, so `all_reduce_long` (`reduce`) goes on.
//!   - Flat team: `stream_plans` makes a stream of each member's slice to the member that folds it. `streams` shows
//!     the first slots early, agrees, and folds slots from `board` as they arrive. A second phase, `share`
//!     (`exchange`), streams the folded slices to all.
//!   - Other teams: the members agree without data. `exchange` brings each slice to the member that folds it, over
//!     `channel`, or by writes of `direct`. `reduce` folds the slice, and `share` (`exchange`) sends it to all.
//!
//! # Agreement
//!
//! [`agree`] is a dissemination (Hensgen, Finkel and Manber, 1988), as in GASNet's barrier. Every member sends
//! the header of its call: sizes, root and operation. After ⌈log₂ n⌉ rounds every member knows that all are here
//! and whether all made the same call. A flat team needs one step. A barrier is an agreement without data.
//! Short blocks are piggybacked: all-gathers by Bruck's algorithm, gathers up a binomial tree, broadcasts and
//! scatters down such a tree.
//!
//! Where blocks have different lengths, the members exchange the lengths, compare them with their room, and agree
//! once more before any data moves.
//!
//! # Blocking calls and calls in the background
//!
//! A future awaits words that other members store ([`awaited`]). A blocking call polls its future once, and the
//! poll waits as any other wait does. So it needs neither a waker nor an allocation. A call in the background
//! leaves its future to the team's [`queue`].
//!
//! # Guarantees
//!
//! - **Disagreement** is [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) on every member, and
//!   nothing is changed. The team stays usable. A member whose own arguments are unfit (a root out of range, say)
//!   gets the error of its argument.
//! - **A lost member** is [`Error::PeerLost`](crate::Error::PeerLost) on every member that still needs the others.
//!   Where scratch is not mapped, a member that has all its data may get this error, too. Buffers may be partly
//!   written, and later calls of the team fail alike.
//! - **Reductions** combine by rank from the left, whatever the algorithm. The result is that of a serial fold, bit
//!   for bit, and the same on every rank.
//! - A team's collectives are called by one thread at a time, in the same order on every member. A second thread
//!   gets [`Error::OutOfTurn`](crate::Error::OutOfTurn).
//! - A collective returns when its result is here. Only a barrier, or a collective whose result depends on every
//!   member, shows that the other members have called it.
//!
//! # Memory
//!
//! Each rank's segment keeps 16 MiB of address space for teams. At each member a team takes about
//! 72 KiB × ⌈log₂ n⌉ + 64 n bytes of it, a flat team 512 KiB + 8.3 KiB × n. Pages that no collective used take no
//! memory. So about 30 teams of 4 members, or 35 of 64, exist at once. If a split finds no room, every caller gets
//! [`Error::OutOfMemory`](crate::Error::OutOfMemory).

mod agree;
mod all_gather;
mod all_to_all;
mod area;
mod barrier;
mod blocks;
mod board;
mod board_scan;
mod broadcast;
mod by_team;
mod channel;
mod channel_fold;
mod cleared;
#[cfg(feature = "num-complex")]
mod complex;
mod direct;
mod elements;
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
mod piggyback;
mod piggybacked_blocks;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod shift;
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
