//! Communication traces of real programs: one file a rank, read strictly.
//!
//! The format is "PMT2", little endian: a header of eight words, then records of 72 bytes, one or several for each
//! MPI call. [`RankTrace::parse`] reads one file, and [`Trace::new`] combines the ranks of a job. Files come from
//! anywhere, so every fault is an [`Error`] that names the file, the rank, the record and its byte. Nothing is
//! guessed or skipped. The caller opens files and unpacks archives.

mod error;
mod format;
mod job;
mod rank;
mod record;

pub use error::{Error, TraceFault};
pub use format::{HEADER_BYTES, MAGIC, MAX_RANKS, RECORD_BYTES};
pub use job::Trace;
pub use rank::RankTrace;
pub use record::{MpiCall, TraceRecord};

#[cfg(test)]
mod tests;
