//! `errors.rs` once more, where memory is reached only where it is pinned.

#[path = "support/pinned.rs"]
mod support;

#[path = "errors/fixture.rs"]
#[macro_use]
mod fixture;

#[path = "errors/bounds.rs"]
mod bounds;
#[path = "errors/collective.rs"]
mod collective;
#[path = "errors/lifetime.rs"]
mod lifetime;
#[path = "errors/memory.rs"]
mod memory;
#[path = "errors/messages.rs"]
mod messages;
#[path = "errors/overlap.rs"]
mod overlap;
#[path = "errors/pointers.rs"]
mod pointers;
#[path = "errors/ranks.rs"]
mod ranks;
#[path = "errors/waiting.rs"]
mod waiting;
