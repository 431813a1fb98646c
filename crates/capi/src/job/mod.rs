//! The functions of jobs. The file `types.rs` has the types of C, and `objects.rs` the objects that handles lead
//! to. Each other file has the functions of one subject.

#![allow(unsafe_code)] // pointers of C
#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "C's rules for pointers apply, as the header says"
)]

mod objects;
mod words;

pub mod accumulate;
pub mod anywhere;
pub mod atomics;
pub mod background;
pub mod collectives;
pub mod counters;
pub mod exposed;
pub mod lifecycle;
pub mod locks;
pub mod memory;
pub mod messages;
pub mod reductions;
pub mod rma;
pub mod sections;
pub mod signals;
pub mod teams;
pub mod two_sided;
pub mod types;
