//! `memory.rs` once more, where no peer's memory is mapped.

#[path = "support/veiled.rs"]
mod support;

#[path = "memory/alloc.rs"]
mod alloc;
#[path = "memory/anywhere.rs"]
mod anywhere;
#[path = "memory/expose.rs"]
mod expose;
#[path = "memory/loans.rs"]
mod loans;
