//! The address that each rank publishes at the start.

use bytemuck::{Pod, Zeroable};
use hydrant_conduit::Atomicity;

/// A rank's address, as published in the launcher's key-value space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct EndpointAddress {
    pub(crate) gid: [u8; 16],
    /// Identifies the host. Ranks of one host learn from the kernel when another's process ends.
    pub(crate) host: [u8; 16],
    /// The queue pair for datagrams.
    pub(crate) datagrams: u32,
    /// Bytes of a packet's data.
    pub(crate) mtu: u32,
    pub(crate) pid: u32,
    pub(crate) lid: u16,
    /// Most reads in flight that the rank answers on one connection.
    pub(crate) reads: u16,
    /// The rkey of the whole address space if the NIC supports on-demand paging; zero otherwise.
    pub(crate) everything: u32,
    pub(crate) version: u32,
    /// Bytes that all ranks of the host together may pin.
    pub(crate) pinnable: u64,
    /// Bytes that this rank may pin by itself.
    pub(crate) memlock: u64,
    /// Most bytes of an extent.
    pub(crate) extent_bytes: u64,
    /// Most extents that the rank may register.
    pub(crate) extents: u32,
    /// Most bytes that the NIC sends inline.
    pub(crate) inline: u32,
    /// The code of the NIC's atomic operations; see [`EndpointAddress::code_of`].
    pub(crate) atomics: u32,
    /// The queue key of the queue pair for datagrams. The NIC drops datagrams with another key.
    pub(crate) datagrams_key: u32,
}

impl EndpointAddress {
    /// The version of the protocol between ranks: addresses, datagrams and messages.
    pub(crate) const VERSION: u32 = 4;

    /// Encodes the atomicity that a NIC offers.
    pub(crate) fn code_of(atomics: Option<Atomicity>) -> u32 {
        match atomics {
            None => 0,
            Some(Atomicity::Network) => 1,
            Some(Atomicity::Everything) => 2,
        }
    }

    /// Returns the atomicity that all NICs offer.
    pub(crate) fn atomics_of(addresses: &[Self]) -> Option<Atomicity> {
        match addresses.iter().map(|address| address.atomics).min() {
            Some(1) => Some(Atomicity::Network),
            Some(2) => Some(Atomicity::Everything),
            _ => None,
        }
    }
}
