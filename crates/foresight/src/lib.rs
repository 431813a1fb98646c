//! When a buffer will be needed again: registration ahead of need by a helper thread that predicts,
//! after *Scalable Memory Registration for High Performance Networks Using Helper Threads* (Li,
//! Cameron, Nikolopoulos, de Supinski, Schulz 2011), whose sections the module documentation names.

pub mod cache;
mod communication;
mod costs;
pub mod evaluation;
#[cfg(all(test, loom))]
mod model;
pub mod plan;
pub mod predictor;
pub mod queue;
pub mod sharing;
mod signature;
mod sync;
mod time;
pub mod trace;

pub use communication::{Communication, FRAMES, Kind, Region, Way};
pub use costs::{Backlog, Costs, LinearCost};
pub use signature::{Context, DEFAULT_WINDOW, MAX_WINDOW, Signature};
pub use time::Time;
