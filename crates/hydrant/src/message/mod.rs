//! Active messages: the core API, and typed remote calls on top of it.
//!
//! A *request* runs a handler on the target; the handler may *reply* once, which runs a
//! handler here. Messages are short (arguments alone), medium (with a payload the handler
//! reads in place) or long (with data put into symmetric memory first).
//!
//! - **Order**: requests from one rank to another are handled in the order sent, and so are
//!   replies; between the two, and between different pairs, there is no order.
//! - **Limits**: [`Job::limits`](crate::Job::limits). Arguments and results of calls have none but
//!   memory: one that no message takes is exposed by its owner and got by the other side (a
//!   rendezvous).
//! - **Flow**: a request that finds no room waits, and looks after messages while it does. A
//!   handler never waits: its reply is always taken, and requests of its own are kept until there
//!   is room. So ranks may flood each other, call back and call onward without deadlock, and nothing
//!   is dropped. Memory is bounded: a handler whose rank keeps 64 MiB for its peers gets
//!   [`Error::OnwardFull`](crate::Error::OnwardFull). A chain of calls that never ends takes no more
//!   memory than its links in flight, and ends with the job.
//! - **Where handlers run**: on the thread that polls, be it the service thread or an
//!   application thread in a wait; one at a time in each rank.
//! - **Functions that take their time**
//!   ([`async_function`](crate::Job::async_function)) are tasks of the rank that is called, polled by
//!   whichever thread polls, each by one at a time. They may await operations, calls and anything
//!   else that wakes them.
//! - **Failure**: a handler that panics, or is unknown to the target, is reported to the
//!   sender: by the result of a [`call`](crate::Job::call), by
//!   [`am_quiet`](crate::Job::am_quiet) for plain requests.

mod answer;
pub(crate) mod call;
mod calls;
mod context;
mod failure;
mod handle;
mod handlers;
mod large;
pub(crate) mod request;
mod route;
pub(crate) mod serve;
mod signature;

pub use call::{Function, Limits, encoded_len};
pub(crate) use calls::Calls;
pub use context::HandlerContext;
pub(crate) use handle::Call;
pub use handle::CallHandle;
pub use handlers::Handler;
pub(crate) use handlers::{HandlerFn, Messages, Name};
pub(crate) use large::{Later, Lent, Rendezvous};
pub(crate) use signature::Signature;
