//! Jobs in virtual time.

#[path = "support/simulated.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "active_messages/handlers.rs"]
mod handlers;
#[path = "memory/lend_again.rs"]
mod lend_again;
#[path = "memory/paging.rs"]
mod paging;
#[path = "memory/virtual_loans.rs"]
mod virtual_loans;
#[path = "rma/virtual_time.rs"]
mod virtual_time;
