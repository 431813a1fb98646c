//! The layout of libfabric's structures in the bindings, compared with a C compiler's.
//!
//! The generated bindings check themselves at compile time. This test checks the numbers that they
//! expect against the installed header, if there is one.

use std::path::Path;

/// The source of the bindings, which contains the expected sizes and offsets.
const BINDINGS: &str = include_str!("../src/ffi/generated.rs");

/// Structures that this crate passes to libfabric or reads from it.
const STRUCTURES: [&str; 29] = [
    "fi_info",
    "fi_tx_attr",
    "fi_rx_attr",
    "fi_ep_attr",
    "fi_domain_attr",
    "fi_fabric_attr",
    "fi_av_attr",
    "fi_cq_attr",
    "fi_cq_data_entry",
    "fi_cq_err_entry",
    "fi_msg_rma",
    "fi_rma_iov",
    "fid",
    "fid_fabric",
    "fid_domain",
    "fid_av",
    "fid_cq",
    "fid_ep",
    "fid_mr",
    "fi_ops",
    "fi_ops_fabric",
    "fi_ops_domain",
    "fi_ops_mr",
    "fi_ops_av",
    "fi_ops_cq",
    "fi_ops_cm",
    "fi_ops_msg",
    "fi_ops_rma",
    "fi_context2",
];

#[test]
fn the_bindings_have_the_layout_of_the_c_header() {
    hydrant_testing::layout::compare(
        BINDINGS,
        &STRUCTURES,
        ("/usr/include/rdma/fabric.h", "libfabric-dev"),
        &["rdma/fi_cm.h", "rdma/fi_rma.h"],
        Path::new(env!("CARGO_TARGET_TMPDIR")),
        200,
    );
}
