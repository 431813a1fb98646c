//! The layout of libibverbs' structures in the bindings, compared with a C compiler's.
//!
//! The generated bindings check themselves at compile time. This test checks the numbers that they
//! expect against the installed header, if there is one.

use std::path::Path;

/// The source of the bindings, which contains the expected sizes and offsets.
const BINDINGS: &str = include_str!("../src/ffi/generated.rs");

/// Structures that this crate passes to libibverbs or reads from it.
const STRUCTURES: [&str; 16] = [
    "ibv_context",
    "verbs_context",
    "ibv_context_ops",
    "ibv_device_attr",
    "ibv_port_attr",
    "ibv_send_wr",
    "ibv_recv_wr",
    "ibv_sge",
    "ibv_wc",
    "ibv_qp_init_attr",
    "ibv_qp_attr",
    "ibv_qp",
    "ibv_srq_init_attr",
    "ibv_ah_attr",
    "ibv_mr",
    "ibv_comp_channel",
];

#[test]
fn the_bindings_have_the_layout_of_the_c_header() {
    hydrant_testing::layout::compare(
        BINDINGS,
        &STRUCTURES,
        ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
        &["infiniband/verbs.h"],
        Path::new(env!("CARGO_TARGET_TMPDIR")),
        200,
    );
}
