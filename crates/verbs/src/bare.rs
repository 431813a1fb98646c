//! The bare network as a reference for benchmarks: one connected queue pair between two ranks,
//! without the conduit.
//!
//! It works as perftest does: one thread posts and polls, nothing is locked, and every wait spins.
//! A loop must limit its own requests, because there is no other flow control. A peer that ends is
//! noticed only when requests to it fail.

#![allow(unsafe_code)] // posts work on memory of its own

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytemuck::{Pod, Zeroable};
use hydrant_conduit::{Permission, memory::PAGE};

use crate::{
    VerbsOptions,
    address::EndpointAddress,
    connection::Opcode,
    device, ffi,
    nic::{
        CompletionChannel, CompletionQueue, ConnectAttributes, MemoryRegion, Nic, NicBuffer,
        QueuePair, RequestBatch, SharedQueue, WorkRequest, blank,
    },
};

/// Most requests in flight.
const DEPTH: usize = 64;
/// Sizes of inline data to request of the NIC, the largest first.
const INLINE: [u32; 4] = [220, 128, 64, 0];
/// Receive buffers, of which a ping-pong uses one at a time.
const RECEIVES: u64 = 4;
/// One of so many messages is signaled.
const UNSIGNALED: u32 = 16;
/// Bytes of the longest message.
const MESSAGE: usize = PAGE;
/// The first PSN of both ends.
const FIRST_PSN: u32 = 0x51;
/// 67 ms: far above any answer of a peer that lives, soft-RoCE in a virtual machine included.
const ACK_TIMEOUT: u8 = 14;

/// One end of the bare network.
pub struct Bare {
    pair: QueuePair,
    sends: Arc<CompletionQueue>,
    receives: Arc<CompletionQueue>,
    buffers: Arc<SharedQueue>,
    /// The first half is local memory of operations; the peer accesses the second half.
    memory: NicBuffer,
    half: usize,
    /// The buffers for messages: one to send from, then the buffers to receive into.
    messages: NicBuffer,
    sent: u32,
    peer: Option<EndAddress>,
    nic: Arc<Nic>,
}

/// The address that an end tells the other end.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct EndAddress {
    address: EndpointAddress,
    pair: u32,
    rkey: u32,
    addr: u64,
}

impl Bare {
    /// The number of words of an [`address`](Self::address).
    pub const ADDRESS_WORDS: usize = size_of::<EndAddress>() / size_of::<u64>();

    /// Opens an end on the device that a rank of this number uses. Registers `bytes` bytes as local
    /// memory of its operations, and as many for the peer to access.
    ///
    /// # Errors
    /// There is no RDMA device, or the device refuses a resource.
    pub fn open(options: &VerbsOptions, rank: u32, bytes: usize) -> io::Result<Self> {
        let ports = device::ports(&options.devices, options.gid_index).map_err(io::Error::other)?;
        let nic = Nic::open(ports[rank as usize % ports.len()].clone())?;
        let channel = CompletionChannel::new(&nic)?;
        let sends = CompletionQueue::new(&channel, 2 * DEPTH as u32)?;
        let receives = CompletionQueue::new(&channel, 2 * RECEIVES as u32)?;
        let buffers = Arc::new(SharedQueue::new(&nic, RECEIVES as u32)?);
        let pair = connectable(&nic, &sends, &receives, &buffers)?;
        let half = bytes.next_multiple_of(PAGE);
        let bare = Self {
            memory: NicBuffer::open_to_peers(&nic, 2 * half)?,
            messages: NicBuffer::new(&nic, (1 + RECEIVES as usize) * MESSAGE)?,
            pair,
            sends,
            receives,
            buffers,
            half,
            sent: 0,
            peer: None,
            nic,
        };
        for buffer in 0..RECEIVES {
            bare.post_receive(buffer)?;
        }
        Ok(bare)
    }

    /// Returns the bytes that the end keeps registered.
    pub fn registered_bytes(&self) -> usize {
        2 * self.half + (1 + RECEIVES as usize) * MESSAGE
    }

    /// Returns the address to give the other end.
    pub fn address(&self) -> [u64; Self::ADDRESS_WORDS] {
        let exposed = self.memory.at(self.half, self.half);
        let port = &self.nic.port;
        let address = EndpointAddress {
            gid: port.gid,
            mtu: port.mtu,
            lid: port.lid,
            reads: self.nic.limits.reads_answered.into(),
            ..EndpointAddress::zeroed()
        };
        bytemuck::cast(EndAddress {
            address,
            pair: self.pair.number,
            rkey: self.memory.rkey(),
            addr: exposed.expose_provenance() as u64,
        })
    }

    /// Connects to the end with this address. Operations may begin once both ends have connected.
    ///
    /// # Errors
    /// The error of the device.
    pub fn connect(&mut self, end: [u64; Self::ADDRESS_WORDS]) -> io::Result<()> {
        let end: EndAddress = bytemuck::cast(end);
        self.pair.connect(&ConnectAttributes {
            address: &end.address,
            number: end.pair,
            psn: FIRST_PSN,
            timeout: ACK_TIMEOUT,
        })?;
        self.peer = Some(end);
        Ok(())
    }

    /// Writes or reads `len` bytes, and waits for the completion.
    ///
    /// # Errors
    /// The error of the network.
    #[inline]
    pub fn once(&mut self, opcode: Opcode, len: usize) -> io::Result<()> {
        self.post(opcode, 0, len)?;
        self.await_completions(1)
    }

