//! The C interface of Mooncake's transfer engine on Hydrant's endpoints: the library `libtransfer_engine` with the 27
//! functions of `transfer_engine_c.h`, and two that give the reasons of failures.
//!
//! An engine (`engine`) listens at a TCP port (`door`), where peers get the address of its endpoint. Data,
//! questions and notifications go by the endpoint (`core`). A peer names memory by its address in the owner's
//! process. The owner says which registered memory has it (`memory`, `wire`), and the peer keeps the answer
//! (`segments`) until the owner revokes it. The tasks of a call are one batch of the endpoint (`transfer`,
//! `batches`).
//!
//! Engines and batches are numbers in tables, so that a wrong one is an error. No panic passes into C (`edge`).
//!
//! # Safety
//! C's caller fulfils these conditions, which the `SAFETY` comments of these files name:
//! - C1. A pointer to memory of this process is null, or leads to as many elements as the other arguments say, or to a
//!   string of C. They are readable where the function reads them, and writable where it writes them.
//! - C2. Meanwhile no other code writes to memory that the function reads, or uses memory that it writes. The memory of
//!   a task is used until the task has ended, or its engine is destroyed.
//! - C3. Registered memory is used by peers as by other threads, until it is not registered any more.
//! - C4. An array that is freed is one that `getNotifsFromEngine` returned, with its number, and is freed once.

mod batches;
pub mod c;
mod core;
mod door;
mod edge;
mod engine;
pub mod failure;
mod memory;
mod notifications;
mod questions;
mod segments;
mod shutdown;
mod transfer;
pub mod types;
mod wire;
