//! A look at the ranks of running jobs, for `hydrant top`.
//!
//! A rank that is started with `HYDRANT_TOP=on` listens on a socket of its host. A thread sleeps there and does nothing
//! until somebody connects. It then [counts](RankSnapshot) what the rank has registered, writes that down and hangs up.
//! Without the setting there is no socket and no thread.
//!
//! - **Only processes of the same user** get an answer. The kernel tells who connected. The thread hangs up on all
//!   others, and reads from nobody, so there is no request that could be wrong.
//! - **A reader that reads nothing** gets what fits into the socket. After a quarter of a second the thread hangs up.
//!   Only that thread waits.
//! - **No file remains.** The socket has an abstract name, which ends with the process, however it ends. Hence ranks are
//!   found only from within their network namespace.
//!
//! [`addresses`] finds the sockets of a host, and [`ask`] gets the snapshots of all of them at once.

mod find;
mod serve;
mod snapshot;
mod wire;

pub use find::{NoAnswer, RankAddress, RankAnswer, addresses, ask};
pub(crate) use serve::SnapshotServer;
pub use snapshot::{FirehoseBytes, RankSnapshot, RegisteredMemory};
pub use wire::UnreadableSnapshot;
