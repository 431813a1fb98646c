//! Where a rank is on the network: what it tells all others at the start.

use bytemuck::{Pod, Zeroable};
use hydrant_conduit::Atomicity;

/// A rank's address, in the launcher's key-value space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct EndpointAddress {
    pub(crate) gid: [u8; 16],
    /// Names the kernel it runs on, so that ranks of one host see each other's end at once.
    pub(crate) host: [u8; 16],
    /// The queue pair for datagrams.
    pub(crate) datagrams: u32,
    /// Bytes of a packet's data.
    pub(crate) mtu: u32,
    pub(crate) pid: u32,
    pub(crate) lid: u16,
    /// Reads under way at once that it answers on one connection.
    pub(crate) reads: u16,
    /// The key of its whole address space, if its NIC pages; zero otherwise.
    pub(crate) everything: u32,
    pub(crate) version: u32,
    /// Bytes that all ranks of its host together may pin, and that it may by itself.
    pub(crate) pinnable: u64,
    pub(crate) memlock: u64,
    /// Most bytes of an extent.
    pub(crate) extent_bytes: u64,
    /// Extents it may register, and bytes its NIC takes along with a request.
    pub(crate) extents: u32,
    pub(crate) inline: u32,
    /// Whether its NIC has atomic operations: see [`EndpointAddress::code_of`].
    pub(crate) atomics: u32,
    /// What a datagram shows so that its NIC takes it.
    pub(crate) datagrams_key: u32,
}

impl EndpointAddress {
    /// Changes with what ranks say to each other.
    pub(crate) const VERSION: u32 = 4;

    /// What it says of atomic operations, for a NIC.
    pub(crate) fn code_of(atomics: Option<Atomicity>) -> u32 {
        match atomics {
            None => 0,
            Some(Atomicity::Network) => 1,
            Some(Atomicity::Everything) => 2,
        }
    }

    /// What all NICs have.
    pub(crate) fn atomics_of(places: &[Self]) -> Option<Atomicity> {
        match places.iter().map(|place| place.atomics).min() {
            Some(1) => Some(Atomicity::Network),
            Some(2) => Some(Atomicity::Everything),
            _ => None,
        }
    }
}
