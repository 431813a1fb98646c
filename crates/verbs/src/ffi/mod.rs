//! The C interface of libibverbs: its structures, the functions loaded at run time, and the
//! functions that `<infiniband/verbs.h>` defines inline, which no library exports.
//!
//! `generated.rs` was made once, by:
//!
//! ```text
//! bindgen verbs.h --dynamic-loading Libibverbs --dynamic-link-require-all
//!   --allowlist-function '(those of the structure Libibverbs)'
//!   --allowlist-type 'ibv_context|verbs_context|ibv_send_wr|ibv_recv_wr|ibv_wc|ibv_sge|…'
//!   --default-enum-style consts --no-prepend-enum-name --no-doc-comments
//!   --blocklist-type 'pthread_.*' --raw-line 'use libc::{pthread_cond_t, pthread_mutex_t};'
//! ```
//!
//! The input were rdma-core's headers, which are BSD licensed. Types, constants and functions that
//! nothing here uses were then left out. A pointer to a function that nothing calls is one without
//! parameters. The file checks the layout of every structure at compile time. Structures with a
//! `pthread` type are checked on x86-64 only, because its size depends on the processor.
//! `tests/layout.rs` compares the layout with a C compiler's.

#![allow(unsafe_code)] // foreign functions

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "as bindgen writes it"
)]
mod generated;
mod inline;

pub(crate) use generated::*;
pub(crate) use inline::*;
