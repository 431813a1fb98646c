//! The types and constants of `transfer_engine_c.h`, with the names that its users write.

#![allow(non_camel_case_types)] // names of C

use std::ffi::{c_char, c_int, c_void};

/// An engine. It is a number and no address.
pub type transfer_engine_t = *mut c_void;
/// A transport of an engine. It is a number and no address.
pub type transport_t = *mut c_void;
/// A peer's memory, by number.
pub type segment_id_t = i32;
/// A peer's memory, by number.
pub type segment_handle_t = i32;
/// A batch.
pub type batch_id_t = u64;

/// The segment of the engine itself.
pub const LOCAL_SEGMENT: c_int = 0;
/// No batch.
pub const INVALID_BATCH: u64 = u64::MAX;

/// Copies from the target to `source`.
pub const OPCODE_READ: c_int = 0;
/// Copies from `source` to the target.
pub const OPCODE_WRITE: c_int = 1;

/// The task is under way.
pub const STATUS_WAITING: c_int = 0;
/// Not given by this library.
pub const STATUS_PENDING: c_int = 1;
/// Not given by this library.
pub const STATUS_INVALID: c_int = 2;
/// Not given by this library.
pub const STATUS_CANCELED: c_int = 3;
/// All bytes of the task are there.
pub const STATUS_COMPLETED: c_int = 4;
/// Not given by this library.
pub const STATUS_TIMEOUT: c_int = 5;
/// The task failed, or another task of its submission did before it was done. Nothing of it lands any more.
pub const STATUS_FAILED: c_int = 6;

/// A run of bytes to be copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct transfer_request {
    /// `OPCODE_READ` or `OPCODE_WRITE`.
    pub opcode: c_int,
    /// The memory of this process. It need not be registered, and must stay until the task has ended.
    pub source: *mut c_void,
    /// The peer's segment.
    pub target_id: segment_id_t,
    /// The address of the memory in the peer's process.
    pub target_offset: u64,
    /// The number of bytes.
    pub length: u64,
}
/// A run of bytes to be copied.
pub type transfer_request_t = transfer_request;

/// The state of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct transfer_status {
    /// One of the numbers `STATUS_...`.
    pub status: c_int,
    /// The bytes that are known to be there: all or 0.
    pub transferred_bytes: u64,
}
/// The state of a task.
pub type transfer_status_t = transfer_status;

/// A message: two strings of C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct notify_msg {
    /// The sender, as it names itself.
    pub name: *mut c_char,
    /// The text.
    pub msg: *mut c_char,
}
/// A message: two strings of C.
pub type notify_msg_t = notify_msg;

/// Memory to be registered.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct buffer_entry {
    /// The first byte.
    pub addr: *mut c_void,
    /// The number of bytes.
    pub length: usize,
}
/// Memory to be registered.
pub type buffer_entry_t = buffer_entry;

/// The load of a network card. This library has none to tell of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nic_load_stat {
    /// The name of the card.
    pub device_name: [c_char; 64],
    /// The bytes in flight.
    pub inflight_bytes: u64,
    /// The mean bandwidth in bytes a second.
    pub ewma_bandwidth_bps: f64,
}
/// The load of a network card.
pub type nic_load_stat_t = nic_load_stat;
