//! When a buffer will be needed again (Li 2011), as a state machine without I/O, clock or threads.
//!
//! Nothing is built here yet; the crate holds its place in the workspace so that
//! the floors of `ARCHITECTURE.md` can be seen in the tree.
