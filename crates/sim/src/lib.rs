//! The conduit in virtual time, with the hardware of the papers.
//!
//! Nothing is built here yet; the crate holds its place in the workspace so that
//! the floors of `ARCHITECTURE.md` can be seen in the tree.
