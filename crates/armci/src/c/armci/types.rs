//! The types of `armci.h`.

use std::ffi::{c_char, c_double, c_int, c_long, c_void};

/// Runs of equally many bytes: from the places of one list to those of the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_giov_t {
    /// Where runs are read.
    pub src_ptr_array: *mut *mut c_void,
    /// Where they are written.
    pub dst_ptr_array: *mut *mut c_void,
    /// How many there are.
    pub ptr_array_len: c_int,
    /// Bytes of each.
    pub bytes: c_int,
}

/// A number of bytes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_size_t = c_long;

/// The handle of non-blocking operations, which ARMCI_INIT_HANDLE makes one of none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_hdl_t {
    /// A number, the check word, and whether the handle is an aggregate.
    pub data: [c_int; 4],
    /// Not used.
    pub dummy: [c_double; 72],
}

/// Names a group of processes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type ARMCI_Group = c_int;

/// Names a way to group processes by their nodes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_domain_t = c_int;

/// Memory that one process allocated, as others are told of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_meminfo_t {
    /// Where its process has it.
    pub armci_addr: *mut c_char,
    /// The same.
    pub addr: *mut c_char,
    /// Its bytes.
    pub size: usize,
    /// Its process.
    pub cpid: c_int,
    /// Not used.
    pub idlist: [c_long; 128],
}
