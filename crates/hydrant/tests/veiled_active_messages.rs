//! `active_messages.rs` once more, where no peer's memory is mapped.

#[path = "support/veiled.rs"]
mod support;

#[path = "active_messages/handlers.rs"]
mod handlers;
