//! The functions of endpoints: peers that come and go, without a job. The file `types.rs` has the types of C, and
//! `objects.rs` the objects that handles lead to. Each other file has the functions of one subject.

#![allow(unsafe_code)] // pointers of C
#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "C's rules for pointers apply, as the header says"
)]

mod objects;

pub mod batches;
pub mod events;
pub mod lifecycle;
pub mod peers;
pub mod regions;
pub mod remote;
pub mod types;
