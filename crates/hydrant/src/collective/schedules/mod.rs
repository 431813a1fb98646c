//! The collectives: which member sends which data to which, and when.
//!
//! A collective checks its arguments, agrees, and moves its data: piggybacked on the agreement if it is short,
//! else over streams. It calls what [`agreement`](super::agreement) and [`streams`](super::streams) offer.
//!
//! | files | what they do |
//! |---|---|
//! | [`all_gather`], [`all_reduce`], [`all_to_all`], [`barrier`], [`broadcast`], [`gather`], [`reduce`], [`reduce_scatter`], [`scan`], [`scatter`], [`split`] | calls of users |
//! | [`non_blocking`], [`non_blocking_reductions`] | begin the same futures in the background |
//! | [`job_collective`] | collectives of the job itself |
//! | [`exchange`], [`tree`], [`slices`] | schedules that several collectives use |

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod exchange;
mod gather;
mod job_collective;
mod non_blocking;
mod non_blocking_reductions;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod slices;
mod split;
mod tree;

pub(crate) use job_collective::JobCollective;
