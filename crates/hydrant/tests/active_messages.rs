//! Active messages between ranks of one process.

#[path = "support/local.rs"]
mod support;

#[path = "active_messages/handlers.rs"]
mod handlers;
