//! Active messages: the core API, and typed remote calls on top of it.
//!
//! A *request* runs a handler on the target. That handler may *reply* once, which runs a handler on
//! the initiator. A short message has arguments alone. A medium message adds a payload, which the
//! handler reads in place. A long message puts data into symmetric memory first.
//!
//! - **Order**: requests from one rank to another are handled in the order sent, and so are
//!   replies. A request and a reply have no order, and neither have messages of different pairs.
//! - **Limits**: [`Job::limits`](crate::Job::limits). Arguments and results of calls are limited by
//!   memory alone: if one exceeds a message, its owner exposes it and the peer gets it (a
//!   rendezvous).
//! - **Flow**: a request that finds no room waits, and polls meanwhile. A handler never waits: its
//!   reply is always accepted, and its requests are kept until there is room. So ranks may flood
//!   each other, call back and call onward without deadlock, and nothing is dropped. Memory is
//!   bounded: a handler whose rank keeps 64 MiB for its peers gets
//!   [`Error::OnwardFull`](crate::Error::OnwardFull). An endless chain of calls takes the memory
//!   of its links in flight, and ends with the job.
//! - **Where handlers run**: on the thread that polls, which is the service thread or a waiting
//!   application thread. Each rank runs one handler at a time.
//! - **Functions that take their time** ([`async_function`](crate::Job::async_function)) are tasks
//!   of the called rank. Polling threads poll them, each task by one thread at a time. They may
//!   await operations, calls and anything else that wakes them.
//! - **Failure**: the sender learns of a handler that panics or is unknown to the target.
//!   The result of a [`call`](crate::Job::call) reports the failure, and
//!   [`am_quiet`](crate::Job::am_quiet) reports it for plain requests.

mod answer;
pub(crate) mod call;
mod calls;
mod context;
mod failure;
mod handle;
mod handler;
mod handlers;
mod large;
mod late;
pub(crate) mod request;
mod route;
pub(crate) mod serve;
mod signature;
mod status;

pub use call::{Function, Limits, encoded_len};
pub(crate) use calls::Calls;
pub use context::HandlerContext;
pub(crate) use handle::CallFuture;
pub use handle::CallHandle;
pub use handler::Handler;
pub(crate) use handler::HandlerName;
pub(crate) use handlers::{HandlerFn, Messages};
pub(crate) use large::{BoxedFuture, LoanGuard, Rendezvous};
pub(crate) use signature::HandlerSignature;
