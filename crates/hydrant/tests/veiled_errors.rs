//! `errors.rs` once more, where no peer's memory is mapped.

#[path = "support/veiled.rs"]
mod support;

#[path = "errors/fixture.rs"]
#[macro_use]
mod fixture;

#[path = "errors/bounds.rs"]
mod bounds;
#[path = "errors/collective.rs"]
mod collective;
#[path = "errors/exposed.rs"]
mod exposed;
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
