//! The tags of a result.

pub(super) const DONE: u16 = 0;
pub(super) const UNFIT: u16 = 1;
pub(super) const PANICKED: u16 = 2;
/// The caller is to get the result, which is exposed.
pub(super) const LENT: u16 = 3;
/// The caller got the result.
pub(super) const RELEASED: u16 = 4;
/// The callee got the argument, and the function, which may take its time, has begun.
pub(super) const BEGUN: u16 = 5;
