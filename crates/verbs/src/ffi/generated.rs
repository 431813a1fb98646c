// Generated once from <infiniband/verbs.h> of rdma-core 44; see `mod.rs` for the command.

use libc::{pthread_cond_t, pthread_mutex_t};
pub type __u32 = ::std::os::raw::c_uint;
pub type __u64 = ::std::os::raw::c_ulonglong;
pub type __be32 = __u32;
pub type __be64 = __u64;
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_gid {
    pub raw: [u8; 16usize],
    pub global: ibv_gid__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_gid__bindgen_ty_1 {
    pub subnet_prefix: __be64,
    pub interface_id: __be64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_gid__bindgen_ty_1"][::std::mem::size_of::<ibv_gid__bindgen_ty_1>() - 16usize];
    ["Alignment of ibv_gid__bindgen_ty_1"]
        [::std::mem::align_of::<ibv_gid__bindgen_ty_1>() - 8usize];
    ["Offset of field: ibv_gid__bindgen_ty_1::subnet_prefix"]
        [::std::mem::offset_of!(ibv_gid__bindgen_ty_1, subnet_prefix) - 0usize];
    ["Offset of field: ibv_gid__bindgen_ty_1::interface_id"]
        [::std::mem::offset_of!(ibv_gid__bindgen_ty_1, interface_id) - 8usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_gid"][::std::mem::size_of::<ibv_gid>() - 16usize];
    ["Alignment of ibv_gid"][::std::mem::align_of::<ibv_gid>() - 8usize];
    ["Offset of field: ibv_gid::raw"][::std::mem::offset_of!(ibv_gid, raw) - 0usize];
    ["Offset of field: ibv_gid::global"][::std::mem::offset_of!(ibv_gid, global) - 0usize];
};
pub type ibv_node_type = ::std::os::raw::c_int;
pub type ibv_transport_type = ::std::os::raw::c_int;
pub const IBV_ATOMIC_HCA: ibv_atomic_cap = 1;
pub const IBV_ATOMIC_GLOB: ibv_atomic_cap = 2;
pub type ibv_atomic_cap = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_device_attr {
    pub fw_ver: [::std::os::raw::c_char; 64usize],
    pub node_guid: __be64,
    pub sys_image_guid: __be64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: ::std::os::raw::c_int,
    pub max_qp_wr: ::std::os::raw::c_int,
    pub device_cap_flags: ::std::os::raw::c_uint,
    pub max_sge: ::std::os::raw::c_int,
    pub max_sge_rd: ::std::os::raw::c_int,
    pub max_cq: ::std::os::raw::c_int,
    pub max_cqe: ::std::os::raw::c_int,
    pub max_mr: ::std::os::raw::c_int,
    pub max_pd: ::std::os::raw::c_int,
    pub max_qp_rd_atom: ::std::os::raw::c_int,
    pub max_ee_rd_atom: ::std::os::raw::c_int,
    pub max_res_rd_atom: ::std::os::raw::c_int,
    pub max_qp_init_rd_atom: ::std::os::raw::c_int,
    pub max_ee_init_rd_atom: ::std::os::raw::c_int,
    pub atomic_cap: ibv_atomic_cap,
    pub max_ee: ::std::os::raw::c_int,
    pub max_rdd: ::std::os::raw::c_int,
    pub max_mw: ::std::os::raw::c_int,
    pub max_raw_ipv6_qp: ::std::os::raw::c_int,
    pub max_raw_ethy_qp: ::std::os::raw::c_int,
    pub max_mcast_grp: ::std::os::raw::c_int,
    pub max_mcast_qp_attach: ::std::os::raw::c_int,
    pub max_total_mcast_qp_attach: ::std::os::raw::c_int,
    pub max_ah: ::std::os::raw::c_int,
    pub max_fmr: ::std::os::raw::c_int,
    pub max_map_per_fmr: ::std::os::raw::c_int,
    pub max_srq: ::std::os::raw::c_int,
    pub max_srq_wr: ::std::os::raw::c_int,
    pub max_srq_sge: ::std::os::raw::c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_device_attr"][::std::mem::size_of::<ibv_device_attr>() - 232usize];
    ["Alignment of ibv_device_attr"][::std::mem::align_of::<ibv_device_attr>() - 8usize];
    ["Offset of field: ibv_device_attr::fw_ver"]
        [::std::mem::offset_of!(ibv_device_attr, fw_ver) - 0usize];
    ["Offset of field: ibv_device_attr::node_guid"]
        [::std::mem::offset_of!(ibv_device_attr, node_guid) - 64usize];
    ["Offset of field: ibv_device_attr::sys_image_guid"]
        [::std::mem::offset_of!(ibv_device_attr, sys_image_guid) - 72usize];
    ["Offset of field: ibv_device_attr::max_mr_size"]
        [::std::mem::offset_of!(ibv_device_attr, max_mr_size) - 80usize];
    ["Offset of field: ibv_device_attr::page_size_cap"]
        [::std::mem::offset_of!(ibv_device_attr, page_size_cap) - 88usize];
    ["Offset of field: ibv_device_attr::vendor_id"]
        [::std::mem::offset_of!(ibv_device_attr, vendor_id) - 96usize];
    ["Offset of field: ibv_device_attr::vendor_part_id"]
        [::std::mem::offset_of!(ibv_device_attr, vendor_part_id) - 100usize];
    ["Offset of field: ibv_device_attr::hw_ver"]
        [::std::mem::offset_of!(ibv_device_attr, hw_ver) - 104usize];
    ["Offset of field: ibv_device_attr::max_qp"]
        [::std::mem::offset_of!(ibv_device_attr, max_qp) - 108usize];
    ["Offset of field: ibv_device_attr::max_qp_wr"]
        [::std::mem::offset_of!(ibv_device_attr, max_qp_wr) - 112usize];
    ["Offset of field: ibv_device_attr::device_cap_flags"]
        [::std::mem::offset_of!(ibv_device_attr, device_cap_flags) - 116usize];
    ["Offset of field: ibv_device_attr::max_sge"]
        [::std::mem::offset_of!(ibv_device_attr, max_sge) - 120usize];
    ["Offset of field: ibv_device_attr::max_sge_rd"]
        [::std::mem::offset_of!(ibv_device_attr, max_sge_rd) - 124usize];
    ["Offset of field: ibv_device_attr::max_cq"]
        [::std::mem::offset_of!(ibv_device_attr, max_cq) - 128usize];
    ["Offset of field: ibv_device_attr::max_cqe"]
        [::std::mem::offset_of!(ibv_device_attr, max_cqe) - 132usize];
    ["Offset of field: ibv_device_attr::max_mr"]
        [::std::mem::offset_of!(ibv_device_attr, max_mr) - 136usize];
    ["Offset of field: ibv_device_attr::max_pd"]
        [::std::mem::offset_of!(ibv_device_attr, max_pd) - 140usize];
    ["Offset of field: ibv_device_attr::max_qp_rd_atom"]
        [::std::mem::offset_of!(ibv_device_attr, max_qp_rd_atom) - 144usize];
    ["Offset of field: ibv_device_attr::max_ee_rd_atom"]
        [::std::mem::offset_of!(ibv_device_attr, max_ee_rd_atom) - 148usize];
    ["Offset of field: ibv_device_attr::max_res_rd_atom"]
        [::std::mem::offset_of!(ibv_device_attr, max_res_rd_atom) - 152usize];
    ["Offset of field: ibv_device_attr::max_qp_init_rd_atom"]
        [::std::mem::offset_of!(ibv_device_attr, max_qp_init_rd_atom) - 156usize];
    ["Offset of field: ibv_device_attr::max_ee_init_rd_atom"]
        [::std::mem::offset_of!(ibv_device_attr, max_ee_init_rd_atom) - 160usize];
    ["Offset of field: ibv_device_attr::atomic_cap"]
        [::std::mem::offset_of!(ibv_device_attr, atomic_cap) - 164usize];
    ["Offset of field: ibv_device_attr::max_ee"]
        [::std::mem::offset_of!(ibv_device_attr, max_ee) - 168usize];
    ["Offset of field: ibv_device_attr::max_rdd"]
        [::std::mem::offset_of!(ibv_device_attr, max_rdd) - 172usize];
    ["Offset of field: ibv_device_attr::max_mw"]
        [::std::mem::offset_of!(ibv_device_attr, max_mw) - 176usize];
    ["Offset of field: ibv_device_attr::max_raw_ipv6_qp"]
        [::std::mem::offset_of!(ibv_device_attr, max_raw_ipv6_qp) - 180usize];
    ["Offset of field: ibv_device_attr::max_raw_ethy_qp"]
        [::std::mem::offset_of!(ibv_device_attr, max_raw_ethy_qp) - 184usize];
    ["Offset of field: ibv_device_attr::max_mcast_grp"]
        [::std::mem::offset_of!(ibv_device_attr, max_mcast_grp) - 188usize];
    ["Offset of field: ibv_device_attr::max_mcast_qp_attach"]
        [::std::mem::offset_of!(ibv_device_attr, max_mcast_qp_attach) - 192usize];
    ["Offset of field: ibv_device_attr::max_total_mcast_qp_attach"]
        [::std::mem::offset_of!(ibv_device_attr, max_total_mcast_qp_attach) - 196usize];
    ["Offset of field: ibv_device_attr::max_ah"]
        [::std::mem::offset_of!(ibv_device_attr, max_ah) - 200usize];
    ["Offset of field: ibv_device_attr::max_fmr"]
        [::std::mem::offset_of!(ibv_device_attr, max_fmr) - 204usize];
    ["Offset of field: ibv_device_attr::max_map_per_fmr"]
        [::std::mem::offset_of!(ibv_device_attr, max_map_per_fmr) - 208usize];
    ["Offset of field: ibv_device_attr::max_srq"]
        [::std::mem::offset_of!(ibv_device_attr, max_srq) - 212usize];
    ["Offset of field: ibv_device_attr::max_srq_wr"]
        [::std::mem::offset_of!(ibv_device_attr, max_srq_wr) - 216usize];
    ["Offset of field: ibv_device_attr::max_srq_sge"]
        [::std::mem::offset_of!(ibv_device_attr, max_srq_sge) - 220usize];
    ["Offset of field: ibv_device_attr::max_pkeys"]
        [::std::mem::offset_of!(ibv_device_attr, max_pkeys) - 224usize];
    ["Offset of field: ibv_device_attr::local_ca_ack_delay"]
        [::std::mem::offset_of!(ibv_device_attr, local_ca_ack_delay) - 226usize];
    ["Offset of field: ibv_device_attr::phys_port_cnt"]
        [::std::mem::offset_of!(ibv_device_attr, phys_port_cnt) - 227usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_query_device_ex_input {
    pub comp_mask: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_query_device_ex_input"]
        [::std::mem::size_of::<ibv_query_device_ex_input>() - 4usize];
    ["Alignment of ibv_query_device_ex_input"]
        [::std::mem::align_of::<ibv_query_device_ex_input>() - 4usize];
    ["Offset of field: ibv_query_device_ex_input::comp_mask"]
        [::std::mem::offset_of!(ibv_query_device_ex_input, comp_mask) - 0usize];
};
pub const IBV_ODP_SUPPORT_WRITE: ibv_odp_transport_cap_bits = 4;
pub const IBV_ODP_SUPPORT_READ: ibv_odp_transport_cap_bits = 8;
pub const IBV_ODP_SUPPORT_ATOMIC: ibv_odp_transport_cap_bits = 16;
pub type ibv_odp_transport_cap_bits = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_odp_caps {
    pub general_caps: u64,
    pub per_transport_caps: ibv_odp_caps__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_odp_caps__bindgen_ty_1 {
    pub rc_odp_caps: u32,
    pub uc_odp_caps: u32,
    pub ud_odp_caps: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_odp_caps__bindgen_ty_1"]
        [::std::mem::size_of::<ibv_odp_caps__bindgen_ty_1>() - 12usize];
    ["Alignment of ibv_odp_caps__bindgen_ty_1"]
        [::std::mem::align_of::<ibv_odp_caps__bindgen_ty_1>() - 4usize];
    ["Offset of field: ibv_odp_caps__bindgen_ty_1::rc_odp_caps"]
        [::std::mem::offset_of!(ibv_odp_caps__bindgen_ty_1, rc_odp_caps) - 0usize];
    ["Offset of field: ibv_odp_caps__bindgen_ty_1::uc_odp_caps"]
        [::std::mem::offset_of!(ibv_odp_caps__bindgen_ty_1, uc_odp_caps) - 4usize];
    ["Offset of field: ibv_odp_caps__bindgen_ty_1::ud_odp_caps"]
        [::std::mem::offset_of!(ibv_odp_caps__bindgen_ty_1, ud_odp_caps) - 8usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_odp_caps"][::std::mem::size_of::<ibv_odp_caps>() - 24usize];
    ["Alignment of ibv_odp_caps"][::std::mem::align_of::<ibv_odp_caps>() - 8usize];
    ["Offset of field: ibv_odp_caps::general_caps"]
        [::std::mem::offset_of!(ibv_odp_caps, general_caps) - 0usize];
    ["Offset of field: ibv_odp_caps::per_transport_caps"]
        [::std::mem::offset_of!(ibv_odp_caps, per_transport_caps) - 8usize];
};
pub const IBV_ODP_SUPPORT: ibv_odp_general_caps = 1;
pub const IBV_ODP_SUPPORT_IMPLICIT: ibv_odp_general_caps = 2;
pub type ibv_odp_general_caps = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_tso_caps {
    pub max_tso: u32,
    pub supported_qpts: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_tso_caps"][::std::mem::size_of::<ibv_tso_caps>() - 8usize];
    ["Alignment of ibv_tso_caps"][::std::mem::align_of::<ibv_tso_caps>() - 4usize];
    ["Offset of field: ibv_tso_caps::max_tso"]
        [::std::mem::offset_of!(ibv_tso_caps, max_tso) - 0usize];
    ["Offset of field: ibv_tso_caps::supported_qpts"]
        [::std::mem::offset_of!(ibv_tso_caps, supported_qpts) - 4usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_rss_caps {
    pub supported_qpts: u32,
    pub max_rwq_indirection_tables: u32,
    pub max_rwq_indirection_table_size: u32,
    pub rx_hash_fields_mask: u64,
    pub rx_hash_function: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_rss_caps"][::std::mem::size_of::<ibv_rss_caps>() - 32usize];
    ["Alignment of ibv_rss_caps"][::std::mem::align_of::<ibv_rss_caps>() - 8usize];
    ["Offset of field: ibv_rss_caps::supported_qpts"]
        [::std::mem::offset_of!(ibv_rss_caps, supported_qpts) - 0usize];
    ["Offset of field: ibv_rss_caps::max_rwq_indirection_tables"]
        [::std::mem::offset_of!(ibv_rss_caps, max_rwq_indirection_tables) - 4usize];
    ["Offset of field: ibv_rss_caps::max_rwq_indirection_table_size"]
        [::std::mem::offset_of!(ibv_rss_caps, max_rwq_indirection_table_size) - 8usize];
    ["Offset of field: ibv_rss_caps::rx_hash_fields_mask"]
        [::std::mem::offset_of!(ibv_rss_caps, rx_hash_fields_mask) - 16usize];
    ["Offset of field: ibv_rss_caps::rx_hash_function"]
        [::std::mem::offset_of!(ibv_rss_caps, rx_hash_function) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_packet_pacing_caps {
    pub qp_rate_limit_min: u32,
    pub qp_rate_limit_max: u32,
    pub supported_qpts: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_packet_pacing_caps"][::std::mem::size_of::<ibv_packet_pacing_caps>() - 12usize];
    ["Alignment of ibv_packet_pacing_caps"]
        [::std::mem::align_of::<ibv_packet_pacing_caps>() - 4usize];
    ["Offset of field: ibv_packet_pacing_caps::qp_rate_limit_min"]
        [::std::mem::offset_of!(ibv_packet_pacing_caps, qp_rate_limit_min) - 0usize];
    ["Offset of field: ibv_packet_pacing_caps::qp_rate_limit_max"]
        [::std::mem::offset_of!(ibv_packet_pacing_caps, qp_rate_limit_max) - 4usize];
    ["Offset of field: ibv_packet_pacing_caps::supported_qpts"]
        [::std::mem::offset_of!(ibv_packet_pacing_caps, supported_qpts) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_tm_caps {
    pub max_rndv_hdr_size: u32,
    pub max_num_tags: u32,
    pub flags: u32,
    pub max_ops: u32,
    pub max_sge: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_tm_caps"][::std::mem::size_of::<ibv_tm_caps>() - 20usize];
    ["Alignment of ibv_tm_caps"][::std::mem::align_of::<ibv_tm_caps>() - 4usize];
    ["Offset of field: ibv_tm_caps::max_rndv_hdr_size"]
        [::std::mem::offset_of!(ibv_tm_caps, max_rndv_hdr_size) - 0usize];
    ["Offset of field: ibv_tm_caps::max_num_tags"]
        [::std::mem::offset_of!(ibv_tm_caps, max_num_tags) - 4usize];
    ["Offset of field: ibv_tm_caps::flags"][::std::mem::offset_of!(ibv_tm_caps, flags) - 8usize];
    ["Offset of field: ibv_tm_caps::max_ops"]
        [::std::mem::offset_of!(ibv_tm_caps, max_ops) - 12usize];
    ["Offset of field: ibv_tm_caps::max_sge"]
        [::std::mem::offset_of!(ibv_tm_caps, max_sge) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_cq_moderation_caps {
    pub max_cq_count: u16,
    pub max_cq_period: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_cq_moderation_caps"][::std::mem::size_of::<ibv_cq_moderation_caps>() - 4usize];
    ["Alignment of ibv_cq_moderation_caps"]
        [::std::mem::align_of::<ibv_cq_moderation_caps>() - 2usize];
    ["Offset of field: ibv_cq_moderation_caps::max_cq_count"]
        [::std::mem::offset_of!(ibv_cq_moderation_caps, max_cq_count) - 0usize];
    ["Offset of field: ibv_cq_moderation_caps::max_cq_period"]
        [::std::mem::offset_of!(ibv_cq_moderation_caps, max_cq_period) - 2usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_pci_atomic_caps {
    pub fetch_add: u16,
    pub swap: u16,
    pub compare_swap: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_pci_atomic_caps"][::std::mem::size_of::<ibv_pci_atomic_caps>() - 6usize];
    ["Alignment of ibv_pci_atomic_caps"][::std::mem::align_of::<ibv_pci_atomic_caps>() - 2usize];
    ["Offset of field: ibv_pci_atomic_caps::fetch_add"]
        [::std::mem::offset_of!(ibv_pci_atomic_caps, fetch_add) - 0usize];
    ["Offset of field: ibv_pci_atomic_caps::swap"]
        [::std::mem::offset_of!(ibv_pci_atomic_caps, swap) - 2usize];
    ["Offset of field: ibv_pci_atomic_caps::compare_swap"]
        [::std::mem::offset_of!(ibv_pci_atomic_caps, compare_swap) - 4usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: ibv_odp_caps,
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub tso_caps: ibv_tso_caps,
    pub rss_caps: ibv_rss_caps,
    pub max_wq_type_rq: u32,
    pub packet_pacing_caps: ibv_packet_pacing_caps,
    pub raw_packet_caps: u32,
    pub tm_caps: ibv_tm_caps,
    pub cq_mod_caps: ibv_cq_moderation_caps,
    pub max_dm_size: u64,
    pub pci_atomic_caps: ibv_pci_atomic_caps,
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_device_attr_ex"][::std::mem::size_of::<ibv_device_attr_ex>() - 400usize];
    ["Alignment of ibv_device_attr_ex"][::std::mem::align_of::<ibv_device_attr_ex>() - 8usize];
    ["Offset of field: ibv_device_attr_ex::orig_attr"]
        [::std::mem::offset_of!(ibv_device_attr_ex, orig_attr) - 0usize];
    ["Offset of field: ibv_device_attr_ex::comp_mask"]
        [::std::mem::offset_of!(ibv_device_attr_ex, comp_mask) - 232usize];
    ["Offset of field: ibv_device_attr_ex::odp_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, odp_caps) - 240usize];
    ["Offset of field: ibv_device_attr_ex::completion_timestamp_mask"]
        [::std::mem::offset_of!(ibv_device_attr_ex, completion_timestamp_mask) - 264usize];
    ["Offset of field: ibv_device_attr_ex::hca_core_clock"]
        [::std::mem::offset_of!(ibv_device_attr_ex, hca_core_clock) - 272usize];
    ["Offset of field: ibv_device_attr_ex::device_cap_flags_ex"]
        [::std::mem::offset_of!(ibv_device_attr_ex, device_cap_flags_ex) - 280usize];
    ["Offset of field: ibv_device_attr_ex::tso_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, tso_caps) - 288usize];
    ["Offset of field: ibv_device_attr_ex::rss_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, rss_caps) - 296usize];
    ["Offset of field: ibv_device_attr_ex::max_wq_type_rq"]
        [::std::mem::offset_of!(ibv_device_attr_ex, max_wq_type_rq) - 328usize];
    ["Offset of field: ibv_device_attr_ex::packet_pacing_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, packet_pacing_caps) - 332usize];
    ["Offset of field: ibv_device_attr_ex::raw_packet_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, raw_packet_caps) - 344usize];
    ["Offset of field: ibv_device_attr_ex::tm_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, tm_caps) - 348usize];
    ["Offset of field: ibv_device_attr_ex::cq_mod_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, cq_mod_caps) - 368usize];
    ["Offset of field: ibv_device_attr_ex::max_dm_size"]
        [::std::mem::offset_of!(ibv_device_attr_ex, max_dm_size) - 376usize];
    ["Offset of field: ibv_device_attr_ex::pci_atomic_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, pci_atomic_caps) - 384usize];
    ["Offset of field: ibv_device_attr_ex::xrc_odp_caps"]
        [::std::mem::offset_of!(ibv_device_attr_ex, xrc_odp_caps) - 392usize];
    ["Offset of field: ibv_device_attr_ex::phys_port_cnt_ex"]
        [::std::mem::offset_of!(ibv_device_attr_ex, phys_port_cnt_ex) - 396usize];
};
pub type ibv_mtu = ::std::os::raw::c_uint;
pub const IBV_PORT_ACTIVE: ibv_port_state = 4;
pub type ibv_port_state = ::std::os::raw::c_uint;
pub const IBV_LINK_LAYER_ETHERNET: _bindgen_ty_13 = 2;
pub type _bindgen_ty_13 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_port_attr {
    pub state: ibv_port_state,
    pub max_mtu: ibv_mtu,
    pub active_mtu: ibv_mtu,
    pub gid_tbl_len: ::std::os::raw::c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_port_attr"][::std::mem::size_of::<ibv_port_attr>() - 52usize];
    ["Alignment of ibv_port_attr"][::std::mem::align_of::<ibv_port_attr>() - 4usize];
    ["Offset of field: ibv_port_attr::state"]
        [::std::mem::offset_of!(ibv_port_attr, state) - 0usize];
    ["Offset of field: ibv_port_attr::max_mtu"]
        [::std::mem::offset_of!(ibv_port_attr, max_mtu) - 4usize];
    ["Offset of field: ibv_port_attr::active_mtu"]
        [::std::mem::offset_of!(ibv_port_attr, active_mtu) - 8usize];
    ["Offset of field: ibv_port_attr::gid_tbl_len"]
        [::std::mem::offset_of!(ibv_port_attr, gid_tbl_len) - 12usize];
    ["Offset of field: ibv_port_attr::port_cap_flags"]
        [::std::mem::offset_of!(ibv_port_attr, port_cap_flags) - 16usize];
    ["Offset of field: ibv_port_attr::max_msg_sz"]
        [::std::mem::offset_of!(ibv_port_attr, max_msg_sz) - 20usize];
    ["Offset of field: ibv_port_attr::bad_pkey_cntr"]
        [::std::mem::offset_of!(ibv_port_attr, bad_pkey_cntr) - 24usize];
    ["Offset of field: ibv_port_attr::qkey_viol_cntr"]
        [::std::mem::offset_of!(ibv_port_attr, qkey_viol_cntr) - 28usize];
    ["Offset of field: ibv_port_attr::pkey_tbl_len"]
        [::std::mem::offset_of!(ibv_port_attr, pkey_tbl_len) - 32usize];
    ["Offset of field: ibv_port_attr::lid"][::std::mem::offset_of!(ibv_port_attr, lid) - 34usize];
    ["Offset of field: ibv_port_attr::sm_lid"]
        [::std::mem::offset_of!(ibv_port_attr, sm_lid) - 36usize];
    ["Offset of field: ibv_port_attr::lmc"][::std::mem::offset_of!(ibv_port_attr, lmc) - 38usize];
    ["Offset of field: ibv_port_attr::max_vl_num"]
        [::std::mem::offset_of!(ibv_port_attr, max_vl_num) - 39usize];
    ["Offset of field: ibv_port_attr::sm_sl"]
        [::std::mem::offset_of!(ibv_port_attr, sm_sl) - 40usize];
    ["Offset of field: ibv_port_attr::subnet_timeout"]
        [::std::mem::offset_of!(ibv_port_attr, subnet_timeout) - 41usize];
    ["Offset of field: ibv_port_attr::init_type_reply"]
        [::std::mem::offset_of!(ibv_port_attr, init_type_reply) - 42usize];
    ["Offset of field: ibv_port_attr::active_width"]
        [::std::mem::offset_of!(ibv_port_attr, active_width) - 43usize];
    ["Offset of field: ibv_port_attr::active_speed"]
        [::std::mem::offset_of!(ibv_port_attr, active_speed) - 44usize];
    ["Offset of field: ibv_port_attr::phys_state"]
        [::std::mem::offset_of!(ibv_port_attr, phys_state) - 45usize];
    ["Offset of field: ibv_port_attr::link_layer"]
        [::std::mem::offset_of!(ibv_port_attr, link_layer) - 46usize];
    ["Offset of field: ibv_port_attr::flags"]
        [::std::mem::offset_of!(ibv_port_attr, flags) - 47usize];
    ["Offset of field: ibv_port_attr::port_cap_flags2"]
        [::std::mem::offset_of!(ibv_port_attr, port_cap_flags2) - 48usize];
};
pub const IBV_WC_SUCCESS: ibv_wc_status = 0;
pub const IBV_WC_LOC_QP_OP_ERR: ibv_wc_status = 2;
pub const IBV_WC_LOC_PROT_ERR: ibv_wc_status = 4;
pub const IBV_WC_WR_FLUSH_ERR: ibv_wc_status = 5;
pub const IBV_WC_REM_INV_REQ_ERR: ibv_wc_status = 9;
pub const IBV_WC_REM_ACCESS_ERR: ibv_wc_status = 10;
pub const IBV_WC_REM_OP_ERR: ibv_wc_status = 11;
pub const IBV_WC_RETRY_EXC_ERR: ibv_wc_status = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: ibv_wc_status = 13;
pub const IBV_WC_RESP_TIMEOUT_ERR: ibv_wc_status = 20;
pub type ibv_wc_status = ::std::os::raw::c_uint;
pub type ibv_wc_opcode = ::std::os::raw::c_uint;
pub const IBV_WC_WITH_IMM: ibv_wc_flags = 2;
pub type ibv_wc_flags = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: ibv_wc_status,
    pub opcode: ibv_wc_opcode,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub __bindgen_anon_1: ibv_wc__bindgen_ty_1,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: ::std::os::raw::c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_wc__bindgen_ty_1 {
    pub imm_data: __be32,
    pub invalidated_rkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_wc__bindgen_ty_1"][::std::mem::size_of::<ibv_wc__bindgen_ty_1>() - 4usize];
    ["Alignment of ibv_wc__bindgen_ty_1"][::std::mem::align_of::<ibv_wc__bindgen_ty_1>() - 4usize];
    ["Offset of field: ibv_wc__bindgen_ty_1::imm_data"]
        [::std::mem::offset_of!(ibv_wc__bindgen_ty_1, imm_data) - 0usize];
    ["Offset of field: ibv_wc__bindgen_ty_1::invalidated_rkey"]
        [::std::mem::offset_of!(ibv_wc__bindgen_ty_1, invalidated_rkey) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_wc"][::std::mem::size_of::<ibv_wc>() - 48usize];
    ["Alignment of ibv_wc"][::std::mem::align_of::<ibv_wc>() - 8usize];
    ["Offset of field: ibv_wc::wr_id"][::std::mem::offset_of!(ibv_wc, wr_id) - 0usize];
    ["Offset of field: ibv_wc::status"][::std::mem::offset_of!(ibv_wc, status) - 8usize];
    ["Offset of field: ibv_wc::opcode"][::std::mem::offset_of!(ibv_wc, opcode) - 12usize];
    ["Offset of field: ibv_wc::vendor_err"][::std::mem::offset_of!(ibv_wc, vendor_err) - 16usize];
    ["Offset of field: ibv_wc::byte_len"][::std::mem::offset_of!(ibv_wc, byte_len) - 20usize];
    ["Offset of field: ibv_wc::qp_num"][::std::mem::offset_of!(ibv_wc, qp_num) - 28usize];
    ["Offset of field: ibv_wc::src_qp"][::std::mem::offset_of!(ibv_wc, src_qp) - 32usize];
    ["Offset of field: ibv_wc::wc_flags"][::std::mem::offset_of!(ibv_wc, wc_flags) - 36usize];
    ["Offset of field: ibv_wc::pkey_index"][::std::mem::offset_of!(ibv_wc, pkey_index) - 40usize];
    ["Offset of field: ibv_wc::slid"][::std::mem::offset_of!(ibv_wc, slid) - 42usize];
    ["Offset of field: ibv_wc::sl"][::std::mem::offset_of!(ibv_wc, sl) - 44usize];
    ["Offset of field: ibv_wc::dlid_path_bits"]
        [::std::mem::offset_of!(ibv_wc, dlid_path_bits) - 45usize];
};
pub const IBV_ACCESS_LOCAL_WRITE: ibv_access_flags = 1;
pub const IBV_ACCESS_REMOTE_WRITE: ibv_access_flags = 2;
pub const IBV_ACCESS_REMOTE_READ: ibv_access_flags = 4;
pub const IBV_ACCESS_REMOTE_ATOMIC: ibv_access_flags = 8;
pub const IBV_ACCESS_ON_DEMAND: ibv_access_flags = 64;
pub type ibv_access_flags = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: ::std::os::raw::c_uint,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_mw_bind_info"][::std::mem::size_of::<ibv_mw_bind_info>() - 32usize];
    ["Alignment of ibv_mw_bind_info"][::std::mem::align_of::<ibv_mw_bind_info>() - 8usize];
    ["Offset of field: ibv_mw_bind_info::mr"]
        [::std::mem::offset_of!(ibv_mw_bind_info, mr) - 0usize];
    ["Offset of field: ibv_mw_bind_info::addr"]
        [::std::mem::offset_of!(ibv_mw_bind_info, addr) - 8usize];
    ["Offset of field: ibv_mw_bind_info::length"]
        [::std::mem::offset_of!(ibv_mw_bind_info, length) - 16usize];
    ["Offset of field: ibv_mw_bind_info::mw_access_flags"]
        [::std::mem::offset_of!(ibv_mw_bind_info, mw_access_flags) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_pd"][::std::mem::size_of::<ibv_pd>() - 16usize];
    ["Alignment of ibv_pd"][::std::mem::align_of::<ibv_pd>() - 8usize];
    ["Offset of field: ibv_pd::context"][::std::mem::offset_of!(ibv_pd, context) - 0usize];
    ["Offset of field: ibv_pd::handle"][::std::mem::offset_of!(ibv_pd, handle) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut ::std::os::raw::c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_mr"][::std::mem::size_of::<ibv_mr>() - 48usize];
    ["Alignment of ibv_mr"][::std::mem::align_of::<ibv_mr>() - 8usize];
    ["Offset of field: ibv_mr::context"][::std::mem::offset_of!(ibv_mr, context) - 0usize];
    ["Offset of field: ibv_mr::pd"][::std::mem::offset_of!(ibv_mr, pd) - 8usize];
    ["Offset of field: ibv_mr::addr"][::std::mem::offset_of!(ibv_mr, addr) - 16usize];
    ["Offset of field: ibv_mr::length"][::std::mem::offset_of!(ibv_mr, length) - 24usize];
    ["Offset of field: ibv_mr::handle"][::std::mem::offset_of!(ibv_mr, handle) - 32usize];
    ["Offset of field: ibv_mr::lkey"][::std::mem::offset_of!(ibv_mr, lkey) - 36usize];
    ["Offset of field: ibv_mr::rkey"][::std::mem::offset_of!(ibv_mr, rkey) - 40usize];
};
pub type ibv_mw_type = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub type_: ibv_mw_type,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_mw"][::std::mem::size_of::<ibv_mw>() - 32usize];
    ["Alignment of ibv_mw"][::std::mem::align_of::<ibv_mw>() - 8usize];
    ["Offset of field: ibv_mw::context"][::std::mem::offset_of!(ibv_mw, context) - 0usize];
    ["Offset of field: ibv_mw::pd"][::std::mem::offset_of!(ibv_mw, pd) - 8usize];
    ["Offset of field: ibv_mw::rkey"][::std::mem::offset_of!(ibv_mw, rkey) - 16usize];
    ["Offset of field: ibv_mw::handle"][::std::mem::offset_of!(ibv_mw, handle) - 20usize];
    ["Offset of field: ibv_mw::type_"][::std::mem::offset_of!(ibv_mw, type_) - 24usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_global_route"][::std::mem::size_of::<ibv_global_route>() - 24usize];
    ["Alignment of ibv_global_route"][::std::mem::align_of::<ibv_global_route>() - 8usize];
    ["Offset of field: ibv_global_route::dgid"]
        [::std::mem::offset_of!(ibv_global_route, dgid) - 0usize];
    ["Offset of field: ibv_global_route::flow_label"]
        [::std::mem::offset_of!(ibv_global_route, flow_label) - 16usize];
    ["Offset of field: ibv_global_route::sgid_index"]
        [::std::mem::offset_of!(ibv_global_route, sgid_index) - 20usize];
    ["Offset of field: ibv_global_route::hop_limit"]
        [::std::mem::offset_of!(ibv_global_route, hop_limit) - 21usize];
    ["Offset of field: ibv_global_route::traffic_class"]
        [::std::mem::offset_of!(ibv_global_route, traffic_class) - 22usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_ah_attr"][::std::mem::size_of::<ibv_ah_attr>() - 32usize];
    ["Alignment of ibv_ah_attr"][::std::mem::align_of::<ibv_ah_attr>() - 8usize];
    ["Offset of field: ibv_ah_attr::grh"][::std::mem::offset_of!(ibv_ah_attr, grh) - 0usize];
    ["Offset of field: ibv_ah_attr::dlid"][::std::mem::offset_of!(ibv_ah_attr, dlid) - 24usize];
    ["Offset of field: ibv_ah_attr::sl"][::std::mem::offset_of!(ibv_ah_attr, sl) - 26usize];
    ["Offset of field: ibv_ah_attr::src_path_bits"]
        [::std::mem::offset_of!(ibv_ah_attr, src_path_bits) - 27usize];
    ["Offset of field: ibv_ah_attr::static_rate"]
        [::std::mem::offset_of!(ibv_ah_attr, static_rate) - 28usize];
    ["Offset of field: ibv_ah_attr::is_global"]
        [::std::mem::offset_of!(ibv_ah_attr, is_global) - 29usize];
    ["Offset of field: ibv_ah_attr::port_num"]
        [::std::mem::offset_of!(ibv_ah_attr, port_num) - 30usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_srq_attr"][::std::mem::size_of::<ibv_srq_attr>() - 12usize];
    ["Alignment of ibv_srq_attr"][::std::mem::align_of::<ibv_srq_attr>() - 4usize];
    ["Offset of field: ibv_srq_attr::max_wr"]
        [::std::mem::offset_of!(ibv_srq_attr, max_wr) - 0usize];
    ["Offset of field: ibv_srq_attr::max_sge"]
        [::std::mem::offset_of!(ibv_srq_attr, max_sge) - 4usize];
    ["Offset of field: ibv_srq_attr::srq_limit"]
        [::std::mem::offset_of!(ibv_srq_attr, srq_limit) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut ::std::os::raw::c_void,
    pub attr: ibv_srq_attr,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_srq_init_attr"][::std::mem::size_of::<ibv_srq_init_attr>() - 24usize];
    ["Alignment of ibv_srq_init_attr"][::std::mem::align_of::<ibv_srq_init_attr>() - 8usize];
    ["Offset of field: ibv_srq_init_attr::srq_context"]
        [::std::mem::offset_of!(ibv_srq_init_attr, srq_context) - 0usize];
    ["Offset of field: ibv_srq_init_attr::attr"]
        [::std::mem::offset_of!(ibv_srq_init_attr, attr) - 8usize];
};
pub const IBV_QPT_RC: ibv_qp_type = 2;
pub const IBV_QPT_UD: ibv_qp_type = 4;
pub type ibv_qp_type = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_qp_cap"][::std::mem::size_of::<ibv_qp_cap>() - 20usize];
    ["Alignment of ibv_qp_cap"][::std::mem::align_of::<ibv_qp_cap>() - 4usize];
    ["Offset of field: ibv_qp_cap::max_send_wr"]
        [::std::mem::offset_of!(ibv_qp_cap, max_send_wr) - 0usize];
    ["Offset of field: ibv_qp_cap::max_recv_wr"]
        [::std::mem::offset_of!(ibv_qp_cap, max_recv_wr) - 4usize];
    ["Offset of field: ibv_qp_cap::max_send_sge"]
        [::std::mem::offset_of!(ibv_qp_cap, max_send_sge) - 8usize];
    ["Offset of field: ibv_qp_cap::max_recv_sge"]
        [::std::mem::offset_of!(ibv_qp_cap, max_recv_sge) - 12usize];
    ["Offset of field: ibv_qp_cap::max_inline_data"]
        [::std::mem::offset_of!(ibv_qp_cap, max_inline_data) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut ::std::os::raw::c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: ibv_qp_type,
    pub sq_sig_all: ::std::os::raw::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_qp_init_attr"][::std::mem::size_of::<ibv_qp_init_attr>() - 64usize];
    ["Alignment of ibv_qp_init_attr"][::std::mem::align_of::<ibv_qp_init_attr>() - 8usize];
    ["Offset of field: ibv_qp_init_attr::qp_context"]
        [::std::mem::offset_of!(ibv_qp_init_attr, qp_context) - 0usize];
    ["Offset of field: ibv_qp_init_attr::send_cq"]
        [::std::mem::offset_of!(ibv_qp_init_attr, send_cq) - 8usize];
    ["Offset of field: ibv_qp_init_attr::recv_cq"]
        [::std::mem::offset_of!(ibv_qp_init_attr, recv_cq) - 16usize];
    ["Offset of field: ibv_qp_init_attr::srq"]
        [::std::mem::offset_of!(ibv_qp_init_attr, srq) - 24usize];
    ["Offset of field: ibv_qp_init_attr::cap"]
        [::std::mem::offset_of!(ibv_qp_init_attr, cap) - 32usize];
    ["Offset of field: ibv_qp_init_attr::qp_type"]
        [::std::mem::offset_of!(ibv_qp_init_attr, qp_type) - 52usize];
    ["Offset of field: ibv_qp_init_attr::sq_sig_all"]
        [::std::mem::offset_of!(ibv_qp_init_attr, sq_sig_all) - 56usize];
};
pub const IBV_QP_STATE: ibv_qp_attr_mask = 1;
pub const IBV_QP_ACCESS_FLAGS: ibv_qp_attr_mask = 8;
pub const IBV_QP_PKEY_INDEX: ibv_qp_attr_mask = 16;
pub const IBV_QP_PORT: ibv_qp_attr_mask = 32;
pub const IBV_QP_QKEY: ibv_qp_attr_mask = 64;
pub const IBV_QP_AV: ibv_qp_attr_mask = 128;
pub const IBV_QP_PATH_MTU: ibv_qp_attr_mask = 256;
pub const IBV_QP_TIMEOUT: ibv_qp_attr_mask = 512;
pub const IBV_QP_RETRY_CNT: ibv_qp_attr_mask = 1024;
pub const IBV_QP_RNR_RETRY: ibv_qp_attr_mask = 2048;
pub const IBV_QP_RQ_PSN: ibv_qp_attr_mask = 4096;
pub const IBV_QP_MAX_QP_RD_ATOMIC: ibv_qp_attr_mask = 8192;
pub const IBV_QP_MIN_RNR_TIMER: ibv_qp_attr_mask = 32768;
pub const IBV_QP_SQ_PSN: ibv_qp_attr_mask = 65536;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: ibv_qp_attr_mask = 131072;
pub const IBV_QP_DEST_QPN: ibv_qp_attr_mask = 1048576;
pub type ibv_qp_attr_mask = ::std::os::raw::c_uint;
pub const IBV_QPS_RESET: ibv_qp_state = 0;
pub const IBV_QPS_INIT: ibv_qp_state = 1;
pub const IBV_QPS_RTR: ibv_qp_state = 2;
pub const IBV_QPS_RTS: ibv_qp_state = 3;
pub const IBV_QPS_ERR: ibv_qp_state = 6;
pub type ibv_qp_state = ::std::os::raw::c_uint;
pub type ibv_mig_state = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_qp_attr {
    pub qp_state: ibv_qp_state,
    pub cur_qp_state: ibv_qp_state,
    pub path_mtu: ibv_mtu,
    pub path_mig_state: ibv_mig_state,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: ::std::os::raw::c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_qp_attr"][::std::mem::size_of::<ibv_qp_attr>() - 144usize];
    ["Alignment of ibv_qp_attr"][::std::mem::align_of::<ibv_qp_attr>() - 8usize];
    ["Offset of field: ibv_qp_attr::qp_state"]
        [::std::mem::offset_of!(ibv_qp_attr, qp_state) - 0usize];
    ["Offset of field: ibv_qp_attr::cur_qp_state"]
        [::std::mem::offset_of!(ibv_qp_attr, cur_qp_state) - 4usize];
    ["Offset of field: ibv_qp_attr::path_mtu"]
        [::std::mem::offset_of!(ibv_qp_attr, path_mtu) - 8usize];
    ["Offset of field: ibv_qp_attr::path_mig_state"]
        [::std::mem::offset_of!(ibv_qp_attr, path_mig_state) - 12usize];
    ["Offset of field: ibv_qp_attr::qkey"][::std::mem::offset_of!(ibv_qp_attr, qkey) - 16usize];
    ["Offset of field: ibv_qp_attr::rq_psn"][::std::mem::offset_of!(ibv_qp_attr, rq_psn) - 20usize];
    ["Offset of field: ibv_qp_attr::sq_psn"][::std::mem::offset_of!(ibv_qp_attr, sq_psn) - 24usize];
    ["Offset of field: ibv_qp_attr::dest_qp_num"]
        [::std::mem::offset_of!(ibv_qp_attr, dest_qp_num) - 28usize];
    ["Offset of field: ibv_qp_attr::qp_access_flags"]
        [::std::mem::offset_of!(ibv_qp_attr, qp_access_flags) - 32usize];
    ["Offset of field: ibv_qp_attr::cap"][::std::mem::offset_of!(ibv_qp_attr, cap) - 36usize];
    ["Offset of field: ibv_qp_attr::ah_attr"]
        [::std::mem::offset_of!(ibv_qp_attr, ah_attr) - 56usize];
    ["Offset of field: ibv_qp_attr::alt_ah_attr"]
        [::std::mem::offset_of!(ibv_qp_attr, alt_ah_attr) - 88usize];
    ["Offset of field: ibv_qp_attr::pkey_index"]
        [::std::mem::offset_of!(ibv_qp_attr, pkey_index) - 120usize];
    ["Offset of field: ibv_qp_attr::alt_pkey_index"]
        [::std::mem::offset_of!(ibv_qp_attr, alt_pkey_index) - 122usize];
    ["Offset of field: ibv_qp_attr::en_sqd_async_notify"]
        [::std::mem::offset_of!(ibv_qp_attr, en_sqd_async_notify) - 124usize];
    ["Offset of field: ibv_qp_attr::sq_draining"]
        [::std::mem::offset_of!(ibv_qp_attr, sq_draining) - 125usize];
    ["Offset of field: ibv_qp_attr::max_rd_atomic"]
        [::std::mem::offset_of!(ibv_qp_attr, max_rd_atomic) - 126usize];
    ["Offset of field: ibv_qp_attr::max_dest_rd_atomic"]
        [::std::mem::offset_of!(ibv_qp_attr, max_dest_rd_atomic) - 127usize];
    ["Offset of field: ibv_qp_attr::min_rnr_timer"]
        [::std::mem::offset_of!(ibv_qp_attr, min_rnr_timer) - 128usize];
    ["Offset of field: ibv_qp_attr::port_num"]
        [::std::mem::offset_of!(ibv_qp_attr, port_num) - 129usize];
    ["Offset of field: ibv_qp_attr::timeout"]
        [::std::mem::offset_of!(ibv_qp_attr, timeout) - 130usize];
    ["Offset of field: ibv_qp_attr::retry_cnt"]
        [::std::mem::offset_of!(ibv_qp_attr, retry_cnt) - 131usize];
    ["Offset of field: ibv_qp_attr::rnr_retry"]
        [::std::mem::offset_of!(ibv_qp_attr, rnr_retry) - 132usize];
    ["Offset of field: ibv_qp_attr::alt_port_num"]
        [::std::mem::offset_of!(ibv_qp_attr, alt_port_num) - 133usize];
    ["Offset of field: ibv_qp_attr::alt_timeout"]
        [::std::mem::offset_of!(ibv_qp_attr, alt_timeout) - 134usize];
    ["Offset of field: ibv_qp_attr::rate_limit"]
        [::std::mem::offset_of!(ibv_qp_attr, rate_limit) - 136usize];
};
pub const IBV_WR_RDMA_WRITE: ibv_wr_opcode = 0;
pub const IBV_WR_SEND: ibv_wr_opcode = 2;
pub const IBV_WR_SEND_WITH_IMM: ibv_wr_opcode = 3;
pub const IBV_WR_RDMA_READ: ibv_wr_opcode = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_opcode = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_opcode = 6;
pub type ibv_wr_opcode = ::std::os::raw::c_uint;
pub const IBV_SEND_SIGNALED: ibv_send_flags = 2;
pub const IBV_SEND_INLINE: ibv_send_flags = 8;
pub type ibv_send_flags = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_sge"][::std::mem::size_of::<ibv_sge>() - 16usize];
    ["Alignment of ibv_sge"][::std::mem::align_of::<ibv_sge>() - 8usize];
    ["Offset of field: ibv_sge::addr"][::std::mem::offset_of!(ibv_sge, addr) - 0usize];
    ["Offset of field: ibv_sge::length"][::std::mem::offset_of!(ibv_sge, length) - 8usize];
    ["Offset of field: ibv_sge::lkey"][::std::mem::offset_of!(ibv_sge, lkey) - 12usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: ::std::os::raw::c_int,
    pub opcode: ibv_wr_opcode,
    pub send_flags: ::std::os::raw::c_uint,
    pub __bindgen_anon_1: ibv_send_wr__bindgen_ty_1,
    pub wr: ibv_send_wr__bindgen_ty_2,
    pub qp_type: ibv_send_wr__bindgen_ty_3,
    pub __bindgen_anon_2: ibv_send_wr__bindgen_ty_4,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_1 {
    pub imm_data: __be32,
    pub invalidate_rkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_1"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_1>() - 4usize];
    ["Alignment of ibv_send_wr__bindgen_ty_1"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_1>() - 4usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_1::imm_data"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_1, imm_data) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_1::invalidate_rkey"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_1, invalidate_rkey) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_2 {
    pub rdma: ibv_send_wr__bindgen_ty_2__bindgen_ty_1,
    pub atomic: ibv_send_wr__bindgen_ty_2__bindgen_ty_2,
    pub ud: ibv_send_wr__bindgen_ty_2__bindgen_ty_3,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    pub remote_addr: u64,
    pub rkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_2__bindgen_ty_1"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_1>() - 16usize];
    ["Alignment of ibv_send_wr__bindgen_ty_2__bindgen_ty_1"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_1>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_1::remote_addr"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_1, remote_addr) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_1::rkey"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_1, rkey) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_2__bindgen_ty_2"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_2>() - 32usize];
    ["Alignment of ibv_send_wr__bindgen_ty_2__bindgen_ty_2"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_2>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_2::remote_addr"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_2, remote_addr) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_2::compare_add"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_2, compare_add) - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_2::swap"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_2, swap) - 16usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_2::rkey"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_2, rkey) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_2__bindgen_ty_3"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_3>() - 16usize];
    ["Alignment of ibv_send_wr__bindgen_ty_2__bindgen_ty_3"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_3>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_3::ah"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_3, ah) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_3::remote_qpn"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_3, remote_qpn) - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2__bindgen_ty_3::remote_qkey"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_3, remote_qkey) - 12usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_2"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_2>() - 32usize];
    ["Alignment of ibv_send_wr__bindgen_ty_2"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_2>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2::rdma"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2, rdma) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2::atomic"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2, atomic) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_2::ud"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_2, ud) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_3 {
    pub xrc: ibv_send_wr__bindgen_ty_3__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_3__bindgen_ty_1 {
    pub remote_srqn: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_3__bindgen_ty_1"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_3__bindgen_ty_1>() - 4usize];
    ["Alignment of ibv_send_wr__bindgen_ty_3__bindgen_ty_1"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_3__bindgen_ty_1>() - 4usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_3__bindgen_ty_1::remote_srqn"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_3__bindgen_ty_1, remote_srqn) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_3"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_3>() - 4usize];
    ["Alignment of ibv_send_wr__bindgen_ty_3"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_3>() - 4usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_3::xrc"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_3, xrc) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_4 {
    pub bind_mw: ibv_send_wr__bindgen_ty_4__bindgen_ty_1,
    pub tso: ibv_send_wr__bindgen_ty_4__bindgen_ty_2,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_4__bindgen_ty_1"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_4__bindgen_ty_1>() - 48usize];
    ["Alignment of ibv_send_wr__bindgen_ty_4__bindgen_ty_1"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_4__bindgen_ty_1>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4__bindgen_ty_1::mw"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4__bindgen_ty_1, mw) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4__bindgen_ty_1::rkey"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4__bindgen_ty_1, rkey) - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4__bindgen_ty_1::bind_info"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4__bindgen_ty_1, bind_info) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_4__bindgen_ty_2 {
    pub hdr: *mut ::std::os::raw::c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_4__bindgen_ty_2"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_4__bindgen_ty_2>() - 16usize];
    ["Alignment of ibv_send_wr__bindgen_ty_4__bindgen_ty_2"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_4__bindgen_ty_2>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4__bindgen_ty_2::hdr"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4__bindgen_ty_2, hdr) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4__bindgen_ty_2::hdr_sz"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4__bindgen_ty_2, hdr_sz) - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4__bindgen_ty_2::mss"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4__bindgen_ty_2, mss) - 10usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr__bindgen_ty_4"]
        [::std::mem::size_of::<ibv_send_wr__bindgen_ty_4>() - 48usize];
    ["Alignment of ibv_send_wr__bindgen_ty_4"]
        [::std::mem::align_of::<ibv_send_wr__bindgen_ty_4>() - 8usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4::bind_mw"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4, bind_mw) - 0usize];
    ["Offset of field: ibv_send_wr__bindgen_ty_4::tso"]
        [::std::mem::offset_of!(ibv_send_wr__bindgen_ty_4, tso) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_send_wr"][::std::mem::size_of::<ibv_send_wr>() - 128usize];
    ["Alignment of ibv_send_wr"][::std::mem::align_of::<ibv_send_wr>() - 8usize];
    ["Offset of field: ibv_send_wr::wr_id"][::std::mem::offset_of!(ibv_send_wr, wr_id) - 0usize];
    ["Offset of field: ibv_send_wr::next"][::std::mem::offset_of!(ibv_send_wr, next) - 8usize];
    ["Offset of field: ibv_send_wr::sg_list"]
        [::std::mem::offset_of!(ibv_send_wr, sg_list) - 16usize];
    ["Offset of field: ibv_send_wr::num_sge"]
        [::std::mem::offset_of!(ibv_send_wr, num_sge) - 24usize];
    ["Offset of field: ibv_send_wr::opcode"][::std::mem::offset_of!(ibv_send_wr, opcode) - 28usize];
    ["Offset of field: ibv_send_wr::send_flags"]
        [::std::mem::offset_of!(ibv_send_wr, send_flags) - 32usize];
    ["Offset of field: ibv_send_wr::wr"][::std::mem::offset_of!(ibv_send_wr, wr) - 40usize];
    ["Offset of field: ibv_send_wr::qp_type"]
        [::std::mem::offset_of!(ibv_send_wr, qp_type) - 72usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: ::std::os::raw::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_recv_wr"][::std::mem::size_of::<ibv_recv_wr>() - 32usize];
    ["Alignment of ibv_recv_wr"][::std::mem::align_of::<ibv_recv_wr>() - 8usize];
    ["Offset of field: ibv_recv_wr::wr_id"][::std::mem::offset_of!(ibv_recv_wr, wr_id) - 0usize];
    ["Offset of field: ibv_recv_wr::next"][::std::mem::offset_of!(ibv_recv_wr, next) - 8usize];
    ["Offset of field: ibv_recv_wr::sg_list"]
        [::std::mem::offset_of!(ibv_recv_wr, sg_list) - 16usize];
    ["Offset of field: ibv_recv_wr::num_sge"]
        [::std::mem::offset_of!(ibv_recv_wr, num_sge) - 24usize];
};
#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut ::std::os::raw::c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}
#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_srq"][::std::mem::size_of::<ibv_srq>() - 128usize];
    ["Alignment of ibv_srq"][::std::mem::align_of::<ibv_srq>() - 8usize];
    ["Offset of field: ibv_srq::context"][::std::mem::offset_of!(ibv_srq, context) - 0usize];
    ["Offset of field: ibv_srq::srq_context"]
        [::std::mem::offset_of!(ibv_srq, srq_context) - 8usize];
    ["Offset of field: ibv_srq::pd"][::std::mem::offset_of!(ibv_srq, pd) - 16usize];
    ["Offset of field: ibv_srq::handle"][::std::mem::offset_of!(ibv_srq, handle) - 24usize];
    ["Offset of field: ibv_srq::mutex"][::std::mem::offset_of!(ibv_srq, mutex) - 32usize];
    ["Offset of field: ibv_srq::cond"][::std::mem::offset_of!(ibv_srq, cond) - 72usize];
    ["Offset of field: ibv_srq::events_completed"]
        [::std::mem::offset_of!(ibv_srq, events_completed) - 120usize];
};
#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut ::std::os::raw::c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: ibv_qp_state,
    pub qp_type: ibv_qp_type,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}
#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_qp"][::std::mem::size_of::<ibv_qp>() - 160usize];
    ["Alignment of ibv_qp"][::std::mem::align_of::<ibv_qp>() - 8usize];
    ["Offset of field: ibv_qp::context"][::std::mem::offset_of!(ibv_qp, context) - 0usize];
    ["Offset of field: ibv_qp::qp_context"][::std::mem::offset_of!(ibv_qp, qp_context) - 8usize];
    ["Offset of field: ibv_qp::pd"][::std::mem::offset_of!(ibv_qp, pd) - 16usize];
    ["Offset of field: ibv_qp::send_cq"][::std::mem::offset_of!(ibv_qp, send_cq) - 24usize];
    ["Offset of field: ibv_qp::recv_cq"][::std::mem::offset_of!(ibv_qp, recv_cq) - 32usize];
    ["Offset of field: ibv_qp::srq"][::std::mem::offset_of!(ibv_qp, srq) - 40usize];
    ["Offset of field: ibv_qp::handle"][::std::mem::offset_of!(ibv_qp, handle) - 48usize];
    ["Offset of field: ibv_qp::qp_num"][::std::mem::offset_of!(ibv_qp, qp_num) - 52usize];
    ["Offset of field: ibv_qp::state"][::std::mem::offset_of!(ibv_qp, state) - 56usize];
    ["Offset of field: ibv_qp::qp_type"][::std::mem::offset_of!(ibv_qp, qp_type) - 60usize];
    ["Offset of field: ibv_qp::mutex"][::std::mem::offset_of!(ibv_qp, mutex) - 64usize];
    ["Offset of field: ibv_qp::cond"][::std::mem::offset_of!(ibv_qp, cond) - 104usize];
    ["Offset of field: ibv_qp::events_completed"]
        [::std::mem::offset_of!(ibv_qp, events_completed) - 152usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: ::std::os::raw::c_int,
    pub refcnt: ::std::os::raw::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_comp_channel"][::std::mem::size_of::<ibv_comp_channel>() - 16usize];
    ["Alignment of ibv_comp_channel"][::std::mem::align_of::<ibv_comp_channel>() - 8usize];
    ["Offset of field: ibv_comp_channel::context"]
        [::std::mem::offset_of!(ibv_comp_channel, context) - 0usize];
    ["Offset of field: ibv_comp_channel::fd"]
        [::std::mem::offset_of!(ibv_comp_channel, fd) - 8usize];
    ["Offset of field: ibv_comp_channel::refcnt"]
        [::std::mem::offset_of!(ibv_comp_channel, refcnt) - 12usize];
};
#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut ::std::os::raw::c_void,
    pub handle: u32,
    pub cqe: ::std::os::raw::c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}
#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_cq"][::std::mem::size_of::<ibv_cq>() - 128usize];
    ["Alignment of ibv_cq"][::std::mem::align_of::<ibv_cq>() - 8usize];
    ["Offset of field: ibv_cq::context"][::std::mem::offset_of!(ibv_cq, context) - 0usize];
    ["Offset of field: ibv_cq::channel"][::std::mem::offset_of!(ibv_cq, channel) - 8usize];
    ["Offset of field: ibv_cq::cq_context"][::std::mem::offset_of!(ibv_cq, cq_context) - 16usize];
    ["Offset of field: ibv_cq::handle"][::std::mem::offset_of!(ibv_cq, handle) - 24usize];
    ["Offset of field: ibv_cq::cqe"][::std::mem::offset_of!(ibv_cq, cqe) - 28usize];
    ["Offset of field: ibv_cq::mutex"][::std::mem::offset_of!(ibv_cq, mutex) - 32usize];
    ["Offset of field: ibv_cq::cond"][::std::mem::offset_of!(ibv_cq, cond) - 72usize];
    ["Offset of field: ibv_cq::comp_events_completed"]
        [::std::mem::offset_of!(ibv_cq, comp_events_completed) - 120usize];
    ["Offset of field: ibv_cq::async_events_completed"]
        [::std::mem::offset_of!(ibv_cq, async_events_completed) - 124usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_ah"][::std::mem::size_of::<ibv_ah>() - 24usize];
    ["Alignment of ibv_ah"][::std::mem::align_of::<ibv_ah>() - 8usize];
    ["Offset of field: ibv_ah::context"][::std::mem::offset_of!(ibv_ah, context) - 0usize];
    ["Offset of field: ibv_ah::pd"][::std::mem::offset_of!(ibv_ah, pd) - 8usize];
    ["Offset of field: ibv_ah::handle"][::std::mem::offset_of!(ibv_ah, handle) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ibv_device_ops {
    pub _dummy1: ::std::option::Option<unsafe extern "C" fn()>,
    pub _dummy2: ::std::option::Option<unsafe extern "C" fn()>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of _ibv_device_ops"][::std::mem::size_of::<_ibv_device_ops>() - 16usize];
    ["Alignment of _ibv_device_ops"][::std::mem::align_of::<_ibv_device_ops>() - 8usize];
    ["Offset of field: _ibv_device_ops::_dummy1"]
        [::std::mem::offset_of!(_ibv_device_ops, _dummy1) - 0usize];
    ["Offset of field: _ibv_device_ops::_dummy2"]
        [::std::mem::offset_of!(_ibv_device_ops, _dummy2) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_device {
    pub _ops: _ibv_device_ops,
    pub node_type: ibv_node_type,
    pub transport_type: ibv_transport_type,
    pub name: [::std::os::raw::c_char; 64usize],
    pub dev_name: [::std::os::raw::c_char; 64usize],
    pub dev_path: [::std::os::raw::c_char; 256usize],
    pub ibdev_path: [::std::os::raw::c_char; 256usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_device"][::std::mem::size_of::<ibv_device>() - 664usize];
    ["Alignment of ibv_device"][::std::mem::align_of::<ibv_device>() - 8usize];
    ["Offset of field: ibv_device::_ops"][::std::mem::offset_of!(ibv_device, _ops) - 0usize];
    ["Offset of field: ibv_device::node_type"]
        [::std::mem::offset_of!(ibv_device, node_type) - 16usize];
    ["Offset of field: ibv_device::transport_type"]
        [::std::mem::offset_of!(ibv_device, transport_type) - 20usize];
    ["Offset of field: ibv_device::name"][::std::mem::offset_of!(ibv_device, name) - 24usize];
    ["Offset of field: ibv_device::dev_name"]
        [::std::mem::offset_of!(ibv_device, dev_name) - 88usize];
    ["Offset of field: ibv_device::dev_path"]
        [::std::mem::offset_of!(ibv_device, dev_path) - 152usize];
    ["Offset of field: ibv_device::ibdev_path"]
        [::std::mem::offset_of!(ibv_device, ibdev_path) - 408usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _compat_ibv_port_attr {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ibv_context_ops {
    pub _compat_query_device: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_query_port: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_alloc_pd: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_dealloc_pd: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_reg_mr: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_rereg_mr: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_dereg_mr: ::std::option::Option<unsafe extern "C" fn()>,
    pub alloc_mw: ::std::option::Option<unsafe extern "C" fn()>,
    pub bind_mw: ::std::option::Option<unsafe extern "C" fn()>,
    pub dealloc_mw: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_create_cq: ::std::option::Option<unsafe extern "C" fn()>,
    pub poll_cq: ::std::option::Option<
        unsafe extern "C" fn(
            cq: *mut ibv_cq,
            num_entries: ::std::os::raw::c_int,
            wc: *mut ibv_wc,
        ) -> ::std::os::raw::c_int,
    >,
    pub req_notify_cq: ::std::option::Option<
        unsafe extern "C" fn(
            cq: *mut ibv_cq,
            solicited_only: ::std::os::raw::c_int,
        ) -> ::std::os::raw::c_int,
    >,
    pub _compat_cq_event: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_resize_cq: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_destroy_cq: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_create_srq: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_modify_srq: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_query_srq: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_destroy_srq: ::std::option::Option<unsafe extern "C" fn()>,
    pub post_srq_recv: ::std::option::Option<
        unsafe extern "C" fn(
            srq: *mut ibv_srq,
            recv_wr: *mut ibv_recv_wr,
            bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> ::std::os::raw::c_int,
    >,
    pub _compat_create_qp: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_query_qp: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_modify_qp: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_destroy_qp: ::std::option::Option<unsafe extern "C" fn()>,
    pub post_send: ::std::option::Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_send_wr,
            bad_wr: *mut *mut ibv_send_wr,
        ) -> ::std::os::raw::c_int,
    >,
    pub post_recv: ::std::option::Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_recv_wr,
            bad_wr: *mut *mut ibv_recv_wr,
        ) -> ::std::os::raw::c_int,
    >,
    pub _compat_create_ah: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_destroy_ah: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_attach_mcast: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_detach_mcast: ::std::option::Option<unsafe extern "C" fn()>,
    pub _compat_async_event: ::std::option::Option<unsafe extern "C" fn()>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_context_ops"][::std::mem::size_of::<ibv_context_ops>() - 256usize];
    ["Alignment of ibv_context_ops"][::std::mem::align_of::<ibv_context_ops>() - 8usize];
    ["Offset of field: ibv_context_ops::_compat_query_device"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_query_device) - 0usize];
    ["Offset of field: ibv_context_ops::_compat_query_port"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_query_port) - 8usize];
    ["Offset of field: ibv_context_ops::_compat_alloc_pd"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_alloc_pd) - 16usize];
    ["Offset of field: ibv_context_ops::_compat_dealloc_pd"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_dealloc_pd) - 24usize];
    ["Offset of field: ibv_context_ops::_compat_reg_mr"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_reg_mr) - 32usize];
    ["Offset of field: ibv_context_ops::_compat_rereg_mr"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_rereg_mr) - 40usize];
    ["Offset of field: ibv_context_ops::_compat_dereg_mr"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_dereg_mr) - 48usize];
    ["Offset of field: ibv_context_ops::alloc_mw"]
        [::std::mem::offset_of!(ibv_context_ops, alloc_mw) - 56usize];
    ["Offset of field: ibv_context_ops::bind_mw"]
        [::std::mem::offset_of!(ibv_context_ops, bind_mw) - 64usize];
    ["Offset of field: ibv_context_ops::dealloc_mw"]
        [::std::mem::offset_of!(ibv_context_ops, dealloc_mw) - 72usize];
    ["Offset of field: ibv_context_ops::_compat_create_cq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_create_cq) - 80usize];
    ["Offset of field: ibv_context_ops::poll_cq"]
        [::std::mem::offset_of!(ibv_context_ops, poll_cq) - 88usize];
    ["Offset of field: ibv_context_ops::req_notify_cq"]
        [::std::mem::offset_of!(ibv_context_ops, req_notify_cq) - 96usize];
    ["Offset of field: ibv_context_ops::_compat_cq_event"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_cq_event) - 104usize];
    ["Offset of field: ibv_context_ops::_compat_resize_cq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_resize_cq) - 112usize];
    ["Offset of field: ibv_context_ops::_compat_destroy_cq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_destroy_cq) - 120usize];
    ["Offset of field: ibv_context_ops::_compat_create_srq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_create_srq) - 128usize];
    ["Offset of field: ibv_context_ops::_compat_modify_srq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_modify_srq) - 136usize];
    ["Offset of field: ibv_context_ops::_compat_query_srq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_query_srq) - 144usize];
    ["Offset of field: ibv_context_ops::_compat_destroy_srq"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_destroy_srq) - 152usize];
    ["Offset of field: ibv_context_ops::post_srq_recv"]
        [::std::mem::offset_of!(ibv_context_ops, post_srq_recv) - 160usize];
    ["Offset of field: ibv_context_ops::_compat_create_qp"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_create_qp) - 168usize];
    ["Offset of field: ibv_context_ops::_compat_query_qp"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_query_qp) - 176usize];
    ["Offset of field: ibv_context_ops::_compat_modify_qp"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_modify_qp) - 184usize];
    ["Offset of field: ibv_context_ops::_compat_destroy_qp"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_destroy_qp) - 192usize];
    ["Offset of field: ibv_context_ops::post_send"]
        [::std::mem::offset_of!(ibv_context_ops, post_send) - 200usize];
    ["Offset of field: ibv_context_ops::post_recv"]
        [::std::mem::offset_of!(ibv_context_ops, post_recv) - 208usize];
    ["Offset of field: ibv_context_ops::_compat_create_ah"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_create_ah) - 216usize];
    ["Offset of field: ibv_context_ops::_compat_destroy_ah"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_destroy_ah) - 224usize];
    ["Offset of field: ibv_context_ops::_compat_attach_mcast"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_attach_mcast) - 232usize];
    ["Offset of field: ibv_context_ops::_compat_detach_mcast"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_detach_mcast) - 240usize];
    ["Offset of field: ibv_context_ops::_compat_async_event"]
        [::std::mem::offset_of!(ibv_context_ops, _compat_async_event) - 248usize];
};
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: ::std::os::raw::c_int,
    pub async_fd: ::std::os::raw::c_int,
    pub num_comp_vectors: ::std::os::raw::c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut ::std::os::raw::c_void,
}
#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_context"][::std::mem::size_of::<ibv_context>() - 328usize];
    ["Alignment of ibv_context"][::std::mem::align_of::<ibv_context>() - 8usize];
    ["Offset of field: ibv_context::device"][::std::mem::offset_of!(ibv_context, device) - 0usize];
    ["Offset of field: ibv_context::ops"][::std::mem::offset_of!(ibv_context, ops) - 8usize];
    ["Offset of field: ibv_context::cmd_fd"]
        [::std::mem::offset_of!(ibv_context, cmd_fd) - 264usize];
    ["Offset of field: ibv_context::async_fd"]
        [::std::mem::offset_of!(ibv_context, async_fd) - 268usize];
    ["Offset of field: ibv_context::num_comp_vectors"]
        [::std::mem::offset_of!(ibv_context, num_comp_vectors) - 272usize];
    ["Offset of field: ibv_context::mutex"][::std::mem::offset_of!(ibv_context, mutex) - 280usize];
    ["Offset of field: ibv_context::abi_compat"]
        [::std::mem::offset_of!(ibv_context, abi_compat) - 320usize];
};
#[repr(C)]
pub struct verbs_context {
    pub query_port: ::std::option::Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut ibv_port_attr,
            port_attr_len: usize,
        ) -> ::std::os::raw::c_int,
    >,
    pub advise_mr: ::std::option::Option<unsafe extern "C" fn()>,
    pub alloc_null_mr: ::std::option::Option<unsafe extern "C" fn()>,
    pub read_counters: ::std::option::Option<unsafe extern "C" fn()>,
    pub attach_counters_point_flow: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_counters: ::std::option::Option<unsafe extern "C" fn()>,
    pub destroy_counters: ::std::option::Option<unsafe extern "C" fn()>,
    pub reg_dm_mr: ::std::option::Option<unsafe extern "C" fn()>,
    pub alloc_dm: ::std::option::Option<unsafe extern "C" fn()>,
    pub free_dm: ::std::option::Option<unsafe extern "C" fn()>,
    pub modify_flow_action_esp: ::std::option::Option<unsafe extern "C" fn()>,
    pub destroy_flow_action: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_flow_action_esp: ::std::option::Option<unsafe extern "C" fn()>,
    pub modify_qp_rate_limit: ::std::option::Option<unsafe extern "C" fn()>,
    pub alloc_parent_domain: ::std::option::Option<unsafe extern "C" fn()>,
    pub dealloc_td: ::std::option::Option<unsafe extern "C" fn()>,
    pub alloc_td: ::std::option::Option<unsafe extern "C" fn()>,
    pub modify_cq: ::std::option::Option<unsafe extern "C" fn()>,
    pub post_srq_ops: ::std::option::Option<unsafe extern "C" fn()>,
    pub destroy_rwq_ind_table: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_rwq_ind_table: ::std::option::Option<unsafe extern "C" fn()>,
    pub destroy_wq: ::std::option::Option<unsafe extern "C" fn()>,
    pub modify_wq: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_wq: ::std::option::Option<unsafe extern "C" fn()>,
    pub query_rt_values: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_cq_ex: ::std::option::Option<unsafe extern "C" fn()>,
    pub priv_: *mut verbs_ex_private,
    pub query_device_ex: ::std::option::Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            input: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex,
            attr_size: usize,
        ) -> ::std::os::raw::c_int,
    >,
    pub ibv_destroy_flow: ::std::option::Option<unsafe extern "C" fn()>,
    pub ABI_placeholder2: ::std::option::Option<unsafe extern "C" fn()>,
    pub ibv_create_flow: ::std::option::Option<unsafe extern "C" fn()>,
    pub ABI_placeholder1: ::std::option::Option<unsafe extern "C" fn()>,
    pub open_qp: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_qp_ex: ::std::option::Option<unsafe extern "C" fn()>,
    pub get_srq_num: ::std::option::Option<unsafe extern "C" fn()>,
    pub create_srq_ex: ::std::option::Option<unsafe extern "C" fn()>,
    pub open_xrcd: ::std::option::Option<unsafe extern "C" fn()>,
    pub close_xrcd: ::std::option::Option<unsafe extern "C" fn()>,
    pub _ABI_placeholder3: u64,
    pub sz: usize,
    pub context: ibv_context,
}
#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of verbs_context"][::std::mem::size_of::<verbs_context>() - 648usize];
    ["Alignment of verbs_context"][::std::mem::align_of::<verbs_context>() - 8usize];
    ["Offset of field: verbs_context::query_port"]
        [::std::mem::offset_of!(verbs_context, query_port) - 0usize];
    ["Offset of field: verbs_context::advise_mr"]
        [::std::mem::offset_of!(verbs_context, advise_mr) - 8usize];
    ["Offset of field: verbs_context::alloc_null_mr"]
        [::std::mem::offset_of!(verbs_context, alloc_null_mr) - 16usize];
    ["Offset of field: verbs_context::read_counters"]
        [::std::mem::offset_of!(verbs_context, read_counters) - 24usize];
    ["Offset of field: verbs_context::attach_counters_point_flow"]
        [::std::mem::offset_of!(verbs_context, attach_counters_point_flow) - 32usize];
    ["Offset of field: verbs_context::create_counters"]
        [::std::mem::offset_of!(verbs_context, create_counters) - 40usize];
    ["Offset of field: verbs_context::destroy_counters"]
        [::std::mem::offset_of!(verbs_context, destroy_counters) - 48usize];
    ["Offset of field: verbs_context::reg_dm_mr"]
        [::std::mem::offset_of!(verbs_context, reg_dm_mr) - 56usize];
    ["Offset of field: verbs_context::alloc_dm"]
        [::std::mem::offset_of!(verbs_context, alloc_dm) - 64usize];
    ["Offset of field: verbs_context::free_dm"]
        [::std::mem::offset_of!(verbs_context, free_dm) - 72usize];
    ["Offset of field: verbs_context::modify_flow_action_esp"]
        [::std::mem::offset_of!(verbs_context, modify_flow_action_esp) - 80usize];
    ["Offset of field: verbs_context::destroy_flow_action"]
        [::std::mem::offset_of!(verbs_context, destroy_flow_action) - 88usize];
    ["Offset of field: verbs_context::create_flow_action_esp"]
        [::std::mem::offset_of!(verbs_context, create_flow_action_esp) - 96usize];
    ["Offset of field: verbs_context::modify_qp_rate_limit"]
        [::std::mem::offset_of!(verbs_context, modify_qp_rate_limit) - 104usize];
    ["Offset of field: verbs_context::alloc_parent_domain"]
        [::std::mem::offset_of!(verbs_context, alloc_parent_domain) - 112usize];
    ["Offset of field: verbs_context::dealloc_td"]
        [::std::mem::offset_of!(verbs_context, dealloc_td) - 120usize];
    ["Offset of field: verbs_context::alloc_td"]
        [::std::mem::offset_of!(verbs_context, alloc_td) - 128usize];
    ["Offset of field: verbs_context::modify_cq"]
        [::std::mem::offset_of!(verbs_context, modify_cq) - 136usize];
    ["Offset of field: verbs_context::post_srq_ops"]
        [::std::mem::offset_of!(verbs_context, post_srq_ops) - 144usize];
    ["Offset of field: verbs_context::destroy_rwq_ind_table"]
        [::std::mem::offset_of!(verbs_context, destroy_rwq_ind_table) - 152usize];
    ["Offset of field: verbs_context::create_rwq_ind_table"]
        [::std::mem::offset_of!(verbs_context, create_rwq_ind_table) - 160usize];
    ["Offset of field: verbs_context::destroy_wq"]
        [::std::mem::offset_of!(verbs_context, destroy_wq) - 168usize];
    ["Offset of field: verbs_context::modify_wq"]
        [::std::mem::offset_of!(verbs_context, modify_wq) - 176usize];
    ["Offset of field: verbs_context::create_wq"]
        [::std::mem::offset_of!(verbs_context, create_wq) - 184usize];
    ["Offset of field: verbs_context::query_rt_values"]
        [::std::mem::offset_of!(verbs_context, query_rt_values) - 192usize];
    ["Offset of field: verbs_context::create_cq_ex"]
        [::std::mem::offset_of!(verbs_context, create_cq_ex) - 200usize];
    ["Offset of field: verbs_context::priv_"]
        [::std::mem::offset_of!(verbs_context, priv_) - 208usize];
    ["Offset of field: verbs_context::query_device_ex"]
        [::std::mem::offset_of!(verbs_context, query_device_ex) - 216usize];
    ["Offset of field: verbs_context::ibv_destroy_flow"]
        [::std::mem::offset_of!(verbs_context, ibv_destroy_flow) - 224usize];
    ["Offset of field: verbs_context::ABI_placeholder2"]
        [::std::mem::offset_of!(verbs_context, ABI_placeholder2) - 232usize];
    ["Offset of field: verbs_context::ibv_create_flow"]
        [::std::mem::offset_of!(verbs_context, ibv_create_flow) - 240usize];
    ["Offset of field: verbs_context::ABI_placeholder1"]
        [::std::mem::offset_of!(verbs_context, ABI_placeholder1) - 248usize];
    ["Offset of field: verbs_context::open_qp"]
        [::std::mem::offset_of!(verbs_context, open_qp) - 256usize];
    ["Offset of field: verbs_context::create_qp_ex"]
        [::std::mem::offset_of!(verbs_context, create_qp_ex) - 264usize];
    ["Offset of field: verbs_context::get_srq_num"]
        [::std::mem::offset_of!(verbs_context, get_srq_num) - 272usize];
    ["Offset of field: verbs_context::create_srq_ex"]
        [::std::mem::offset_of!(verbs_context, create_srq_ex) - 280usize];
    ["Offset of field: verbs_context::open_xrcd"]
        [::std::mem::offset_of!(verbs_context, open_xrcd) - 288usize];
    ["Offset of field: verbs_context::close_xrcd"]
        [::std::mem::offset_of!(verbs_context, close_xrcd) - 296usize];
    ["Offset of field: verbs_context::_ABI_placeholder3"]
        [::std::mem::offset_of!(verbs_context, _ABI_placeholder3) - 304usize];
    ["Offset of field: verbs_context::sz"][::std::mem::offset_of!(verbs_context, sz) - 312usize];
    ["Offset of field: verbs_context::context"]
        [::std::mem::offset_of!(verbs_context, context) - 320usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct verbs_ex_private {
    pub _address: u8,
}
pub struct Libibverbs {
    __library: ::libloading::Library,
    pub ibv_wc_status_str:
        unsafe extern "C" fn(status: ibv_wc_status) -> *const ::std::os::raw::c_char,
    pub ibv_get_device_list:
        unsafe extern "C" fn(num_devices: *mut ::std::os::raw::c_int) -> *mut *mut ibv_device,
    pub ibv_free_device_list: unsafe extern "C" fn(list: *mut *mut ibv_device),
    pub ibv_get_device_name:
        unsafe extern "C" fn(device: *mut ibv_device) -> *const ::std::os::raw::c_char,
    pub ibv_open_device: unsafe extern "C" fn(device: *mut ibv_device) -> *mut ibv_context,
    pub ibv_close_device: unsafe extern "C" fn(context: *mut ibv_context) -> ::std::os::raw::c_int,
    pub ibv_query_device: unsafe extern "C" fn(
        context: *mut ibv_context,
        device_attr: *mut ibv_device_attr,
    ) -> ::std::os::raw::c_int,
    pub ibv_query_port: unsafe extern "C" fn(
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut _compat_ibv_port_attr,
    ) -> ::std::os::raw::c_int,
    pub ibv_query_gid: unsafe extern "C" fn(
        context: *mut ibv_context,
        port_num: u8,
        index: ::std::os::raw::c_int,
        gid: *mut ibv_gid,
    ) -> ::std::os::raw::c_int,
    pub ibv_alloc_pd: unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_pd,
    pub ibv_dealloc_pd: unsafe extern "C" fn(pd: *mut ibv_pd) -> ::std::os::raw::c_int,
    pub ibv_reg_mr: unsafe extern "C" fn(
        pd: *mut ibv_pd,
        addr: *mut ::std::os::raw::c_void,
        length: usize,
        access: ::std::os::raw::c_int,
    ) -> *mut ibv_mr,
    pub ibv_dereg_mr: unsafe extern "C" fn(mr: *mut ibv_mr) -> ::std::os::raw::c_int,
    pub ibv_create_comp_channel:
        unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_comp_channel,
    pub ibv_destroy_comp_channel:
        unsafe extern "C" fn(channel: *mut ibv_comp_channel) -> ::std::os::raw::c_int,
    pub ibv_create_cq: unsafe extern "C" fn(
        context: *mut ibv_context,
        cqe: ::std::os::raw::c_int,
        cq_context: *mut ::std::os::raw::c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: ::std::os::raw::c_int,
    ) -> *mut ibv_cq,
    pub ibv_destroy_cq: unsafe extern "C" fn(cq: *mut ibv_cq) -> ::std::os::raw::c_int,
    pub ibv_get_cq_event: unsafe extern "C" fn(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int,
    pub ibv_ack_cq_events: unsafe extern "C" fn(cq: *mut ibv_cq, nevents: ::std::os::raw::c_uint),
    pub ibv_create_srq: unsafe extern "C" fn(
        pd: *mut ibv_pd,
        srq_init_attr: *mut ibv_srq_init_attr,
    ) -> *mut ibv_srq,
    pub ibv_destroy_srq: unsafe extern "C" fn(srq: *mut ibv_srq) -> ::std::os::raw::c_int,
    pub ibv_create_qp:
        unsafe extern "C" fn(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp,
    pub ibv_modify_qp: unsafe extern "C" fn(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub ibv_query_qp: unsafe extern "C" fn(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: ::std::os::raw::c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> ::std::os::raw::c_int,
    pub ibv_destroy_qp: unsafe extern "C" fn(qp: *mut ibv_qp) -> ::std::os::raw::c_int,
    pub ibv_create_ah: unsafe extern "C" fn(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah,
    pub ibv_destroy_ah: unsafe extern "C" fn(ah: *mut ibv_ah) -> ::std::os::raw::c_int,
    pub ibv_fork_init: unsafe extern "C" fn() -> ::std::os::raw::c_int,
}
impl Libibverbs {
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let ibv_wc_status_str = __library.get(b"ibv_wc_status_str\0").map(|sym| *sym)?;
        let ibv_get_device_list = __library.get(b"ibv_get_device_list\0").map(|sym| *sym)?;
        let ibv_free_device_list = __library.get(b"ibv_free_device_list\0").map(|sym| *sym)?;
        let ibv_get_device_name = __library.get(b"ibv_get_device_name\0").map(|sym| *sym)?;
        let ibv_open_device = __library.get(b"ibv_open_device\0").map(|sym| *sym)?;
        let ibv_close_device = __library.get(b"ibv_close_device\0").map(|sym| *sym)?;
        let ibv_query_device = __library.get(b"ibv_query_device\0").map(|sym| *sym)?;
        let ibv_query_port = __library.get(b"ibv_query_port\0").map(|sym| *sym)?;
        let ibv_query_gid = __library.get(b"ibv_query_gid\0").map(|sym| *sym)?;
        let ibv_alloc_pd = __library.get(b"ibv_alloc_pd\0").map(|sym| *sym)?;
        let ibv_dealloc_pd = __library.get(b"ibv_dealloc_pd\0").map(|sym| *sym)?;
        let ibv_reg_mr = __library.get(b"ibv_reg_mr\0").map(|sym| *sym)?;
        let ibv_dereg_mr = __library.get(b"ibv_dereg_mr\0").map(|sym| *sym)?;
        let ibv_create_comp_channel = __library
            .get(b"ibv_create_comp_channel\0")
            .map(|sym| *sym)?;
        let ibv_destroy_comp_channel = __library
            .get(b"ibv_destroy_comp_channel\0")
            .map(|sym| *sym)?;
        let ibv_create_cq = __library.get(b"ibv_create_cq\0").map(|sym| *sym)?;
        let ibv_destroy_cq = __library.get(b"ibv_destroy_cq\0").map(|sym| *sym)?;
        let ibv_get_cq_event = __library.get(b"ibv_get_cq_event\0").map(|sym| *sym)?;
        let ibv_ack_cq_events = __library.get(b"ibv_ack_cq_events\0").map(|sym| *sym)?;
        let ibv_create_srq = __library.get(b"ibv_create_srq\0").map(|sym| *sym)?;
        let ibv_destroy_srq = __library.get(b"ibv_destroy_srq\0").map(|sym| *sym)?;
        let ibv_create_qp = __library.get(b"ibv_create_qp\0").map(|sym| *sym)?;
        let ibv_modify_qp = __library.get(b"ibv_modify_qp\0").map(|sym| *sym)?;
        let ibv_query_qp = __library.get(b"ibv_query_qp\0").map(|sym| *sym)?;
        let ibv_destroy_qp = __library.get(b"ibv_destroy_qp\0").map(|sym| *sym)?;
        let ibv_create_ah = __library.get(b"ibv_create_ah\0").map(|sym| *sym)?;
        let ibv_destroy_ah = __library.get(b"ibv_destroy_ah\0").map(|sym| *sym)?;
        let ibv_fork_init = __library.get(b"ibv_fork_init\0").map(|sym| *sym)?;
        Ok(Libibverbs {
            __library,
            ibv_wc_status_str,
            ibv_get_device_list,
            ibv_free_device_list,
            ibv_get_device_name,
            ibv_open_device,
            ibv_close_device,
            ibv_query_device,
            ibv_query_port,
            ibv_query_gid,
            ibv_alloc_pd,
            ibv_dealloc_pd,
            ibv_reg_mr,
            ibv_dereg_mr,
            ibv_create_comp_channel,
            ibv_destroy_comp_channel,
            ibv_create_cq,
            ibv_destroy_cq,
            ibv_get_cq_event,
            ibv_ack_cq_events,
            ibv_create_srq,
            ibv_destroy_srq,
            ibv_create_qp,
            ibv_modify_qp,
            ibv_query_qp,
            ibv_destroy_qp,
            ibv_create_ah,
            ibv_destroy_ah,
            ibv_fork_init,
        })
    }
    pub unsafe fn ibv_wc_status_str(&self, status: ibv_wc_status) -> *const ::std::os::raw::c_char {
        (self.ibv_wc_status_str)(status)
    }
    pub unsafe fn ibv_get_device_list(
        &self,
        num_devices: *mut ::std::os::raw::c_int,
    ) -> *mut *mut ibv_device {
        (self.ibv_get_device_list)(num_devices)
    }
    pub unsafe fn ibv_free_device_list(&self, list: *mut *mut ibv_device) {
        (self.ibv_free_device_list)(list)
    }
    pub unsafe fn ibv_get_device_name(
        &self,
        device: *mut ibv_device,
    ) -> *const ::std::os::raw::c_char {
        (self.ibv_get_device_name)(device)
    }
    pub unsafe fn ibv_open_device(&self, device: *mut ibv_device) -> *mut ibv_context {
        (self.ibv_open_device)(device)
    }
    pub unsafe fn ibv_close_device(&self, context: *mut ibv_context) -> ::std::os::raw::c_int {
        (self.ibv_close_device)(context)
    }
    pub unsafe fn ibv_query_device(
        &self,
        context: *mut ibv_context,
        device_attr: *mut ibv_device_attr,
    ) -> ::std::os::raw::c_int {
        (self.ibv_query_device)(context, device_attr)
    }
    pub unsafe fn ibv_query_port(
        &self,
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut _compat_ibv_port_attr,
    ) -> ::std::os::raw::c_int {
        (self.ibv_query_port)(context, port_num, port_attr)
    }
    pub unsafe fn ibv_query_gid(
        &self,
        context: *mut ibv_context,
        port_num: u8,
        index: ::std::os::raw::c_int,
        gid: *mut ibv_gid,
    ) -> ::std::os::raw::c_int {
        (self.ibv_query_gid)(context, port_num, index, gid)
    }
    pub unsafe fn ibv_alloc_pd(&self, context: *mut ibv_context) -> *mut ibv_pd {
        (self.ibv_alloc_pd)(context)
    }
    pub unsafe fn ibv_dealloc_pd(&self, pd: *mut ibv_pd) -> ::std::os::raw::c_int {
        (self.ibv_dealloc_pd)(pd)
    }
    pub unsafe fn ibv_reg_mr(
        &self,
        pd: *mut ibv_pd,
        addr: *mut ::std::os::raw::c_void,
        length: usize,
        access: ::std::os::raw::c_int,
    ) -> *mut ibv_mr {
        (self.ibv_reg_mr)(pd, addr, length, access)
    }
    pub unsafe fn ibv_dereg_mr(&self, mr: *mut ibv_mr) -> ::std::os::raw::c_int {
        (self.ibv_dereg_mr)(mr)
    }
    pub unsafe fn ibv_create_comp_channel(
        &self,
        context: *mut ibv_context,
    ) -> *mut ibv_comp_channel {
        (self.ibv_create_comp_channel)(context)
    }
    pub unsafe fn ibv_destroy_comp_channel(
        &self,
        channel: *mut ibv_comp_channel,
    ) -> ::std::os::raw::c_int {
        (self.ibv_destroy_comp_channel)(channel)
    }
    pub unsafe fn ibv_create_cq(
        &self,
        context: *mut ibv_context,
        cqe: ::std::os::raw::c_int,
        cq_context: *mut ::std::os::raw::c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: ::std::os::raw::c_int,
    ) -> *mut ibv_cq {
        (self.ibv_create_cq)(context, cqe, cq_context, channel, comp_vector)
    }
    pub unsafe fn ibv_destroy_cq(&self, cq: *mut ibv_cq) -> ::std::os::raw::c_int {
        (self.ibv_destroy_cq)(cq)
    }
    pub unsafe fn ibv_get_cq_event(
        &self,
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int {
        (self.ibv_get_cq_event)(channel, cq, cq_context)
    }
    pub unsafe fn ibv_ack_cq_events(&self, cq: *mut ibv_cq, nevents: ::std::os::raw::c_uint) {
        (self.ibv_ack_cq_events)(cq, nevents)
    }
    pub unsafe fn ibv_create_srq(
        &self,
        pd: *mut ibv_pd,
        srq_init_attr: *mut ibv_srq_init_attr,
    ) -> *mut ibv_srq {
        (self.ibv_create_srq)(pd, srq_init_attr)
    }
    pub unsafe fn ibv_destroy_srq(&self, srq: *mut ibv_srq) -> ::std::os::raw::c_int {
        (self.ibv_destroy_srq)(srq)
    }
    pub unsafe fn ibv_create_qp(
        &self,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> *mut ibv_qp {
        (self.ibv_create_qp)(pd, qp_init_attr)
    }
    pub unsafe fn ibv_modify_qp(
        &self,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        (self.ibv_modify_qp)(qp, attr, attr_mask)
    }
    pub unsafe fn ibv_query_qp(
        &self,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: ::std::os::raw::c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> ::std::os::raw::c_int {
        (self.ibv_query_qp)(qp, attr, attr_mask, init_attr)
    }
    pub unsafe fn ibv_destroy_qp(&self, qp: *mut ibv_qp) -> ::std::os::raw::c_int {
        (self.ibv_destroy_qp)(qp)
    }
    pub unsafe fn ibv_create_ah(&self, pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        (self.ibv_create_ah)(pd, attr)
    }
    pub unsafe fn ibv_destroy_ah(&self, ah: *mut ibv_ah) -> ::std::os::raw::c_int {
        (self.ibv_destroy_ah)(ah)
    }
    pub unsafe fn ibv_fork_init(&self) -> ::std::os::raw::c_int {
        (self.ibv_fork_init)()
    }
}
