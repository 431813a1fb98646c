//! The types of `armci.h`.

use std::ffi::{c_char, c_double, c_int, c_long, c_void};

/// Runs of equal length, from the addresses of one list to those of the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_giov_t {
    /// The addresses from which the runs are read.
    pub src_ptr_array: *mut *mut c_void,
    /// The addresses to which the runs are written.
    pub dst_ptr_array: *mut *mut c_void,
    /// The number of runs.
    pub ptr_array_len: c_int,
    /// The bytes of each run.
    pub bytes: c_int,
}

/// A number of bytes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_size_t = c_long;

/// The handle of non-blocking operations. ARMCI_INIT_HANDLE initializes it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_hdl_t {
    /// A number, the check word, and 1 if the handle is an aggregate.
    pub data: [c_int; 4],
    /// Not used.
    pub dummy: [c_double; 72],
}

/// Names a group of processes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type ARMCI_Group = c_int;

/// Names a way to group processes by node.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_domain_t = c_int;

/// The description of memory that one process allocated, for other processes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_meminfo_t {
    /// The address at its process.
    pub armci_addr: *mut c_char,
    /// The same address.
    pub addr: *mut c_char,
    /// The number of bytes.
    pub size: usize,
    /// The process.
    pub cpid: c_int,
    /// Not used.
    pub idlist: [c_long; 128],
}
