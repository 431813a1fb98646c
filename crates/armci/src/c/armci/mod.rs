//! The types of `armci.h`, and its functions for setup, allocation, synchronization, groups and
//! nodes.

mod allocate;
mod group;
mod lifecycle;
mod mutexes;
mod nodes;
mod synchronize;
mod types;

pub use allocate::*;
pub use group::*;
pub use lifecycle::*;
pub use mutexes::*;
pub use nodes::*;
pub use synchronize::*;
pub use types::*;
