//! `active_messages.rs` once more, where memory is reached only where it is pinned.

#[path = "support/pinned.rs"]
mod support;

#[path = "active_messages/handlers.rs"]
mod handlers;
