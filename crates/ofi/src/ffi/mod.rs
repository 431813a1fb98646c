//! The C interface of libfabric: its structures and the tables of functions in its objects.
//!
//! `generated.rs` was made once, by:
//!
//! ```text
//! bindgen fabric.h --allowlist-type 'fi_info|fid_fabric|fid_domain|fid_ep|fid_av|fid_cq|fid_mr|fi_msg_rma|…'
//!   --allowlist-var 'FI_(MSG|RMA|READ|WRITE|…)'
//!   --opaque-type 'fi_ops_tagged|fi_ops_atomic|fid_eq|fid_cntr|…' --blocklist-type iovec
//!   --raw-line 'use libc::iovec;' --default-enum-style consts --no-prepend-enum-name --no-doc-comments
//! ```
//!
//! The input was the headers of libfabric 1.17.0 (`fabric.h`, `fi_domain.h`, `fi_endpoint.h`, `fi_rma.h`,
//! `fi_cm.h`, `fi_eq.h`), which are BSD licensed. Newer libraries keep this layout behind the versioned symbols that
//! `library.rs` asks for. The file checks the layout of every structure at compile time.

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_code,
    clippy::all,
    reason = "as bindgen writes it"
)]
mod generated;

pub(crate) use generated::*;
