//! Memory that peers can name: symmetric, exposed, any.

#[path = "support/local.rs"]
mod support;

#[path = "memory/alloc.rs"]
mod alloc;
#[path = "memory/anywhere.rs"]
mod anywhere;
#[path = "memory/direct.rs"]
mod direct;
#[path = "memory/expose.rs"]
mod expose;
#[path = "memory/lend_again.rs"]
mod lend_again;
#[path = "memory/loans.rs"]
mod loans;
