//! `memory.rs` once more, where memory is reached only where it is pinned.

#[path = "support/pinned.rs"]
mod support;

#[path = "memory/alloc.rs"]
mod alloc;
#[path = "memory/anywhere.rs"]
mod anywhere;
#[path = "memory/expose.rs"]
mod expose;
#[path = "memory/lend_again.rs"]
mod lend_again;
#[path = "memory/loans.rs"]
mod loans;
