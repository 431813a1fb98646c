//! The programs of the papers, on the public API.
//!
//! Cannon's matrix multiplication ([`cannon`]) and bitonic sort ([`bitonic`]) are the programs that
//! Firehose was measured with (§4.3, table 3). They use nothing but the public API, like a user's
//! program. [`hammer`] tests faults: its ranks access each other's memory all the time and check
//! all that they read. [`torture`] runs every operation of the API in random order, and checks the
//! results. Cannon and bitonic are made of these modules:
//!
//! | | |
//! |---|---|
//! | [`program`] | arguments, joining the job, errors, the exit status |
//! | [`options`] | arguments that both programs take |
//! | [`shape`] | which numbers of ranks fit, and what to say of those that do not |
//! | [`input`], [`seed`] | elements from a file or a seed, and results into a file |
//! | [`matrix`], [`sort`] | the serial parts: kernels, schedules, checks |
//! | [`buffer`] | memory to put from that lies the same in every run |
//! | [`exchange`] | blocks from rank to rank by one-sided puts with signals |
//! | [`together`] | one answer for all ranks |
//! | [`report`], [`progress`] | what the user sees |

pub mod bitonic;
pub mod buffer;
pub mod cannon;
pub mod exchange;
pub mod hammer;
pub mod input;
mod kernel;
pub mod matrix;
pub mod options;
pub mod program;
pub mod progress;
pub mod report;
pub mod seed;
pub mod shape;
pub mod sort;
pub mod together;
pub mod torture;
