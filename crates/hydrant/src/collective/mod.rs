//! Teams, and the collectives of their members.
//!
//! # Which folder does what
//!
//! | part | where |
//! |---|---|
//! | memory that changes hands | [`handover`]: all ranks have given their handles up, or none has |
//! | collectives | [`schedules`]: which member sends which data to which; [`fold`]: the functions that reduce |
//! | long data | [`streams`]: chunks over boards, channels or direct writes |
//! | agreement, short data | [`agreement`]: all members make the same call, and piggyback short data |
//! | members | [`team`]: state, turns, waiting, collectives in the background |
//! | scratch | [`layout`]: offsets; [`area`]: allocation; [`stores`]: access by messages |
//! | arguments | [`op`], [`located`], [`kind`]: reductions and types; [`elements`]; [`blocks`]: uneven blocks; [`by_team`]: puts and gets by team rank |
//!
//! A part calls those below it in this table, and none above it. But `team` owns the board of a flat team, and
//! waits for its changes. `schedules` sees of `streams` and `agreement` only what their `mod.rs` names, and methods
//! that are `pub(in crate::collective)`.
//!
//! A *flat* team has 2 to 16 members, and each maps the memory of all others.
//!
//! A collective `x` of users has a future `x_async`, which serves blocking and background calls. Both agree on
//! short data by one future `x_short`. Blocking calls poll it without `x_async` around it: a future that a compiler
//! makes is moved, which takes a third of the time of a short call.
//!
//! # The path of an all-reduce
//!
//! [`Team::all_reduce`] (`schedules/all_reduce`) takes the team's turn (`team`).
//!
//! - **8 B.** `all_reduce_short` makes an agreement with blocks (`agreement/blocks`), which runs the rounds
//!   (`agreement/rounds`). In a flat team the bytes lie inside the lines. In other teams `agreement/piggyback` says
//!   which blocks go with each round. Then `fold_all` (`agreement/blocks`) folds the blocks in the order of members.
//! - **4 KiB** is the most that a flat team piggybacks. The path is the same, but `agreement/messages` writes the
//!   block to this member's scratch, and `fold_all` reads the blocks there. Other teams piggyback as long as all
//!   blocks together have at most 8 KiB: 4 KiB with two members. Longer data takes the path of 1 MiB.
//! - **1 MiB** does not fit, so the call polls `all_reduce_async` once, which waits inside.
//!   - Flat team: `streams/plans` makes a stream of each member's slice to the member that folds it. `streams/set`
//!     shows the first slots early, agrees, and folds slots from `streams/board` as they arrive. A second phase,
//!     `share` (`schedules/exchange`), streams the folded slices to all.
//!   - Other teams: the members agree without data. `schedules/exchange` brings each slice to the member that folds
//!     it, over `streams/channel`, or by writes of `streams/direct`. `schedules/slices` folds the slice, and `share`
//!     sends it to all.
//!
//! # Agreement
//!
//! An [`agreement`] is a dissemination (Hensgen, Finkel and Manber, 1988), as in GASNet's barrier. Every member sends
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
//! A future awaits words that other members store ([`team::awaited`]). A blocking call polls its future once, and the
//! poll waits as any other wait does. So it needs neither a waker nor an allocation. A call in the background
//! leaves its future to the team's queue.
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

mod agreement;
mod area;
mod blocks;
mod by_team;
#[cfg(feature = "num-complex")]
mod complex;
mod elements;
mod fold;
#[cfg(feature = "half")]
mod half_precision;
mod handover;
mod kind;
mod layout;
mod located;
mod op;
mod schedules;
mod stores;
mod streams;
mod team;

pub(crate) use agreement::CollectiveKind;
pub use blocks::Blocks;
pub use by_team::ByTeam;
pub(crate) use handover::{HandoverFailure, Handovers};
pub use located::Located;
pub use op::{Op, Reducible};
pub(crate) use schedules::JobCollective;
pub(crate) use stores::Stores;
pub use team::Team;
