//! ARMCI's operation set on `hydrant`, and its C ABI.
//!
//! Nothing is built here yet; the crate holds its place in the workspace so that
//! the floors of `ARCHITECTURE.md` can be seen in the tree.
