//! Memory of ranks: their segments, and places that the conduit was given.
//!
//! The one place for `unsafe` code but for the contract's own unsafe methods: a [`Place`] is
//! made from what a caller of those promised, and can then be copied to and from by safe code.

mod place;
mod segment;

pub(crate) use place::{Place, take};
pub(crate) use segment::Segment;

/// Bytes of a page of the machine that simulates.
pub(crate) const PAGE: usize = 4096;
