//! `active_messages.rs` once more, between two hosts that are pretended.

#[path = "support/mixed.rs"]
mod support;

#[path = "active_messages/handlers.rs"]
mod handlers;
