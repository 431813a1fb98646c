//! What bad input gets: the right error with the rank, the size and the limit in it, nothing
//! changed, and a job that goes on.

#[macro_use]
pub(crate) mod fixture;

mod bounds;
mod collective;
mod lifetime;
mod memory;
mod messages;
mod overlap;
mod pointers;
mod ranks;
mod sections;
mod waiting;
