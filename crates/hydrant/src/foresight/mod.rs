//! The strategy `foresight`. A helper thread evicts buffers after their use and registers them
//! again just before the next use, which it predicts (Li and others 2011, §3 and §4).
//!
//! [`hydrant_foresight`] decides, and the engine behind [`registration`](crate::registration) owns
//! the registrations. This room has the threads. Application threads [record](record) each use. The
//! [helper](helper) reads the records, asks the plan what to do, and has the engine do it. Without
//! a helper, all memory is registered on demand and stays registered until room is short.
//!
//! In virtual time the helper is one more thread of the rank, on a core of its own, and takes turns
//! as all threads do.
//!
//! # How the helper and the engine share the work
//!
//! The engine takes the place of the paper's registration cache. The helper asks the engine to
//! register memory ahead (`Engine::foresee`) and to evict it (`Engine::give_up`). Neither holds
//! anything. So memory in use stays registered, the limits hold, and revocations work as without a
//! helper. The plan limits how many bytes are registered in all (`Engine::keep_within`). Beyond
//! that the engine evicts unused memory before it registers on demand, and reports it
//! (`take_crowded_out`). The plan also names the pages that long buffers share (`set_apart`).
//!
//! Peers ask for each operation, and keep only firehoses that were moved ahead. So each helper
//! manages only memory of its own rank. A put, a get and a peer's request are recorded when they
//! begin. A message is recorded at its end, in the program's order, because the network's order
//! never repeats itself.
//!
//! Puts and gets are also recorded as uses of the peer's memory. A second plan moves firehoses
//! there ahead of use (`Engine::attach`) and releases them (`detach`). A release leaves with the
//! operation that uses the firehoses, so it is in flight before the program goes on ([`remote`]).
//!
//! Helpers that share idle cores publish how much their ranks have registered
//! (`Membership::publish`). All compute the same placements ([`cores`]). In virtual time the helper
//! takes turns from the first use on (`Clock::take_part`).
//!
//! Without the feature `foresight` there is none of this, and the strategy is refused.

#[cfg(not(feature = "foresight"))]
mod absent;
#[cfg(feature = "foresight")]
mod cores;
#[cfg(feature = "foresight")]
mod foreseeing;
#[cfg(feature = "foresight")]
mod helper;
#[cfg(feature = "foresight")]
mod record;
#[cfg(feature = "foresight")]
mod remote;
#[cfg(feature = "foresight")]
mod start;
#[cfg(feature = "foresight")]
mod unfinished;

#[cfg(not(feature = "foresight"))]
pub(crate) use absent::NoForeseeing as Foreseeing;
#[cfg(feature = "foresight")]
pub(crate) use foreseeing::Foreseeing;
#[cfg(feature = "foresight")]
pub use foreseeing::Foresight;
