//! Operations of many ranks together.

mod team;

pub use team::Team;
