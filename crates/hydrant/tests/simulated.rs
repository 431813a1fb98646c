//! Jobs in virtual time.

#[path = "support/simulated.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "active_messages/handlers.rs"]
mod handlers;
#[path = "memory/paging.rs"]
mod paging;
#[path = "rma/virtual_time.rs"]
mod virtual_time;
