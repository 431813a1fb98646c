//! Puts, gets and accumulates: contiguous, strided, and of vectors.
//!
//! An operation on mapped memory is complete when its call returns, even a non-blocking one.
//! Through the network, a blocking put returns when its source is free. It is then [outstanding]
//! until it is done. A non-blocking operation is outstanding until it was waited for.

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
mod work;

pub(crate) use gathered::is_too_early;
pub use handle::Handle;
pub(crate) use handle::HandleTable;
pub(crate) use outstanding::Outstanding;
pub use strided::Strides;
pub use vector::Vector;

/// The least length in bytes of runs that go one by one in a non-blocking operation of few runs.
/// Other runs are [packed].
const LONG: usize = 4096;
/// The greatest number of such runs.
const FEW: usize = 16;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PutOrGet {
    Put,
    Get,
}
