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

mod call;
mod context;
mod engine;
mod failure;
mod pump;
mod request;
#[cfg(test)]
mod tests;

pub use call::{Function, Limits};
pub use context::HandlerContext;
pub(crate) use engine::Engine;
pub use engine::Handler;
pub(crate) use pump::Pump;

/// What a message is, in its kind.
pub(crate) mod kind {
    /// A request for a user's handler, and the reply to one.
    pub(crate) const USER: u8 = 0;
    /// A remote call, and its result.
    pub(crate) const CALL: u8 = 1;
    /// A reply that says how a request failed.
    pub(crate) const FAILURE: u8 = 2;
    /// A store into the scratch of a team.
    pub(crate) const STORE: u8 = 3;
    /// An atomic operation, and what the word was.
    pub(crate) const ATOMIC: u8 = 4;
    /// A message between the engines that decide what is registered.
    pub(crate) const REGISTRATION: u8 = 5;
    /// About an exposed buffer: where it lies, that it goes, that it is used no more.
    pub(crate) const LOAN: u8 = 6;
}
