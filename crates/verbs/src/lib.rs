//! The conduit over RDMA NICs, through libibverbs opened at run time.
//!
//! Nothing is built here yet; the crate holds its place in the workspace so that
//! the floors of `ARCHITECTURE.md` can be seen in the tree.
