//! Communication traces of real programs: one file a rank, read strictly.
//!
//! The format is "PMT2", little endian: a header of eight words, then records of 72 bytes, one
//! or several for each MPI call. [`RankTrace::parse`] reads one file, and [`Trace::new`] puts the ranks of
//! a job together. Files come from anywhere, so whatever is wrong with them is an [`Error`] that names the
//! file, the rank, the record and its byte; nothing is guessed or skipped. Opening files and unpacking
//! archives is the caller's part.

mod error;
mod job;
mod rank;
mod record;

pub use error::{Error, Fault};
pub use job::Trace;
pub use rank::{MAX_RANKS, RankTrace};
pub use record::{Call, HEADER_BYTES, MAGIC, RECORD_BYTES, Record};

#[cfg(all(test, not(loom)))]
mod tests;
