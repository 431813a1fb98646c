//! Communication traces of real programs, and how well predictors foresee the uses of buffers in them (Li and others
//! 2011, Figures 5 and 6). It is for experiments and tests, and not shipped.

pub mod evaluation;
pub mod predictor;
mod read;
pub mod trace;

pub use read::{ReadError, read, unpack};
