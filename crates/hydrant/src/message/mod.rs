//! Active messages: the core API, and typed remote calls on top of it.
//!
//! A *request* runs a handler on the target; the handler may *reply* once, which runs a
//! handler here. Messages are short (arguments alone), medium (with a payload the handler
//! reads in place) or long (with data put into symmetric memory first).
//!
//! - **Order**: requests from one rank to another are handled in the order sent, and so are
//!   replies; between the two, and between different pairs, there is no order.
//! - **Limits**: [`Job::limits`](crate::Job::limits).
//! - **Flow**: a request that finds no room waits, and looks after messages while it does. A
//!   handler never waits: it cannot send requests, and its reply is always taken. So ranks
//!   may flood each other without deadlock, in bounded memory, and nothing is dropped.
//! - **Where handlers run**: on the thread that polls, be it the service thread or an
//!   application thread in a wait; one at a time in each rank.
//! - **Failure**: a handler that panics, or is unknown to the target, is reported to the
//!   sender: by the result of a [`call`](crate::Job::call), by
//!   [`am_quiet`](crate::Job::am_quiet) for plain requests.

pub(crate) mod call;
mod calls;
mod context;
mod failure;
mod handle;
mod handlers;
pub(crate) mod request;
mod route;

pub use call::{Function, Limits, encoded_len};
pub(crate) use calls::Calls;
pub use context::HandlerContext;
pub use handle::CallHandle;
pub use handlers::Handler;
pub(crate) use handlers::Messages;