    /// Writes or reads `count` blocks of `len` bytes and waits for all. The blocks lie side by side
    /// in both memories, and wrap around at the end. As many are in flight as the queue has room
    /// for.
    ///
    /// # Errors
    /// The error of the network.
    pub fn stream(&mut self, opcode: Opcode, len: usize, count: u64) -> io::Result<()> {
        let blocks = (self.half / len.max(1)).max(1) as u64;
        let mut in_flight = 0;
        for index in 0..count {
            if in_flight == DEPTH {
                self.await_completions(1)?;
                in_flight -= 1;
            }
            self.post(opcode, (index % blocks) as usize * len, len)?;
            in_flight += 1;
        }
        self.await_completions(in_flight)
    }

    /// Sends `len` bytes, and waits for as many back.
    ///
    /// # Errors
    /// The error of the network.
    #[inline]
    pub fn ping(&mut self, len: usize) -> io::Result<()> {
        self.send(len)?;
        self.await_message()
    }

    /// Answers a [`ping`](Self::ping) of the other end.
    ///
    /// # Errors
    /// The error of the network.
    #[inline]
    pub fn pong(&mut self, len: usize) -> io::Result<()> {
        self.await_message()?;
        self.send(len)
    }

    /// Registers memory of this process and deregisters it. Returns how long each took.
    ///
    /// # Errors
    /// The error of the device.
    pub fn register(&self, memory: &mut [u8]) -> io::Result<[Duration; 2]> {
        let start = Instant::now();
        // SAFETY: nobody is told the key, and the memory stays borrowed until it is deregistered.
        let region = unsafe {
            MemoryRegion::new(
                &self.nic,
                memory.as_mut_ptr(),
                memory.len(),
                Permission::ReadWrite,
            )
        }?;
        let registered = start.elapsed();
        drop(region);
        Ok([registered, start.elapsed() - registered])
    }

    #[inline]
    fn post(&self, opcode: Opcode, offset: usize, len: usize) -> io::Result<()> {
        let peer = self.peer.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if offset > self.half || len > self.half - offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let inline = opcode == Opcode::Write && len <= self.pair.inline;
        let mut batch = RequestBatch::new();
        batch.push(&WorkRequest {
            id: 0,
            opcode: opcode.code(),
            addr: self.memory.at(offset, len).expose_provenance() as u64,
            len: u32::try_from(len).map_err(io::Error::other)?,
            lkey: self.memory.lkey(),
            remote: peer.addr + offset as u64,
            rkey: peer.rkey,
            inline,
            operands: None,
            immediate: 0,
        });
        batch.signal_last();
        // SAFETY: 1. The memory is registered under its key as long as `self`, and its queue pair
        // is dropped first. 2. Nobody else uses it: `self` hands out no reference to it.
        unsafe { self.pair.post(&mut batch) }
    }

    /// Waits for `count` completions of posted requests.
    #[inline]
    fn await_completions(&self, count: usize) -> io::Result<()> {
        (0..count).try_for_each(|_| next(&self.sends).map(drop))
    }

    fn send(&mut self, len: usize) -> io::Result<()> {
        if len > MESSAGE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut batch = RequestBatch::new();
        batch.push(&WorkRequest {
            id: 0,
            opcode: ffi::IBV_WR_SEND,
            addr: self.messages.at(0, len).expose_provenance() as u64,
            len: len as u32,
            lkey: self.messages.lkey(),
            remote: 0,
            rkey: 0,
            inline: len <= self.pair.inline,
            operands: None,
            immediate: 0,
        });
        self.sent += 1;
        let signaled = self.sent.is_multiple_of(UNSIGNALED);
        if signaled {
            batch.signal_last();
        }
        // SAFETY: 1. and 2. as in `post`; the buffer is only read.
        unsafe { self.pair.post(&mut batch) }?;
        if signaled {
            self.await_completions(1)
        } else {
            Ok(())
        }
    }

    /// Waits for a message, and gives its buffer back to the NIC.
    #[inline]
    fn await_message(&self) -> io::Result<()> {
        let buffer = next(&self.receives)?;
        self.post_receive(buffer)
    }

    fn post_receive(&self, buffer: u64) -> io::Result<()> {
        let addr = self.messages.at((1 + buffer as usize) * MESSAGE, MESSAGE);
        let lkey = self.messages.lkey();
        // SAFETY: 1. The buffer is registered under its key. 2. Only the NIC uses it until the
        // completion.
        unsafe { self.buffers.post(buffer, addr, MESSAGE as u32, lkey) }
    }
}

/// Makes a queue pair with the most inline data that the NIC grants.
fn connectable(
    nic: &Arc<Nic>,
    sends: &Arc<CompletionQueue>,
    receives: &Arc<CompletionQueue>,
    buffers: &Arc<SharedQueue>,
) -> io::Result<QueuePair> {
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for inline in INLINE {
        match QueuePair::connected(nic, sends, receives, buffers, 2 * DEPTH as u32, inline) {
            Ok(pair) => return Ok(pair),
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

/// Waits for the next completion. Returns the id that it carries.
#[inline]
fn next(queue: &CompletionQueue) -> io::Result<u64> {
    let mut completion = [blank()];
    while queue.poll(&mut completion) == 0 {
        std::hint::spin_loop();
    }
    let [completion] = completion;
    match completion.status {
        ffi::IBV_WC_SUCCESS => Ok(completion.wr_id),
        status => Err(io::Error::other(format!(
            "the bare network failed with status {status}"
        ))),
    }
}
