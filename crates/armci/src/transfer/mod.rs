//! Puts, gets and accumulates: contiguous, strided and of vectors.
//!
//! Where memory is mapped an operation is complete when its call returns, a non-blocking one, too.
//! Elsewhere a blocking put returns when its source is free, and is [outstanding] until it is done, as a
//! non-blocking operation is until it was waited for.

mod accumulate;
mod columns;
mod contiguous;
mod gathered;
mod handle;
mod missed;
mod outstanding;
mod packed;
mod strided;
mod value;
mod vector;

pub use accumulate::Scale;
pub(crate) use gathered::is_too_early;
pub use handle::Handle;
pub(crate) use handle::Handles;
pub(crate) use outstanding::Outstanding;
pub use strided::Strides;
pub use vector::Vector;

/// Runs at least so long go one by one, if a non-blocking operation has only a few of them: the others
/// are [packed].
const LONG: usize = 4096;
const FEW: usize = 16;

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Put,
    Get,
}
