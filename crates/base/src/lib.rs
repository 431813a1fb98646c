//! Small parts that several crates share, so that each exists once. They depend on nothing.

pub mod executor;
pub mod gaps;
pub mod random;
pub mod recent;
pub mod words;

pub use executor::block_on;
pub use gaps::Gaps;
pub use random::{Random, mix};
