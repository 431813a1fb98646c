//! The types of endpoints in C.

use std::ffi::{c_char, c_void};

/// A process without a job, which lends memory and uses that of its peers. Any number of threads may use it at once.
pub struct hydrant_endpoint(());
/// Another endpoint, one incarnation of it.
pub struct hydrant_peer(());
/// Memory that an endpoint lends.
pub struct hydrant_region(());
/// A peer's region, or a part of it, that this process may use.
pub struct hydrant_remote(());
/// Reads and writes that were started together.
pub struct hydrant_batch(());

/// Options of an endpoint. Zeros are the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_endpoint_options {
    /// The name by which peers know the endpoint, in UTF-8. It may be null.
    pub name: *const c_char,
    /// How long calls wait for a peer, in nanoseconds; 0 is 3 seconds.
    pub peer_timeout: u64,
    /// Whether peers of other hosts connect: HYDRANT_HOSTS_NONE, HYDRANT_HOSTS_IF_AVAILABLE or HYDRANT_HOSTS_REQUIRED.
    pub hosts: u32,
    /// The port at which peers of other hosts connect; 0 for any.
    pub port: u16,
    /// The network interfaces that may be used: names, addresses or networks, with commas between. If it is null, the
    /// variable HYDRANT_OFI_INTERFACE counts, and without that the interface of the default route.
    pub interfaces: *const c_char,
    /// The most bytes of lent memory that are registered at a time for peers of other hosts; 0 for no limit.
    pub registered: u64,
}

/// An endpoint for peers of its host.
pub const HYDRANT_HOSTS_NONE: u32 = 0;
/// An endpoint for peers of any host, if there is a network with libfabric, and otherwise of its host.
pub const HYDRANT_HOSTS_IF_AVAILABLE: u32 = 1;
/// An endpoint for peers of any host.
pub const HYDRANT_HOSTS_REQUIRED: u32 = 2;

/// The right to read a region.
pub const HYDRANT_READ: u32 = 1;
/// The right to write a region.
pub const HYDRANT_WRITE: u32 = 2;

/// A part of a batch: as many bytes of own memory and of a peer's region.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_run {
    /// The region of the peer.
    pub remote: *mut hydrant_remote,
    /// The first byte in that region.
    pub offset: u64,
    /// The own memory.
    pub local: *mut c_void,
    /// The number of bytes.
    pub bytes: usize,
}

/// All of a part of a failed batch was transferred.
pub const HYDRANT_PART_DONE: u32 = 0;
/// Some of a part of a failed batch was transferred, or may have been.
pub const HYDRANT_PART_PARTIAL: u32 = 1;
/// Nothing of a part of a failed batch was transferred.
pub const HYDRANT_PART_UNTOUCHED: u32 = 2;

/// A peer is connected.
pub const HYDRANT_EVENT_CONNECTED: u32 = 1;
/// A peer is connected whose name another incarnation had before, which is not connected any more.
pub const HYDRANT_EVENT_RETURNED: u32 = 2;
/// A peer has closed its endpoint.
pub const HYDRANT_EVENT_LEFT: u32 = 3;
/// A peer is lost.
pub const HYDRANT_EVENT_LOST: u32 = 4;
/// A peer has sent a message.
pub const HYDRANT_EVENT_MESSAGE: u32 = 5;

/// An event of an endpoint. It is given back by hydrant_event_free.
#[repr(C)]
pub struct hydrant_event {
    /// HYDRANT_EVENT_*; 0 if there is none.
    pub kind: u32,
    /// The peer. hydrant_event_free drops this handle.
    pub peer: *mut hydrant_peer,
    /// With HYDRANT_EVENT_RETURNED: the incarnation before.
    pub previous: u64,
    /// With HYDRANT_EVENT_MESSAGE: the message. hydrant_event_free frees it.
    pub message: *mut c_void,
    /// The bytes of the message.
    pub bytes: usize,
}
