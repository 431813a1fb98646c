//! `memory.rs` once more, where no peer's memory is mapped.

#[path = "support/veiled.rs"]
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
